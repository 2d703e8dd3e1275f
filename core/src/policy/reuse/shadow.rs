//! The shadow: the content of an LRU of the same capacity, as counts by age, with the ghosts:
//! blocks that LRU has and we have not.
//!
//! ```text
//!   stamps   lost by LRU │ chunk: since, blocks, ghosts │ chunk │ … │ chunk filling  (capacity / 128 each)
//!                        └ horizon
//!   table    two sets of 8 for a key: (tag, stamp) of a block evicted here whose stamp is behind the horizon
//! ```
//!
//! It learns late, by threads in turns, and loses records where they come too fast. So errors count in
//! favour of LRU, or are weighed higher than is usual:
//!
//! I1. LRU holds `total` blocks at any time: at least as many as are inactive here or
//!     could be, once so many were seen.
//! I2. `total` and `ghosts` are the sums over the chunks, in whatever order records come. A record that
//!     comes before the release that it follows leaves its chunk short, even below 0; the release, in
//!     this chunk or a later one, makes up for it.
//! I3. A block whose record was lost counts in part as a hit of LRU's: twice the rate of recent ghost
//!     hits, among misses or among ghosts, whichever is higher, and at least a 64th.
//! I4. The horizon is less than 2³¹ releases old, and no ghost stays in the table until the horizon has
//!     wrapped round to it: each release examines some. Blocks that LRU lost for their age alone it
//!     would still have: as long as it would have room for such a block, a use of it is no win.
//! I5. LRU loses no more blocks than come to it, except for two chunks. Its room is counted while other
//!     threads change it, and one count that was too low must not cost LRU its blocks.

use super::ages::not_before;
use super::journal::Key;
use alloc::boxed::Box;
use alloc::vec;

/// The blocks whose last release falls into one stretch of stamps.
#[derive(Clone, Copy, Default)]
struct Chunk {
    since: u32,
    /// Blocks that LRU has, and the ghosts among them.
    blocks: i32,
    ghosts: i32,
}

const CHUNKS: usize = if cfg!(loom) { 4 } else { 320 };
/// Initial evidence: one miss of 16 is a ghost's, as if that many misses had been seen.
const PRIOR: f32 = 16.0;
/// Misses after which earlier ones count half.
const FADES: f32 = 65_536.0;
/// The least rate at which lost records count.
const LEAST: f32 = 1.0 / 64.0;
/// I4.
const OLDEST: u32 = 1 << 30;

pub(super) struct Shadow {
    quantum: i32,
    chunks: [Chunk; CHUNKS],
    first: usize,
    end: usize,
    total: i64,
    ghosts: i64,
    /// I5.
    may_lose: i64,
    /// Blocks lost for their age (I4).
    aged: i64,
    /// LRU's hits less ours.
    deficit: i64,
    /// Misses, ghosts, and misses of ghosts that were recorded; they fade. `lost`: the part of lost
    /// records that is less than a hit.
    missed: f32,
    made: f32,
    ghosts_missed: f32,
    lost: f32,
    /// Tag and stamp of ghosts, 8 a set. Stamp 0: free.
    table: Box<[(u32, u32)]>,
    /// The next set to be cleared of ghosts that LRU has lost.
    sweep: usize,
}

