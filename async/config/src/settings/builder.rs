//! Builds a configuration from files, variables and calls. The stronger origin wins, independent of the
//! order.
//!
//! ```text
//!   default ◄ file ◄ variable ◄ builder call     values of the same or a stronger origin replace others
//! ```
//!
//! Lists (`[[group]]`, `[[tenant]]`) are replaced as a whole.

use super::check;
use super::draft::{Draft, Origins};
use super::error::{ConfigError, Fault, Origin};
use super::lists::{GroupSettings, TenantSettings, group_rows, tenant_rows};
use super::table::{Row, Settings, all_settings, rows};
use super::words::{DeviceKind, DiskFill, HashFunction, Verify, WriteMode};
use super::{ManagerConfig, variables};
use kvstrata_backends::disk::AdmissionPolicy;
use kvstrata_core::Policy;
use kvstrata_core::layout::{DType, HeadOrder, Model};
use kvstrata_ffi::disk::Backend;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A configuration under construction. [`build`](ManagerConfigBuilder::build) reports all errors.
#[derive(Debug, Default)]
#[must_use]
pub struct ManagerConfigBuilder {
    pub(super) draft: Draft,
}

impl ManagerConfigBuilder {
    /// Reads a TOML file. If several are read, later files win.
    pub fn file(mut self, path: impl AsRef<Path>) -> ManagerConfigBuilder {
        let path = path.as_ref();
        match std::fs::read(path) {
            Ok(bytes) => return self.toml(&path.display().to_string(), &bytes),
            Err(source) => self.draft.faults.push(Fault::File { path: path.to_owned(), source }),
        }
        self
    }

    /// Reads the text of a TOML file; `name` is for messages.
    pub fn toml(mut self, name: &str, text: impl AsRef<[u8]>) -> ManagerConfigBuilder {
        super::file::read(&mut self.draft, name, text.as_ref());
        self
    }

    /// Reads the environment of the process, and the file that `KVSTRATA_CONFIG` names, if it names one.
    pub fn environment(self) -> ManagerConfigBuilder {
        self.variables(std::env::vars_os())
    }

    /// Reads variables as if they were the environment. Ignores names without the prefix `KVSTRATA_`, and
    /// empty values.
    pub fn variables<N, V>(mut self, variables: impl IntoIterator<Item = (N, V)>) -> ManagerConfigBuilder
    where
        N: Into<std::ffi::OsString>,
        V: Into<std::ffi::OsString>,
    {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        match variables::read(&mut self.draft, variables) {
            Some(path) => self.file(path),
            None => self,
        }
    }

    /// Sets the groups of layers, instead of those of files.
    pub fn groups(mut self, groups: impl Into<Vec<GroupSettings>>) -> ManagerConfigBuilder {
        self.draft.groups = groups.into();
        self.draft.origins.forget_list("group");
        self.draft.origins.set("group", Origin::Builder);
        (0..self.draft.groups.len())
            .for_each(|i| self.draft.origins.set(format!("group[{i}]"), Origin::Builder));
        self
    }

    /// Sets the tenants with quotas of their own, instead of those of files.
    pub fn tenants(mut self, tenants: impl Into<Vec<TenantSettings>>) -> ManagerConfigBuilder {
        self.draft.tenants = tenants.into();
        self.draft.origins.forget_list("tenant");
        self.draft.origins.set("tenant", Origin::Builder);
        (0..self.draft.tenants.len())
            .for_each(|i| self.draft.origins.set(format!("tenant[{i}]"), Origin::Builder));
        self
    }

    pub(super) fn put(mut self, key: &'static str, set: impl FnOnce(&mut Settings)) -> ManagerConfigBuilder {
        set(&mut self.draft.settings);
        self.draft.origins.set(key, Origin::Builder);
        self
    }

    /// Returns the checked configuration.
    ///
    /// # Errors
    /// All errors of reading and of single values; if there are none, conflicts between settings.
    pub fn build(self) -> Result<ManagerConfig, ConfigError> {
        let mut draft = self.draft;
        for name in std::mem::take(&mut draft.unknown) {
            // A user may give the variable with a key a name of our prefix.
            if draft.settings.disk.key_env.as_ref() != Some(&name) {
                draft.faults.push(variables::unknown(name));
            }
        }
        refuse(&rows(), "", &draft.settings, &draft.origins, &mut draft.faults);
        for (i, group) in draft.groups.iter().enumerate() {
            refuse(&group_rows(), &format!("group[{i}]"), group, &draft.origins, &mut draft.faults);
        }
        for (i, tenant) in draft.tenants.iter().enumerate() {
            refuse(&tenant_rows(), &format!("tenant[{i}]"), tenant, &draft.origins, &mut draft.faults);
        }
        if !draft.faults.is_empty() {
            return Err(ConfigError::new(draft.faults));
        }
        check::check(draft).map_err(ConfigError::new)
    }
}

/// Reports every value that its setting does not allow.
fn refuse<S>(rows: &[Row<S>], entry: &str, owner: &S, origins: &Origins, faults: &mut Vec<Fault>) {
    for row in rows.iter().filter(|row| !(row.holds)(owner)) {
        let key = row.key_in(entry);
        let (value, origin) = ((row.toml)(owner), origins.of(&key));
        faults.push(Fault::Value { key, value, origin, allowed: (row.allowed)() });
    }
}

macro_rules! setters {
    (
        {$($(#[doc = $root_words:literal])+ $root:ident: $root_type:ty = $root_default:expr, $root_kind:expr;)+}
        $(#[doc = $of:literal] $section:ident: $name:ident {
            $($(#[doc = $words:literal])+ $setter:ident => $field:ident: $type:ty = $default:expr, $kind:expr;)+
        })+
    ) => {
        /// One call per setting. Calls are stronger than files and variables, independent of the order.
        impl ManagerConfigBuilder {
            $($(#[doc = $root_words])+
            pub fn $root(self, value: $root_type) -> ManagerConfigBuilder {
                self.put(stringify!($root), |settings| settings.$root = value)
            })+
            $($(
                $(#[doc = $words])+
                pub fn $setter(self, value: $type) -> ManagerConfigBuilder {
                    let key = concat!(stringify!($section), ".", stringify!($field));
                    self.put(key, |settings| settings.$section.$field = value)
                }
            )+)+
        }
    };
}

all_settings!(setters);
