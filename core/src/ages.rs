//! The idle time of each block of a tier, and whether it has a copy below: to choose blocks to offload next.
//!
//! ```text
//!   stamp of a block, 64 bits   [ generation 32 | clean 1 | again 1 | iteration 30 ]
//!                                                   │         │           └ of its last use, modulo 2³⁰
//!                                                   │         └ it was used a second time
//!                                                   └ the tier below has it
//!   none                        all ones: a clean block, so that a search skips it by the same test
//! ```
//!
//! Invariants
//! - I1: a stamp applies to one generation of a block. Nothing is known of another one: not clean, not
//!   used again.
//! - I2: a stamp is replaced only by one of the same or a later generation; a late caller changes nothing.
//! - I3: no mark of a generation is lost to a concurrent one; `second_use` returns true to one caller.
//! - I4: a search reads each stamp once, and keeps at most twice as many blocks as are wanted.
//!
//! Ages are modulo 2³⁰ too: a block that was idle for more than 2³⁰ iterations looks younger than it is.
//!
//! # Orderings
//!
//! All accesses are Relaxed: a stamp is a word that stands for itself, and publishes nothing. Its
//! content is a hint, which may be out of date when it is read. The caller checks a candidate with the
//! pool: only the pool knows its holders and its generation. The exchange of a stamp is atomic, so that
//! no mark is lost between two threads that make one each (I3).

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

/// The stamp of a generation.
const fn stamp(generation: u32, marks: u64, now: u64) -> u64 {
    (generation as u64) << 32 | marks | now & ITERATION
}

/// Iterations since a stamp was made.
const fn age(stamp: u64, now: u64) -> u32 {
    (now.wrapping_sub(stamp) & ITERATION) as u32
}

/// Replaces a stamp by the result of `next`, if that is some. Returns whether it did.
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
    /// Stamps for `blocks` blocks, none of them stamped.
    #[must_use]
    pub fn new(blocks: u32) -> Ages {
        Ages { stamps: (0..blocks).map(|_| AtomicU64::new(NONE)).collect() }
    }

    /// Stamps a block that is no longer used, in iteration `now`: its age counts from
    /// then on. Its marks stay.
    pub fn released(&self, block: BlockRef, now: u64) {
        self.change(block, |marks, _| Some(stamp(block.generation, marks, now)));
    }

    /// Marks a block as copied to the tier below: it is no candidate, even if it is released only later.
    pub fn set_clean(&self, block: BlockRef) {
        self.change(block, |_, old| Some(old.unwrap_or(stamp(block.generation, 0, 0)) | CLEAN));
    }

    /// Returns whether the tier below has a copy, as far as is known.
    #[must_use]
    pub fn is_clean(&self, block: BlockRef) -> bool {
        self.known(block).is_some_and(|stamp| stamp & CLEAN != 0)
    }

    /// Records a use of a block by another request than the one that made it, in iteration `now`.
    /// Returns whether this is the first such use: true once a generation, over all callers.
    pub fn second_use(&self, block: BlockRef, now: u64) -> bool {
        self.change(block, |marks, _| {
            (marks & AGAIN == 0).then_some(stamp(block.generation, marks | AGAIN, now))
        })
    }

    /// Returns whether a block was used a second time, in the generation that was stamped last.
    #[must_use]
    pub fn used_again(&self, block: BlockId) -> bool {
        let stamp = self.stamps.get(block.index()).map_or(NONE, |stamp| stamp.load(Relaxed));
        stamp != NONE && stamp & AGAIN != 0
    }

    /// Iterations since a block was used; 0 if nothing is known of it.
    #[must_use]
    pub fn idle(&self, block: BlockRef, now: u64) -> u64 {
        self.known(block).map_or(0, |stamp| u64::from(age(stamp, now)))
    }

    /// The iteration of a block's last use, in the generation that was stamped last;
    /// `now` if nothing is known.
    #[must_use]
    pub fn used(&self, block: BlockId, now: u64) -> u64 {
        let stamp = self.stamps.get(block.index()).map_or(NONE, |stamp| stamp.load(Relaxed));
        if stamp == NONE { now } else { now.saturating_sub(u64::from(age(stamp, now))) }
    }

    /// Forgets the stamp of a generation that has ended, if it is still there.
    pub fn forget(&self, block: BlockRef) {
        let Some(place) = self.stamps.get(block.id.index()) else { return };
        let same = |old: u64| (old >> 32) as u32 == block.generation || skipped!("ages_forget_any");
        // A stamp that was made meanwhile is of a later generation, and stays.
        exchange(place, |old| (old != NONE && same(old)).then_some(NONE));
    }

    /// The stamp of a block's generation.
    fn known(&self, block: BlockRef) -> Option<u64> {
        let stamp = self.stamps.get(block.id.index())?.load(Relaxed);
        (stamp != NONE && (stamp >> 32) as u32 == block.generation).then_some(stamp)
    }

    /// Replaces a stamp by the result of `new`, from its marks and its value, unless that is none or I2
    /// forbids it. Returns whether it did.
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
            // A clean block's stamp, where the iteration does not matter.
            new.map(|new| if new == NONE { NONE - 1 } else { new })
        })
    }

    /// Appends the oldest blocks that are not clean and were not used for `min_age` iterations to `out`:
    /// at most `limit`, the oldest first. Reads all stamps; a [`Search`] does so in parts.
    pub fn candidates(&self, now: u64, min_age: u32, limit: usize, out: &mut Vec<BlockRef>) {
        let mut search = Search::new();
        search.start(now, min_age, limit);
        while !search.go_on(self, out) {}
    }
}

