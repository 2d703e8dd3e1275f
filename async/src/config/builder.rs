//! Puts a configuration together: files, then variables, then calls; the stronger wins, whatever the order of the calls.
//!
//! ```text
//!   default ◄ file ◄ variable ◄ call of the builder        a value is replaced by one of the same or a stronger origin
//! ```
//!
//! Lists (`[[group]]`, `[[tenant]]`) are replaced whole.

use super::check;
use super::error::{ConfigError, Fault, Origin};
use super::lists::{GroupSettings, TenantSettings, group_rows, tenant_rows};
use super::table::{Row, Settings, rows};
use super::{ManagerConfig, variables};
use std::collections::BTreeMap;
use std::path::Path;

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
    fn forget_list(&mut self, list: &str) {
        self.0.retain(|key, _| key != list && !key.starts_with(&format!("{list}[")));
    }
}

/// A configuration in the making; errors are told by [`build`](ManagerConfigBuilder::build), all of them.
#[derive(Debug, Default)]
#[must_use]
pub struct ManagerConfigBuilder {
    pub(super) settings: Settings,
    pub(super) groups: Vec<GroupSettings>,
    pub(super) tenants: Vec<TenantSettings>,
    pub(super) origins: Origins,
    pub(super) faults: Vec<Fault>,
    /// Variables of our prefix that no setting has.
    pub(super) unknown: Vec<String>,
}

impl ManagerConfigBuilder {
    /// Reads a TOML file. Of several, later ones win.
    pub fn file(mut self, path: impl AsRef<Path>) -> ManagerConfigBuilder {
        let path = path.as_ref();
        match std::fs::read(path) {
            Ok(bytes) => return self.toml(&path.display().to_string(), &bytes),
            Err(source) => self.faults.push(Fault::File { path: path.to_owned(), source }),
        }
        self
    }

    /// Reads TOML that somebody has read already; `name` is for messages.
    pub fn toml(mut self, name: &str, text: impl AsRef<[u8]>) -> ManagerConfigBuilder {
        super::file::read(&mut self, name, text.as_ref());
        self
    }

    /// Reads the process's variables, and the file that `KVSTRATA_CONFIG` names, if it names one.
    pub fn environment(self) -> ManagerConfigBuilder {
        self.variables(std::env::vars_os())
    }

    /// Reads variables as if they were the process's; those that do not begin with `KVSTRATA_` are left alone, and so are those without a
    /// value.
    pub fn variables<N, V>(mut self, variables: impl IntoIterator<Item = (N, V)>) -> ManagerConfigBuilder
    where
        N: Into<std::ffi::OsString>,
        V: Into<std::ffi::OsString>,
    {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        match variables::read(&mut self, variables) {
            Some(path) => self.file(path),
            None => self,
        }
    }

    /// Groups of layers, instead of those of files.
    pub fn groups(mut self, groups: impl Into<Vec<GroupSettings>>) -> ManagerConfigBuilder {
        self.groups = groups.into();
        self.origins.forget_list("group");
        self.origins.set("group", Origin::Builder);
        (0..self.groups.len()).for_each(|i| self.origins.set(format!("group[{i}]"), Origin::Builder));
        self
    }

    /// Tenants with quotas of their own, instead of those of files.
    pub fn tenants(mut self, tenants: impl Into<Vec<TenantSettings>>) -> ManagerConfigBuilder {
        self.tenants = tenants.into();
        self.origins.forget_list("tenant");
        self.origins.set("tenant", Origin::Builder);
        (0..self.tenants.len()).for_each(|i| self.origins.set(format!("tenant[{i}]"), Origin::Builder));
        self
    }

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

    pub(super) fn put(mut self, key: &'static str, set: impl FnOnce(&mut Settings)) -> ManagerConfigBuilder {
        set(&mut self.settings);
        self.origins.set(key, Origin::Builder);
        self
    }

    /// The configuration, checked.
    ///
    /// # Errors
    /// All that is wrong: what could not be read; else values that are not allowed; else those that do not go together.
    pub fn build(mut self) -> Result<ManagerConfig, ConfigError> {
        for name in std::mem::take(&mut self.unknown) {
            // A user may name the variable of a key as ours are named.
            if self.settings.disk.key_env.as_ref() != Some(&name) {
                self.faults.push(variables::unknown(name));
            }
        }
        refuse(&rows(), "", &self.settings, &self.origins, &mut self.faults);
        for (i, group) in self.groups.iter().enumerate() {
            refuse(&group_rows(), &format!("group[{i}]"), group, &self.origins, &mut self.faults);
        }
        for (i, tenant) in self.tenants.iter().enumerate() {
            refuse(&tenant_rows(), &format!("tenant[{i}]"), tenant, &self.origins, &mut self.faults);
        }
        if !self.faults.is_empty() {
            return Err(ConfigError::new(self.faults));
        }
        check::check(self).map_err(ConfigError::new)
    }
}

/// Every value that its setting does not allow.
fn refuse<S>(rows: &[Row<S>], entry: &str, owner: &S, origins: &Origins, faults: &mut Vec<Fault>) {
    for row in rows.iter().filter(|row| !(row.holds)(owner)) {
        let key = row.key_in(entry);
        let (value, origin) = ((row.toml)(owner), origins.of(&key));
        faults.push(Fault::Value { key, value, origin, allowed: (row.allowed)() });
    }
}
