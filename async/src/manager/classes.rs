//! The class for eviction of each block of a tier, so that it goes along with the block's bytes: a pool forgets it with the registration.
//!
//! # Orderings
//! Relaxed: an entry is written by who holds its block, or is about to register it, and read by who holds it, or has evicted it; the pool's
//! transitions order the two. Of two that hold it and write at once one is last, here and in the pool, and perhaps not the same: a class is
//! a wish.

use kvstrata_core::{BlockId, Priority};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// By block number.
#[derive(Debug)]
pub(super) struct Classes(Box<[AtomicU8]>);

impl Classes {
    pub(super) fn new(blocks: usize) -> Classes {
        Classes((0..blocks).map(|_| AtomicU8::new(Priority::Normal as u8)).collect())
    }

    pub(super) fn get(&self, block: BlockId) -> Priority {
        match self.0.get(block.index()).map(|class| class.load(Relaxed)) {
            Some(0) => Priority::Low,
            Some(2) => Priority::High,
            Some(3) => Priority::Pinned,
            _ => Priority::Normal,
        }
    }

    pub(super) fn set(&self, block: BlockId, class: Priority) {
        if let Some(entry) = self.0.get(block.index()) {
            entry.store(class as u8, Relaxed);
        }
    }
}

/// The class of a copy in a tier below: nobody could give it another one there, so none stays for ever.
pub(super) fn below(class: Priority) -> Priority {
    class.min(Priority::High)
}

#[cfg(test)]
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
