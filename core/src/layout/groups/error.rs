//! The reasons why a set of layer groups is refused: the layer, the group, the rule.

use crate::layout::DescriptionError;
use core::fmt;

/// The reason why layers are no groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GroupsError {
    /// A model without layers.
    Empty,
    /// A layer is in no group.
    Missing {
        /// The layer.
        layer: u32,
    },
    /// A layer is in two groups, or in one twice.
    Twice {
        /// The layer.
        layer: u32,
        /// Its groups.
        groups: [u32; 2],
    },
    /// A group has a layer that the model does not have.
    NoSuchLayer {
        /// The group.
        group: u32,
        /// The group's layer.
        layer: u32,
        /// The number of the model's layers.
        num_layers: u32,
    },
    /// A group's layers differ in number from its layout's.
    Count {
        /// The group.
        group: u32,
        /// The number of its layers.
        layers: u64,
        /// The number of its layout's layers.
        needed: u32,
    },
    /// The description of the set does not fit.
    Description(DescriptionError),
    /// The description of a group's layout does not fit.
    Group {
        /// The group.
        group: u32,
        /// The error in it.
        error: DescriptionError,
    },
}

impl fmt::Display for GroupsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupsError::Empty => f.write_str("num_layers = 0: must be at least 1"),
            GroupsError::Missing { layer } => write!(f, "layer {layer} is in no group"),
            GroupsError::Twice { layer, groups: [a, b] } if a == b => {
                write!(f, "layer {layer} is in groups[{a}] twice")
            }
            GroupsError::Twice { layer, groups: [a, b] } => {
                write!(f, "layer {layer} is in groups[{a}] and in groups[{b}]")
            }
            GroupsError::NoSuchLayer { group, layer, num_layers } => {
                write!(f, "groups[{group}] has layer {layer}: the model has {num_layers}")
            }
            GroupsError::Count { group, layers, needed } => {
                write!(f, "groups[{group}] has {layers} layers: its layout has {needed}")
            }
            GroupsError::Description(error) => error.fmt(f),
            GroupsError::Group { group, error } => write!(f, "groups[{group}].{error}"),
        }
    }
}

impl core::error::Error for GroupsError {}

impl From<DescriptionError> for GroupsError {
    fn from(error: DescriptionError) -> GroupsError {
        GroupsError::Description(error)
    }
}
