//! The common part of policies with two lists a class. S3-FIFO shares lists, counts and the order of
//! turns; ARC and 2Q share all except their rules.
//!
//! ```text
//!   list      0      1      2      3      4      5
//!           ┌──────┬──────┬──────┬──────┬──────┬──────┐     a list's class is its number modulo the classes
//!           │ low  │ norm.│ high │ low  │ norm.│ high │
//!           └──────┴──────┴──────┴──────┴──────┴──────┘
//!             blocks on trial      blocks that are proven
//! ```
//!
//! Of a class, proven blocks go first while fewer blocks are on trial than may be (the *excess* of the
//! proven). Then the blocks on trial go, then the other proven ones.
//!
//! # A request's victims
//! In the papers each miss takes a victim and then adds its block to those on trial. A pool takes the
//! victims of a request before any of its blocks is there. So each victim stands for a miss of a block
//! that was never here, and the blocks of the victims before it count as on trial. The first `excess`
//! victims come from the proven. From then on each coming block replaces one on trial, until only the
//! request's own are left there. Which blocks have ghosts is known when they are placed, at their first
//! release: those leave the trial, and the next request's victims make up for it. Blocks that others
//! hold and have not released yet have not come.
//!
//! A request is a call, or several by a caller that tells how many blocks it was given before
//! (`evict_ids_behind`). Victims that are taken one at a time are a request each. So victims
//! that make room in a tier below, for one copy and the next, all meet the same excess until
//! the first copy is released there.
//!
//! I1. A block is counted, on trial or proven, from its first place until it leaves the registry, in use
//!     or not: its `list` tells as which. It changes from trial to proven at most once.
//! I2. A pinned block cannot leave, so it is not on trial: it counts as proven from its
//!     release, and remains so.

use super::carried::Batch;
use super::eviction::{Event, Eviction, Shape};
use super::ghosts::Ghosts;
use super::scan::Scan;
use super::turns::{ByTurns, Outset, Turn};
use crate::slot::{NO_LIST, Priority, Slot};
use crate::sync::{AtomicU64, CachePadded, Relaxed, skipped};
use crate::timeline::Verdict;

#[cfg(all(test, loom))]
mod models;

/// The first list of proven blocks.
pub(super) const PROVEN: u8 = Priority::EVICTABLE as u8;
/// Lists in all.
pub(super) const LISTS: usize = 2 * Priority::EVICTABLE;

/// The turns of the lists, class by class.
pub(super) fn turn(nth: usize, outset: &Outset) -> Option<Turn> {
    let class = nth / 3;
    let proven = usize::from(PROVEN) + class;
    (class < Priority::EVICTABLE).then(|| match nth % 3 {
        0 => Turn { most: outset.excess, of_excess: true, ..Turn::whole(proven) },
        1 => Turn::whole(class),
        _ => Turn { of_excess: true, ..Turn::whole(proven) },
    })
}

/// A policy of such lists with ghosts, by its rules.
pub(crate) struct Pair<R> {
    counts: Counts,
    ghosts: Ghosts,
    rules: R,
}

/// The rules in which ARC and 2Q differ.
pub(crate) trait Rules {
    /// Whether blocks on trial keep their places while they are in use.
    const TRIAL_KEEPS_PLACES: bool;
    /// The queue of ghosts of proven blocks, if they leave any; those of blocks on trial are in queue 0.
    const PROVEN_GHOSTS: Option<usize>;

    /// Reports a use of a block. A block with heat is proven.
    fn on_hit(&self, _slot: &Slot) {}
    /// Reports that a new block had a ghost in this queue; the ghost is removed.
    fn on_met(&self, _queue: usize, _ghosts: &Ghosts) {}
    /// The most blocks on trial while there are proven blocks to give.
    fn most_on_trial(&self) -> usize;
    /// Drops ghosts that are too many, after a block has come that was never here.
    fn trim(&self, ghosts: &Ghosts, counts: &Counts);
    /// The queue whose oldest goes if a new ghost of queue `_of` has no room. `_on_trial`: blocks on
    /// trial or coming.
    fn queue_to_drop(&self, _of: usize, _ghosts: &Ghosts, _on_trial: usize) -> usize {
        0
    }
}

/// Blocks on trial in the lower half of one word, proven ones in the upper: so a change from trial to
/// proven is counted in one step. Written at each registration.
pub(crate) struct Counts(CachePadded<AtomicU64>);

const ONE_PROVEN: u64 = 1 << 32;

impl Counts {
    pub(super) fn new() -> Counts {
        Counts(CachePadded(AtomicU64::new(0)))
    }

    pub(super) fn on_trial(&self) -> usize {
        self.0.load(Relaxed) as u32 as usize
    }

    /// Blocks on trial or proven.
    pub(super) fn all(&self) -> usize {
        let both = self.0.load(Relaxed);
        both as u32 as usize + (both >> 32) as usize
    }

