//! The pool's counters, and the census that checks them.
//!
//! Counters lie in lanes, a cache line each, so that threads do not contend for them; a reader adds them
//! up. A sum is exact at rest and a moment old otherwise.

use super::BlockPool;
use crate::policy::{Eviction, ReuseStats};
use crate::slot::{Priority, State, Word};
use crate::sync::{AtomicU64, Relaxed};

/// One lane's counts. Wrapping: a block may be counted out on another lane than it was counted in.
pub(super) struct Lane {
    pub(super) inactive: AtomicU64,
    /// The pinned ones among them.
    pub(super) pinned: AtomicU64,
    pub(super) stored: AtomicU64,
    pub(super) removed: AtomicU64,
    pub(super) evicted: AtomicU64,
    pub(super) deduplicated: AtomicU64,
    pub(super) unplaced: AtomicU64,
}

impl Lane {
    pub(super) fn new() -> Lane {
        let zero = || AtomicU64::new(0);
        Lane {
            inactive: zero(),
            pinned: zero(),
            stored: zero(),
            removed: zero(),
            evicted: zero(),
            deduplicated: zero(),
            unplaced: zero(),
        }
    }
}

/// Counters since construction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Registrations: Store events.
    pub stored: u64,
    /// Registrations ended: Remove events.
    pub removed: u64,
    /// The registrations among them that eviction ended.
    pub evicted: u64,
    /// `register` calls that found an equal hash.
    pub deduplicated: u64,
    /// Blocks released without a place in the eviction order, since a stalled thread left the timeline
    /// no room: they are evicted first.
    pub unplaced: u64,
}

/// The state of each slot, counted one by one. The numbers are meaningful only at rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Bits set in the free map.
    pub free: usize,
    /// Registered, unreferenced.
    pub inactive: usize,
    /// Registered, referenced.
    pub active: usize,
    /// Owned through a typestate handle.
    pub owned: usize,
}

pub(super) fn count(counter: &AtomicU64, by: u64) {
    // Relaxed: a count publishes nothing.
    counter.fetch_add(by, Relaxed);
}

impl BlockPool {
    fn sum(&self, counter: impl Fn(&Lane) -> &AtomicU64) -> u64 {
        // Relaxed: see `count`.
        self.lanes.iter().fold(0, |sum, lane| sum.wrapping_add(counter(lane).load(Relaxed)))
    }

    /// Counts a block that became inactive, or ceased to be. Batches count theirs at once.
    pub(super) fn count_inactive(&self, word: Word, by: i64) {
        let lane = self.lane();
        count(&lane.inactive, by as u64);
        if word.priority() == Priority::Pinned {
            count(&lane.pinned, by as u64);
        }
    }

    /// The number of free blocks.
    ///
    /// Example: [figures](BlockPool#figures).
    pub fn free(&self) -> usize {
        self.free.available()
    }

    /// Registered blocks without references: lookups find them, and, unless pinned, they are evictable.
    ///
    /// Example: [figures](BlockPool#figures).
    pub fn inactive(&self) -> usize {
        self.clamped(|lane| &lane.inactive)
    }

    /// Blocks that an allocation can get: free, or inactive and not pinned. A parent waits for its
    /// children, so some blocks that were not released tail first may have to wait for others; and
    /// leased blocks wait for the end of their leases.
    ///
    /// Example: [figures](BlockPool#figures).
    pub fn available(&self) -> usize {
        self.free() + self.inactive().saturating_sub(self.clamped(|lane| &lane.pinned))
    }

    /// A sum taken during other threads' counts may be off, even below zero.
    fn clamped(&self, counter: impl Fn(&Lane) -> &AtomicU64) -> usize {
        (self.sum(counter) as i64).clamp(0, self.capacity() as i64) as usize
    }

    /// The number of blocks that are held.
    ///
    /// Example: [figures](BlockPool#figures).
    pub fn active(&self) -> usize {
        self.capacity().saturating_sub(self.free() + self.inactive())
    }

    /// The counters.
    ///
    /// Example: [figures](BlockPool#figures).
    pub fn stats(&self) -> Stats {
        Stats {
            stored: self.sum(|lane| &lane.stored),
            removed: self.sum(|lane| &lane.removed),
            evicted: self.sum(|lane| &lane.evicted),
            deduplicated: self.sum(|lane| &lane.deduplicated),
            unplaced: self.sum(|lane| &lane.unplaced),
        }
    }

    /// How the policy `reuse` does against an LRU of the same room; none under another policy.
    ///
    /// Example: [figures](BlockPool#figures).
    pub fn reuse_stats(&self) -> Option<ReuseStats> {
        self.policy.beside_lru()
    }

    /// Counts every slot. O(capacity); for tests and diagnosis, with no other thread at work.
    ///
    /// Example: [figures](BlockPool#figures).
    pub fn census(&self) -> Census {
        let mut census = Census::default();
        for (number, slot) in self.slots.iter().enumerate() {
            let word = slot.word();
            match word.state() {
                _ if self.free.is_free(number as u32) => census.free += 1,
                State::Registered if word.references() == 0 => census.inactive += 1,
                State::Registered => census.active += 1,
                _ => census.owned += 1,
            }
        }
        census
    }

    /// Bytes of all structures of the pool.
    ///
    /// Example: [figures](BlockPool#figures).
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.slots)
            + size_of_val(&*self.lanes)
            + self.free.memory_bytes()
            + self.registry.memory_bytes()
            + self.timeline.memory_bytes()
            + self.unplaced.memory_bytes()
            + self.policy.memory_bytes()
    }
}
