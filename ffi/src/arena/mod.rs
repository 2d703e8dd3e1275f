//! Host memory in blocks, borrowed block by block at run time: the host tier's memory, one mapping cut into
//! blocks, or memory that a caller lends.
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
//! The blocks of lent memory (`lent.rs`) lie anywhere, each with its own length and without padding.
//!
//! Invariants
//! - I1: each block's room ([`HostArena::room_of`]) is mapped and initialised, from construction to drop: the
//!   mapping covers `blocks × stride` bytes, and the lender keeps lent spans.
//! - I2: a reference to a block's bytes, or a transfer into or out of them, exists only under the block's
//!   borrow word, so references never alias a writer. [`BorrowError`] lists the refusals.

mod borrow;
mod guard;
mod lent;
mod memory;
#[cfg(test)]
mod tests;

pub use borrow::BorrowError;
pub use guard::{BlockRead, BlockWrite};
pub use lent::Span;
pub use memory::{Backing, MAPPING_ALIGN_BYTES};

pub(crate) use borrow::BorrowWords;
use core::any::Any;
use core::ptr::NonNull;
use kvstrata_core::storage::{Storage, StorageKind};
use lent::Lent;
use memory::Mapping;
use std::sync::Arc;

/// Every block of a mapped arena starts and ends (padding included) on a multiple of this many bytes.
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
    /// No memory was lent.
    #[error("spans = 0: an arena of lent memory needs at least one span; lend one for each block")]
    NoSpans,
    /// A lent span cannot be a block.
    #[error("span {block} of lent memory has {bytes} bytes: {why}")]
    Span {
        /// The span's index.
        block: usize,
        /// The span's bytes.
        bytes: usize,
        /// The reason, and the remedy.
        why: &'static str,
    },
}

/// Host memory in blocks: a mapping of its own ([`HostArena::new`]), or memory that a caller lends
/// ([`HostArena::lent`]).
#[derive(Debug)]
pub struct HostArena {
    words: BorrowWords,
    memory: Memory,
}

/// Buffers that an arena owns, by their raw pointers.
struct Owned(Vec<*mut [u8]>);

// SAFETY: the buffers are plain memory, and this value owns them.
unsafe impl Send for Owned {}
// SAFETY: no method of `&Owned` touches the buffers.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        for buffer in self.0.drain(..) {
            // SAFETY: made by `Box::into_raw`, and freed only here; the arena's guards are gone.
            drop(unsafe { Box::from_raw(buffer) });
        }
    }
}

/// The memory of an arena.
#[derive(Debug)]
enum Memory {
    Mapped { mapping: Mapping, block_bytes: usize, stride: usize },
    Lent(Lent),
}

/// While it lives, forked children do not inherit the arena.
#[derive(Debug)]
pub(crate) struct Unforked(Arc<HostArena>);

impl Drop for Unforked {
    fn drop(&mut self) {
        if let Memory::Mapped { mapping, .. } = &self.0.memory {
            mapping.fork_again();
        }
    }
}

