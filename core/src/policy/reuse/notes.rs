//! Per-block data: bit fields in one word beside the slot, and flags in the slot.
//!
//! ```text
//!   notes   turns 3 | trunk 1 | length 2 | gap 2 | forks 3 | new 1 | phase 4 | below or growth 9
//!   heat    known 1 | waiting 1 | won 1 | touched 1
//! ```
//!
//! I1. A field never overflows into its neighbour: `set` saturates.
//! I2. Notes are estimates: holders of the block write them, and a change may be lost to a concurrent
//!     one. The registering thread writes all of them before the block can be found, so none is left of
//!     the slot's last block. The flags are exact: see `mod.rs`, I2.

/// A bit field: shift, width.
#[derive(Clone, Copy)]
pub(super) struct Field(u32, u32);

/// Uses of its conversation, from 1.
pub(super) const TURNS: Field = Field(0, 3);
pub(super) const TRUNK: Field = Field(3, 1);
/// Length class of the run that it came with.
pub(super) const LENGTH: Field = Field(4, 2);
/// Age class at its last use.
pub(super) const GAP: Field = Field(6, 2);
/// Children that came while it had another.
pub(super) const FORKS: Field = Field(8, 3);
/// Registered, and not released yet.
pub(super) const NEW: Field = Field(11, 1);
/// Steps to the next sampled block of the path.
pub(super) const PHASE: Field = Field(12, 4);
/// Once released: blocks below it on the path released last, at most `MOST_BELOW`.
pub(super) const BELOW: Field = Field(16, 9);
/// While new, in the same bits: blocks of its run down to here, less the blocks that were below the
/// run's parent before; counted from `GROWTH_ZERO`.
pub(super) const GROWTH: Field = Field(16, 9);

pub(super) const MOST_BELOW: u32 = 255;
pub(super) const GROWTH_ZERO: u32 = 255;

/// The notes of a block.
#[derive(Clone, Copy, Default)]
pub(super) struct Notes(pub(super) u32);

impl Notes {
    #[inline]
    pub(super) const fn get(self, field: Field) -> u32 {
        (self.0 >> field.0) & ((1 << field.1) - 1)
    }

    #[inline]
    pub(super) fn is(self, field: Field) -> bool {
        self.get(field) != 0
    }

    /// Saturates.
    #[inline]
    pub(super) fn set(&mut self, field: Field, value: u32) {
        let most = (1 << field.1) - 1;
        self.0 = (self.0 & !(most << field.0)) | (value.min(most) << field.0);
    }

    #[inline]
    pub(super) fn add(&mut self, field: Field, more: u32) {
        self.set(field, self.get(field) + more);
    }

    /// Returns whether this is the block of its path that is sampled.
    #[inline]
    pub(super) fn is_sampled(self) -> bool {
        self.get(PHASE) == 0
    }

    pub(super) fn set_phase(&mut self, phase: u32) {
        self.set(PHASE, phase & ((1 << PHASE.1) - 1));
    }
}

/// The block waits, and the shadow counts it at the slot's stamp. Not set for blocks of a priority other
/// than `Normal`, which the shadow does not track.
pub(super) const KNOWN: u8 = 1;
/// Released, and not used since.
pub(super) const WAITING: u8 = 2;
/// The block is in use, and LRU had lost it.
pub(super) const WON: u8 = 4;
/// The block was taken up to be given a new place, not to be used.
pub(super) const TOUCHED: u8 = 8;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn notes_fields_saturate_and_stay_apart() {
        let mut notes = Notes(u32::MAX);
        notes.set(GAP, 0);
        assert_eq!((notes.get(LENGTH), notes.get(GAP), notes.get(FORKS)), (3, 0, 7));
        notes.set(TURNS, 100);
        notes.add(FORKS, 1);
        assert_eq!((notes.get(TURNS), notes.get(FORKS)), (7, 7));
        notes.set_phase(17);
        assert_eq!((notes.get(PHASE), notes.is_sampled()), (1, false));
    }
}
