//! S3-FIFO (Yang, Zhang, Qiu, Yue and Rashmi, SOSP 2023): most blocks are one-hit wonders, so let them leave quickly.
//!
//! ```text
//!   new ──► small (a tenth) ──hit twice──► main ──► out         a hit adds one to the block's heat, at most 3
//!             │                  ▲          └─ heat > 0: again, heat - 1
//!             └──► out, ghost ───┘ new again while in the ghost
//! ```
//!
//! The ghost is a table of fingerprints with the number of their insertion: as long as the pool, overwritten by collision, so
//! its memory is eight bytes a block and it needs no queue of its own.

use super::pair::{self, LISTS, PROVEN as MAIN};
use super::{Eviction, Hunt, Outset, Turn, fingerprint};
use crate::hash::SequenceHash;
use crate::slot::{NO_LIST, Priority, Slot};
use crate::sync::{AtomicU32, AtomicU64, CachePadded, Relaxed};
use crate::timeline::Verdict;
use alloc::boxed::Box;

pub(crate) struct S3Fifo {
    /// Blocks in small lists. Written at each registration: this policy's price, LRU has no such line.
    small: CachePadded<AtomicU32>,
    small_target: u32,
    ghost: Box<[AtomicU64]>,
    ghost_inserted: CachePadded<AtomicU32>,
}

impl S3Fifo {
    pub(super) fn new(capacity: usize) -> S3Fifo {
        S3Fifo {
            small: CachePadded(AtomicU32::new(0)),
            small_target: (capacity / 10).max(1) as u32,
            ghost: (0..capacity).map(|_| AtomicU64::new(0)).collect(),
            ghost_inserted: CachePadded(AtomicU32::new(0)),
        }
    }

    /// How many blocks of main go before those of small, if blocks that are new come for so many (see [`pair`]).
    fn excess(&self, coming: usize) -> usize {
        (self.small_target as usize).saturating_sub(self.small.load(Relaxed) as usize + coming)
    }

    fn ghost_entry(&self, key: SequenceHash) -> &AtomicU64 {
        let index = (u64::from(key.to_u128() as u32) * self.ghost.len() as u64) >> 32;
        &self.ghost[index as usize]
    }

    fn ghost_insert(&self, key: SequenceHash) {
        let number = self.ghost_inserted.fetch_add(1, Relaxed).wrapping_add(1);
        // Relaxed: an estimate; fingerprint and number travel in one word.
        self.ghost_entry(key).store((u64::from(number) << 32) | u64::from(fingerprint(key)), Relaxed);
    }

    fn ghost_has(&self, key: SequenceHash) -> bool {
        let entry = self.ghost_entry(key).load(Relaxed);
        let age = self.ghost_inserted.load(Relaxed).wrapping_sub((entry >> 32) as u32);
        entry != 0 && entry as u32 == fingerprint(key) && (age as usize) < self.ghost.len()
    }

    fn evict_small(&self, class: usize, wanted: usize, hunt: &Hunt<'_>) -> usize {
        hunt.timeline().take_oldest(hunt.slots(), class, wanted, |candidate, slot| {
            let key = slot.key();
            let verdict = if slot.heat.load(Relaxed) > 1 {
                cooled(hunt.requeue(candidate, MAIN + class as u8), slot, 0)
            } else {
                hunt.claim(candidate)
            };
            match verdict {
                Verdict::Taken | Verdict::TakenLast => {
                    self.ghost_insert(key);
                    // Counted out with the claim: the hunt counts it as coming from here on, and the removal finds it done.
                    self.on_remove(slot);
                }
                Verdict::Requeued => {
                    self.small.fetch_sub(1, Relaxed);
                }
                _ => {}
            }
            verdict
        })
    }

    fn evict_main(&self, class: usize, wanted: usize, hunt: &Hunt<'_>) -> usize {
        hunt.timeline().take_oldest(hunt.slots(), usize::from(MAIN) + class, wanted, |candidate, slot| {
            match slot.heat.load(Relaxed) {
                0 => hunt.claim(candidate),
                heat => cooled(hunt.requeue(candidate, MAIN + class as u8), slot, heat - 1),
            }
        })
    }
}

/// A block pays with its heat for a new place, if it got one.
fn cooled(verdict: Verdict, slot: &Slot, heat: u8) -> Verdict {
    if verdict == Verdict::Requeued {
        // Relaxed: an estimate; a hit since then is lost.
        slot.heat.store(heat, Relaxed);
    }
    verdict
}

impl Eviction for S3Fifo {
    fn lists(&self) -> usize {
        LISTS
    }

    fn keeps_place(&self, _list: u8) -> bool {
        true
    }

    #[inline]
    fn on_hit(&self, slot: &Slot) {
        // Relaxed: an estimate.
        let heat = slot.heat.load(Relaxed);
        if heat < 3 {
            slot.heat.store(heat + 1, Relaxed);
        }
    }

    #[inline]
    fn place(&self, slot: &Slot, priority: Priority) -> u8 {
        // Relaxed: the caller has the only reference. A block of main that changes its class stays in main.
        let before = slot.list.load(Relaxed);
        if (before != NO_LIST && before >= MAIN) || self.ghost_has(slot.key()) {
            return MAIN + priority as u8;
        }
        self.small.fetch_add(1, Relaxed);
        priority as u8
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&*self.ghost)
    }

    fn on_remove(&self, slot: &Slot) {
        // Relaxed: by the slot's owner.
        if slot.list.load(Relaxed) < MAIN {
            self.small.fetch_sub(1, Relaxed);
            slot.list.store(NO_LIST, Relaxed);
        }
    }

    fn outset(&self) -> Outset {
        Outset { excess: self.excess(0), ..Outset::default() }
    }

    fn turn(&self, nth: usize, outset: &Outset) -> Option<Turn> {
        pair::turn(nth, outset)
    }

    fn evict(&self, wanted: usize, hunt: &Hunt<'_>) -> usize {
        let (mut taken, mut class) = (0, 0);
        while taken < wanted && class < Priority::EVICTABLE {
            // One at a time: each may tip the balance of the two lists.
            let small_first = self.excess(hunt.coming()) == 0;
            let mut found = if small_first { self.evict_small(class, 1, hunt) } else { 0 };
            // Main, then small, then what small has promoted to main.
            for list in [Self::evict_main, Self::evict_small, Self::evict_main] {
                if found == 0 {
                    found = list(self, class, 1, hunt);
                }
            }
            taken += found;
            if hunt.reordered() {
                class = 0;
            } else if found == 0 {
                class += 1;
            }
        }
        taken
    }
}
