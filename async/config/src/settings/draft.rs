//! Settings in the making: values, where each came from, and what is wrong so far.

use super::error::{Fault, Origin};
use super::lists::{GroupSettings, TenantSettings};
use super::table::Settings;
use std::collections::BTreeMap;

/// Where values came from, by key; what is not there is a default.
#[derive(Debug, Clone, Default)]
pub(super) struct Origins(BTreeMap<String, Origin>);

impl Origins {
    /// Of a setting; of one in a list that was not given, that of its entry.
    pub(super) fn of(&self, key: &str) -> Origin {
        let entry = key.split_once("].").map(|(entry, _)| format!("{entry}]"));
        let found = self.0.get(key).or_else(|| self.0.get(&entry?));
        found.cloned().unwrap_or_default()
    }

    pub(super) fn is_given(&self, key: &str) -> bool {
        self.of(key).is_given()
    }

    pub(super) fn set(&mut self, key: impl Into<String>, origin: Origin) {
        self.0.insert(key.into(), origin);
    }

    pub(super) fn forget(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// Of a list and all in it.
    pub(super) fn forget_list(&mut self, list: &str) {
        self.0.retain(|key, _| key != list && !key.starts_with(&format!("{list}[")));
    }
}

/// What files, variables and calls have said.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) settings: Settings,
    pub(super) groups: Vec<GroupSettings>,
    pub(super) tenants: Vec<TenantSettings>,
    pub(super) origins: Origins,
    pub(super) faults: Vec<Fault>,
    /// Variables of our prefix that no setting has.
    pub(super) unknown: Vec<String>,
}

impl Draft {
    /// Whether a list may be replaced by one of this origin; if so, it is empty now.
    pub(super) fn begin_list(&mut self, list: &str, origin: &Origin) -> bool {
        if origin.strength() < self.origins.of(list).strength() {
            return false;
        }
        match list {
            "group" => self.groups.clear(),
            _ => self.tenants.clear(),
        }
        self.origins.forget_list(list);
        self.origins.set(list, origin.clone());
        true
    }
}
