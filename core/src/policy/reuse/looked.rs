//! The state of a look at the next victims between its parts (`look.rs`).

use super::classes::{CLASSES, LISTS, YOUNG_LISTS};

/// How far a look has come: nowhere, to begin with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looked {
    /// The place in each list.
    pub(super) places: [u64; LISTS],
    /// Where the youngest segments began, and where their shown parts end.
    pub(super) began: [u64; YOUNG_LISTS],
    pub(super) shown: [u64; YOUNG_LISTS],
    /// The block of each list that was passed last because its child was not shown, if it was not shown
    /// since: its complement, so that 0 is none.
    pub(super) waiting: [u64; CLASSES],
    /// The block of each list whose child was shown while it stands further on itself: its complement, so
    /// that 0 is none.
    pub(super) behind: [u64; CLASSES],
    /// Blocks among those shown that LRU has.
    pub(super) risked: u32,
    /// The parent of the block that was shown last.
    pub(super) parent: Option<u64>,
}