impl Shadow {
    pub(super) fn new(capacity: usize, clock: u32) -> Shadow {
        let mut chunks = [Chunk::default(); CHUNKS];
        chunks[0].since = clock;
        Shadow {
            quantum: (capacity as i32 / 128).max(1),
            chunks,
            first: 0,
            end: 1,
            total: 0,
            ghosts: 0,
            may_lose: 0,
            aged: 0,
            deficit: 0,
            missed: PRIOR * 16.0,
            made: PRIOR * 16.0,
            ghosts_missed: PRIOR,
            lost: 0.0,
            // One request may turn nearly all of LRU's blocks into ghosts until it is released: an
            // eighth more places than these, or sets would overflow.
            table: vec![(0, 0); (capacity * 9 / 8).div_ceil(8) * 8].into(),
            sweep: 0,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.table.len() * 8
    }

    /// The stamp from which on LRU has the released blocks.
    #[inline]
    pub(super) fn horizon(&self) -> u32 {
        self.chunks[self.first].since
    }

    /// Blocks that LRU has.
    #[cfg(test)]
    pub(super) fn total(&self) -> i64 {
        self.total
    }

    /// Blocks that LRU has and we have not.
    pub(super) fn ghosts(&self) -> u32 {
        self.ghosts.max(0) as u32
    }

    /// LRU's hits less ours.
    pub(super) fn deficit(&self) -> i64 {
        self.deficit
    }

    /// The chunk of a stamp; none if LRU has lost it.
    #[inline]
    fn chunk(&self, stamp: u32) -> Option<usize> {
        let horizon = self.horizon();
        if !not_before(stamp, horizon) {
            return None;
        }
        let behind = |at: u32| at.wrapping_sub(horizon);
        let live = &self.chunks[self.first..self.end];
        Some(self.first + live.partition_point(|chunk| behind(chunk.since) <= behind(stamp)).max(1) - 1)
    }

    /// Removes blocks that were released at this stamp and right after it.
    pub(super) fn out(&mut self, mut first: u32, mut blocks: u32) {
        while blocks > 0 {
            let Some(at) = self.chunk(first) else {
                // LRU has lost this one, and perhaps not the next.
                (first, blocks) = (first.wrapping_add(1), blocks - 1);
                continue;
            };
            let room = match self.chunks[at + 1..self.end].first() {
                Some(next) => next.since.wrapping_sub(first).max(1),
                None => u32::MAX,
            };
            let here = blocks.min(room);
            self.chunks[at].blocks -= here as i32;
            self.total -= i64::from(here);
            (first, blocks) = (first.wrapping_add(here), blocks - here);
        }
    }

    /// Counts hits of ours on blocks that LRU had lost.
    pub(super) fn won(&mut self, hits: u32) {
        let aged = self.aged.min(i64::from(hits));
        self.aged -= aged;
        self.deficit -= i64::from(hits) - aged;
    }

    /// Counts hits of LRU's on blocks that we had evicted.
    #[cfg(all(test, not(loom)))]
    pub(super) fn lost_hits(&mut self, hits: u32) {
        self.deficit += i64::from(hits);
    }

    /// Counts blocks whose records were lost (I3).
    pub(super) fn lost(&mut self, blocks: u32) {
        if blocks > 0 {
            let rate = 2.0 * self.ghosts_missed / self.missed.min(self.made).max(1.0);
            self.lost += blocks as f32 * rate.clamp(LEAST, 1.0);
            let hits = self.lost as i64;
            (self.deficit, self.lost) = (self.deficit + hits, self.lost - hits as f32);
        }
    }

    /// The places that a key may be at: two sets, so that hardly any is full before all are.
    fn places(&self, key: Key) -> impl Iterator<Item = usize> + use<> {
        let set = |key: Key| key.place(self.table.len() / 8) * 8;
        let (one, other) = (set(key), set(key.again()));
        (one..one + 8).chain(other..other + 8)
    }

    fn drop_ghost(&mut self, at: usize) {
        self.chunks[at].ghosts -= 1;
        self.chunks[at].blocks -= 1;
        self.ghosts -= 1;
        self.total -= 1;
    }

    /// Records the registration of a block, which LRU may have had.
    pub(super) fn missed(&mut self, key: Key) {
        self.missed += 1.0;
        if self.missed > FADES {
            [self.missed, self.made, self.ghosts_missed] =
                [self.missed, self.made, self.ghosts_missed].map(|count| count / 2.0);
        }
        let is_it = |i: &usize| self.table[*i].0 == key.tag() && self.table[*i].1 != 0;
        let Some(at) = self.places(key).find(is_it) else { return };
        let stamp = core::mem::take(&mut self.table[at].1);
        if let Some(chunk) = self.chunk(stamp) {
            self.drop_ghost(chunk);
            self.deficit += 1;
            self.ghosts_missed += 1.0;
        }
    }

    /// Records the eviction of a block that was released at this stamp: a ghost, if LRU has it.
    pub(super) fn evicted(&mut self, key: Key, stamp: u32) {
        let Some(chunk) = self.chunk(stamp) else { return };
        let horizon = self.horizon();
        // Free places first, then the oldest ghost.
        let behind = |i: &usize| match self.table[*i].1 {
            0 => i64::MIN,
            stamp => i64::from(stamp.wrapping_sub(horizon) as i32),
        };
        let Some(at) = self.places(key).min_by_key(behind) else { return };
        let old = core::mem::replace(&mut self.table[at], (key.tag(), stamp.max(1))).1;
        if old != 0
            && let Some(chunk) = self.chunk(old)
        {
            // The forgotten ghost could no longer show LRU's hit, so it counts as one.
            self.drop_ghost(chunk);
            self.deficit += 1;
        }
        self.chunks[chunk].ghosts += 1;
        self.ghosts += 1;
        self.made += 1.0;
    }

    /// Clears ghosts of one set that LRU has lost (I4).
    fn drop_some(&mut self) {
        let horizon = self.horizon();
        let set = &mut self.table[self.sweep..self.sweep + 8];
        set.iter_mut().filter(|ghost| !not_before(ghost.1, horizon)).for_each(|ghost| ghost.1 = 0);
        self.sweep = if self.sweep + 8 == self.table.len() { 0 } else { self.sweep + 8 };
    }

    /// Adds released blocks, the first with this stamp: LRU's youngest.
    pub(super) fn released(&mut self, mut first: u32, mut blocks: u32) {
        (0..=blocks / 64).for_each(|_| self.drop_some());
        self.may_lose += i64::from(blocks);
        if !not_before(first, self.chunks[self.end - 1].since) {
            // Recorded late, after younger releases by another thread.
            let at = self.chunk(first).unwrap_or(self.first);
            self.chunks[at].blocks += blocks as i32;
            self.total += i64::from(blocks);
            return;
        }
        while blocks > 0 {
            if self.chunks[self.end - 1].blocks >= self.quantum {
                if self.end == CHUNKS {
                    self.pack();
                }
                self.chunks[self.end] = Chunk { since: first, blocks: 0, ghosts: 0 };
                self.end += 1;
            }
            let chunk = &mut self.chunks[self.end - 1];
            let here = blocks.min((self.quantum - chunk.blocks).max(1) as u32);
            chunk.blocks += here as i32;
            self.total += i64::from(here);
            (first, blocks) = (first.wrapping_add(here), blocks - here);
        }
    }

    /// Returns whether LRU has more than `room` blocks. Blocks in use take room from both caches.
    pub(super) fn is_full(&self, room: u32, clock: u32) -> bool {
        let chunk = &self.chunks[self.first];
        self.end - self.first > 1
            && (self.total - i64::from(chunk.blocks) >= i64::from(room)
                || chunk.blocks <= 0
                || clock.wrapping_sub(chunk.since) > OLDEST)
    }

    /// Removes LRU's oldest blocks while it has more than it has room for.
    pub(super) fn keep_within(&mut self, room: u32, clock: u32) {
        while self.is_full(room, clock) {
            let chunk = &self.chunks[self.first];
            let is_too_old = clock.wrapping_sub(chunk.since) > OLDEST;
            if i64::from(chunk.blocks) > self.may_lose && !is_too_old {
                break;
            }
            if is_too_old {
                self.aged += i64::from((chunk.blocks - chunk.ghosts).max(0));
            }
            self.lose_oldest();
        }
        // Aged blocks are the oldest: the first to go where there is no room for all.
        self.aged = self.aged.min((i64::from(room) - self.total).max(0));
        // As much as a chunk needs, and no more.
        let oldest = self.chunks[self.first].blocks.max(2 * self.quantum);
        self.may_lose = self.may_lose.min(i64::from(oldest));
    }

    fn lose_oldest(&mut self) {
        let chunk = self.chunks[self.first];
        self.total -= i64::from(chunk.blocks);
        self.may_lose -= i64::from(chunk.blocks.max(0));
        self.ghosts -= i64::from(chunk.ghosts);
        self.first += 1;
    }

    /// Merges small neighbours, and moves all chunks to the front.
    fn pack(&mut self) {
        let mut to = 0;
        for from in self.first..self.end {
            let chunk = self.chunks[from];
            if to > 0 && self.chunks[to - 1].blocks + chunk.blocks <= self.quantum {
                self.chunks[to - 1].blocks += chunk.blocks;
                self.chunks[to - 1].ghosts += chunk.ghosts;
            } else {
                self.chunks[to] = chunk;
                to += 1;
            }
        }
        (self.first, self.end) = (0, to);
        if self.end == CHUNKS {
            // Held blocks made it grow beyond its size: LRU loses its oldest.
            self.lose_oldest();
            self.chunks.copy_within(1.., 0);
            (self.first, self.end) = (0, CHUNKS - 1);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
