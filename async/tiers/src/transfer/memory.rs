//! Host memory in blocks, with a sum for each layer of each block.
//!
//! ```text
//!   arena    block 0 │ block 1 │ …          a block: layer 0 │ layer 1 │ … │ layer L-1, contiguous
//!   sums     L words │ L words │ …          XXH3-64 of each layer's bytes
//! ```
//!
//! Invariants
//! - I1: the writer of a block's bytes writes its sums, and a reader of the bytes reads them, each under
//!   the block's guard.
//!
//! # Orderings
//! Relaxed throughout: the block's borrow word, or the lock through which its guard has passed, orders
//! sums as it orders bytes (I1).

use kvstrata_ffi::arena::{ArenaError, BlockRead, BlockWrite, BorrowError, HostArena};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use twox_hash::XxHash3_64;

/// Why host memory cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The arena cannot be made.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// The arena's blocks are not as long as all layers together.
    #[error("bytes per block of host memory: {block_bytes}, of all layers: {layers_bytes}; make them equal")]
    Layers {
        /// Bytes of the arena's blocks.
        block_bytes: usize,
        /// Bytes of all layers together.
        layers_bytes: usize,
    },
}

/// Blocks of host memory.
#[derive(Debug)]
pub struct HostMemory {
    arena: Arc<HostArena>,
    /// The end of each layer in a block.
    ends: Box<[usize]>,
    sums: Box<[AtomicU64]>,
}

impl HostMemory {
    /// Makes memory for `blocks` blocks, with layers of these sizes in bytes.
    ///
    /// # Errors
    /// [`MemoryError`], if the arena cannot be made.
    pub fn new(blocks: usize, layers: &[usize]) -> Result<Arc<HostMemory>, MemoryError> {
        HostMemory::over(HostArena::new(blocks, layers.iter().sum())?, layers)
    }

    /// Makes host memory over an existing arena.
    ///
    /// # Errors
    /// [`MemoryError::Layers`], if the layers together are not as long as a block of the arena.
    pub fn over(arena: Arc<HostArena>, layers: &[usize]) -> Result<Arc<HostMemory>, MemoryError> {
        let ends: Box<[usize]> = layers
            .iter()
            .scan(0, |end, layer| {
                *end += layer;
                Some(*end)
            })
            .collect();
        let layers_bytes = ends.last().copied().unwrap_or(0);
        // Lent blocks have lengths of their own.
        let other =
            (0..arena.blocks()).map(|block| arena.bytes_of(block)).find(|bytes| *bytes != layers_bytes);
        if let Some(block_bytes) = other {
            return Err(MemoryError::Layers { block_bytes, layers_bytes });
        }
        let sums = (0..arena.blocks() * ends.len()).map(|_| AtomicU64::new(0)).collect();
        Ok(Arc::new(HostMemory { arena, ends, sums }))
    }

    /// Returns the arena with the bytes.
    #[must_use]
    pub fn arena(&self) -> &Arc<HostArena> {
        &self.arena
    }

    /// Returns the layers of a block.
    #[must_use]
    pub fn layers(&self) -> u32 {
        self.ends.len() as u32
    }

    /// Returns the range of a layer's bytes in a block. None if there is no such layer.
    #[must_use]
    pub fn layer(&self, layer: u32) -> Option<Range<usize>> {
        let end = *self.ends.get(layer as usize)?;
        let start = layer.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
        Some(start..end)
    }

    /// Returns the bytes of some layers of a block.
    #[must_use]
    pub fn bytes_of(&self, layers: &Range<u32>) -> usize {
        layers.clone().filter_map(|layer| self.layer(layer)).map(|range| range.len()).sum()
    }

    /// Borrows a block for reading.
    ///
    /// # Errors
    /// [`BorrowError`], if the block is being written.
    pub fn read(&self, block: u32) -> Result<BlockRead, BorrowError> {
        self.arena.read(block as usize)
    }

    /// Borrows a block for writing.
    ///
    /// # Errors
    /// [`BorrowError`], if the block is being read or written.
    pub fn write(&self, block: u32) -> Result<BlockWrite, BorrowError> {
        self.arena.write(block as usize)
    }

    /// Returns the sum of a layer's bytes, as [`seal`](HostMemory::seal) keeps it: XXH3-64.
    #[must_use]
    pub fn sum_of(bytes: &[u8]) -> u64 {
        XxHash3_64::oneshot(bytes)
    }

    /// Keeps the sum of a layer that was written to the guarded block.
    pub fn seal(&self, held: &BlockWrite, layer: u32, sum: u64) {
        if let Some(word) = self.word(held.block(), layer) {
            word.store(sum, Relaxed);
        }
    }

    /// Returns whether this is the sum of a layer of the guarded block.
    #[must_use]
    pub fn matches(&self, held: &BlockRead, layer: u32, sum: u64) -> bool {
        self.word(held.block(), layer).is_some_and(|word| word.load(Relaxed) == sum)
    }

    /// Returns whether the bytes of all layers of the block match their sums.
    #[must_use]
    pub fn is_sealed(&self, held: &BlockRead) -> bool {
        (0..self.layers()).all(|layer| {
            let bytes = self.layer(layer).and_then(|range| held.get(range));
            bytes.is_some_and(|bytes| self.matches(held, layer, HostMemory::sum_of(bytes)))
        })
    }

    fn word(&self, block: usize, layer: u32) -> Option<&AtomicU64> {
        let layer = layer as usize;
        (layer < self.ends.len()).then(|| self.sums.get(block * self.ends.len() + layer)).flatten()
    }
}
