//! A request on its way: it owns its buffer until the kernel has answered.
//!
//! ```text
//!   slot:   ├──────── payload ────────┼ padding ┤ not touched ┤     transfer_bytes: payload and padding
//!   pieces: ├ piece ┼ piece ┼ piece ┼ piece ────┤
//!            summed   in flight │ issued up to here
//! ```
//!
//! Past 500 lines because every owner of a buffer, and every way to release it, should be seen together.
//!
//! Invariants
//! - I1: `owner`, or the sealed copy if there is one, is the guard of the very block that `address`
//!   points to, or the device memory itself. It is given up only when `in_flight` is 0: then no device
//!   can still touch the memory.
//! - I2: `transfer_bytes` is at most the room of that block in its arena, so no piece leaves the block, and
//!   `payload_bytes` is at most `transfer_bytes`.
//! - I3: a stretch is summed only when no device writes it: a read's after its piece has ended, and a
//!   write's at any time, since its bytes do not change. A payload is opened, or summed on a device, only
//!   when no piece moves bytes.

use super::bounce::SealedCopy;
use super::engine::Probe;
use super::error::{Direction, FailureCause, IoFailure};
use super::format::{SEAL_BYTES, Sum};
use super::payload::Payload;
use super::pending::{Cell, Outcome, Wake};
use super::recovery::{Name, OwnerId, Rejection};
use super::table::Extent;
use crate::arena::{BLOCK_ALIGN_BYTES, BlockRead, BlockWrite};
use crate::gds::DeviceRange;
use core::ptr::NonNull;
use kvstrata_core::SequenceHash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers that a lost ring may still touch, each with its volume's path: kept, with their arenas, until
/// the process ends.
static LOST: Mutex<Vec<(Arc<Path>, LostBuffer)>> = Mutex::new(Vec::new());

/// Never read: the variants only keep their buffers alive.
#[expect(dead_code, reason = "held, never read")]
enum LostBuffer {
    Read(BlockWrite),
    Write(BlockRead),
    Copy(BlockWrite),
    Device(DeviceRange),
}

fn keep_forever(path: &Arc<Path>, buffer: LostBuffer) {
    LOST.lock().unwrap_or_else(PoisonError::into_inner).push((Arc::clone(path), buffer));
}

/// Releases the buffers kept for a volume whose device was simulated and has ended, so that nothing
/// touches them.
#[cfg(any(test, feature = "simulation"))]
pub(super) fn release_lost(path: &Arc<Path>) {
    LOST.lock().unwrap_or_else(PoisonError::into_inner).retain(|(of, _)| !Arc::ptr_eq(of, path));
}

/// The urgency of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Urgency {
    /// A sequence waits for the block. The read goes before everything else, and writes in flight are
    /// kept few for it.
    Urgent,
    /// Before writes; prefetches, for example.
    #[default]
    Ordinary,
}

/// The classes of requests. Each has a queue, served first come, first served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Urgent,
    Read,
    Write,
}

impl Class {
    /// All classes, in the order in which they are served.
    pub(super) const ALL: [Class; 3] = [Class::Urgent, Class::Read, Class::Write];

    /// The class's bit in a set of classes.
    pub(super) const fn bit(self) -> usize {
        1 << self as usize
    }
}

/// The buffer, and the cell that receives it with the outcome.
#[derive(Debug)]
enum Owner {
    Read(BlockWrite, Arc<Cell<BlockWrite>>),
    Write(BlockRead, Arc<Cell<BlockRead>>),
    /// Device memory of a read or a write.
    Device(DeviceRange, Arc<Cell<DeviceRange>>),
    Flush(Arc<Cell<()>>),
    /// No caller waits: a slot is forgotten, or the volume is retired.
    Nobody,
    /// Written by the ring thread itself: pages of the table, or a superblock.
    Own(BlockRead),
    /// Read by the ring thread itself.
    OwnRead(BlockWrite),
    /// A sync by the ring thread itself, without a buffer.
    Sync,
}

/// The kind of a request, for the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    Read,
    Write,
    Flush,
    Forget,
    Retire,
    Table { extent: Extent, number: u64 },
    Superblock,
    Fill,
    Sync,
    Probe(Probe),
}

