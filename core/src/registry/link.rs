//! A link of a chain: a slot number, never a pointer, with a tag against ABA and a mark for a slot that
//! is being removed.
//!
//! ```text
//!  63          33  32  31            0
//! ┌──────────────┬────┬───────────────┐
//! │ tag :31      │mark│ slot :32      │
//! └──────────────┴────┴───────────────┘
//! ```

use crate::slot::NIL;
use crate::sync::skipped;

const MARK: u64 = 1 << 32;
const TAG_ONE: u64 = 1 << 33;

/// A packed link. In a bucket head: the first slot. In a slot: the next one, and whether the slot itself
/// is being removed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Link(pub(super) u64);

impl Link {
    pub(super) const EMPTY: Link = Link(NIL as u64);

    #[inline]
    pub(super) const fn slot(self) -> u32 {
        self.0 as u32
    }
    #[inline]
    pub(super) const fn is_end(self) -> bool {
        self.slot() == NIL
    }
    #[inline]
    pub(super) const fn marked(self) -> bool {
        self.0 & MARK != 0
    }
    /// Points to `slot`, unmarked, with the next tag: no compare-exchange that expects
    /// `self` succeeds any more.
    #[inline]
    pub(super) fn moved_to(self, slot: u32) -> Link {
        let step = if skipped!("registry_no_tag") { 0 } else { TAG_ONE };
        let tag = (self.0 & !(TAG_ONE - 1)).wrapping_add(step);
        Link(tag | slot as u64)
    }
    pub(super) const MARK_BIT: u64 = MARK;
}
