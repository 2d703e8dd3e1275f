//! Errors of a `config.json`: each names the field, its value and the rule.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

/// Why a `config.json` is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A file that cannot be read.
    #[error("{}: cannot be read: {source}; give a config.json, or its folder", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file that is too long for a `config.json`.
    #[error("more than {most} bytes: not a config.json of a model")]
    TooLong {
        /// The most bytes that are read.
        most: u64,
    },
    /// Not JSON, or not an object.
    #[error("not a JSON object: {why}")]
    NotJson {
        /// The message of the parser.
        why: String,
    },
    /// A required field is missing.
    #[error("{field}: missing; {why}")]
    Missing {
        /// Its path within the file.
        field: String,
        /// Its purpose.
        why: String,
    },
    /// The value of a field is not allowed or not supported.
    #[error("{field} = {value}: {why}")]
    Field {
        /// Its path within the file.
        field: String,
        /// Its value, shortened to fit a line.
        value: String,
        /// The rule.
        why: String,
    },
}

impl ModelError {
    pub(super) fn new(field: impl Into<String>, value: impl Display, why: impl Display) -> ModelError {
        ModelError::Field { field: field.into(), value: value.to_string(), why: why.to_string() }
    }

    pub(super) fn missing(field: impl Into<String>, why: impl Display) -> ModelError {
        ModelError::Missing { field: field.into(), why: why.to_string() }
    }
}
