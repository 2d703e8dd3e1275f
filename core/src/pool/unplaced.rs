//! Inactive blocks that found no room on the timeline: one bit a slot.
//!
//! The ring is full only while a thread is stalled between two steps of the timeline's protocol. No
//! thread waits for it: blocks that are released meanwhile are noted here, found by lookups like any
//! other block, and evicted first.
//!
//! I1. A bit is set after its block has become inactive without a ticket. So an evictor that meets a set
//!     bit and an active block may drop the bit: the block's next release places it, or notes it again.

use crate::sync::{Acquire, AtomicU64, CachePadded, Relaxed, Release, site, skipped};
use alloc::boxed::Box;

pub(super) struct Unplaced {
    bits: Box<[AtomicU64]>,
    /// Whether there may be a bit. Every eviction reads it; it is written only in this rare case.
    any: CachePadded<AtomicU64>,
}

impl Unplaced {
    pub(super) fn new(capacity: usize) -> Unplaced {
        let bits = (0..capacity.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Unplaced { bits, any: CachePadded(AtomicU64::new(0)) }
    }

    #[cold]
    pub(super) fn note(&self, slot: u32) {
        // Release: pairs with the Acquire of the taking in `drain_some`: the thread that takes the
        // bit sees the block inactive (I1).
        self.bits[slot as usize / 64].fetch_or(1 << (slot % 64), site!("unplaced_note_relaxed", Release));
        // Release: pairs with the Acquire of the swap in `drain_some`: the thread that
        // takes the mark sees the bit.
        self.any.fetch_or(1, site!("unplaced_mark_relaxed", Release));
    }

    /// Offers noted blocks until `wanted` is false. `take` returns whether the bit is done with.
    #[inline]
    pub(super) fn drain(&self, mut wanted: impl FnMut() -> bool, take: impl FnMut(u32) -> bool) {
        // Relaxed: a look; the swap in `drain_some` orders.
        if self.any.load(Relaxed) != 0 && wanted() {
            self.drain_some(wanted, take);
        }
    }

    #[cold]
    fn drain_some(&self, mut wanted: impl FnMut() -> bool, mut take: impl FnMut(u32) -> bool) {
        // The mark first: a bit set from now on sets it again. Acquire: pairs with the Release of the mark.
        if !skipped!("unplaced_mark_last") {
            self.any.swap(0, Acquire);
        }
        let mut left = false;
        for (index, word) in self.bits.iter().enumerate() {
            // Relaxed: a look; the taking below orders.
            let mut bits = word.load(Relaxed);
            while bits != 0 && wanted() {
                let bit = bits & bits.wrapping_neg();
                bits &= !bit;
                // Acquire: pairs with the Release in `note`. One evictor gets the bit.
                if word.fetch_and(!bit, site!("unplaced_take_relaxed", Acquire)) & bit != 0
                    && !take(index as u32 * 64 + bit.trailing_zeros())
                {
                    // Release: as in `note`.
                    word.fetch_or(bit, Release);
                    left = true;
                }
            }
            left |= bits != 0;
        }
        if skipped!("unplaced_mark_last") {
            self.any.swap(0, Acquire);
        }
        if left {
            // Release: as in `note`.
            self.any.fetch_or(1, Release);
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.bits)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn unplaced_slot_is_offered_until_taken() {
        let unplaced = Unplaced::new(200);
        for slot in [3, 64, 199] {
            unplaced.note(slot);
        }
        let offer = |wanted: usize, keep: u32| {
            let mut offered = Vec::new();
            let left = core::cell::Cell::new(wanted);
            let take = |slot| {
                offered.push(slot);
                left.set(left.get() - usize::from(slot != keep));
                slot != keep
            };
            unplaced.drain(|| left.get() > 0, take);
            offered
        };
        assert_eq!(offer(1, u32::MAX), [3]);
        assert_eq!(offer(9, 64), [64, 199], "one is refused");
        assert_eq!(offer(9, u32::MAX), [64], "and offered again");
        assert!(offer(9, u32::MAX).is_empty());
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::{Arc, model, spawn};

    /// A block is noted while an evictor looks: it is taken once, now or later.
    #[test]
    fn unplaced_slot_noted_during_a_drain_is_taken_once() {
        model(|| {
            let unplaced = Arc::new(Unplaced::new(2));
            unplaced.note(0);
            let other = unplaced.clone();
            let noting = spawn(move || other.note(1));
            let mut taken = [0, 0];
            let mut drain = || {
                unplaced.drain(
                    || true,
                    |slot| {
                        taken[slot as usize] += 1;
                        true
                    },
                );
            };
            drain();
            noting.join().expect("no panic");
            drain();
            assert_eq!(taken, [1, 1]);
        });
    }

    /// The thread that takes a bit sees that its block was inactive when it was noted (I1), though
    /// the mark may be another block's.
    #[test]
    fn unplaced_slot_when_taken_is_seen_inactive() {
        model(|| {
            let shared = Arc::new((Unplaced::new(2), AtomicU64::new(0)));
            shared.0.note(1);
            let other = shared.clone();
            let noting = spawn(move || {
                // Relaxed: the bit publishes it.
                other.1.store(1, Relaxed);
                other.0.note(0);
            });
            let seen = |slot| {
                assert!(slot == 1 || shared.1.load(Relaxed) == 1, "the block seems to be in use");
                true
            };
            shared.0.drain(|| true, seen);
            noting.join().expect("no panic");
        });
    }
}