/// How the payload is sealed or verified.
#[derive(Debug)]
enum Sealing {
    /// The payload is summed, stretch by stretch.
    Sum(Sum),
    /// A write of an encrypted volume: the copy that goes to the device.
    Done(SealedCopy),
    /// A read of an encrypted volume: decrypted when it is complete.
    ToOpen,
    /// The payload's sum is made elsewhere: by the caller, before the write; or on the device that has
    /// the payload in its memory, after all of it has moved.
    Elsewhere(Option<Sum>),
}

/// A request to the ring thread.
#[derive(Debug)]
pub(super) struct Request {
    owner: Owner,
    address: NonNull<u8>,
    pub(super) task: Task,
    pub(super) urgency: Urgency,
    pub(super) slot: u32,
    /// The block that the slot holds, or shall hold.
    pub(super) name: Name,
    /// Sequence number of the record: for a read, of the record found; for a write, 0 until it has one.
    pub(super) sequence: u64,
    /// Where the request starts in the file.
    pub(super) file_offset: u64,
    pub(super) transfer_bytes: usize,
    pub(super) payload_bytes: usize,
    /// Bytes that pieces have been cut for.
    pub(super) issued_bytes: usize,
    /// Pieces that are with the kernel, or wait to be given to it again.
    pub(super) in_flight: u32,
    /// It is not merged (again). If it is a write, its sum is on its way.
    pub(super) alone: bool,
    /// Stretches that have yet to be summed.
    pub(super) unsummed: u32,
    sealing: Sealing,
    pub(super) failure: Option<FailureCause>,
}

// SAFETY: `address` points into the block that `owner` or the sealed copy guards (I1); the guards are Send,
// and a request moves between threads as a whole.
unsafe impl Send for Request {}

/// The place of a request, filled in by the volume after it has checked the slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) slot: u32,
    pub(super) file_offset: u64,
    pub(super) transfer_bytes: usize,
}

impl Request {
    pub(super) fn read(
        mut buffer: BlockWrite,
        hash: SequenceHash,
        urgency: Urgency,
        cell: Arc<Cell<BlockWrite>>,
        place: Place,
    ) -> Request {
        let (address, payload_bytes) = (buffer.io_pointer(), buffer.len());
        debug_assert!(payload_bytes <= place.transfer_bytes && place.transfer_bytes <= buffer.room_bytes());
        let name = Name { hash, parent: None, owner: OwnerId::NONE };
        let owner = Owner::Read(buffer, cell);
        Request { urgency, ..Request::new(owner, Task::Read, address, name, payload_bytes, place) }
    }

    pub(super) fn write(payload: Payload, name: Name, cell: Arc<Cell<BlockRead>>, place: Place) -> Request {
        debug_assert!(place.transfer_bytes <= payload.bytes.room_bytes());
        Request::to_write(payload, name, cell, place)
    }

    /// A write that fails before it begins, or whose copy goes to the device: the transfer may be longer than
    /// the buffer's room, since it does not touch the buffer.
    pub(super) fn to_write(
        payload: Payload,
        name: Name,
        cell: Arc<Cell<BlockRead>>,
        place: Place,
    ) -> Request {
        let Payload { bytes: buffer, sum } = payload;
        let (address, payload_bytes) = (buffer.io_pointer(), buffer.len());
        debug_assert!(payload_bytes <= place.transfer_bytes);
        let sealing = match sum {
            None => Sealing::Sum(Sum::default()),
            Some(sum) => Sealing::Elsewhere(Some(Sum::given(sum))),
        };
        let owner = Owner::Write(buffer, cell);
        Request { sealing, ..Request::new(owner, Task::Write, address, name, payload_bytes, place) }
    }

    /// [`write`](Request::write) of a payload that has been sealed: its copy goes to the device.
    pub(super) fn write_sealed(
        buffer: BlockRead,
        mut copy: SealedCopy,
        name: Name,
        cell: Arc<Cell<BlockRead>>,
        place: Place,
    ) -> Request {
        let (address, sequence) = (copy.io_pointer(), copy.sealed.sequence);
        debug_assert!(place.transfer_bytes <= copy.room_bytes());
        let sealing = Sealing::Done(copy);
        Request { address, sequence, sealing, ..Request::to_write(buffer.into(), name, cell, place) }
    }

