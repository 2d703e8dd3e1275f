//! Inactive blocks that found no room on the timeline: one bit a slot.
//!
//! The ring is full only while a thread is stalled between two steps of the timeline's protocol. Nobody waits for it: what is released
//! meanwhile is noted here, found by lookups like any other block, and evicted first.
//!
//! I1. A bit is set after its block has become inactive without a ticket; so an evictor that meets a set bit and an active block may
//!     drop the bit: the block's next release places it, or notes it again.

use crate::sync::{AcqRel, Acquire, AtomicU64, CachePadded, Relaxed, Release};
use alloc::boxed::Box;

pub(super) struct Unplaced {
    bits: Box<[AtomicU64]>,
    /// Whether there may be a bit; read by every eviction, written only when something went wrong.
    any: CachePadded<AtomicU64>,
}

impl Unplaced {
    pub(super) fn new(capacity: usize) -> Unplaced {
        let bits = (0..capacity.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Unplaced { bits, any: CachePadded(AtomicU64::new(0)) }
    }

    #[cold]
    pub(super) fn note(&self, slot: u32) {
        // Release, both: pairs with the Acquire in `drain`; who sees the mark sees the bit.
        self.bits[slot as usize / 64].fetch_or(1 << (slot % 64), Release);
        self.any.store(1, Release);
    }

    /// Offers noted blocks until `take` wants no more. `take` says whether the bit is done with.
    #[inline]
    pub(super) fn drain(&self, mut wanted: impl FnMut() -> bool, take: impl FnMut(u32) -> bool) {
        // Acquire: pairs with the Release in `note`.
        if self.any.load(Acquire) != 0 && wanted() {
            self.drain_some(wanted, take);
        }
    }

    #[cold]
    fn drain_some(&self, mut wanted: impl FnMut() -> bool, mut take: impl FnMut(u32) -> bool) {
        // The mark first: a bit that is set from now on sets it again. AcqRel: as above.
        self.any.swap(0, AcqRel);
        let mut left = false;
        for (index, word) in self.bits.iter().enumerate() {
            // Relaxed: a look; the taking below orders.
            let mut bits = word.load(Relaxed);
            while bits != 0 && wanted() {
                let bit = bits & bits.wrapping_neg();
                bits &= !bit;
                // AcqRel: one evictor gets the bit.
                if word.fetch_and(!bit, AcqRel) & bit != 0 && !take(index as u32 * 64 + bit.trailing_zeros())
                {
                    word.fetch_or(bit, Release);
                    left = true;
                }
            }
            left |= bits != 0;
        }
        if left {
            self.any.store(1, Release);
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.bits)
    }
}
