//! The order in which a policy gives victims, for looks at the next ones that take none.
//!
//! The result is a hint: nothing is taken or held, and others acquire, release and evict meanwhile.

use super::carried::Cursor;
use super::turns::{self, ByTurns};
use crate::id::BlockRef;
use crate::slot::{Slot, Word};
use crate::timeline::Timeline;
use alloc::vec::Vec;

/// A policy whose order can be looked through.
pub(crate) trait Ordered {
    /// Shows up to `n` blocks that eviction would take next, behind those that looks with this cursor
    /// have shown. Shows fewer only if there are no more.
    fn look(
        &self,
        timeline: &Timeline,
        slots: &[Slot],
        cursor: &mut Cursor,
        n: usize,
        show: impl FnMut(u32, &Slot, Word),
    );

    /// Appends the next victims for which `is_one` is true, until `out` has `end` blocks. Leased blocks
    /// are left out. In each list the look begins at that list's place, which moves to the first block
    /// found there, or to the young end.
    fn look_among(
        &self,
        timeline: &Timeline,
        slots: &[Slot],
        places: &mut [u64],
        end: usize,
        is_one: &mut impl FnMut(BlockRef) -> bool,
        out: &mut Vec<BlockRef>,
    );
}

impl<P: ByTurns> Ordered for P {
    fn look(
        &self,
        timeline: &Timeline,
        slots: &[Slot],
        cursor: &mut Cursor,
        n: usize,
        show: impl FnMut(u32, &Slot, Word),
    ) {
        turns::look(self, timeline, slots, &mut cursor.turns, n, show);
    }

    fn look_among(
        &self,
        timeline: &Timeline,
        slots: &[Slot],
        places: &mut [u64],
        end: usize,
        is_one: &mut impl FnMut(BlockRef) -> bool,
        out: &mut Vec<BlockRef>,
    ) {
        turns::look_among(self, timeline, slots, places, end, is_one, out);
    }
}
