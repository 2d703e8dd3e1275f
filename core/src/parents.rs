//! The parent's hash of each block of a tier, so that it goes down with the block and is
//! written beside its payload.
//!
//! # Orderings
//! Relaxed: the owner of a block writes its entry before the block is registered, and the caller that
//! has evicted the block reads it; the pool's transitions order the two.

use crate::hash::SequenceHash;
use crate::id::BlockId;
use crate::sync::{AtomicU64, Relaxed};
use alloc::boxed::Box;

/// By block number: low and high half of the parent's hash, zero for a block without a parent.
#[derive(Debug)]
pub struct Parents(Box<[[AtomicU64; 2]]>);

impl Parents {
    /// Parents for `blocks` blocks, all without one.
    #[must_use]
    pub fn new(blocks: usize) -> Parents {
        Parents((0..blocks).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect())
    }

    /// Returns the parent's hash of a block that the caller holds, or has evicted.
    #[must_use]
    pub fn get(&self, block: BlockId) -> Option<SequenceHash> {
        let [low, high] = self.0.get(block.index())?;
        let hash = u128::from(high.load(Relaxed)) << 64 | u128::from(low.load(Relaxed));
        (hash != 0).then_some(SequenceHash::from_u128(hash))
    }

    /// Sets the parent's hash. For the owner of a block that is about to be registered.
    pub fn set(&self, block: BlockId, parent: Option<SequenceHash>) {
        let Some([low, high]) = self.0.get(block.index()) else { return };
        let hash = parent.map_or(0, SequenceHash::to_u128);
        low.store(hash as u64, Relaxed);
        high.store((hash >> 64) as u64, Relaxed);
    }
}