/// A block that a search keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    /// Sorts the oldest first: the largest age less the block's age.
    youth: u32,
    id: u32,
    generation: u32,
}

/// A search for candidates, a chunk of stamps at a time; the next one reuses its memory.
#[derive(Debug, Default)]
pub struct Search {
    now: u64,
    min_age: u32,
    limit: usize,
    next: usize,
    kept: Vec<Kept>,
}

impl Search {
    /// Stamps that it reads before it pauses. Few under Miri, which is slow.
    pub const CHUNK: usize = if cfg!(miri) { 64 } else { 64 << 10 };

    /// A search that has nothing to do.
    #[must_use]
    pub fn new() -> Search {
        Search::default()
    }

    /// Begins a new search, as [`Ages::candidates`] does, and forgets the last one.
    pub fn start(&mut self, now: u64, min_age: u32, limit: usize) {
        self.kept.clear();
        (self.now, self.min_age, self.limit, self.next) = (now, min_age, limit, 0);
    }

    /// Reads the next [`CHUNK`](Search::CHUNK) of stamps. Returns whether those were the last: then the
    /// candidates were appended to `out`, and the search has ended.
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

    /// Keeps a block that is old enough, and returns the least age for the next one. Out of line, since
    /// few blocks are old enough, or few for long.
    #[inline(never)]
    fn keep(&mut self, stamp: u64, id: u32) -> u32 {
        let youth = ITERATION as u32 - age(stamp, self.now);
        self.kept.push(Kept { youth, id, generation: (stamp >> 32) as u32 });
        if self.kept.len() >= self.limit.saturating_mul(2) {
            self.cut();
        }
        self.min_age
    }

    /// Keeps the oldest, as many as are wanted. Blocks younger than all of them are not kept from now on.
    fn cut(&mut self) {
        if self.kept.len() > self.limit && self.limit > 0 {
            let (_, youngest, _) = self.kept.select_nth_unstable(self.limit - 1);
            // Of blocks of the same age, an earlier one is kept already.
            self.min_age = ITERATION as u32 - youngest.youth + 1;
            self.kept.truncate(self.limit);
        }
    }
}
