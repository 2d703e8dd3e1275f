//! A volume: slots in one file, and the thread that serves them.
//! Past 500 lines because it has the documentation of each call, and the start of the thread.
//!
//! | word | meaning |
//! |---|---|
//! | forget | empty a slot: its block can no longer be read ([`Volume::forget`]) |
//! | clear | replace a record by 64 zeros: on forget, on a new write, or on a seal mismatch |
//! | punch | make a hole in the file for a slot's bytes, after forgetting, with the option `trim` |
//! | retire | take the volume out of service, at its user's request ([`Volume::retire`]) |
//! | paused | the device has no room: writes are refused, reads go on, until a probe finds room |
//! | away | the device does not answer: requests are refused, until a probe reads the superblock back |
//! | out of service | retired: the volume takes no more requests, and awaits those in flight |
//! | lost | (a ring) requests in flight get no answer any more, and their buffers are kept for good |
//!
//! `engine/health.rs` pauses a volume and sets it away. Clearing changes the record in memory at once, and
//! in the file later. A tier of several volumes calls a volume out of service lost, as its blocks are.

mod device;
mod state;
mod unopened;

use super::bounce::{self, Bounce, NoCopy};
use super::cells::Cells;
use super::choice::{Built, Parts, build};
use super::description::Description;
use super::engine::{Engine, Fill, Probes, Round, Setup, Watch, WriteBack};
use super::error::{DeviceRefusal, Direction, FailureCause, IoFailure, VolumeError};
use super::file::{self, Prepared, VolumeFile};
use super::format::Shape;
use super::inbox::Inbox;
use super::options::VolumeOptions;
use super::payload::Payload;
use super::pending::{Cell, Pending};
use super::recovery::{Name, Recovery, RejectedRecords};
use super::request::{Place, Request, Urgency, transfer_bytes};
use super::stats::VolumeStats;
use crate::arena::{BlockRead, BlockWrite};
use crate::process::{Origin, Uninherited};
use kvstrata_core::SequenceHash;
use std::fs::File;
use std::io;
use std::mem;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use device::{DEVICE_ALIGN_BYTES, Device, Joined, Terms};
pub(super) use unopened::Unopened;

/// One preallocated file of equal slots. One ring thread serves it, and remembers the block of each slot.
///
/// A read names the block that it expects in the slot. It returns that block, whole and unchanged, or an
/// error that says why not. Nothing relies on the order in which bytes reach the device: records and
/// payloads have checksums, which are verified at every read.
///
/// Requests are not ordered among each other: before reading a slot that is being written, await the
/// write. Dropping the volume answers every request, writes the slot table, and closes the file, as
/// [`close`](Volume::close) does.
#[derive(Debug)]
pub struct Volume {
    inbox: Arc<Inbox>,
    shape: Shape,
    index: u32,
    /// Maximum queued requests of each class.
    queue: usize,
    /// Buffers for encrypted copies, if the volume is encrypted.
    bounce: Option<Bounce>,
    /// Whether it serves device memory.
    device: Result<Device, DeviceRefusal>,
    description: Description,
    reads: Cells<BlockWrite>,
    writes: Cells<BlockRead>,
    origin: Origin,
    /// Locked while the volume lives. None if it could not be opened.
    file: Option<Arc<Uninherited<File>>>,
    /// Some until the volume is closed. The closing caller holds the lock until the thread has ended; no
    /// other call needs it.
    thread: Mutex<Option<JoinHandle<Round>>>,
}

impl Volume {
    /// Opens a volume and reports its blocks. Creates it if there is none, or if it is not to be kept.
    ///
    /// # Errors
    /// [`VolumeError`]. A file that this call created is removed again, and one that
    /// existed is unchanged.
    pub fn open(options: VolumeOptions) -> Result<(Volume, Recovery), VolumeError> {
        Volume::open_with(options, build)
    }

    /// [`open`](Volume::open) with another ring: `build` runs on the ring thread.
    pub(super) fn open_with(
        mut options: VolumeOptions,
        build: impl FnOnce(Parts) -> Result<Built, VolumeError> + Send + 'static,
    ) -> Result<(Volume, Recovery), VolumeError> {
        let file = file::prepare(&mut options)?;
        let (volume, recovery, mut named) = Volume::begin(options, file, build)?;
        named.stays();
        Ok((volume, recovery))
    }

