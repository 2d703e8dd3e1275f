//! S3-FIFO (Yang, Zhang, Qiu, Yue and Rashmi, SOSP 2023): most blocks are one-hit wonders,
//! so let them leave quickly.
//!
//! ```text
//!   new ──► small (a tenth) ──hit twice──► main ──► out        a hit adds one to the block's heat, at most 3
//!             │                  ▲          └─ heat > 0: again, heat - 1
//!             └──► out, ghost ───┘ new again while in the ghost
//! ```
//!
//! There are as many ghosts as main has room for, nine tenths of the pool, oldest first out. A block
//! that comes back removes its ghost, as in the authors' own code. As 2Q's, the queue keeps one ghost
//! more for each block of a request that is still to come: so that block meets the ghosts that it would
//! meet if each block took its victim by itself.

use super::carried::Batch;
use super::eviction::{Event, Eviction, Shape};
use super::ghosts::Ghosts;
use super::pair::{self, Counts, LISTS, PROVEN as MAIN};
use super::scan::Scan;
use super::turns::{ByTurns, Outset, Turn};
use crate::hash::Placement;
use crate::slot::{NO_LIST, Priority, Slot};
use crate::sync::Relaxed;
use crate::timeline::{BATCH, Verdict};

pub(crate) struct S3Fifo {
    capacity: usize,
    small_target: usize,
    most_ghosts: usize,
    /// Counts of small, and of main.
    counts: Counts,
    ghosts: Ghosts,
}

impl S3Fifo {
    pub(super) fn new(capacity: usize, place: Placement) -> S3Fifo {
        let most_ghosts = capacity * 9 / 10;
        S3Fifo {
            capacity,
            small_target: (capacity / 10).max(1),
            most_ghosts,
            counts: Counts::new(),
            ghosts: Ghosts::new(1, most_ghosts + BATCH, place),
        }
    }

    /// The number of main's blocks that go before those of small, with `coming` new
    /// blocks to come (see [`pair`]).
    fn excess(&self, coming: usize) -> usize {
        self.small_target.saturating_sub(self.counts.on_trial() + coming)
    }

    fn evict_small<'p>(&self, class: usize, wanted: usize, scan: &impl Scan<'p>) -> usize {
        scan.timeline().take_oldest(scan.slots(), class, wanted, |candidate, slot| {
            let key = slot.key();
            let verdict = if slot.heat.load(Relaxed) > 1 {
                cooled(scan.requeue(candidate, MAIN + class as u8), slot, 0)
            } else {
                scan.claim(candidate)
            };
            match verdict {
                Verdict::Taken | Verdict::TakenLast => {
                    self.ghosts.insert(0, key, || 0);
                    // Counted out with the claim: the scan counts it as coming from here on,
                    // and the removal finds that done.
                    self.counts.removed(slot);
                }
                Verdict::Requeued => {
                    self.counts.goes_over();
                }
                _ => {}
            }
            verdict
        })
    }

    fn evict_main<'p>(&self, class: usize, wanted: usize, scan: &impl Scan<'p>) -> usize {
        scan.timeline().take_oldest(scan.slots(), usize::from(MAIN) + class, wanted, |candidate, slot| {
            match slot.heat.load(Relaxed) {
                0 => scan.claim(candidate),
                heat => cooled(scan.requeue(candidate, MAIN + class as u8), slot, heat - 1),
            }
        })
    }
}

#[inline]
fn heated(slot: &Slot) {
    // Relaxed: an estimate.
    let heat = slot.heat.load(Relaxed);
    if heat < 3 {
        slot.heat.store(heat + 1, Relaxed);
    }
}

/// Takes the new heat from a block that got a new place.
fn cooled(verdict: Verdict, slot: &Slot, heat: u8) -> Verdict {
    if verdict == Verdict::Requeued {
        // Relaxed: an estimate; a hit since then is lost.
        slot.heat.store(heat, Relaxed);
    }
    verdict
}

impl Eviction for S3Fifo {
    fn shape(&self) -> Shape {
        Shape::new(LISTS).keeping(u64::MAX)
    }

    /// A block that has lost its place is counted as before: it will be placed again.
    #[inline(always)]
    fn on(&self, _number: u32, slot: &Slot, event: Event<'_>) {
        match event {
            Event::Used(..) => heated(slot),
            Event::Pinned => self.counts.pinned(slot, &self.ghosts),
            Event::Removed => self.counts.removed(slot),
            _ => {}
        }
    }

    #[inline]
    fn begin_batch<'s>(&self, _first: u64, blocks: impl Iterator<Item = &'s Slot>) -> Batch {
        pair::prefetch_ghosts(&self.ghosts, blocks);
        Batch::default()
    }

    #[inline]
    fn place(&self, _: &mut Batch, _number: u32, slot: &Slot, priority: Priority, _position: u64) -> u8 {
        // Relaxed: the caller has the only reference.
        let is_main = match slot.list.load(Relaxed) {
            NO_LIST => {
                // Its own victim has left a ghost already, as in the paper.
                let to_come = self.capacity.saturating_sub(self.counts.all() + 1);
                self.ghosts.trim(0, self.most_ghosts + to_come);
                let is_back = self.ghosts.take(slot.key()).is_some();
                if is_back {
                    self.counts.comes_proven()
                } else {
                    self.counts.comes_on_trial()
                }
                is_back
            }
            before => before >= MAIN,
        };
        if is_main { MAIN + priority as u8 } else { priority as u8 }
    }

    fn memory_bytes(&self) -> usize {
        self.ghosts.memory_bytes()
    }

    fn evict<'p>(&self, wanted: usize, scan: &impl Scan<'p>) -> usize {
        let (mut taken, mut class) = (0, 0);
        while taken < wanted && class < Priority::EVICTABLE {
            // One at a time: each may tip the balance of the two lists.
            let small_first = self.excess(scan.coming()) == 0;
            let mut found = if small_first { self.evict_small(class, 1, scan) } else { 0 };
            // Main, then small, then the blocks that small has promoted to main.
            for list in [Self::evict_main, Self::evict_small, Self::evict_main] {
                if found == 0 {
                    found = list(self, class, 1, scan);
                }
            }
            taken += found;
            if scan.reordered() {
                class = 0;
            } else if found == 0 {
                class += 1;
            }
        }
        taken
    }
}

impl ByTurns for S3Fifo {
    fn outset(&self) -> Outset {
        Outset { excess: self.excess(0), ..Outset::default() }
    }

    fn turn(&self, nth: usize, outset: &Outset) -> Option<Turn> {
        pair::turn(nth, outset)
    }
}
