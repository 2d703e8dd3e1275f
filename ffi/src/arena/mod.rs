//! The host tier's memory: one mapping, cut into blocks, borrowed block by block at run time.
//!
//! ```text
//!   base (2 MiB aligned)
//!   ├─ block 0 ─────────────┬pad┬─ block 1 ─────────────┬pad┬─ …
//!   │◄──── block_bytes ────►│   │
//!   │◄───────── stride ────────►│      stride = block_bytes rounded up to 4096
//! ```
//!
//! The padding makes every block start and end on a 4 KiB boundary, so that O_DIRECT can move a block of
//! any size without a bounce buffer: a transfer may run into the block's own padding, never further.
//!
//! Invariants
//! - I1: the mapping covers `blocks × stride` bytes, mapped and initialised, from construction to drop.
//! - I2: a reference to a block's bytes, and a transfer into or out of them, exists only under its borrow
//!   word ([`BorrowError`] says what else there is), so that references never alias a writer.

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
        /// Blocks asked for.
        blocks: usize,
        /// Bytes a block.
        block_bytes: usize,
        /// What is wrong with them.
        why: &'static str,
    },
    /// The kernel refused the memory.
    #[error(
        "cannot map {bytes} bytes for an arena: {source}; use fewer or \
         smaller blocks, or raise the memory limit"
    )]
    Map {
        /// Bytes asked for.
        bytes: usize,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

/// Page-aligned host memory for `blocks` blocks of `block_bytes` bytes each, zeroed at first.
#[derive(Debug)]
pub struct HostArena {
    mapping: Mapping,
    words: BorrowWords,
    block_bytes: usize,
    stride: usize,
}

/// An arena that child processes do not have, as long as this lives.
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

    /// Usable bytes a block: the length of every guard.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Bytes from one block's start to the next one's: `block_bytes` rounded up to 4096.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// What backs the arena.
    #[must_use]
    pub fn backing(&self) -> Backing {
        self.mapping.backing()
    }

    /// Borrows a block for reading.
    ///
    /// # Errors
    /// [`BorrowError`]: the block is being written, or there is none of that index.
    pub fn read(self: &Arc<Self>, block: usize) -> Result<BlockRead, BorrowError> {
        self.words.take_read(block)?;
        Ok(BlockRead::new(Arc::clone(self), block))
    }

    /// Borrows a block for writing, alone.
    ///
    /// # Errors
    /// [`BorrowError`]: the block is being read or written, or there is none of that index.
    pub fn write(self: &Arc<Self>, block: usize) -> Result<BlockWrite, BorrowError> {
        self.words.take_write(block)?;
        Ok(BlockWrite::new(Arc::clone(self), block))
    }

    /// The whole mapping, which covers the blocks: its base, a multiple of 2 MiB, and its bytes, too.
    pub(crate) fn mapped(&self) -> (NonNull<u8>, usize) {
        (self.mapping.base(), self.mapping.bytes())
    }

    /// Keeps the arena from child processes. While pages are pinned for a device, a fork would copy each of them, or, with an older
    /// driver, give the parent other pages than the device writes.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn do_not_fork(self: &Arc<Self>) -> std::io::Result<Unforked> {
        self.mapping.do_not_fork()?;
        Ok(Unforked(Arc::clone(self)))
    }

    fn words(&self) -> &BorrowWords {
        &self.words
    }

    /// Address of a block that a guard holds, hence in range.
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
        // What the blocks span; the mapping's tail up to the next 2 MiB belongs to no block.
        debug_assert!(self.blocks() * self.stride <= self.mapping.bytes());
        (self.blocks() * self.stride) as u64
    }
}
