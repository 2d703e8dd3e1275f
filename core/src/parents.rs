//! The parent's hash of each block of a tier, so that it goes down with the block and is written beside its
//! payload.
//!
//! # Orderings
//! Relaxed: an entry is written by the owner of its block before the block is registered, and read by who has
//! evicted it; the pool's transitions order the two.

use crate::hash::SequenceHash;
use crate::id::BlockId;
use crate::sync::{AtomicU64, Relaxed};
use alloc::boxed::Box;

/// By block number: low and high half of the parent's hash, zero for a block that has none.
#[derive(Debug)]
pub struct Parents(Box<[[AtomicU64; 2]]>);

impl Parents {
    /// For so many blocks, none of which has a parent.
    #[must_use]
    pub fn new(blocks: usize) -> Parents {
        Parents((0..blocks).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect())
    }

    /// The parent's hash of a block that the caller holds, or has evicted.
    #[must_use]
    pub fn get(&self, block: BlockId) -> Option<SequenceHash> {
        let [low, high] = self.0.get(block.index())?;
        let hash = u128::from(high.load(Relaxed)) << 64 | u128::from(low.load(Relaxed));
        (hash != 0).then_some(SequenceHash::from_u128(hash))
    }

    /// For the owner of a block that is about to be registered.
    pub fn set(&self, block: BlockId, parent: Option<SequenceHash>) {
        let Some([low, high]) = self.0.get(block.index()) else { return };
        let hash = parent.map_or(0, SequenceHash::to_u128);
        low.store(hash as u64, Relaxed);
        high.store((hash >> 64) as u64, Relaxed);
    }
}
