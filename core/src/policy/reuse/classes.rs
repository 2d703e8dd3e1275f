//! The lists: one for each class of blocks, by how likely they are to be used again, and one
//! for each other priority.

/// First turn × length.
pub(super) const FIRST: usize = 0;
/// Later turns that grew by little.
pub(super) const TURN: usize = 4;
/// Later turns that grew by much.
pub(super) const GREW: usize = 9;
/// Shared prefixes × gap before the last use.
pub(super) const TRUNK: usize = 12;
/// The last block of a path.
pub(super) const LEAF: usize = 15;
/// Classes, a list each. Two in models: otherwise a model would scan little but empty lists.
pub(super) const CLASSES: usize = if cfg!(loom) { 2 } else { 16 };

/// The lists of other priorities, behind those of `Normal`.
pub(super) const LOW: usize = CLASSES;
pub(super) const HIGH: usize = CLASSES + 1;
/// Lists in all.
pub(super) const LISTS: usize = CLASSES + 2;
/// Lists with a candidate youngest segment: all except those of trunks and leaves.
pub(super) const YOUNG_LISTS: usize = if TRUNK < CLASSES { TRUNK } else { CLASSES };
