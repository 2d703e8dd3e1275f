//! A request on its way: it owns its buffer until the kernel has answered.
//!
//! ```text
//!   slot:   ├──────── payload ────────┼ padding ┤        transfer_bytes = both
//!   pieces: ├ piece ┼ piece ┼ piece ┼ piece ────┤
//!            moved    in flight  │ issued up to here
//! ```
//!
//! Invariants
//! - I1: `owner` is the guard of the very block that `address` points to, and it is given up only when
//!   `in_flight` is 0: no device can still touch the memory.
//! - I2: `transfer_bytes` is at most the block's stride in its arena, so no piece leaves the block.

use super::error::{Direction, FailureCause, IoFailure};
use super::pending::{Cell, Outcome};
use crate::arena::{BLOCK_ALIGN_BYTES, BlockRead, BlockWrite};
use core::ptr::NonNull;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers that a lost ring may still touch: kept, with their arenas, until the process ends.
static LOST: Mutex<Vec<LostBuffer>> = Mutex::new(Vec::new());

/// Never read: it is there to hold.
#[expect(dead_code, reason = "held, never looked at")]
enum LostBuffer {
    Read(BlockWrite),
    Write(BlockRead),
}

fn keep_forever(buffer: LostBuffer) {
    LOST.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
}

/// The buffer and whom to hand it to.
#[derive(Debug)]
enum Owner {
    Read(BlockWrite, Arc<Cell<BlockWrite>>),
    Write(BlockRead, Arc<Cell<BlockRead>>),
}

/// One read or write of one slot.
#[derive(Debug)]
pub(super) struct Request {
    owner: Owner,
    address: NonNull<u8>,
    slot: u32,
    /// Where the slot starts in the file.
    pub(super) file_offset: u64,
    pub(super) transfer_bytes: usize,
    /// Bytes that have been given to pieces.
    pub(super) issued_bytes: usize,
    /// Pieces that are with the kernel, or wait to be given to it again.
    pub(super) in_flight: u32,
    pub(super) failure: Option<FailureCause>,
}

// SAFETY: `address` points into the block that `owner` guards (I1); the guards are Send, and a request
// moves between threads as a whole.
unsafe impl Send for Request {}

/// Where a request goes: filled in by the volume, which has checked the slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) slot: u32,
    pub(super) file_offset: u64,
    pub(super) transfer_bytes: usize,
}

impl Request {
    pub(super) fn read(mut buffer: BlockWrite, cell: Arc<Cell<BlockWrite>>, place: Place) -> Request {
        let address = buffer.io_pointer();
        debug_assert!(place.transfer_bytes <= buffer.arena().stride());
        Request::new(Owner::Read(buffer, cell), address, place)
    }

    pub(super) fn write(buffer: BlockRead, cell: Arc<Cell<BlockRead>>, place: Place) -> Request {
        let address = buffer.io_pointer();
        debug_assert!(place.transfer_bytes <= buffer.arena().stride());
        Request::new(Owner::Write(buffer, cell), address, place)
    }

    fn new(owner: Owner, address: NonNull<u8>, place: Place) -> Request {
        let Place { slot, file_offset, transfer_bytes } = place;
        Request {
            owner,
            address,
            slot,
            file_offset,
            transfer_bytes,
            issued_bytes: 0,
            in_flight: 0,
            failure: None,
        }
    }

    pub(super) fn direction(&self) -> Direction {
        match self.owner {
            Owner::Read(..) => Direction::Read,
            Owner::Write(..) => Direction::Write,
        }
    }

    /// Address of the byte `offset` bytes into the slot; `offset` < `transfer_bytes`.
    pub(super) fn address_at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.transfer_bytes);
        // SAFETY: within the guarded block, padding included (I1, I2).
        unsafe { self.address.add(offset) }.as_ptr()
    }

    /// The buffer of a request that was never started.
    pub(super) fn into_read_buffer(self) -> Option<BlockWrite> {
        match self.owner {
            Owner::Read(buffer, _) => Some(buffer),
            Owner::Write(..) => None,
        }
    }

    /// The buffer of a request that was never started.
    pub(super) fn into_write_buffer(self) -> Option<BlockRead> {
        match self.owner {
            Owner::Write(buffer, _) => Some(buffer),
            Owner::Read(..) => None,
        }
    }

    /// Hands the outcome to the caller. Nothing is in flight any more (I1).
    pub(super) fn finish(self, path: &Arc<Path>) {
        debug_assert_eq!(self.in_flight, 0);
        let failure = self.failure.map(|cause| self.failure_of(path, cause));
        fn outcome<B>(buffer: B, failure: Option<IoFailure>) -> Outcome<B> {
            match failure {
                None => Ok(buffer),
                Some(failure) => {
                    // First the buffer, then the news: whoever hears of it finds the block free.
                    drop(buffer);
                    Err(failure)
                }
            }
        }
        match self.owner {
            Owner::Read(buffer, cell) => cell.complete(outcome(buffer, failure)),
            Owner::Write(buffer, cell) => cell.complete(outcome(buffer, failure)),
        }
    }

    /// Ends a request whose pieces can no longer be awaited: the caller hears of it, and the buffer is
    /// kept for good, with its arena, since a device might still touch it (I1).
    pub(super) fn abandon(self, path: &Arc<Path>) {
        let failure = self.failure_of(path, self.failure.unwrap_or(FailureCause::OutOfService));
        match self.owner {
            Owner::Read(buffer, cell) => {
                keep_forever(LostBuffer::Read(buffer));
                cell.complete(Err(failure));
            }
            Owner::Write(buffer, cell) => {
                keep_forever(LostBuffer::Write(buffer));
                cell.complete(Err(failure));
            }
        }
    }

    fn failure_of(&self, path: &Arc<Path>, cause: FailureCause) -> IoFailure {
        IoFailure { path: Arc::clone(path), slot: self.slot, direction: self.direction(), cause }
    }
}

/// Bytes that a transfer of `slot_bytes` moves when the device wants multiples of `alignment`.
pub(super) fn transfer_bytes(slot_bytes: usize, alignment: usize) -> Option<usize> {
    debug_assert!(alignment <= BLOCK_ALIGN_BYTES);
    slot_bytes.checked_next_multiple_of(alignment)
}
