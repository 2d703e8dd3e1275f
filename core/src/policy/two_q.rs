//! 2Q, the full version (Johnson and Shasha, VLDB 1994): a FIFO for what is new, and an LRU for what comes back after it has left that.
//!
//! ```text
//!   new ──► A1in (a quarter) ── out, ghost ──► A1out (half as many)       a hit in A1in changes nothing
//!                                               │ new again
//!           Am ◄────────────────────────────────┘                          by last release; out without a ghost
//! ```
//!
//! A burst of uses right after a block was new does not prove it: blocks of A1in keep their place while they are in use, those of Am
//! take a new one.
//!
//! I1. A block is counted in A1in from when it takes a place there until it leaves the registry.

use super::ghosts::Ghosts;
use super::pair::{self, LISTS, PROVEN, Pair};
use super::{Eviction, Hunt, Turn};
use crate::slot::{NO_LIST, Priority, Slot};
use crate::sync::{AtomicU32, CachePadded, Relaxed};
use crate::timeline::BATCH;

pub(crate) struct TwoQ {
    /// `Kin`: as many may be in A1in while Am has a block to give.
    most_in: usize,
    /// `Kout`: the length of A1out.
    most_out: usize,
    /// Blocks of A1in. Written at each registration.
    a1in: CachePadded<AtomicU32>,
    a1out: Ghosts,
}

impl TwoQ {
    pub(super) fn new(capacity: usize) -> TwoQ {
        TwoQ {
            most_in: capacity / 4,
            most_out: capacity / 2,
            a1in: CachePadded(AtomicU32::new(0)),
            // A batch takes its victims before any of its blocks is new.
            a1out: Ghosts::new(1, capacity / 2 + BATCH),
        }
    }
}

impl Pair for TwoQ {
    fn surplus(&self) -> usize {
        (self.a1in.load(Relaxed) as usize).saturating_sub(self.most_in)
    }

    fn take_on_trial(&self, class: usize, wanted: usize, hunt: &Hunt<'_>) -> usize {
        pair::take_for_ghosts((&self.a1out, 0), class, wanted, hunt, |slot| self.on_remove(slot))
    }

    fn take_proven(&self, class: usize, wanted: usize, hunt: &Hunt<'_>) -> usize {
        hunt.take_oldest(usize::from(PROVEN) + class, wanted)
    }
}

impl Eviction for TwoQ {
    fn lists(&self) -> usize {
        LISTS
    }

    fn keeps_place(&self, list: u8) -> bool {
        list < PROVEN
    }

    #[inline]
    fn before_places<'s>(&self, blocks: impl Iterator<Item = &'s Slot>) {
        pair::prefetch_ghosts(&self.a1out, blocks);
    }

    #[inline]
    fn place(&self, slot: &Slot, priority: Priority) -> u8 {
        // Relaxed: the caller has the only reference. A block of Am stays in Am.
        let before = slot.list.load(Relaxed);
        if (before != NO_LIST && before >= PROVEN) || self.a1out.take(slot.key()).is_some() {
            return PROVEN + priority as u8;
        }
        self.a1in.fetch_add(1, Relaxed);
        self.a1out.trim(0, self.most_out);
        priority as u8
    }

    #[inline]
    fn on_remove(&self, slot: &Slot) {
        // Relaxed: by the slot's owner.
        if slot.list.load(Relaxed) < PROVEN {
            self.a1in.fetch_sub(1, Relaxed);
            slot.list.store(NO_LIST, Relaxed);
        }
    }

    fn evict(&self, wanted: usize, hunt: &Hunt<'_>) -> usize {
        pair::evict(self, wanted, hunt)
    }

    fn turn(&self, nth: usize) -> Option<Turn> {
        pair::turn(nth, self.surplus())
    }

    fn memory_bytes(&self) -> usize {
        self.a1out.memory_bytes()
    }
}
