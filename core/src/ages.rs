//! How long the blocks of a tier have been idle, and which of them have no copy below: what to offload next.
//!
//! ```text
//!   stamp of a block, 64 bits   [ generation 32 | clean 1 | again 1 | iteration 30 ]
//!                                                   │         │           └ of its last use, modulo 2³⁰
//!                                                   │         └ it has been used a second time
//!                                                   └ the tier below has it
//!   none                        all ones: a clean block, so that a search passes over it without a question of its own
//! ```
//!
//! Invariants
//! - I1: a stamp says something of one generation of a block. Of another one nothing is known: not clean, not
//!   used again.
//! - I2: a stamp gives way to one of a later generation only; who is late changes nothing.
//! - I3: no mark of a generation is lost to another that is made beside it; who asks for a second use is told
//!   so once.
//! - I4: a search goes through each stamp once, and keeps at most twice as many blocks as are wanted.
//!
//! Ages are modulo 2³⁰ too: a block that has been idle for longer than 2³⁰ iterations looks younger than it
//! is.
//!
//! # Orderings
//!
//! All accesses are Relaxed: a stamp is a word that stands for itself, and publishes nothing. What it says is
//! a hint, that may be out of date when it is read: whoever gets a candidate asks the pool, which alone knows
//! who holds it, and of which generation it is. The exchange of a stamp is atomic, so that no mark is lost
//! between two threads that make one each (I3).

#[cfg(all(test, not(loom)))]
mod tests;

use crate::id::{BlockId, BlockRef};
use crate::sync::{AtomicU64, Relaxed, skipped};
use alloc::boxed::Box;
use alloc::vec::Vec;

const NONE: u64 = u64::MAX;
const CLEAN: u64 = 1 << 31;
const AGAIN: u64 = 1 << 30;
const ITERATION: u64 = AGAIN - 1;

/// A stamp of a generation.
const fn stamp(generation: u32, marks: u64, now: u64) -> u64 {
    (generation as u64) << 32 | marks | now & ITERATION
}

/// Iterations since a stamp was made.
const fn age(stamp: u64, now: u64) -> u32 {
    (now.wrapping_sub(stamp) & ITERATION) as u32
}

/// Exchanges a stamp for what is to follow the one that is there, if anything is. Whether it was exchanged.
fn exchange(place: &AtomicU64, next: impl Fn(u64) -> Option<u64>) -> bool {
    if skipped!("ages_no_exchange") {
        let new = next(place.load(Relaxed));
        new.into_iter().for_each(|new| place.store(new, Relaxed));
        return new.is_some();
    }
    place.fetch_update(Relaxed, Relaxed, next).is_ok()
}

/// A stamp for each block of a tier.
#[derive(Debug)]
pub struct Ages {
    stamps: Box<[AtomicU64]>,
}

impl Ages {
    /// None for any of so many blocks.
    #[must_use]
    pub fn new(blocks: u32) -> Ages {
        Ages { stamps: (0..blocks).map(|_| AtomicU64::new(NONE)).collect() }
    }

    /// A block is no longer used, in iteration `now`: from then on it grows old. What it was marked with stays.
    pub fn released(&self, block: BlockRef, now: u64) {
        self.change(block, |marks, _| Some(stamp(block.generation, marks, now)));
    }

    /// The tier below has a copy of a block: it is no candidate, even if it is released only later.
    pub fn set_clean(&self, block: BlockRef) {
        self.change(block, |_, old| Some(old.unwrap_or(stamp(block.generation, 0, 0)) | CLEAN));
    }

    /// Whether the tier below has a copy, as far as is known.
    #[must_use]
    pub fn is_clean(&self, block: BlockRef) -> bool {
        self.known(block).is_some_and(|stamp| stamp & CLEAN != 0)
    }

    /// A block is used by another request than the one that made it, in iteration `now`. Whether this is the first time: true once a
    /// generation, whoever asks.
    pub fn second_use(&self, block: BlockRef, now: u64) -> bool {
        self.change(block, |marks, _| {
            (marks & AGAIN == 0).then_some(stamp(block.generation, marks | AGAIN, now))
        })
    }

    /// Whether a block was used a second time, in the generation that was the last to be stamped.
    #[must_use]
    pub fn used_again(&self, block: BlockId) -> bool {
        let stamp = self.stamps.get(block.index()).map_or(NONE, |stamp| stamp.load(Relaxed));
        stamp != NONE && stamp & AGAIN != 0
    }

    /// Iterations since a block was used; 0 for one of which nothing is known.
    #[must_use]
    pub fn idle(&self, block: BlockRef, now: u64) -> u64 {
        self.known(block).map_or(0, |stamp| u64::from(age(stamp, now)))
    }

    /// When a block was last used, of the generation that was the last to be stamped; `now` where nothing is known.
    #[must_use]
    pub fn used(&self, block: BlockId, now: u64) -> u64 {
        let stamp = self.stamps.get(block.index()).map_or(NONE, |stamp| stamp.load(Relaxed));
        if stamp == NONE { now } else { now.saturating_sub(u64::from(age(stamp, now))) }
    }

