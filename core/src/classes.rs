//! The class for eviction of each block of a tier, so that it goes along with the block's bytes: a pool forgets it with the registration.
//!
//! # Orderings
//! Relaxed: an entry is written by who holds its block, or is about to register it, and read by who holds it, or has evicted it; the pool's
//! transitions order the two. Of two that hold it and write at once one is last, here and in the pool, and perhaps not the same: a class is
//! a wish.

use crate::id::BlockId;
use crate::slot::Priority;
use crate::sync::{AtomicU8, Relaxed};
use alloc::boxed::Box;

/// By block number.
#[derive(Debug)]
pub struct Classes(Box<[AtomicU8]>);

impl Classes {
    /// For so many blocks, all of [`Priority::Normal`].
    #[must_use]
    pub fn new(blocks: usize) -> Classes {
        Classes((0..blocks).map(|_| AtomicU8::new(Priority::Normal as u8)).collect())
    }

    /// The class of a block that the caller holds, or has evicted.
    #[must_use]
    pub fn get(&self, block: BlockId) -> Priority {
        match self.0.get(block.index()).map(|class| class.load(Relaxed)) {
            Some(0) => Priority::Low,
            Some(2) => Priority::High,
            Some(3) => Priority::Pinned,
            _ => Priority::Normal,
        }
    }

    /// For who holds a block, or is about to register it.
    pub fn set(&self, block: BlockId, class: Priority) {
        if let Some(entry) = self.0.get(block.index()) {
            entry.store(class as u8, Relaxed);
        }
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
        let classes = Classes::new(1);
        assert_eq!(classes.get(BlockId(0)), Priority::Normal);
        for class in [Priority::Low, Priority::Normal, Priority::High, Priority::Pinned] {
            classes.set(BlockId(0), class);
            assert_eq!(classes.get(BlockId(0)), class);
        }
        classes.set(BlockId(1), Priority::Low);
        assert_eq!((classes.get(BlockId(1)), below(Priority::Pinned)), (Priority::Normal, Priority::High));
    }
}