    /// Starts the volume over a prepared file; all files of its set must be prepared by then. A file that
    /// was created is removed again unless its [`file::Named`] is told that it stays.
    pub(super) fn begin(
        mut options: VolumeOptions,
        file: Prepared,
        build: impl FnOnce(Parts) -> Result<Built, VolumeError> + Send + 'static,
    ) -> Result<(Volume, Recovery, file::Named), VolumeError> {
        let mut file = file.begin(&mut options)?;
        let recovery = core::mem::take(&mut file.recovery);
        // Relaxed: the ring threads that count up from it are started after this.
        options.stripe.sequence.fetch_max(file.table.next_sequence(), Ordering::Relaxed);
        let named = core::mem::replace(&mut file.named, file::Named::nothing());
        let mut volume = start(options, file, build)?;
        volume.description.rejected = recovery.rejected;
        Ok((volume, recovery, named))
    }

    /// The volume as it was opened.
    #[must_use]
    pub fn describe(&self) -> &Description {
        &self.description
    }

    /// Counts a block that is rejected because another volume of the set has a newer one.
    pub(super) fn note_duplicate(&mut self) {
        self.description.rejected.duplicate += 1;
    }

    /// Number of slots.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.shape.slots
    }

    /// Payload bytes a slot: the length that every buffer must have.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.shape.slot_bytes as usize
    }

    /// The counters of the volume.
    #[must_use]
    pub fn stats(&self) -> VolumeStats {
        let copies = self.bounce.as_ref().map_or(0, Bounce::blocked);
        self.inbox.counters.snapshot(self.inbox.blocked() + copies)
    }

    /// Reads the block `hash` from a slot into `buffer`, which comes back from [`Pending::wait`]. The
    /// call itself blocks only while the queue of its class is full. The request has failed already if
    /// the slot does not exist, the buffer is longer than [`slot_bytes`](Volume::slot_bytes), or O_DIRECT
    /// cannot move it ([`FailureCause::Unaligned`]). It fails a little later if the slot is empty or holds
    /// another block ([`FailureCause::Rejected`]), or if the block is not as long as the buffer
    /// ([`FailureCause::PayloadLength`]): narrow the buffer to the block's length
    /// ([`BlockWrite::first`]).
    ///
    /// The transfer is the block's length, rounded up to the [alignment](Description::alignment): it may
    /// overwrite bytes behind a narrowed buffer, within the buffer's [room](BlockWrite::room_bytes).
    pub fn read(
        &self,
        slot: u32,
        hash: SequenceHash,
        urgency: Urgency,
        buffer: BlockWrite,
    ) -> Pending<BlockWrite> {
        match self.place_of_read(slot, &buffer) {
            Err(failure) => Pending::failed(failure),
            Ok(place) => {
                let cell = self.reads.take();
                self.inbox.push(Request::read(buffer, hash, urgency, Arc::clone(&cell), place));
                Pending::new(cell)
            }
        }
    }

    /// Writes a buffer, 1 to [`slot_bytes`](Volume::slot_bytes) bytes, to a slot as the block `name`; the
    /// buffer comes back from [`Pending::wait`]. The slot's former block is gone from the moment of the call,
    /// whatever the outcome, unless the buffer is refused. Otherwise as [`read`](Volume::read). A caller that
    /// already has the buffer's sum passes [`Payload::summed`], so that the volume need not compute it.
    ///
    /// The bytes behind a narrowed buffer, up to the alignment, reach the file as well, except in an
    /// encrypted volume. No read returns them. A caller that must not leave another owner's bytes there
    /// clears them.
    pub fn write(&self, slot: u32, name: Name, payload: impl Into<Payload>) -> Pending<BlockRead> {
        let payload = payload.into();
        match self.place_of_write(slot, &payload.bytes) {
            Err(failure) => Pending::failed(failure),
            Ok(place) => {
                let cell = self.writes.take();
                if let Ok(request) = self.to_write(payload, name, &cell, place, true) {
                    self.inbox.push(request);
                }
                Pending::new(cell)
            }
        }
    }

    /// [`read`](Volume::read) that never waits.
    ///
    /// # Errors
    /// The buffer, if the queue of such reads is full.
    pub fn try_read(
        &self,
        slot: u32,
        hash: SequenceHash,
        urgency: Urgency,
        buffer: BlockWrite,
    ) -> Result<Pending<BlockWrite>, BlockWrite> {
        match self.place_of_read(slot, &buffer) {
            Err(failure) => Ok(Pending::failed(failure)),
            Ok(place) => {
                let cell = self.reads.take();
                match self.inbox.try_push(Request::read(buffer, hash, urgency, Arc::clone(&cell), place)) {
                    Ok(()) => Ok(Pending::new(cell)),
                    Err(request) => request.into_read_buffer().map_or_else(|| Ok(Pending::new(cell)), Err),
                }
            }
        }
    }

    /// [`write`](Volume::write) that never waits.
    ///
    /// # Errors
    /// The buffer, if the queue of writes is full, or if all copies of an encrypted volume are in use.
    pub fn try_write(
        &self,
        slot: u32,
        name: Name,
        payload: impl Into<Payload>,
    ) -> Result<Pending<BlockRead>, BlockRead> {
        let payload = payload.into();
        match self.place_of_write(slot, &payload.bytes) {
            Err(failure) => Ok(Pending::failed(failure)),
            Ok(place) => {
                let cell = self.writes.take();
                let back = match self.to_write(payload, name, &cell, place, false) {
                    Ok(request) => self.inbox.try_push(request).err().and_then(Request::into_write_buffer),
                    Err(back) => back,
                };
                back.map_or_else(|| Ok(Pending::new(cell)), Err)
            }
        }
    }

    /// Empties a slot: its block can no longer be read, not even after a restart. If a write of the slot
    /// is under way, await it first. The request takes its turn in the queue of writes, and the call
    /// blocks while that is full. A slot that does not exist is empty already.
    pub fn forget(&self, slot: u32) {
        if let Ok(place) = self.place(slot, self.slot_bytes(), Direction::Write) {
            self.inbox.push(Request::forget(place));
        }
    }

    /// [`forget`](Volume::forget) that never waits. Returns false, and forgets nothing, if the queue of
    /// writes is full.
    #[must_use]
    pub fn try_forget(&self, slot: u32) -> bool {
        let place = self.place(slot, self.slot_bytes(), Direction::Write);
        place.map_or(true, |place| self.inbox.try_push(Request::forget(place)).is_ok())
    }

    /// Completes when everything written and forgotten before this call is on the device for good,
    /// with the slot table. It matters only for what is found after a power failure; correctness
    /// does not need it.
    pub fn flush(&self) -> Pending<()> {
        if !self.origin.is_here() {
            let (path, cause) = (Arc::clone(&self.inbox.path), FailureCause::OutOfService);
            return Pending::failed(IoFailure { path, slot: 0, direction: Direction::Flush, cause });
        }
        let cell = Cell::new();
        self.inbox.push(Request::flush(Arc::clone(&cell)));
        Pending::new(cell)
    }

    /// Takes the volume out of service, for a drive that is about to be removed, or is no longer trusted.
    /// Requests in flight are answered. All others, from a moment later on, fail with
    /// [`FailureCause::OutOfService`]. When the volume is opened again, its blocks are found, except for
    /// those written in the last [`table_delay`](VolumeOptions::table_delay).
    pub fn retire(&self) {
        // A forked child has no ring thread to tell.
        if self.origin.is_here() {
            self.inbox.push(Request::retire());
        }
    }

    /// Ends the volume, as dropping it does, and blocks until it has ended. Earlier requests are answered
    /// by then, and the blocks are on the device, with the mark of a clean end; the file may be opened
    /// again. Later requests fail with [`FailureCause::OutOfService`].
    pub fn close(&self) {
        // A forked child has no ring thread to wait for, and a thread of the parent may have held the lock.
        if !self.origin.is_here() {
            if let Ok(mut thread) = self.thread.try_lock() {
                mem::forget(thread.take());
            }
            return;
        }
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(thread) = thread.take() else { return };
        self.inbox.close();
        // If the ring thread panicked, the engine's drop has answered all requests; no one
        // is left to tell.
        if let Ok(Round::Over) = thread.join() {
            // The kernel releases the ring's registrations a moment later, but nothing is in
            // flight any more.
            let _ = self.file.as_ref().map(|file| file.unlock());
        }
    }

    /// Requests that the ring thread has not taken yet.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.inbox.queued()
    }

    fn place(&self, slot: u32, buffer_bytes: usize, direction: Direction) -> Result<Place, IoFailure> {
        let (slots, slot_bytes) = (self.shape.slots, self.slot_bytes());
        // A forked child has no ring thread to serve it.
        let cause = if !self.origin.is_here() {
            FailureCause::OutOfService
        } else if slot >= slots {
            FailureCause::SlotOutOfRange { slots }
        } else if let Some(transfer_bytes) = transfer_bytes(buffer_bytes, self.description.alignment)
            && (1..=slot_bytes).contains(&buffer_bytes)
        {
            return Ok(Place { slot, file_offset: self.shape.offset(slot), transfer_bytes });
        } else {
            FailureCause::BufferLength { buffer_bytes, slot_bytes }
        };
        Err(IoFailure { path: Arc::clone(&self.inbox.path), slot, direction, cause })
    }

    fn place_of_read(&self, slot: u32, buffer: &BlockWrite) -> Result<Place, IoFailure> {
        let place = self.place(slot, buffer.len(), Direction::Read)?;
        self.within(place, buffer.as_ptr().addr(), buffer.room_bytes(), Direction::Read)
    }

    fn place_of_write(&self, slot: u32, buffer: &BlockRead) -> Result<Place, IoFailure> {
        let place = self.place(slot, buffer.len(), Direction::Write)?;
        match self.bounce {
            // The transfer is that of a copy, which has room for a whole slot.
            Some(_) => Ok(place),
            None => self.within(place, buffer.as_ptr().addr(), buffer.room_bytes(), Direction::Write),
        }
    }

    /// Checks that a transfer stays within its buffer's room, and that O_DIRECT can move it. Without O_DIRECT
    /// the padding is optional, so that any buffer will do.
    fn within(
        &self,
        place: Place,
        address: usize,
        room_bytes: usize,
        direction: Direction,
    ) -> Result<Place, IoFailure> {
        let Description { direct, alignment, .. } = self.description;
        if !direct {
            return Ok(Place { transfer_bytes: place.transfer_bytes.min(room_bytes), ..place });
        }
        if address.is_multiple_of(alignment) && place.transfer_bytes <= room_bytes {
            return Ok(place);
        }
        let (path, cause) = (Arc::clone(&self.inbox.path), FailureCause::Unaligned { alignment });
        Err(IoFailure { path, slot: place.slot, direction, cause })
    }

    /// Makes the request of a write, its payload sealed if the volume is encrypted. Err has the
    /// buffer, if no copy is idle and the call must not wait. Err is None if sealing failed; the cell
    /// has the failure.
    fn to_write(
        &self,
        payload: Payload,
        name: Name,
        cell: &Arc<Cell<BlockRead>>,
        place: Place,
        wait: bool,
    ) -> Result<Request, Option<BlockRead>> {
        let cell = Arc::clone(cell);
        let Some(bounce) = &self.bounce else { return Ok(Request::write(payload, name, cell, place)) };
        let (buffer, sum) = (payload.bytes, payload.sum);
        let counters = &self.inbox.counters;
        match bounce.seal(place.slot, name, (&buffer, sum), wait.then_some(&counters.waits)) {
            Ok(copy) => Ok(Request::write_sealed(buffer, copy, name, cell, place)),
            Err(NoCopy::Full) => Err(Some(buffer)),
            Err(NoCopy::Failed(cause)) => {
                counters.failures.add(1);
                let mut request = Request::to_write(buffer.into(), name, cell, place);
                request.failure = Some(cause);
                request.finish(&self.inbox.path);
                Err(None)
            }
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.close();
    }
}

