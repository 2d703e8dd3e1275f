//! Owned guards over one block of an arena.
//!
//! A guard holds the arena (`Arc`) and the block's borrow word, so it may travel: into a request, to
//! another thread, past the function that made it. While it lives, its bytes stay mapped and cannot be
//! borrowed in a conflicting way. So a transfer can own memory that a device still writes.
//!
//! Invariants
//! - I1: a `BlockRead` exists only while its block's word counts it as a reader; a `BlockWrite` only
//!   while the word says writer.
//! - I2: a block's bytes, padding included, belong only to the holder of its word: blocks do not overlap.

use super::HostArena;
use core::ops::{Deref, DerefMut};
use core::{mem::ManuallyDrop, ptr::NonNull};
use std::sync::Arc;

/// A block borrowed for reading. Dropping it returns the block.
#[derive(Debug)]
pub struct BlockRead {
    arena: Arc<HostArena>,
    block: usize,
}

/// A block borrowed for writing, exclusively. Dropping it returns the block.
#[derive(Debug)]
pub struct BlockWrite {
    arena: Arc<HostArena>,
    block: usize,
}

impl BlockRead {
    /// The caller has taken the block's word for reading (I1).
    pub(super) fn new(arena: Arc<HostArena>, block: usize) -> BlockRead {
        BlockRead { arena, block }
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

    pub(crate) fn io_pointer(&self) -> NonNull<u8> {
        self.arena.block_pointer(self.block)
    }
}

impl BlockWrite {
    /// The caller has taken the block's word for writing (I1).
    pub(super) fn new(arena: Arc<HostArena>, block: usize) -> BlockWrite {
        BlockWrite { arena, block }
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

    /// Turns the writer into a reader; the block is not free at any moment in between.
    #[must_use]
    pub fn into_read(self) -> BlockRead {
        let this = ManuallyDrop::new(self);
        this.arena.words().write_to_read(this.block);
        // SAFETY: `this` is never dropped or used again, so the Arc is moved, not duplicated.
        let arena = unsafe { core::ptr::read(&raw const this.arena) };
        BlockRead { arena, block: this.block }
    }

    pub(crate) fn io_pointer(&mut self) -> NonNull<u8> {
        self.arena.block_pointer(self.block)
    }
}

impl Deref for BlockRead {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let pointer = self.arena.block_pointer(self.block).as_ptr();
        // SAFETY: the bytes are mapped and initialised (the arena's I1), and by I1 and I2 only readers
        // hold them for as long as `self` lives, which the returned borrow cannot outlast.
        unsafe { core::slice::from_raw_parts(pointer, self.arena.block_bytes()) }
    }
}

impl Deref for BlockWrite {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let pointer = self.arena.block_pointer(self.block).as_ptr();
        // SAFETY: mapped and initialised (the arena's I1); by I1 and I2 only `self` holds them.
        unsafe { core::slice::from_raw_parts(pointer, self.arena.block_bytes()) }
    }
}

impl DerefMut for BlockWrite {
    fn deref_mut(&mut self) -> &mut [u8] {
        let pointer = self.arena.block_pointer(self.block).as_ptr();
        // SAFETY: mapped and initialised (the arena's I1); by I1 and I2 only `self` holds them, and `&mut
        // self` makes this the only reference that came from `self`.
        unsafe { core::slice::from_raw_parts_mut(pointer, self.arena.block_bytes()) }
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