    /// A read or write of device memory, without padding. Never merged: each piece is of one range.
    pub(super) fn on_device(
        range: DeviceRange,
        task: Task,
        name: Name,
        urgency: Urgency,
        cell: Arc<Cell<DeviceRange>>,
        place: Place,
    ) -> Request {
        let payload_bytes = range.size_bytes();
        debug_assert_eq!(payload_bytes, place.transfer_bytes);
        let owner = Owner::Device(range, cell);
        let request = Request::new(owner, task, NonNull::dangling(), name, payload_bytes, place);
        Request { urgency, alone: true, sealing: Sealing::Elsewhere(None), ..request }
    }

    /// `place.transfer_bytes` is the length of the hole, if one is made.
    pub(super) fn forget(place: Place) -> Request {
        Request::without_buffer(Owner::Nobody, Task::Forget, place)
    }

    pub(super) fn retire() -> Request {
        Request::without_buffer(Owner::Nobody, Task::Retire, Place::NOWHERE)
    }

    pub(super) fn flush(cell: Arc<Cell<()>>) -> Request {
        Request::without_buffer(Owner::Flush(cell), Task::Flush, Place::NOWHERE)
    }

    pub(super) fn sync() -> Request {
        Request::without_buffer(Owner::Sync, Task::Sync, Place::NOWHERE)
    }

    /// A write of the ring thread's own bytes.
    pub(super) fn own(buffer: BlockRead, task: Task, file_offset: u64, transfer_bytes: usize) -> Request {
        debug_assert!(transfer_bytes <= buffer.room_bytes());
        let address = buffer.io_pointer();
        let place = Place { slot: u32::MAX, file_offset, transfer_bytes };
        Request::new(Owner::Own(buffer), task, address, Name::NONE, 0, place)
    }

    /// A read into the ring thread's own buffer.
    pub(super) fn own_read(
        mut buffer: BlockWrite,
        task: Task,
        file_offset: u64,
        transfer_bytes: usize,
    ) -> Request {
        debug_assert!(transfer_bytes <= buffer.room_bytes());
        let address = buffer.io_pointer();
        let place = Place { slot: u32::MAX, file_offset, transfer_bytes };
        Request::new(Owner::OwnRead(buffer), task, address, Name::NONE, 0, place)
    }

    /// The bytes that the ring thread has read for itself; None while a device writes them.
    pub(super) fn own_bytes(&self) -> Option<&[u8]> {
        match &self.owner {
            Owner::OwnRead(buffer) if self.in_flight == 0 => Some(buffer),
            _ => None,
        }
    }

    fn without_buffer(owner: Owner, task: Task, place: Place) -> Request {
        Request::new(owner, task, NonNull::dangling(), Name::NONE, 0, place)
    }

    fn new(
        owner: Owner,
        task: Task,
        address: NonNull<u8>,
        name: Name,
        payload_bytes: usize,
        place: Place,
    ) -> Request {
        let Place { slot, file_offset, transfer_bytes } = place;
        Request {
            owner,
            address,
            task,
            urgency: Urgency::Ordinary,
            slot,
            name,
            sequence: 0,
            file_offset,
            transfer_bytes,
            payload_bytes,
            issued_bytes: 0,
            in_flight: 0,
            alone: false,
            unsummed: 0,
            sealing: Sealing::Sum(Sum::default()),
            failure: None,
        }
    }

    pub(super) fn class(&self) -> Class {
        match (self.task, self.urgency) {
            (Task::Read, Urgency::Urgent) => Class::Urgent,
            (Task::Read, Urgency::Ordinary) => Class::Read,
            _ => Class::Write,
        }
    }