fn start(
    options: VolumeOptions,
    file: VolumeFile,
    build: impl FnOnce(Parts) -> Result<Built, VolumeError> + Send + 'static,
) -> Result<Volume, VolumeError> {
    let VolumeOptions {
        path,
        backend,
        depth,
        queue,
        piece_bytes,
        threads,
        mut arenas,
        keep,
        table_delay,
        trim,
        verify,
        stripe,
        gds,
        device_sums: sums,
        watch_every,
        ..
    } = options;
    let VolumeFile {
        file,
        superblock,
        table,
        cipher,
        direct,
        alignment,
        unwritten,
        mut notes,
        mut concerns,
        ..
    } = file;
    let shape = superblock.shape;
    let os = |operation, source| VolumeError::Os { path: path.clone(), operation, source };
    let too_long = || VolumeError::Option {
        path: path.clone(),
        option: "slot_bytes",
        why: "exceeds the largest buffer; use smaller slots".to_owned(),
    };
    transfer_bytes(shape.slot_bytes as usize, alignment).ok_or_else(too_long)?;
    let write_back = match keep {
        true => Some(
            WriteBack::new(superblock, table_delay)
                .map_err(|error| os("allocate memory for writing the slot table", io::Error::other(error)))?,
        ),
        false => None,
    };
    let fill =
        match unwritten.is_empty() {
            true => None,
            false => Some(Fill::new(shape, unwritten, &table).map_err(|error| {
                os("allocate memory for writing the file through", io::Error::other(error))
            })?),
        };
    let probes = Probes::new(&superblock)
        .map_err(|error| os("allocate memory for probing the device", io::Error::other(error)))?;
    let bounce = match &cipher {
        None => None,
        Some(cipher) => {
            let requests = queue.saturating_add(depth as usize);
            let blocks = bounce::blocks(shape.slot_bytes as usize, requests);
            let bounce = Bounce::new(Arc::clone(cipher), blocks, shape.slot_bytes as usize)
                .map_err(|error| os("allocate memory for encrypting payloads", io::Error::other(error)))?;
            arenas.push(Arc::clone(bounce.arena()));
            Some(bounce)
        }
    };
    let inbox = Arc::new(Inbox::new(queue, Arc::from(Path::new(&path))));
    inbox.counters.unfilled.set(fill.as_ref().map_or(0, Fill::left_bytes));
    let file = Arc::new(file);
    let watch = keep.then(|| Watch::new(path.clone(), Arc::clone(&file), watch_every));
    let parts =
        Parts { path: path.clone(), file: Arc::clone(&file), direct, backend, depth, threads, arenas };
    let (report, reported) = mpsc::channel();
    let served = Arc::clone(&inbox);
    let resume_alignment = match direct {
        true if gds.is_some() => DEVICE_ALIGN_BYTES.max(alignment),
        true => alignment,
        false => 1,
    };
    let encrypted = cipher.is_some();
    let terms = Terms { gds, sums, file: Arc::clone(&file), shape, verify, encrypted, keep, direct };
    let index = stripe.index;
    let thread = thread::Builder::new().name("kvstrata-ring".into()).spawn(move || {
        let Built { ring, backend, words, fixed_bytes, mut notes, concern } = match build(parts) {
            Ok(built) => built,
            Err(error) => {
                let _ = report.send(Err(error));
                return Round::Lost;
            }
        };
        let Joined { ring, device, note } = terms.join(ring);
        notes.extend(note);
        served.set_bell(ring.bell());
        let mut engine = Engine::new(Setup {
            ring,
            inbox: served,
            table,
            cipher,
            write_back,
            fill,
            probes,
            watch,
            sequence: stripe.sequence,
            piece_bytes,
            alignment: resume_alignment,
            verify,
            trim,
        });
        let _ = report.send(Ok((backend, words, fixed_bytes, device, notes, concern)));
        engine.run()
    });
    let thread = thread.map_err(|source| os("start the ring thread", source))?;
    let answer = reported.recv().unwrap_or_else(|_| {
        Err(os("start the ring thread", io::Error::other("the thread ended before it began")))
    });
    let (backend, ring, fixed_bytes, device, more, concern) = match answer {
        Ok(answer) => answer,
        Err(error) => {
            // The thread has ended, or is about to: nothing is held after this.
            let _ = thread.join();
            return Err(error);
        }
    };
    notes.extend(more);
    concerns.extend(concern);
    if !verify && bounce.is_none() {
        notes.push("payloads are not verified: the volume may serve wrong bytes".to_owned());
    }
    let description = Description {
        path,
        slots: shape.slots,
        slot_bytes: shape.slot_bytes as usize,
        stride: shape.stride as usize,
        file_bytes: shape.file_bytes,
        backend,
        direct,
        alignment,
        ring,
        fixed_bytes,
        gds: device.as_ref().ok().map(|device| *device.driver.describe()),
        notes,
        concerns,
        rejected: RejectedRecords::default(),
    };
    let thread = Mutex::new(Some(thread));
    let (reads, writes) = (Cells::new(), Cells::new());
    Ok(Volume {
        inbox,
        shape,
        index,
        queue,
        bounce,
        device,
        description,
        reads,
        writes,
        origin: Origin::here(),
        file: Some(file),
        thread,
    })
}