    /// A generation has ended: its stamp, if it is still there, says nothing of the block any more.
    pub fn forget(&self, block: BlockRef) {
        let Some(place) = self.stamps.get(block.id.index()) else { return };
        let same = |old: u64| (old >> 32) as u32 == block.generation || skipped!("ages_forget_any");
        // One that was stamped meanwhile is of a later generation, and stays.
        exchange(place, |old| (old != NONE && same(old)).then_some(NONE));
    }

    /// The stamp of a block's generation.
    fn known(&self, block: BlockRef) -> Option<u64> {
        let stamp = self.stamps.get(block.id.index())?.load(Relaxed);
        (stamp != NONE && (stamp >> 32) as u32 == block.generation).then_some(stamp)
    }

    /// Exchanges a stamp, from what it is and the marks in it, for another; not if there is none to take its place, or by I2. Whether it
    /// was exchanged.
    fn change(&self, block: BlockRef, new: impl Fn(u64, Option<u64>) -> Option<u64>) -> bool {
        let Some(place) = self.stamps.get(block.id.index()) else { return false };
        exchange(place, |old| {
            let ahead = ((old >> 32) as u32).wrapping_sub(block.generation) as i32;
            let new = match old {
                NONE => new(0, None),
                old if ahead == 0 => new(old & (CLEAN | AGAIN), Some(old)),
                _ if ahead < 0 || skipped!("ages_late_counts") => new(0, None),
                _ => None,
            };
            // Of a clean block, where the iteration counts for nothing.
            new.map(|new| if new == NONE { NONE - 1 } else { new })
        })
    }

    /// The oldest blocks that are not clean and have not been used for `min_age` iterations: at most `limit` of them, the oldest first,
    /// appended to `out`. Goes through all stamps: a [`Search`] does so in parts.
    pub fn candidates(&self, now: u64, min_age: u32, limit: usize, out: &mut Vec<BlockRef>) {
        let mut search = Search::new();
        search.start(now, min_age, limit);
        while !search.go_on(self, out) {}
    }
}

/// A block that a search keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    /// Sorts the oldest first: what its age lacks of the largest one.
    youth: u32,
    id: u32,
    generation: u32,
}

/// A search for candidates, a chunk of stamps at a time; its memory is used again by the next one.
#[derive(Debug, Default)]
pub struct Search {
    now: u64,
    min_age: u32,
    limit: usize,
    next: usize,
    kept: Vec<Kept>,
}

impl Search {
    /// Stamps that it goes through before it pauses. Under Miri few, for it is slow.
    pub const CHUNK: usize = if cfg!(miri) { 64 } else { 64 << 10 };

    /// One that has nothing to do.
    #[must_use]
    pub fn new() -> Search {
        Search::default()
    }

    /// Begins anew, as [`Ages::candidates`] does, and forgets the one before.
    pub fn start(&mut self, now: u64, min_age: u32, limit: usize) {
        self.kept.clear();
        (self.now, self.min_age, self.limit, self.next) = (now, min_age, limit, 0);
    }

    /// Goes through the next [`CHUNK`](Search::CHUNK) of stamps. Whether those were the last: then the candidates have been appended to `out`, and the
    /// search has nothing more to do.
    pub fn go_on(&mut self, ages: &Ages, out: &mut Vec<BlockRef>) -> bool {
        let end = self.next.saturating_add(Search::CHUNK).min(ages.stamps.len());
        if self.limit > 0 {
            let (now, mut min_age) = (self.now, self.min_age);
            for (place, id) in
                ages.stamps.get(self.next..end).unwrap_or_default().iter().zip(self.next as u32..)
            {
                let stamp = place.load(Relaxed);
                if stamp & CLEAN == 0 && age(stamp, now) >= min_age {
                    min_age = self.keep(stamp, id);
                }
            }
        }
        self.next = end;
        let done = end == ages.stamps.len();
        if done {
            self.cut();
            self.kept.sort_unstable();
            let block = |kept: Kept| BlockRef { id: BlockId(kept.id), generation: kept.generation };
            out.extend(self.kept.drain(..).map(block));
            self.limit = 0;
        }
        done
    }

    /// Keeps one that is old enough; how old the next one must be. Out of line: few are old enough, or few for long.
    #[inline(never)]
    fn keep(&mut self, stamp: u64, id: u32) -> u32 {
        let youth = ITERATION as u32 - age(stamp, self.now);
        self.kept.push(Kept { youth, id, generation: (stamp >> 32) as u32 });
        if self.kept.len() >= self.limit.saturating_mul(2) {
            self.cut();
        }
        self.min_age
    }

    /// Keeps the oldest, as many as are wanted: who is younger than all of them need not be kept from now on.
    fn cut(&mut self) {
        if self.kept.len() > self.limit && self.limit > 0 {
            let (_, youngest, _) = self.kept.select_nth_unstable(self.limit - 1);
            // Of the same age, an earlier block is kept already.
            self.min_age = ITERATION as u32 - youngest.youth + 1;
            self.kept.truncate(self.limit);
        }
    }
}
