//! Why a `config.json` says no geometry: the field, its value, the rule.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

/// What is wrong with a `config.json`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A file that cannot be read.
    #[error("{}: cannot be read: {source}; name a model's config.json or the folder that has it", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file that no model has.
    #[error("more than {most} bytes: this is no config.json")]
    TooLong {
        /// What a file has at most.
        most: u64,
    },
    /// Not JSON, or not an object.
    #[error("not a JSON object: {why}")]
    NotJson {
        /// What the parser says.
        why: String,
    },
    /// A field that is needed is not there.
    #[error("{field}: missing; {why}")]
    Missing {
        /// Its path within the file.
        field: String,
        /// What it is needed for.
        why: String,
    },
    /// A field's value is not allowed or not supported.
    #[error("{field} = {value}: {why}")]
    Field {
        /// Its path within the file.
        field: String,
        /// Its value, cut to what fits a line.
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
