//! The class for eviction of each block of a tier, so that it goes along with the block's bytes: a pool
//! forgets it with the registration.
//!
//! # Orderings
//! Relaxed: an entry is written by who holds its block, or is about to register it, and read by who holds it,
//! or has evicted it; the pool's transitions order the two. Of two that hold it and write at once one is
//! last, here and in the pool, and perhaps not the same: a class is a wish. How many have another than
//! [`Priority::Normal`] is counted by what each write has found, so that it is exact when nobody writes.

use crate::id::BlockId;
use crate::slot::Priority;
use crate::sync::{AtomicU8, AtomicU32, Relaxed};
use alloc::boxed::Box;

/// By block number.
#[derive(Debug)]
pub struct Classes {
    of: Box<[AtomicU8]>,
    /// Blocks of another class than [`Priority::Normal`].
    others: AtomicU32,
}

impl Classes {
    /// For so many blocks, all of [`Priority::Normal`].
    #[must_use]
    pub fn new(blocks: usize) -> Classes {
        let of = (0..blocks).map(|_| AtomicU8::new(Priority::Normal as u8)).collect();
        Classes { of, others: AtomicU32::new(0) }
    }

    /// The class of a block that the caller holds, or has evicted.
    #[must_use]
    pub fn get(&self, block: BlockId) -> Priority {
        match self.of.get(block.index()).map(|class| class.load(Relaxed)) {
            Some(0) => Priority::Low,
            Some(2) => Priority::High,
            Some(3) => Priority::Pinned,
            _ => Priority::Normal,
        }
    }

    /// For who holds a block, or is about to register it.
    pub fn set(&self, block: BlockId, class: Priority) {
        let Some(entry) = self.of.get(block.index()) else { return };
        // Most have the class that they had.
        if entry.load(Relaxed) == class as u8 {
            return;
        }
        let before = entry.swap(class as u8, Relaxed);
        match (before == Priority::Normal as u8, class == Priority::Normal) {
            (true, false) => _ = self.others.fetch_add(1, Relaxed),
            (false, true) => _ = self.others.fetch_sub(1, Relaxed),
            _ => {}
        }
    }

    /// Whether all blocks are of [`Priority::Normal`], those too that are not registered any more.
    #[must_use]
    pub fn are_normal(&self) -> bool {
        self.others.load(Relaxed) == 0
    }
}

/// The class of a copy in a tier below: nobody could give it another one there, so none stays for ever.
#[must_use]
pub fn below(class: Priority) -> Priority {
    class.min(Priority::High)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_class_is_read_as_it_was_written() {
        let classes = Classes::new(2);
        assert_eq!(classes.get(BlockId(0)), Priority::Normal);
        for class in [Priority::Low, Priority::Normal, Priority::High, Priority::Pinned, Priority::Normal] {
            classes.set(BlockId(0), class);
            assert_eq!(classes.get(BlockId(0)), class);
            assert_eq!(classes.are_normal(), class == Priority::Normal);
        }
        [0, 1, 0].into_iter().for_each(|block| classes.set(BlockId(block), Priority::High));
        classes.set(BlockId(0), Priority::Normal);
        assert!(!classes.are_normal(), "the other is not");
        classes.set(BlockId(2), Priority::Low);
        assert_eq!((classes.get(BlockId(2)), below(Priority::Pinned)), (Priority::Normal, Priority::High));
    }
}
