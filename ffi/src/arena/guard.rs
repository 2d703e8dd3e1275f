//! Owned guards over one block of an arena.
//!
//! A guard holds the arena (`Arc`) and the block's borrow word, so it may travel: into a request, to
//! another thread, past the function that made it. While it lives, its bytes stay mapped and cannot be
//! borrowed in a conflicting way. So a transfer can own memory that a device still writes.
//!
//! Invariants
//! - I1: a `BlockRead` exists only while its block's word counts it as a reader; a `BlockWrite` only
//!   while the word says writer.
//! - I2: a block's room, padding included, belongs only to the holder of its word. Mapped blocks do not
//!   overlap; the lender of spans has promised it for them.
//! - I3: a guard's `bytes` is 1 to the block's bytes, so the guard lies within the block's room.

use super::{ArenaError, BLOCK_ALIGN_BYTES, HostArena, Span};
use core::ops::{Deref, DerefMut, Range};
use core::{mem::ManuallyDrop, ptr::NonNull};
use std::sync::Arc;

/// A block borrowed for reading. Dropping it returns the block.
///
/// ```
/// use kvstrata_ffi::arena::HostArena;
///
/// let arena = HostArena::new(1, 9000)?;
/// let payload = arena.read(0)?.first(5000);
/// assert_eq!((payload.len(), payload.room_bytes()), (5000, 12288));
/// assert!(payload.is_aligned());
/// assert_eq!(payload.whole().len(), 9000);
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BlockRead {
    arena: Arc<HostArena>,
    block: usize,
    bytes: usize,
}

/// A block borrowed for writing, exclusively. Dropping it returns the block.
#[derive(Debug)]
pub struct BlockWrite {
    arena: Arc<HostArena>,
    block: usize,
    bytes: usize,
}

impl BlockRead {
    /// The caller has taken the block's word for reading (I1).
    pub(super) fn new(arena: Arc<HostArena>, block: usize) -> BlockRead {
        let bytes = arena.bytes_of(block);
        BlockRead { arena, block, bytes }
    }

    /// The block's index in its arena.
    #[must_use]
    pub fn block(&self) -> usize {
        self.block
    }

    /// The arena that the block belongs to.
    #[must_use]
    pub fn arena(&self) -> &Arc<HostArena> {
        &self.arena
    }

    /// Narrows the guard to its first `bytes` bytes, for a payload that is shorter than the block. 0 counts
    /// as 1, and a number past the guard's length as that length. The guard keeps the whole block's room.
    #[must_use]
    pub fn first(mut self, bytes: usize) -> Self {
        self.bytes = bytes.clamp(1, self.bytes);
        self
    }

    /// Widens a narrowed guard to the whole block again.
    #[must_use]
    pub fn whole(mut self) -> Self {
        self.bytes = self.arena.bytes_of(self.block);
        self
    }

    /// Bytes that a transfer may touch, from the block's start on: [`HostArena::room_of`].
    #[must_use]
    pub fn room_bytes(&self) -> usize {
        self.arena.room_of(self.block)
    }

    /// Whether a transfer past the page cache (O_DIRECT) can move the guard's bytes straight: they start on a
    /// multiple of [`BLOCK_ALIGN_BYTES`], and their length, rounded up to one, stays within the block's room.
    /// Always true in a mapped arena. Bytes for which it is false have to be copied.
    #[must_use]
    pub fn is_aligned(&self) -> bool {
        is_aligned(self.arena.block_pointer(self.block), self.bytes, self.room_bytes())
    }

    pub(crate) fn io_pointer(&self) -> NonNull<u8> {
        self.arena.block_pointer(self.block)
    }
}

impl BlockWrite {
    /// The caller has taken the block's word for writing (I1).
    pub(super) fn new(arena: Arc<HostArena>, block: usize) -> BlockWrite {
        let bytes = arena.bytes_of(block);
        BlockWrite { arena, block, bytes }
    }

    /// The block's index in its arena.
    #[must_use]
    pub fn block(&self) -> usize {
        self.block
    }

    /// The arena that the block belongs to.
    #[must_use]
    pub fn arena(&self) -> &Arc<HostArena> {
        &self.arena
    }

    /// Narrows the guard to its first `bytes` bytes, for a payload that is shorter than the block. 0 counts
    /// as 1, and a number past the guard's length as that length. The guard keeps the whole block's room.
    #[must_use]
    pub fn first(mut self, bytes: usize) -> Self {
        self.bytes = bytes.clamp(1, self.bytes);
        self
    }

    /// Widens a narrowed guard to the whole block again.
    #[must_use]
    pub fn whole(mut self) -> Self {
        self.bytes = self.arena.bytes_of(self.block);
        self
    }

    /// Bytes that a transfer may touch, from the block's start on: [`HostArena::room_of`].
    #[must_use]
    pub fn room_bytes(&self) -> usize {
        self.arena.room_of(self.block)
    }

