//! Why settings are no configuration: key, value, where it came from, what is allowed.

use kvstrata_ffi::shown::{shown, shown_path};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a setting's value came from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Origin {
    /// Nobody gave one.
    #[default]
    Default,
    /// Nobody gave one, and it follows from this setting.
    Derived(&'static str),
    /// A file.
    File {
        /// The file, as it was named.
        name: Arc<str>,
        /// Its line, from 1.
        line: u32,
    },
    /// An environment variable of this name.
    Variable(String),
    /// A call of the builder.
    Builder,
}

impl Origin {
    /// A value is replaced by one that is not weaker.
    pub(super) fn strength(&self) -> u8 {
        match self {
            Origin::Default | Origin::Derived(_) => 0,
            Origin::File { .. } => 1,
            Origin::Variable(_) => 2,
            Origin::Builder => 3,
        }
    }

    /// Whether somebody asked for the value.
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

/// One thing that is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A value that its setting does not take.
    #[error("{} = {} ({origin}): must be {allowed}", shown(key), shown(value))]
    Value {
        /// The setting.
        key: String,
        /// What was given.
        value: String,
        /// Where.
        origin: Origin,
        /// What the setting takes.
        allowed: String,
    },
    /// A value that does not go with another.
    #[error("{} = {} ({origin}): {}", shown(key), shown(value), shown(why))]
    Conflict {
        /// The setting.
        key: String,
        /// Its value.
        value: String,
        /// Where it came from.
        origin: Origin,
        /// What it does not go with, and what to do.
        why: String,
    },
    /// There is no such setting.
    #[error("{} ({origin}): no such setting{}", shown(key), nearest_or_list(.nearest))]
    UnknownKey {
        /// What was given.
        key: String,
        /// Where.
        origin: Origin,
        /// What may have been meant.
        nearest: Option<String>,
    },
    /// There is no such variable.
    #[error("{}: no setting has this variable{}", shown(name), nearest_or_list(.nearest))]
    UnknownVariable {
        /// The variable.
        name: String,
        /// What may have been meant.
        nearest: Option<String>,
    },
    /// A file that is not TOML.
    #[error("{origin}: not TOML: {}", shown(why))]
    Syntax {
        /// Where.
        origin: Origin,
        /// What the parser says.
        why: String,
    },
    /// A file that cannot be read.
    #[error("{}: cannot be read: {source}; name another file, or leave it out", shown_path(path))]
    File {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

fn nearest_or_list(nearest: &Option<String>) -> String {
    match nearest {
        Some(nearest) => format!("; is {nearest} meant? `kvstrata config` lists all"),
        None => "; `kvstrata config` lists all".to_owned(),
    }
}

/// All that is wrong with a configuration, a line each; at least one.
#[derive(Debug)]
pub struct ConfigError {
    faults: Vec<Fault>,
}

impl ConfigError {
    pub(super) fn new(faults: Vec<Fault>) -> ConfigError {
        ConfigError { faults }
    }

    /// Each fault.
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
