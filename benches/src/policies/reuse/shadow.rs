//! What an LRU of the same capacity would hold: counts by age, and the ghosts that it has and we have not.
//!
//! ```text
//!   stamps   lost by LRU │ chunk: since, blocks, ghosts │ chunk │ … │ chunk that fills          a 128th of the capacity each
//!                        └ horizon
//!   table    set of 8: (tag, stamp) of what was evicted here with a stamp behind the horizon
//! ```
//!
//! I1. `total` blocks are LRU's at any time: capacity to capacity + quantum, once so many were seen.
//! I2. `total` and `ghosts` are the sums over the chunks; a ghost that falls out of the table is taken out of both.

use super::place;

/// Blocks by the age of their last release, a chunk of stamps together.
#[derive(Clone, Copy, Default)]
struct Chunk {
    since: u32,
    /// Blocks that LRU has, and those of them that we have not.
    blocks: u32,
    ghosts: u32,
}

const CHUNKS: usize = 320;

/// What an LRU of the same capacity would hold.
pub(super) struct Shadow {
    capacity: u32,
    quantum: u32,
    chunks: [Chunk; CHUNKS],
    first: usize,
    end: usize,
    total: u32,
    pub(super) ghosts: u32,
    /// LRU's hits less ours.
    pub(super) deficit: i64,
    /// Tag and stamp of ghosts, 8 a set.
    table: Box<[(u32, u32)]>,
}

impl Shadow {
    pub(super) fn new(capacity: usize) -> Shadow {
        Shadow {
            capacity: capacity as u32,
            quantum: (capacity as u32 / 128).max(1),
            chunks: [Chunk::default(); CHUNKS],
            first: 0,
            end: 1,
            total: 0,
            ghosts: 0,
            deficit: 0,
            table: vec![(0, 0); capacity.div_ceil(8) * 8].into(),
        }
    }

    /// LRU has what was released since.
    #[inline]
    pub(super) fn horizon(&self) -> u32 {
        self.chunks[self.first].since
    }

    #[inline]
    fn chunk(&mut self, stamp: u32) -> &mut Chunk {
        let live = &mut self.chunks[self.first..self.end];
        let at = live.partition_point(|chunk| chunk.since <= stamp) - 1;
        &mut live[at]
    }

    /// A resident block is touched that was released then.
    pub(super) fn hit(&mut self, stamp: u32) {
        if stamp >= self.horizon() {
            self.chunk(stamp).blocks -= 1;
            self.total -= 1;
        } else {
            self.deficit -= 1;
        }
    }

    fn drop_ghost(&mut self, stamp: u32) {
        let chunk = self.chunk(stamp);
        chunk.blocks -= 1;
        chunk.ghosts -= 1;
        self.total -= 1;
        self.ghosts -= 1;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.table.len() * 8
    }

    fn set(&self, key: u64) -> usize {
        place(key, self.table.len() / 8) * 8
    }

    /// A block is registered: LRU may have had it.
    pub(super) fn missed(&mut self, key: u64) {
        let (set, horizon) = (self.set(key), self.horizon());
        let Some(at) = (set..set + 8).find(|i| self.table[*i].0 == key as u32 && self.table[*i].1 != 0)
        else {
            return;
        };
        let stamp = std::mem::take(&mut self.table[at].1);
        if stamp >= horizon {
            self.drop_ghost(stamp);
            self.deficit += 1;
        }
    }

    /// We evict what was released then: a ghost, if LRU has it.
    pub(super) fn evicted(&mut self, key: u64, stamp: u32) {
        let horizon = self.horizon();
        if stamp < horizon {
            return;
        }
        let set = self.set(key);
        let at = (set..set + 8).min_by_key(|i| self.table[*i].1).unwrap_or(set);
        let old = std::mem::replace(&mut self.table[at], (key as u32, stamp)).1;
        if old != 0 && old >= horizon {
            self.drop_ghost(old);
        }
        self.chunk(stamp).ghosts += 1;
        self.ghosts += 1;
    }

    /// A block is released: LRU's youngest.
    pub(super) fn released(&mut self, stamp: u32) {
        if self.chunks[self.end - 1].blocks >= self.quantum {
            if self.end == CHUNKS {
                self.pack();
            }
            self.chunks[self.end] = Chunk { since: stamp, blocks: 0, ghosts: 0 };
            self.end += 1;
        }
        self.chunks[self.end - 1].blocks += 1;
        self.total += 1;
        while self.end - self.first > 1 && self.total - self.chunks[self.first].blocks >= self.capacity {
            self.total -= self.chunks[self.first].blocks;
            self.ghosts -= self.chunks[self.first].ghosts;
            self.first += 1;
        }
    }

    /// Merges neighbours that are small, and moves all to the front.
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
    }
}