    /// Whether a transfer past the page cache (O_DIRECT) can move the guard's bytes straight: they start on a
    /// multiple of [`BLOCK_ALIGN_BYTES`], and their length, rounded up to one, stays within the block's room.
    /// Always true in a mapped arena. Bytes for which it is false have to be copied.
    #[must_use]
    pub fn is_aligned(&self) -> bool {
        is_aligned(self.arena.block_pointer(self.block), self.bytes, self.room_bytes())
    }

    /// Lends parts of the guard's bytes: an arena in which block i is part i. The guard goes with that arena
    /// ([`HostArena::lent`]), so its block comes back when the last guard and the last handle of it are gone.
    /// Parts come in order and do not overlap.
    ///
    /// ```
    /// use kvstrata_ffi::arena::HostArena;
    ///
    /// let whole = HostArena::new(1, 10_000)?;
    /// let parts = whole.write(0)?.lend(&[0..4096, 4096..5000, 9000..10_000])?;
    /// parts.write(2)?.fill(7);
    /// assert_eq!((parts.bytes_of(1), parts.read(2)?[0]), (904, 7));
    /// assert!(parts.read(0)?.is_aligned() && !parts.read(1)?.is_aligned());
    /// drop(parts);
    /// assert_eq!(whole.read(0)?[9000], 7);
    /// # Ok::<(), Box<dyn core::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ArenaError::Span`] for a part that is empty, overlaps the one before it, or leaves the guard's
    /// bytes; [`ArenaError::NoSpans`]. The guard is dropped then.
    pub fn lend(mut self, parts: &[Range<usize>]) -> Result<Arc<HostArena>, ArenaError> {
        let (start, mut free) = (self.io_pointer(), 0);
        let mut spans = Vec::with_capacity(parts.len());
        for (block, part) in parts.iter().enumerate() {
            let bytes = part.len();
            if part.start < free || part.end > self.bytes || part.is_empty() {
                let why = "it is empty, overlaps the one before it, or leaves its block; name parts in order";
                return Err(ArenaError::Span { block, bytes, why });
            }
            free = part.end;
            // SAFETY: below `self.bytes`, hence within the block's room (I3).
            let address = unsafe { start.add(part.start) };
            spans.push(Span { address, bytes });
        }
        // SAFETY: the bytes are mapped, writable and initialised (the arena's I1), and plain memory of no
        // thread. The guard is the owner: until it is dropped only it may touch them (I1, I2), it is not used
        // again, and the spans do not overlap.
        unsafe { HostArena::lent(spans, Box::new(self)) }
    }

    /// Turns the writer into a reader of the same bytes; the block is not free at any moment in between.
    #[must_use]
    pub fn into_read(self) -> BlockRead {
        let this = ManuallyDrop::new(self);
        this.arena.words().write_to_read(this.block);
        // SAFETY: `this` is never dropped or used again, so the Arc is moved, not duplicated.
        let arena = unsafe { core::ptr::read(&raw const this.arena) };
        BlockRead { arena, block: this.block, bytes: this.bytes }
    }

    pub(crate) fn io_pointer(&mut self) -> NonNull<u8> {
        self.arena.block_pointer(self.block)
    }
}

fn is_aligned(start: NonNull<u8>, bytes: usize, room_bytes: usize) -> bool {
    start.as_ptr().addr().is_multiple_of(BLOCK_ALIGN_BYTES)
        && bytes.checked_next_multiple_of(BLOCK_ALIGN_BYTES).is_some_and(|bytes| bytes <= room_bytes)
}

impl Deref for BlockRead {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let pointer = self.arena.block_pointer(self.block).as_ptr();
        // SAFETY: the bytes are mapped and initialised (the arena's I1, I3), and by I1 and I2 only readers
        // hold them for as long as `self` lives, which the returned borrow cannot outlast.
        unsafe { core::slice::from_raw_parts(pointer, self.bytes) }
    }
}

impl Deref for BlockWrite {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let pointer = self.arena.block_pointer(self.block).as_ptr();
        // SAFETY: mapped and initialised (the arena's I1, I3); by I1 and I2 only `self` holds them.
        unsafe { core::slice::from_raw_parts(pointer, self.bytes) }
    }
}

impl DerefMut for BlockWrite {
    fn deref_mut(&mut self) -> &mut [u8] {
        let pointer = self.arena.block_pointer(self.block).as_ptr();
        // SAFETY: mapped and initialised (the arena's I1, I3); by I1 and I2 only `self` holds them, and `&mut
        // self` makes this the only reference that came from `self`.
        unsafe { core::slice::from_raw_parts_mut(pointer, self.bytes) }
    }
}

impl Drop for BlockRead {
    fn drop(&mut self) {
        self.arena.words().give_read(self.block);
    }
}

impl Drop for BlockWrite {
    fn drop(&mut self) {
        self.arena.words().give_write(self.block);
    }
}
