//! Host memory of one size class: blocks with their lengths and sums.
//!
//! ```text
//!   arena   block 0 … h-1: the host tier │ block h … h+s-1: staging
//!   words   bytes used, and whether the sum is known │ the sum of those bytes
//! ```
//!
//! Invariants
//! - I1: the owner of a block writes its length before it registers the block. A holder may add the sum
//!   later, once.
//! - I2: sums are written and read under the store's lock. Lengths are read without it, by holders.
//!
//! # Orderings
//! Relaxed throughout: the pool's registration publishes a length (I1), and the lock orders the sums (I2).

use kvstrata_core::BlockId;
use kvstrata_ffi::arena::{BlockRead, BlockWrite, HostArena};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The bit of a length word that says that the sum is known.
const SUMMED: u32 = 1 << 31;

#[derive(Debug)]
pub(crate) struct HostBlocks {
    arena: Arc<HostArena>,
    lengths: Box<[AtomicU32]>,
    sums: Box<[AtomicU64]>,
}

impl HostBlocks {
    pub(crate) fn new(arena: Arc<HostArena>) -> HostBlocks {
        let blocks = arena.blocks();
        HostBlocks {
            arena,
            lengths: (0..blocks).map(|_| AtomicU32::new(0)).collect(),
            sums: (0..blocks).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Borrows a block to write `bytes` to it; notes that as its length, without a sum.
    pub(crate) fn write(&self, block: BlockId, bytes: usize) -> Option<BlockWrite> {
        let guard = self.arena.write(block.index()).ok()?.first(bytes);
        self.lengths[block.index()].store(bytes as u32, Relaxed);
        Some(guard)
    }

    /// Borrows the used bytes of a block.
    pub(crate) fn read(&self, block: BlockId) -> Option<BlockRead> {
        Some(self.arena.read(block.index()).ok()?.first(self.bytes_of(block)))
    }

    /// Returns the used bytes of a block that the caller holds.
    pub(crate) fn bytes_of(&self, block: BlockId) -> usize {
        (self.lengths[block.index()].load(Relaxed) & !SUMMED) as usize
    }

    /// Returns the sum of a block that the caller holds, if it is known.
    pub(crate) fn sum_of(&self, block: BlockId) -> Option<u64> {
        let is_known = self.lengths[block.index()].load(Relaxed) & SUMMED != 0;
        is_known.then(|| self.sums[block.index()].load(Relaxed))
    }

    /// Keeps the sum of a block that the caller holds.
    pub(crate) fn seal(&self, block: BlockId, sum: u64) {
        self.sums[block.index()].store(sum, Relaxed);
        self.lengths[block.index()].fetch_or(SUMMED, Relaxed);
    }
}
