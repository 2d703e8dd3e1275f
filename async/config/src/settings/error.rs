//! Errors of settings: each names the key, the value, its origin and the allowed values.

use kvstrata_ffi::shown::{shown, shown_path};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The origin of a setting's value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Origin {
    /// No value was given.
    #[default]
    Default,
    /// No value was given; it follows from this setting.
    Derived(&'static str),
    /// A file.
    File {
        /// The name of the file, as it was given.
        name: Arc<str>,
        /// The line in it, from 1.
        line: u32,
    },
    /// An environment variable of this name.
    Variable(String),
    /// A call of the builder.
    Builder,
}

impl Origin {
    /// The rank of the origin: a value is replaced by one of the same or a higher rank.
    pub(super) fn strength(&self) -> u8 {
        match self {
            Origin::Default | Origin::Derived(_) => 0,
            Origin::File { .. } => 1,
            Origin::Variable(_) => 2,
            Origin::Builder => 3,
        }
    }

    /// Returns whether a file, a variable or a call gave the value.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.strength() > 0
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Derived(key) => write!(f, "from {key}"),
            Origin::File { name, line } => write!(f, "{}:{line}", shown(name)),
            Origin::Variable(name) => write!(f, "variable {}", shown(name)),
            Origin::Builder => f.write_str("builder"),
        }
    }
}

/// One error of a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A value that its setting does not allow.
    #[error("{} = {} ({origin}): must be {allowed}", shown(key), shown(value))]
    Value {
        /// The setting.
        key: String,
        /// The value that was given.
        value: String,
        /// Its origin.
        origin: Origin,
        /// The values that the setting allows.
        allowed: String,
    },
    /// A value that conflicts with another setting.
    #[error("{} = {} ({origin}): {}", shown(key), shown(value), shown(why))]
    Conflict {
        /// The setting.
        key: String,
        /// Its value.
        value: String,
        /// Its origin.
        origin: Origin,
        /// The conflict, and the remedy.
        why: String,
    },
    /// A key that no setting has.
    #[error("{} ({origin}): unknown setting{}", shown(key), nearest_or_list(.nearest))]
    UnknownKey {
        /// The key that was given.
        key: String,
        /// Its origin.
        origin: Origin,
        /// The most similar key, if one is similar.
        nearest: Option<String>,
    },
    /// A variable that no setting has.
    #[error("{}: unknown variable{}", shown(name), nearest_or_list(.nearest))]
    UnknownVariable {
        /// The name of the variable.
        name: String,
        /// The most similar variable, if one is similar.
        nearest: Option<String>,
    },
    /// A file that is not TOML.
    #[error("{origin}: not TOML: {}", shown(why))]
    Syntax {
        /// The place in the file.
        origin: Origin,
        /// The message of the parser.
        why: String,
    },
    /// A file that cannot be read.
    #[error("{}: cannot be read: {source}; give another file, or none", shown_path(path))]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

fn nearest_or_list(nearest: &Option<String>) -> String {
    match nearest {
        Some(nearest) => format!("; did you mean {nearest}? `kvstrata config` lists all"),
        None => "; `kvstrata config` lists all".to_owned(),
    }
}

/// All errors of a configuration, one per line; at least one.
#[derive(Debug)]
pub struct ConfigError {
    faults: Vec<Fault>,
}

impl ConfigError {
    pub(super) fn new(faults: Vec<Fault>) -> ConfigError {
        ConfigError { faults }
    }

    /// Returns each error.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            write!(f, "{}{fault}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