    fn direction(&self) -> Direction {
        match self.task {
            Task::Read | Task::Probe(Probe::First | Probe::Last) => Direction::Read,
            Task::Write
            | Task::Forget
            | Task::Table { .. }
            | Task::Superblock
            | Task::Fill
            | Task::Probe(Probe::Write) => Direction::Write,
            Task::Flush | Task::Retire | Task::Sync | Task::Probe(Probe::Sync) => Direction::Flush,
        }
    }

    /// Address of the byte `offset` bytes into the slot; `offset` < `transfer_bytes`.
    pub(super) fn address_at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.transfer_bytes);
        // SAFETY: within the guarded block, padding included (I1, I2).
        unsafe { self.address.add(offset) }.as_ptr()
    }

    /// The device memory of a request that has no host memory.
    pub(super) fn device(&self) -> Option<&DeviceRange> {
        match &self.owner {
            Owner::Device(range, _) => Some(range),
            _ => None,
        }
    }

    /// Takes the sum that the device has made of the payload.
    pub(super) fn summed_on_device(&mut self, sum: Sum) {
        self.sealing = Sealing::Elsewhere(Some(sum));
    }

    /// The part of a stretch that has to be summed here, in bytes from its start: its payload. 0 if the
    /// cipher seals, or the sum is made elsewhere.
    pub(super) fn payload_in(&self, start: usize, bytes: usize) -> usize {
        match self.sealing {
            Sealing::Sum(_) => self.payload_bytes.saturating_sub(start).min(bytes),
            Sealing::Done(_) | Sealing::ToOpen | Sealing::Elsewhere(_) => 0,
        }
    }

    /// Marks a read: its payload has to be decrypted.
    pub(super) fn set_to_open(&mut self) {
        self.sealing = Sealing::ToOpen;
    }

    /// Whether the request is such a read, and the device has completed it without a failure.
    pub(super) fn is_to_open(&self) -> bool {
        matches!(self.sealing, Sealing::ToOpen) && self.in_flight == 0 && self.failure.is_none()
    }

    /// The payload of a read, to be decrypted in place; None while a device writes it (I3).
    pub(super) fn payload_to_open(&mut self) -> Option<&mut [u8]> {
        match &mut self.owner {
            Owner::Read(buffer, _) if self.in_flight == 0 => Some(buffer),
            _ => None,
        }
    }

    /// The payload's seal: the cipher's tag, or the sum of all stretches so far.
    pub(super) fn seal(&self) -> [u8; SEAL_BYTES] {
        match &self.sealing {
            Sealing::Sum(sum) | Sealing::Elsewhere(Some(sum)) => sum.seal(),
            Sealing::Done(copy) => copy.sealed.tag,
            Sealing::ToOpen | Sealing::Elsewhere(None) => [0; SEAL_BYTES],
        }
    }

    /// Compares the sum of all stretches so far with a record's seal.
    pub(super) fn verify(&self, seal: &[u8; SEAL_BYTES]) -> Result<(), Rejection> {
        match self.sealing {
            Sealing::Sum(sum) | Sealing::Elsewhere(Some(sum)) => sum.verify(seal),
            Sealing::Done(_) | Sealing::ToOpen | Sealing::Elsewhere(None) => Err(Rejection::Payload),
        }
    }

    /// Adds a stretch of the payload to the sum.
    ///
    /// # Safety
    /// No device writes the stretch any more (I3).
    pub(super) unsafe fn sum_up(&mut self, start: usize, bytes: usize) {
        let bytes = self.payload_in(start, bytes);
        if bytes > 0 {
            // SAFETY: within the guarded block (I1, I2), whose guard is ours; no device writes it (the
            // caller's promise), and memory of an arena is initialised.
            let stretch = unsafe { core::slice::from_raw_parts(self.address_at(start), bytes) };
            if let Sealing::Sum(sum) = &mut self.sealing {
                sum.add(start, stretch);
            }
        }
    }

    /// The buffer of a request that was never started.
    pub(super) fn into_read_buffer(self) -> Option<BlockWrite> {
        match self.owner {
            Owner::Read(buffer, _) => Some(buffer),
            _ => None,
        }
    }

    /// The buffer of a request that was never started.
    pub(super) fn into_write_buffer(self) -> Option<BlockRead> {
        match self.owner {
            Owner::Write(buffer, _) => Some(buffer),
            _ => None,
        }
    }

    /// Hands the outcome to the caller; dropping the returned [`Wake`] wakes it. Nothing is in flight
    /// any more (I1).
    pub(super) fn finish(self, path: &Arc<Path>) -> Option<Wake> {
        debug_assert_eq!(self.in_flight, 0);
        let failure = self.failure.map(|cause| self.failure_of(path, cause));
        // The copy first: a caller that learns of the outcome may want it for another write.
        drop(self.sealing);
        fn outcome<B>(buffer: B, failure: Option<IoFailure>) -> Outcome<B> {
            match failure {
                None => Ok(buffer),
                Some(failure) => {
                    // First the buffer, then the outcome: a caller that learns of the failure finds
                    // the block free.
                    drop(buffer);
                    Err(failure)
                }
            }
        }
        match self.owner {
            Owner::Read(buffer, cell) => Some(cell.complete(outcome(buffer, failure))),
            Owner::Write(buffer, cell) => Some(cell.complete(outcome(buffer, failure))),
            Owner::Device(range, cell) => hand_over(range, cell, failure),
            Owner::Flush(cell) => Some(cell.complete(outcome((), failure))),
            Owner::Nobody | Owner::Own(_) | Owner::OwnRead(_) | Owner::Sync => None,
        }
    }

    /// Ends a request whose pieces can no longer be awaited. The caller gets a failure, and the buffer is
    /// kept for good, with its arena, since a device might still touch it (I1).
    pub(super) fn abandon(self, path: &Arc<Path>) {
        let failure = self.failure_of(path, self.failure.unwrap_or(FailureCause::OutOfService));
        if let Sealing::Done(copy) = self.sealing {
            keep_forever(path, LostBuffer::Copy(copy.lose()));
        }
        match self.owner {
            Owner::Read(buffer, cell) => {
                keep_forever(path, LostBuffer::Read(buffer));
                cell.complete(Err(failure));
            }
            Owner::Write(buffer, cell) => {
                keep_forever(path, LostBuffer::Write(buffer));
                cell.complete(Err(failure));
            }
            Owner::Device(range, cell) => {
                keep_forever(path, LostBuffer::Device(range));
                cell.complete(Err(failure));
            }
            Owner::Own(buffer) => keep_forever(path, LostBuffer::Write(buffer)),
            Owner::OwnRead(buffer) => keep_forever(path, LostBuffer::Read(buffer)),
            Owner::Flush(cell) => {
                cell.complete(Err(failure));
            }
            Owner::Nobody | Owner::Sync => {}
        }
    }

    fn failure_of(&self, path: &Arc<Path>, cause: FailureCause) -> IoFailure {
        IoFailure { path: Arc::clone(path), slot: self.slot, direction: self.direction(), cause }
    }
}

