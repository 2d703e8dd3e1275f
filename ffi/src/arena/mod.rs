//! The host tier's memory: one mapping, cut into blocks, borrowed block by block at run time.
//!
//! ```text
//!   base (2 MiB aligned)
//!   ├─ block 0 ─────────────┬pad┬─ block 1 ─────────────┬pad┬─ …
//!   │◄──── block_bytes ────►│   │
//!   │◄───────── stride ────────►│      stride = block_bytes rounded up to 4096
//! ```
//!
//! Thanks to the padding, every block starts and ends on a 4 KiB boundary. So O_DIRECT can move a block
//! of any size without a bounce buffer: a transfer may run into the block's own padding, never further.
//!
//! Invariants
//! - I1: the mapping covers `blocks × stride` bytes, mapped and initialised, from construction to drop.
//! - I2: a reference to a block's bytes, or a transfer into or out of them, exists only under the block's
//!   borrow word, so references never alias a writer. [`BorrowError`] lists the refusals.

mod borrow;
mod guard;
mod memory;
#[cfg(test)]
mod tests;

pub use borrow::BorrowError;
pub use guard::{BlockRead, BlockWrite};
pub use memory::{Backing, MAPPING_ALIGN_BYTES};

pub(crate) use borrow::BorrowWords;
use core::ptr::NonNull;
use kvstrata_core::storage::{Storage, StorageKind};
use memory::Mapping;
use std::sync::Arc;

/// Every block of an arena starts and ends (padding included) on a multiple of this many bytes.
pub const BLOCK_ALIGN_BYTES: usize = 4096;

/// Why an arena cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// A size is zero, or the product of the sizes does not fit the address space.
    #[error("an arena cannot have {blocks} blocks of {block_bytes} bytes: {why}")]
    Size {
        /// Requested number of blocks.
        blocks: usize,
        /// Bytes per block.
        block_bytes: usize,
        /// Why the sizes are impossible.
        why: &'static str,
    },
    /// The kernel refused the memory.
    #[error(
        "cannot map {bytes} bytes for an arena: {source}; use fewer or \
         smaller blocks, or raise the memory limit"
    )]
    Map {
        /// Requested bytes.
        bytes: usize,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

/// Page-aligned host memory for `blocks` blocks of `block_bytes` bytes each, initially zeroed.
#[derive(Debug)]
pub struct HostArena {
    mapping: Mapping,
    words: BorrowWords,
    block_bytes: usize,
    stride: usize,
}

/// While it lives, forked children do not inherit the arena.
#[derive(Debug)]
pub(crate) struct Unforked(Arc<HostArena>);

impl Drop for Unforked {
    fn drop(&mut self) {
        self.0.mapping.fork_again();
    }
}

impl HostArena {
    /// Maps an arena. Pages are touched at first use, or when a volume registers them.
    ///
    /// # Errors
    /// [`ArenaError`]: a zero or impossible size, or no memory.
    pub fn new(blocks: usize, block_bytes: usize) -> Result<Arc<HostArena>, ArenaError> {
        let size = |why| ArenaError::Size { blocks, block_bytes, why };
        if blocks == 0 || block_bytes == 0 {
            return Err(size("both numbers must be at least 1"));
        }
        let too_large = || size("their product exceeds the address space; use fewer or smaller blocks");
        let stride = block_bytes.checked_next_multiple_of(BLOCK_ALIGN_BYTES).ok_or_else(too_large)?;
        let bytes = stride.checked_mul(blocks).ok_or_else(too_large)?;
        if bytes > isize::MAX as usize / 2 {
            return Err(too_large());
        }
        let mapping = Mapping::new(bytes).map_err(|source| ArenaError::Map { bytes, source })?;
        Ok(Arc::new(HostArena { mapping, words: BorrowWords::new(blocks), block_bytes, stride }))
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.words.blocks()
    }

    /// Usable bytes per block: the length of every guard.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Bytes from the start of one block to the start of the next: `block_bytes` rounded up to 4096.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Returns the kind of pages that back the arena.
    #[must_use]
    pub fn backing(&self) -> Backing {
        self.mapping.backing()
    }

    /// Borrows a block for reading.
    ///
    /// # Errors
    /// [`BorrowError`]: the block is being written, or the index is out of range.
    pub fn read(self: &Arc<Self>, block: usize) -> Result<BlockRead, BorrowError> {
        self.words.take_read(block)?;
        Ok(BlockRead::new(Arc::clone(self), block))
    }

    /// Borrows a block for writing, exclusively.
    ///
    /// # Errors
    /// [`BorrowError`]: the block is being read or written, or the index is out of range.
    pub fn write(self: &Arc<Self>, block: usize) -> Result<BlockWrite, BorrowError> {
        self.words.take_write(block)?;
        Ok(BlockWrite::new(Arc::clone(self), block))
    }

    /// Returns the whole mapping, which covers the blocks: its base and its length in bytes, both
    /// multiples of 2 MiB.
    pub(crate) fn mapped(&self) -> (NonNull<u8>, usize) {
        (self.mapping.base(), self.mapping.bytes())
    }

    /// Keeps the arena from child processes. While pages are pinned for a device, a fork would copy each
    /// of them. With an older driver, it would even give the parent other pages than those that the
    /// device writes.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn do_not_fork(self: &Arc<Self>) -> std::io::Result<Unforked> {
        self.mapping.do_not_fork()?;
        Ok(Unforked(Arc::clone(self)))
    }

    fn words(&self) -> &BorrowWords {
        &self.words
    }

    /// Returns the address of a block that a guard holds, hence in range.
    fn block_pointer(&self, block: usize) -> NonNull<u8> {
        debug_assert!(block < self.blocks());
        // SAFETY: `block` < `blocks`, so that the offset lies within the mapping (I1).
        unsafe { self.mapping.base().add(block * self.stride) }
    }
}

impl Storage for HostArena {
    fn kind(&self) -> StorageKind {
        StorageKind::System
    }

    fn base_address(&self) -> u64 {
        self.mapping.base().as_ptr().addr() as u64
    }

    fn size_bytes(&self) -> u64 {
        // The span of the blocks; the mapping's tail up to the next 2 MiB belongs to no block.
        debug_assert!(self.blocks() * self.stride <= self.mapping.bytes());
        (self.blocks() * self.stride) as u64
    }
}