    pub(super) fn comes_on_trial(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub(super) fn comes_proven(&self) {
        self.0.fetch_add(ONE_PROVEN, Relaxed);
    }

    pub(super) fn goes_over(&self) {
        self.0.fetch_add(ONE_PROVEN - 1, Relaxed);
    }

    /// Counts a pinned block that is about to be released (I2).
    pub(super) fn pinned(&self, slot: &Slot, ghosts: &Ghosts) {
        // Relaxed, both: the caller has the only reference.
        match slot.list.load(Relaxed) {
            NO_LIST => {
                self.comes_proven();
                // The block is back. Its ghost must not adjust the balance.
                let _ = ghosts.take(slot.key());
            }
            PROVEN.. => return,
            _ => self.goes_over(),
        }
        slot.list.store(PROVEN, Relaxed);
    }

    /// Counts out a block that leaves the registry (I1).
    #[inline]
    pub(super) fn removed(&self, slot: &Slot) {
        // Relaxed, both: by the slot's owner.
        let list = slot.list.load(Relaxed);
        if list == NO_LIST {
            return;
        }
        self.0.fetch_sub(if list < PROVEN { 1 } else { ONE_PROVEN }, Relaxed);
        if !skipped!("pair_counted_twice") {
            slot.list.store(NO_LIST, Relaxed);
        }
    }
}

/// Prefetches the ghosts of the new blocks.
#[inline]
pub(super) fn prefetch_ghosts<'s>(ghosts: &Ghosts, blocks: impl Iterator<Item = &'s Slot>) {
    // Relaxed: the caller has their only references.
    let new = blocks.filter(|slot| slot.list.load(Relaxed) == NO_LIST);
    new.for_each(|slot| ghosts.prefetch(slot.key()));
}

impl<R: Rules> Pair<R> {
    pub(super) fn with(rules: R, ghosts: Ghosts) -> Pair<R> {
        Pair { counts: Counts::new(), ghosts, rules }
    }

    /// The number of proven blocks that go before those on trial, with `coming` new blocks to come.
    fn excess(&self, coming: usize) -> usize {
        (self.rules.most_on_trial() + 1).saturating_sub(self.counts.on_trial() + coming)
    }

    /// Takes up to `wanted` of a list. Each leaves a ghost, if victims of that list do. All are taken
    /// before the first ghost is written, so that the cache misses of the ghosts' table overlap.
    fn take<'p>(&self, list: usize, wanted: usize, scan: &impl Scan<'p>) -> usize {
        let queue = if list < usize::from(PROVEN) { Some(0) } else { R::PROVEN_GHOSTS };
        let before = scan.claimed();
        let taken = scan.timeline().take_oldest(scan.slots(), list, wanted, |candidate, slot| {
            let verdict = scan.claim(candidate);
            if let Verdict::Taken | Verdict::TakenLast = verdict {
                queue.inspect(|_| self.ghosts.prefetch(slot.key()));
                self.counts.removed(slot);
            }
            verdict
        });
        if let Some(queue) = queue {
            let on_trial = self.counts.on_trial() + scan.coming();
            scan.claimed_since(before).for_each(|slot| {
                self.ghosts
                    .insert(queue, slot.key(), || self.rules.queue_to_drop(queue, &self.ghosts, on_trial));
            });
        }
        taken
    }
}

impl<R: Rules> Eviction for Pair<R> {
    fn shape(&self) -> Shape {
        Shape::new(LISTS).keeping(if R::TRIAL_KEEPS_PLACES { (1 << PROVEN) - 1 } else { 0 })
    }

    /// A block that has lost its place is counted as before: it will be placed again.
    #[inline(always)]
    fn on(&self, _number: u32, slot: &Slot, event: Event<'_>) {
        match event {
            Event::Used(..) => self.rules.on_hit(slot),
            Event::Pinned => self.counts.pinned(slot, &self.ghosts),
            Event::Removed => self.counts.removed(slot),
            _ => {}
        }
    }

    #[inline]
    fn begin_batch<'s>(&self, _first: u64, blocks: impl Iterator<Item = &'s Slot>) -> Batch {
        prefetch_ghosts(&self.ghosts, blocks);
        Batch::default()
    }

    #[inline]
    fn place(&self, _: &mut Batch, _number: u32, slot: &Slot, priority: Priority, _position: u64) -> u8 {
        // Relaxed, both: the caller has the only reference.
        let (before, used) = (slot.list.load(Relaxed), slot.heat.load(Relaxed) != 0);
        let proven = match before {
            NO_LIST => match self.ghosts.take(slot.key()) {
                Some(queue) => {
                    self.rules.on_met(queue, &self.ghosts);
                    self.counts.comes_proven();
                    true
                }
                None => {
                    self.counts.comes_on_trial();
                    self.rules.trim(&self.ghosts, &self.counts);
                    if used {
                        self.counts.goes_over();
                    }
                    used
                }
            },
            PROVEN.. => true,
            _ => {
                if used {
                    self.counts.goes_over();
                }
                used
            }
        };
        if proven { PROVEN + priority as u8 } else { priority as u8 }
    }

    fn evict<'p>(&self, wanted: usize, scan: &impl Scan<'p>) -> usize {
        let (mut taken, mut class) = (0, 0);
        while taken < wanted && class < Priority::EVICTABLE {
            let (left, proven) = (wanted - taken, usize::from(PROVEN) + class);
            let excess = self.excess(scan.coming()).min(left);
            let mut found = if excess > 0 { self.take(proven, excess, scan) } else { 0 };
            for list in [class, proven] {
                if found == 0 {
                    found = self.take(list, left, scan);
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

    fn memory_bytes(&self) -> usize {
        self.ghosts.memory_bytes()
    }
}

impl<R: Rules> ByTurns for Pair<R> {
    fn outset(&self) -> Outset {
        Outset { excess: self.excess(0), ..Outset::default() }
    }

    fn turn(&self, nth: usize, outset: &Outset) -> Option<Turn> {
        turn(nth, outset)
    }
}
