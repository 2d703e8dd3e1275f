//! The reasons why a description is refused.

use crate::layout::{Fingerprint, LayoutError};
use core::fmt;

/// The reason why a description is refused: the field, the value, the rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DescriptionError {
    /// It does not begin as descriptions do.
    Magic {
        /// Its first bytes.
        found: [u8; 8],
    },
    /// A version that this library does not know.
    Version {
        /// The version found.
        found: u32,
        /// The known version.
        known: u32,
    },
    /// Fewer bytes than a field takes, or more than the whole description.
    Length {
        /// The first field that does not fit.
        field: &'static str,
        /// The number of bytes there.
        found: u64,
        /// The number of bytes needed.
        needed: u64,
    },
    /// A field has a value that is not allowed.
    Value {
        /// The field's list, and its place there.
        part: Option<(&'static str, u32)>,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The allowed values.
        rule: &'static str,
    },
    /// A field of a plane differs from the geometry's value.
    Differs {
        /// The plane.
        plane: u32,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The value that the geometry makes.
        needed: u64,
    },
    /// No layout has these fields.
    Layout(LayoutError),
    /// The fields make a layout with another fingerprint.
    Fingerprint {
        /// The description's fingerprint.
        found: Fingerprint,
        /// The fingerprint of its fields.
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
                write!(f, "{field}: {found} bytes are left, {needed} are needed; pass the whole description")
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
                write!(f, "fingerprint = {found}: the fields give {made}; ask for the description again")
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
