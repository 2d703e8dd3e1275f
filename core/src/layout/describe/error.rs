//! Why a description is no layout, or none here.

use crate::layout::{Fingerprint, LayoutError};
use core::fmt;

/// Why a description is refused: the field, the value, the rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DescriptionError {
    /// It does not begin as descriptions do.
    Magic {
        /// What its first bytes are.
        found: [u8; 8],
    },
    /// A version that this library does not know.
    Version {
        /// Which.
        found: u32,
        /// The one that it knows.
        known: u32,
    },
    /// Fewer bytes than a field takes, or more than the whole does.
    Length {
        /// From which field on.
        field: &'static str,
        /// Bytes that are there.
        found: u64,
        /// Bytes that it takes.
        needed: u64,
    },
    /// A field has a value that it cannot have.
    Value {
        /// The list that the field is in, and its place there.
        part: Option<(&'static str, u32)>,
        /// Which field.
        field: &'static str,
        /// What it is.
        value: u64,
        /// What it must be.
        rule: &'static str,
    },
    /// A field of a plane is not what the geometry makes.
    Differs {
        /// Which plane.
        plane: u32,
        /// Which field.
        field: &'static str,
        /// What it is.
        value: u64,
        /// What it must be.
        needed: u64,
    },
    /// There is no such layout.
    Layout(LayoutError),
    /// The fields make a layout with another fingerprint.
    Fingerprint {
        /// What the description says.
        found: Fingerprint,
        /// What its fields make.
        made: Fingerprint,
    },
}

impl fmt::Display for DescriptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DescriptionError::Magic { found } => {
                write!(f, "magic = \"{}\": must be the first bytes of a description", found.escape_ascii())
            }
            DescriptionError::Version { found, known } => {
                write!(f, "version = {found}: this library reads version {known}")
            }
            DescriptionError::Length { field, found, needed } => {
                write!(f, "{field}: {found} bytes are left, it takes {needed}")
            }
            DescriptionError::Value { part, field, value, rule } => {
                if let Some((list, number)) = part {
                    write!(f, "{list}[{number}].")?;
                }
                write!(f, "{field} = {value}: must be {rule}")
            }
            DescriptionError::Differs { plane, field, value, needed } => {
                write!(f, "planes[{plane}].{field} = {value}: the geometry has {needed}")
            }
            DescriptionError::Layout(error) => error.fmt(f),
            DescriptionError::Fingerprint { found, made } => {
                write!(f, "fingerprint = {found}: the fields make {made}")
            }
        }
    }
}

impl core::error::Error for DescriptionError {}

impl From<LayoutError> for DescriptionError {
    fn from(error: LayoutError) -> DescriptionError {
        DescriptionError::Layout(error)
    }
}
