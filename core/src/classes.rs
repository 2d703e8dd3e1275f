//! The eviction class of each block of a tier, so that it moves along with the block's bytes: a pool
//! forgets it with the registration.
//!
//! # Orderings
//! Relaxed. An entry is written by a holder of its block, or by the caller that is about to register it.
//! It is read by a holder, or by the caller that has evicted the block. The pool's transitions order the
//! two. Of two concurrent writes by holders the last one stays, here and in the pool, and perhaps not
//! the same one: a class is a wish. The count of blocks with another class than [`Priority::Normal`]
//! changes by the value that each write replaced, so it is exact when no write is under way.

use crate::id::BlockId;
use crate::slot::Priority;
use crate::sync::{AtomicU8, AtomicU32, Relaxed};
use alloc::boxed::Box;

/// Classes by block number.
#[derive(Debug)]
pub struct Classes {
    of: Box<[AtomicU8]>,
    /// The number of blocks of another class than [`Priority::Normal`].
    others: AtomicU32,
}

impl Classes {
    /// Classes for `blocks` blocks, all [`Priority::Normal`].
    #[must_use]
    pub fn new(blocks: usize) -> Classes {
        let of = (0..blocks).map(|_| AtomicU8::new(Priority::Normal as u8)).collect();
        Classes { of, others: AtomicU32::new(0) }
    }

    /// Returns the class of a block that the caller holds, or has evicted.
    #[must_use]
    pub fn get(&self, block: BlockId) -> Priority {
        match self.of.get(block.index()).map(|class| class.load(Relaxed)) {
            Some(0) => Priority::Low,
            Some(2) => Priority::High,
            Some(3) => Priority::Pinned,
            _ => Priority::Normal,
        }
    }

    /// Sets the class of a block that the caller holds, or is about to register.
    pub fn set(&self, block: BlockId, class: Priority) {
        let Some(entry) = self.of.get(block.index()) else { return };
        // Most blocks keep their class.
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

    /// Returns whether all blocks have [`Priority::Normal`], even those that are no longer registered.
    #[must_use]
    pub fn are_normal(&self) -> bool {
        self.others.load(Relaxed) == 0
    }
}

/// The class of a copy in a tier below. No caller could give it another one there, so
/// none is pinned for ever.
#[must_use]
pub fn below(class: Priority) -> Priority {
    class.min(Priority::High)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn classes_read_back_as_written() {
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
