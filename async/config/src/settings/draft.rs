//! Settings under construction: values, their origins, and the errors found so far.

use super::error::{Fault, Origin};
use super::lists::{GroupSettings, TenantSettings};
use super::table::Settings;
use std::collections::BTreeMap;

/// The origins of values by key. A key without an entry has its default.
#[derive(Debug, Clone, Default)]
pub(super) struct Origins(BTreeMap<String, Origin>);

impl Origins {
    /// The origin of a setting. A setting in a list that was not given has the origin of its entry.
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

    /// Removes the origins of a list and of all its entries.
    pub(super) fn forget_list(&mut self, list: &str) {
        self.0.retain(|key, _| key != list && !key.starts_with(&format!("{list}[")));
    }
}

/// The values that files, variables and calls have given.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) settings: Settings,
    pub(super) groups: Vec<GroupSettings>,
    pub(super) tenants: Vec<TenantSettings>,
    pub(super) origins: Origins,
    pub(super) faults: Vec<Fault>,
    /// Variables with our prefix that no setting has.
    pub(super) unknown: Vec<String>,
}

impl Draft {
    /// Empties a list if one of this origin may replace it. Returns whether it may.
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
