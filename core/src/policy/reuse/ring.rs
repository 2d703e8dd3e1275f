//! Words in the order in which they were written: all threads write, and one at a time reads.
//!
//! ```text
//!   head ─► │ word │ word │ 0 │ word │ … ◄─ tail        0: empty, or reserved and not written yet
//! ```
//!
//! There is one ring, not one per thread, so that events on a block are consumed roughly in the order in
//! which they happened. A use is then hardly ever matched with a later wait. (A release is written when its
//! batch ends. A use of one of its blocks before that is read first; the block then seems to wait while it
//! is in use, until its next release.) Work that one thread at a time does, whichever thread that is, is
//! learned as the work of one. The cost is one exchange per page, as a release has one on the timeline.
//!
//! I1. A word stands for itself and publishes nothing, so it is written and read Relaxed.
//! I2. A place before the head is 0 when a writer may reserve it again: the reader empties it before
//!     it moves the head.
//! I3. Words are read in the order in which their places were reserved, the words of a page
//!     consecutively. A place that is reserved and not written yet holds up those behind it.

use super::journal::Record;
use crate::sync::{Acquire, AtomicU32, AtomicU64, Relaxed, Release, site, skipped};
use alloc::boxed::Box;

/// How many events some words stand for: the guard must learn this also of words that are lost.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Weight {
    /// Blocks that the words report.
    pub(super) blocks: u32,
    /// The evicted ones among them, which LRU still has.
    pub(super) evicted: u32,
}

pub(super) struct Ring {
    tail: AtomicU64,
    /// Written by the reader only.
    head: AtomicU64,
    /// A `Weight`.
    lost: AtomicU64,
    /// First stamp of the batch that was read last. The reader's own; a page may be read in two parts (I3).
    batch: AtomicU32,
    words: Box<[AtomicU64]>,
}

impl Ring {
    pub(super) fn new(words: usize) -> Ring {
        Ring {
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            batch: AtomicU32::new(0),
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Bytes besides the struct itself.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    fn size(&self) -> u64 {
        self.words.len() as u64
    }

    #[inline]
    fn word(&self, at: u64) -> &AtomicU64 {
        &self.words[(at % self.size()) as usize]
    }

    /// Writes a page's words consecutively. Without room they are lost, and their weight is counted.
    /// Returns whether the ring is half full.
    #[inline]
    pub(super) fn write(&self, words: &[u64], weight: Weight) -> bool {
        if words.is_empty() {
            return false;
        }
        let count = words.len() as u64;
        // Relaxed: a guess; the exchange decides.
        let mut tail = self.tail.load(Relaxed);
        let is_half_full = loop {
            // Acquire: pairs with the Release in `read`: we write here after the place was emptied (I2).
            let head = self.head.load(site!("reuse_journal_head_relaxed", Acquire));
            if tail + count > head + self.size() && !skipped!("reuse_journal_full") {
                // Relaxed: two counts.
                self.lost.fetch_add(u64::from(weight.blocks) | u64::from(weight.evicted) << 32, Relaxed);
                return true;
            }
            // Relaxed: it orders only which writer has which places.
            match self.tail.compare_exchange_weak(tail, tail + count, Relaxed, Relaxed) {
                Ok(_) => break tail + count - head > self.size() / 2,
                Err(seen) => tail = seen,
            }
        };
        for (i, word) in words.iter().enumerate() {
            self.word(tail + i as u64).store(*word, Relaxed);
        }
        is_half_full
    }

    /// Passes each record to `hear`, with the first stamp of its batch if it belongs to one. Returns the
    /// weight of the records that were lost.
    pub(super) fn read(&self, mut hear: impl FnMut(Record, u32)) -> Weight {
        // Relaxed, both: the head is the reader's own, and the lock hands it on. The tail
        // tells where to stop.
        let (from, tail) = (self.head.load(Relaxed), self.tail.load(Relaxed));
        let mut head = from;
        while head < tail {
            let first = self.word(head).load(Relaxed);
            let is_double = Record::is_double(first);
            let second = if is_double { self.word(head + 1).load(Relaxed) } else { 1 };
            if first == 0 || second == 0 {
                // I3.
                break;
            }
            self.word(head).store(0, Relaxed);
            if is_double {
                self.word(head + 1).store(0, Relaxed);
            }
            head += 1 + u64::from(is_double);
            let record = Record::of(first, second);
            if let Record::Released { first, .. } = record {
                // Relaxed: the reader's own.
                self.batch.store(first, Relaxed);
            }
            hear(record, self.batch.load(Relaxed));
        }
        if head != from {
            // Release: pairs with the Acquire in `write` (I2).
            self.head.store(head, Release);
        }
        // Relaxed, both: two counts.
        let lost = if self.lost.load(Relaxed) == 0 { 0 } else { self.lost.swap(0, Relaxed) };
        Weight { blocks: lost as u32, evicted: (lost >> 32) as u32 }
    }

    /// Changes a word, as a late writer would.
    #[cfg(all(test, not(loom)))]
    pub(super) fn exchange(&self, at: u64, word: u64) -> u64 {
        self.word(at).swap(word, Relaxed)
    }
}
