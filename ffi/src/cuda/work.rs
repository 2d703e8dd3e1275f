//! A transfer while it is being queued: its parts in their order, and the handling of a refused part.
//!
//! Invariants: the queue's. The queued parts belong to the slot from the end of the [`Work`] on, however
//! it ends.

use super::batch::{Batch, RegionId};
use super::error::CudaError;
use super::event::CudaEvent;
use super::module::{CudaFunction, CudaModule};
use super::rejected::Rejected;
use super::slots::Shared;
use super::stream::CudaStream;
use super::transfer::Transfer;
use std::sync::{Arc, MutexGuard};

/// A transfer that is being queued. Dropping it finishes the transfer, without a waiter.
pub struct Work<'a> {
    shared: &'a Arc<Shared>,
    /// Held until the work is ended: owners are dropped under no lock (I4).
    turn: Option<MutexGuard<'a, u32>>,
    slot: usize,
    parts: Option<(Batch, CudaEvent)>,
    /// Whether anything is in the stream.
    issued: bool,
    /// The first refusal; nothing more is queued after it.
    error: Option<CudaError>,
}

impl<'a> Work<'a> {
    /// Begins the work of a reserved slot. The caller holds the turn.
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        turn: MutexGuard<'a, u32>,
        slot: usize,
        parts: (Batch, CudaEvent),
    ) -> Work<'a> {
        Work { shared, turn: Some(turn), slot, parts: Some(parts), issued: false, error: None }
    }

    fn part(&mut self, act: impl FnOnce(&CudaStream, &mut Batch, &mut bool) -> Result<(), CudaError>) {
        if let (None, Some((batch, _))) = (&self.error, &mut self.parts) {
            let (stream, issued) = (&self.shared.stream, &mut self.issued);
            // The context is bound once for all pieces.
            self.error = stream.device().bound(|| act(stream, batch, issued)).and_then(|done| done).err();
        }
    }

    /// Queues all pieces of the batch. [`finish`](Work::finish) reports errors, here and below.
    pub fn copy(&mut self) {
        // SAFETY: the batch goes into its slot, and stays there until the stream has answered (the
        // queue's I1).
        self.part(|stream, batch, issued| unsafe { batch.issue(stream, false, issued) });
    }

    /// Queues all pieces with one call per piece, even if the driver has a call for many.
    pub fn copy_singly(&mut self) {
        // SAFETY: as above.
        self.part(|stream, batch, issued| unsafe { batch.issue(stream, true, issued) });
    }

    /// Fills a part of a device region.
    pub fn fill(&mut self, at: (RegionId, u64), bytes: u64, byte: u8) {
        self.part(|stream, batch, issued| {
            let address = batch.device_address(at, bytes)?;
            // SAFETY: inside memory of the batch, which stays in its slot until the stream has answered
            // (the queue's I1).
            unsafe { stream.fill(address, bytes, byte) }?;
            *issued = true;
            Ok(())
        });
    }

    /// Returns the address of a part of a region that a kernel writes: device memory, or a block borrowed
    /// for writing.
    ///
    /// # Errors
    /// [`CudaError::OutOfRange`], [`CudaError::NotMapped`].
    pub fn target_address(&mut self, at: (RegionId, u64), bytes: u64) -> Result<u64, CudaError> {
        self.address(at, bytes, true)
    }

    /// Returns the address of a part of a region that a kernel reads.
    ///
    /// # Errors
    /// [`CudaError::OutOfRange`], [`CudaError::NotMapped`].
    pub fn source_address(&mut self, at: (RegionId, u64), bytes: u64) -> Result<u64, CudaError> {
        self.address(at, bytes, false)
    }

    fn address(&mut self, at: (RegionId, u64), bytes: u64, target: bool) -> Result<u64, CudaError> {
        match &mut self.parts {
            Some((batch, _)) => batch.kernel_address(at, bytes, target),
            None => Err(CudaError::OutOfRange { what: "batch", offset: at.1, bytes, limit: 0 }),
        }
    }

    /// Launches a kernel. The transfer holds the kernel's function.
    ///
    /// # Safety
    /// As for [`CudaStream::launch`]; memory that the transfer holds lives long enough.
    pub unsafe fn launch<T: ?Sized>(&mut self, function: &CudaFunction, grid: u32, block: u32, args: &T) {
        self.part(|stream, batch, issued| {
            // SAFETY: the caller's promise.
            unsafe { stream.launch(function, grid, block, args) }?;
            *issued = true;
            batch.keep(Arc::<CudaModule>::clone(function.module()));
            Ok(())
        });
    }

    /// Ends the queuing: from now on the device has the transfer.
    ///
    /// # Errors
    /// [`Rejected`] with the batch if nothing was queued: the first part was refused, or no part
    /// could be queued.
    pub fn finish(mut self) -> Result<Transfer, Box<Rejected>> {
        match self.end(false) {
            None => Ok(Transfer::new(Arc::clone(self.shared), self.slot)),
            Some(rejected) => Err(rejected),
        }
    }

    /// Puts the batch into its slot if any part was queued or none was refused.
    fn end(&mut self, abandoned: bool) -> Option<Box<Rejected>> {
        let (batch, event) = self.parts.take()?;
        let shared = self.shared;
        let mut turn = self.turn.take()?;
        let recorded = match (&self.error, self.issued) {
            (Some(_), false) => {
                shared.events.give(event);
                shared.lock().free.push(self.slot);
                let error = self.error.take()?;
                drop(turn);
                return Some(Box::new(Rejected { error, batch }));
            }
            _ => event.record(&shared.stream),
        };
        let late = self.error.take();
        let announced = recorded.is_ok() && shared.signal.announce(&shared.stream, turn.wrapping_add(1));
        if announced {
            *turn = turn.wrapping_add(1);
        }
        if let Err(error) = recorded {
            // It is unknown when the device will be done with the batch.
            shared.events.leak(event);
            shared.leak(batch);
            let mut state = shared.lock();
            match abandoned {
                true => state.vacate(self.slot),
                false => state.slots[self.slot].outcome = Some(Err(late.unwrap_or(error))),
            }
            return None;
        }
        let mut state = shared.lock();
        let slot = &mut state.slots[self.slot];
        slot.late = late;
        slot.abandoned = abandoned;
        slot.batch = Some(batch);
        slot.awaited = Some((event, *turn, announced));
        state.fifo.push_back(self.slot);
        drop(state);
        shared.work.notify_all();
        None
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        // A batch without queued parts is dropped here, and its owners with it.
        drop(self.end(true));
    }
}