/// [`Request::finish`] for device memory, whose drop is a caller's code. A panic of that drop must
/// neither end the ring thread nor lose the outcome.
fn hand_over(range: DeviceRange, cell: Arc<Cell<DeviceRange>>, failure: Option<IoFailure>) -> Option<Wake> {
    // A panic has no one to be reported to.
    match failure {
        // If the `Pending` was dropped, the memory is dropped here.
        None => catch_unwind(AssertUnwindSafe(move || cell.complete(Ok(range)))).ok(),
        Some(failure) => {
            let _ = catch_unwind(AssertUnwindSafe(move || drop(range)));
            Some(cell.complete(Err(failure)))
        }
    }
}

impl Place {
    const NOWHERE: Place = Place { slot: u32::MAX, file_offset: 0, transfer_bytes: 0 };
}

impl Name {
    /// The name in requests that concern no block.
    const NONE: Name = Name { hash: SequenceHash::from_u128(0), parent: None, owner: OwnerId::NONE };
}

/// Bytes that a transfer of a payload moves on a device that needs multiples of `alignment`.
pub(super) fn transfer_bytes(payload_bytes: usize, alignment: usize) -> Option<usize> {
    debug_assert!(alignment <= BLOCK_ALIGN_BYTES);
    payload_bytes.checked_next_multiple_of(alignment)
}
