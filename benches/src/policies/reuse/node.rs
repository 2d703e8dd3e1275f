//! What the policy keeps for a slot: links, the stamp of the last release, and bit fields.
//!
//! ```text
//!   prev 32 | next 32 | stamp 32 | list 5, turns 3, trunk 1, length 2, gap 2, children 3, new 1, much 1, deferred 1, phase 5, below 8
//! ```
//!
//! I1. A field never overflows into its neighbour: `set` saturates.

use super::SAMPLE_SHIFT;

/// No slot.
pub const NIL: u32 = u32::MAX;

/// A slot's state: 16 bytes.
#[derive(Clone, Copy)]
pub(super) struct Node {
    pub(super) prev: u32,
    pub(super) next: u32,
    /// Of the last release.
    pub(super) stamp: u32,
    bits: u32,
}

/// A bit field: shift, width.
#[derive(Clone, Copy)]
pub(super) struct Field(u32, u32);

/// The list that it is in, or [`ACTIVE`].
pub(super) const LIST: Field = Field(0, 5);
/// Touches of its conversation, from 1.
pub(super) const TURNS: Field = Field(5, 3);
pub(super) const IS_TRUNK: Field = Field(8, 1);
/// Class of the length of the run that it came with.
pub(super) const LENGTH: Field = Field(9, 2);
/// Class of the age at its last touch.
pub(super) const GAP: Field = Field(11, 2);
/// Children ever.
pub(super) const CHILDREN: Field = Field(13, 3);
/// Registered, and not released yet.
pub(super) const NEW: Field = Field(16, 1);
/// Its request grew by much.
pub(super) const MUCH: Field = Field(17, 1);
pub(super) const DEFERRED: Field = Field(18, 1);
/// Steps to the next sampled block of the path.
pub(super) const PHASE: Field = Field(19, 5);
/// Blocks below it on the path that was released last.
pub(super) const BELOW: Field = Field(24, 8);

/// In no list: somebody holds it.
pub(super) const ACTIVE: u32 = 31;

impl Node {
    /// Held, and in no list.
    pub(super) fn new(stamp: u32) -> Node {
        Node { prev: NIL, next: NIL, stamp, bits: ACTIVE }
    }

    #[inline]
    pub(super) fn get(&self, field: Field) -> u32 {
        (self.bits >> field.0) & ((1 << field.1) - 1)
    }

    /// Saturates.
    #[inline]
    pub(super) fn set(&mut self, field: Field, value: u32) {
        let most = (1 << field.1) - 1;
        self.bits = (self.bits & !(most << field.0)) | (value.min(most) << field.0);
    }

    /// One block of so many of a path is sampled.
    #[inline]
    pub(super) fn is_sampled(&self) -> bool {
        self.get(PHASE) == 0
    }

    pub(super) fn set_phase(&mut self, phase: u32) {
        self.set(PHASE, phase & ((1 << SAMPLE_SHIFT) - 1));
    }
}