impl HostArena {
    /// Maps an arena of page-aligned blocks, zeroed. Pages are touched at first use, or when a volume
    /// registers them.
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
        let memory = Memory::Mapped { mapping, block_bytes, stride };
        Ok(Arc::new(HostArena { words: BorrowWords::new(blocks), memory }))
    }

    /// Makes an arena of lent memory: block i is span i, of that span's length. Nothing is copied or touched.
    /// The drop of `owner`, which may be any value, ends the loan: after the last handle and the last guard
    /// of the arena. A volume does not register such an arena, and a CUDA device refuses it
    /// ([`BlockRead::is_aligned`] says which transfers go straight).
    ///
    /// # Safety
    /// Until `owner` is dropped:
    /// - each span is mapped, readable and initialised, and writable if anyone calls
    ///   [`write`](HostArena::write) of its block; any thread may reach it;
    /// - while a [`BlockRead`] of a block exists, no other code writes its span;
    /// - while a [`BlockWrite`] of a block exists, only its holder touches its span. This concerns
    ///   guards of other blocks and arenas, too, if their spans overlap it.
    ///
    /// # Errors
    /// [`ArenaError::NoSpans`], or [`ArenaError::Span`] for an impossible one. `owner` is dropped then.
    pub unsafe fn lent(
        spans: Vec<Span>,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Arc<HostArena>, ArenaError> {
        let (blocks, memory) = (spans.len(), Memory::Lent(Lent::new(spans, owner)?));
        Ok(Arc::new(HostArena { words: BorrowWords::new(blocks), memory }))
    }

    /// Makes an arena of buffers that it owns: block i is buffer i, of that buffer's length. The buffers are
    /// freed with the arena.
    ///
    /// ```
    /// use kvstrata_ffi::arena::HostArena;
    ///
    /// let arena = HostArena::of_buffers(vec![vec![1; 100], vec![2; 5000]])?;
    /// assert_eq!((arena.bytes_of(0), arena.bytes_of(1)), (100, 5000));
    /// arena.write(0)?.fill(3);
    /// assert_eq!(arena.read(0)?[99], 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`lent`](HostArena::lent): no buffer, or an empty one.
    pub fn of_buffers(buffers: Vec<Vec<u8>>) -> Result<Arc<HostArena>, ArenaError> {
        let buffers = buffers.into_iter().map(Vec::into_boxed_slice);
        // As raw pointers: a box would claim to be the only way to its bytes.
        let owner: Vec<*mut [u8]> = buffers.map(Box::into_raw).collect();
        let span =
            |buffer: &*mut [u8]| Some(Span { address: NonNull::new(buffer.cast())?, bytes: buffer.len() });
        let (spans, owner) = (owner.iter().filter_map(span).collect(), Owned(owner));
        // SAFETY: `owner` keeps the buffers, which nothing else can reach, until the arena drops it; they are
        // initialised, writable, and apart from each other.
        unsafe { HostArena::lent(spans, Box::new(owner)) }
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.words.blocks()
    }

    /// Bytes of the longest block. All blocks of a mapped arena are of this length; see
    /// [`bytes_of`](HostArena::bytes_of) for those of a lent one.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        match &self.memory {
            Memory::Mapped { block_bytes, .. } => *block_bytes,
            Memory::Lent(lent) => lent.longest(),
        }
    }

    /// Usable bytes of a block: the length of its guards, unless they are narrowed. 0 for an index that is
    /// out of range.
    #[must_use]
    pub fn bytes_of(&self, block: usize) -> usize {
        match &self.memory {
            Memory::Mapped { block_bytes, .. } if block < self.blocks() => *block_bytes,
            Memory::Mapped { .. } => 0,
            Memory::Lent(lent) => lent.spans().get(block).map_or(0, |span| span.bytes),
        }
    }

    /// Bytes that a transfer of a block may touch, from the block's start on: with the padding of a mapped
    /// block, exactly the span of a lent one. 0 for an index that is out of range.
    #[must_use]
    pub fn room_of(&self, block: usize) -> usize {
        match &self.memory {
            Memory::Mapped { stride, .. } if block < self.blocks() => *stride,
            Memory::Mapped { .. } => 0,
            Memory::Lent(lent) => lent.spans().get(block).map_or(0, |span| span.bytes),
        }
    }

    /// Bytes from the start of one block to the start of the next: `block_bytes` rounded up to 4096. 0 for a
    /// lent arena: its blocks lie anywhere.
    #[must_use]
    pub fn stride(&self) -> usize {
        match &self.memory {
            Memory::Mapped { stride, .. } => *stride,
            Memory::Lent(_) => 0,
        }
    }

    /// Whether the memory is lent.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        matches!(self.memory, Memory::Lent(_))
    }

    /// Returns the kind of pages that back the arena.
    #[must_use]
    pub fn backing(&self) -> Backing {
        match &self.memory {
            Memory::Mapped { mapping, .. } => mapping.backing(),
            Memory::Lent(_) => Backing::Lent,
        }
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
    /// multiples of 2 MiB. None for a lent arena: it has none, and its memory is never registered.
    pub(crate) fn mapped(&self) -> Option<(NonNull<u8>, usize)> {
        match &self.memory {
            Memory::Mapped { mapping, .. } => Some((mapping.base(), mapping.bytes())),
            Memory::Lent(_) => None,
        }
    }

    /// Keeps the arena from child processes. While pages are pinned for a device, a fork would copy each
    /// of them. With an older driver, it would even give the parent other pages than those that the
    /// device writes.
    ///
    /// # Errors
    /// The kernel's error, or `Unsupported` for a lent arena: its pages are the lender's to advise on.
    pub(crate) fn do_not_fork(self: &Arc<Self>) -> std::io::Result<Unforked> {
        match &self.memory {
            Memory::Mapped { mapping, .. } => mapping.do_not_fork()?,
            Memory::Lent(_) => return Err(std::io::ErrorKind::Unsupported.into()),
        }
        Ok(Unforked(Arc::clone(self)))
    }

    fn words(&self) -> &BorrowWords {
        &self.words
    }

    /// Returns the address of a block that a guard holds, hence in range.
    fn block_pointer(&self, block: usize) -> NonNull<u8> {
        debug_assert!(block < self.blocks());
        match &self.memory {
            // SAFETY: `block` < `blocks`, so that the offset lies within the mapping (I1).
            Memory::Mapped { mapping, stride, .. } => unsafe { mapping.base().add(block * stride) },
            Memory::Lent(lent) => lent.spans()[block].address,
        }
    }
}

impl Storage for HostArena {
    fn kind(&self) -> StorageKind {
        StorageKind::System
    }

    /// Of a lent arena, the address of block 0.
    fn base_address(&self) -> u64 {
        match &self.memory {
            Memory::Mapped { mapping, .. } => mapping.base().as_ptr().addr() as u64,
            Memory::Lent(lent) => lent.spans()[0].address.as_ptr().addr() as u64,
        }
    }

    /// 0 for a lent arena: its blocks are no one stretch, so no region or view lies in it.
    fn size_bytes(&self) -> u64 {
        // The span of the blocks; the mapping's tail up to the next 2 MiB belongs to no block.
        debug_assert!(self.mapped().is_none_or(|(_, bytes)| self.blocks() * self.stride() <= bytes));
        (self.blocks() * self.stride()) as u64
    }
}
