//! Sums of payloads in device memory, for volumes that seal and verify there: [`DeviceSums`] by the kernel.
//!
//! ```text
//!   payload   ├ chunk 0, 64 KiB ┼ chunk 1 ┼ … ┤        device memory of a foreign owner
//!                  │ kernel, one CTA per chunk
//!   seat      ├ 8 bytes ┼ 8 bytes ┼ … ┤         a pinned block that the kernel writes; their sum is the seal
//! ```
//!
//! The kernel refuses some payloads ([`CannotSum`](kvstrata_kernels::CannotSum): the address is not a
//! multiple of 16, or the last chunk has at most 240 bytes). For others the device cannot write its sums
//! to host memory. Such payloads come down through the same block, part by part, and the CPU hashes them:
//! the same sum, later.
//!
//! Calls come from several threads. Each takes a seat, or waits for one. Their kernels are in one stream,
//! and each call waits only for its own kernel.
//!
//! Invariants
//! - I1: a seat's block is borrowed by one call, from the call to the device's answer. A call that gives
//!   up leaves the block to the device, which keeps it and the payload's owner until it has answered.

use super::super::batch::{Batch, Held};
use super::super::code::CudaCode;
use super::super::context::CudaDevice;
use super::super::copy::Direction;
use super::super::error::CudaError;
use super::super::memory::DeviceRange;
use super::super::module::CudaFunction;
use super::super::pinned::{PinOptions, PinnedStorage};
use super::super::queue::{QueueOptions, TransferQueue};
use super::super::stream::Purpose;
use super::super::transfer::Transfer;
use super::kernels::CudaKernels;
use crate::arena::BlockWrite;
use crate::disk::{CHUNK_BYTES, Sum, seal_of};
use crate::gds::{self, DeviceSums};
use core::any::Any;
use core::ffi::CStr;
use core::fmt;
use core::time::Duration;
use kvstrata_core::plan::Piece;
use kvstrata_kernels::{Parameters, SumKernel, THREADS};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use zerocopy::FromBytes;

/// Bytes of a seat: the sums of 8 GiB, more than a slot has; or the bytes that come down at a time.
const SEAT_BYTES: usize = 1 << 20;

const _: () = assert!(SEAT_BYTES.is_multiple_of(CHUNK_BYTES));

/// Options for making sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct SumOptions {
    calls: usize,
    most_ctas: Option<u32>,
    patience: Duration,
}

impl SumOptions {
    /// Four calls at a time, as many as a volume has threads for cuFile; one CTA per multiprocessor;
    /// 30 seconds.
    pub fn new() -> SumOptions {
        SumOptions { calls: 4, most_ctas: None, patience: Duration::from_secs(30) }
    }

    /// Sets the concurrent calls, at least 1; others wait. Each has 1 MiB of pinned memory.
    pub fn calls(mut self, calls: usize) -> Self {
        self.calls = calls.max(1);
        self
    }

    /// Sets the maximum CTAs, of 256 threads each, of one sum; at least 1.
    pub fn most_ctas(mut self, ctas: u32) -> Self {
        self.most_ctas = Some(ctas.max(1));
        self
    }

    /// Sets how long a call waits for its turn, and how long for the device.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

impl Default for SumOptions {
    fn default() -> SumOptions {
        SumOptions::new()
    }
}

/// Sums payloads of a device. For
/// [`VolumeOptions::device_sums`](crate::disk::VolumeOptions::device_sums); all volumes can share one.
pub struct CudaSums {
    device: Arc<CudaDevice>,
    functions: Vec<(&'static CStr, CudaFunction)>,
    queue: TransferQueue,
    pinned: Arc<PinnedStorage>,
    idle: Mutex<Vec<Seat>>,
    came_back: Condvar,
    most_ctas: u32,
    patience: Duration,
}

/// The resources of a call, kept between calls so that no call allocates.
struct Seat {
    block: usize,
    batch: Batch,
    parameters: Parameters,
}

/// Bytes of the device, and their owner.
struct Memory {
    address: u64,
    bytes: u64,
    owner: Arc<dyn Any + Send + Sync>,
}

impl CudaSums {
    /// Creates a stream, a thread that waits for it, and pinned memory.
    ///
    /// # Errors
    /// [`CudaError::NoKernels`] if these kernels have none that sums; or the driver refuses.
    pub fn new(
        device: &Arc<CudaDevice>,
        kernels: &CudaKernels,
        options: SumOptions,
    ) -> Result<CudaSums, CudaError> {
        let SumOptions { calls, most_ctas, patience } = options;
        // The names are the same for all payloads.
        let any = SumKernel::of_payload(0, CHUNK_BYTES as u64)
            .map_err(|why| CudaError::NoKernels { why: why.to_string() })?;
        let functions = any.names().map(|name| kernels.function(name)).collect::<Result<Vec<_>, _>>()?;
        let seats =
            (0..calls).map(|block| Seat { block, batch: Batch::new(), parameters: Parameters::default() });
        Ok(CudaSums {
            functions,
            queue: TransferQueue::new(device, Purpose::Staging, QueueOptions::new())?,
            pinned: PinnedStorage::allocate(device, calls, SEAT_BYTES, PinOptions::new(), &mut |_, _| {})?,
            idle: Mutex::new(seats.collect()),
            came_back: Condvar::new(),
            most_ctas: most_ctas.unwrap_or_else(|| device.describe().multiprocessors.max(1)),
            patience,
            device: Arc::clone(device),
        })
    }

    /// Returns the sum of device memory that does not change meanwhile, as [`DeviceSums`] defines it.
    ///
    /// # Errors
    /// [`CudaError::WrongDevice`]; [`CudaError::Full`] and [`CudaError::Deadline`] when patience is over;
    /// or the driver refuses.
    pub fn of_range(&self, range: &DeviceRange) -> Result<u64, CudaError> {
        let (storage, owner) = (range.storage(), Arc::clone(range.storage()));
        if !Arc::ptr_eq(storage.device(), &self.device) {
            return Err(self.of_another(storage.device().ordinal()));
        }
        self.sum(&Memory { address: range.address(), bytes: range.size_bytes(), owner })
    }

    fn of_another(&self, found: u32) -> CudaError {
        CudaError::WrongDevice { what: "the payload", found, wanted: self.device.ordinal() }
    }

    fn sum(&self, memory: &Memory) -> Result<u64, CudaError> {
        let (mut seat, block) = self.seat()?;
        let kernel = SumKernel::of_payload(memory.address, memory.bytes).ok();
        let kernel =
            kernel.filter(|kernel| self.pinned.is_mapped() && kernel.chunks() as usize <= SEAT_BYTES / 8);
        let sum = match kernel {
            Some(kernel) => self.by_kernel(&kernel, memory, &mut seat, block),
            None => self.by_cpu(memory, &mut seat, block),
        };
        self.lock().push(seat);
        // All waiters are woken: a seat whose block the device keeps serves no call, and every waiter
        // must notice a failed device.
        self.came_back.notify_all();
        sum
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Seat>> {
        // Nothing panics under the lock.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat and its block, once there is a seat whose block the device has answered for.
    fn seat(&self) -> Result<(Seat, BlockWrite), CudaError> {
        let (arena, begun) = (self.pinned.arena(), Instant::now());
        let mut idle = self.lock();
        loop {
            self.device.alive()?;
            let mut found =
                (0..idle.len()).rev().filter_map(|at| Some((at, arena.write(idle[at].block).ok()?)));
            if let Some((at, block)) = found.next() {
                return Ok((idle.swap_remove(at), block));
            }
            drop(found);
            let left = self.patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(CudaError::Full { what: "sums", limit: arena.blocks() });
            }
            idle = self.came_back.wait_timeout(idle, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn by_kernel(
        &self,
        kernel: &SumKernel,
        memory: &Memory,
        seat: &mut Seat,
        block: BlockWrite,
    ) -> Result<u64, CudaError> {
        let bytes = kernel.chunks() as usize * 8;
        // The context is bound once for all calls.
        let queued = self.device.bound(|| {
            let mut batch = core::mem::take(&mut seat.batch);
            let region = batch.write(block, &self.pinned)?;
            batch.keep(Arc::clone(&memory.owner));
            let sums = batch.kernel_address((region, 0), bytes as u64, true)?;
            let mut work = self.queue.begin(batch).map_err(|rejected| rejected.error)?;
            let parameters = &mut seat.parameters;
            kernel.launches(&SumKernel::PAYLOAD, 0, sums, self.most_ctas, parameters, |launch| {
                let found = self.functions.iter().find(|(name, _)| *name == launch.kernel);
                let missing = || CudaError::NoKernels { why: format!("{:?} was not loaded", launch.kernel) };
                let (_, function) = found.ok_or_else(missing)?;
                // SAFETY: the parameters have the size that the kernel takes. The kernel reads the
                // payload, whose owner the batch has, and writes sums; the batch has the room and the
                // guard for them.
                unsafe { work.launch(function, launch.grid, THREADS, launch.parameters) };
                Ok::<(), CudaError>(())
            })?;
            work.finish().map_err(|rejected| rejected.error)
        })??;
        let block = self.answered(queued, seat)?;
        let sums = block.get(..bytes).and_then(|sums| <[u64]>::ref_from_bytes(sums).ok());
        let too_few = || CudaError::OutOfRange {
            what: "block for sums",
            offset: 0,
            bytes: bytes as u64,
            limit: block.len() as u64,
        };
        sums.map(seal_of).ok_or_else(too_few)
    }

    fn by_cpu(&self, memory: &Memory, seat: &mut Seat, mut block: BlockWrite) -> Result<u64, CudaError> {
        let mut sum = Sum::default();
        for start in (0..memory.bytes).step_by(SEAT_BYTES) {
            let bytes = (memory.bytes - start).min(SEAT_BYTES as u64);
            let dst = block.io_pointer().as_ptr().expose_provenance() as u64;
            let mut batch = core::mem::take(&mut seat.batch);
            batch.write(block, &self.pinned)?;
            batch.keep(Arc::clone(&memory.owner));
            let piece = Piece { src: memory.address + start, dst, bytes };
            // SAFETY: from the payload to the block. The batch has the payload's owner and the block,
            // which is large enough.
            unsafe { batch.add_piece(Direction::DeviceToHost, piece) };
            let queued = self.queue.submit(batch).map_err(|rejected| rejected.error)?;
            block = self.answered(queued, seat)?;
            sum.add(start as usize, &block[..bytes as usize]);
        }
        Ok(sum.number())
    }

    /// Waits, and takes the block back. The payload's owner is dropped before its caller gets the answer.
    fn answered(&self, queued: Transfer, seat: &mut Seat) -> Result<BlockWrite, CudaError> {
        let mut batch = queued.wait_for(self.patience)?;
        let mut block = None;
        for held in batch.release() {
            if let Held::Write(held, _) = held {
                block = Some(held);
            }
        }
        seat.batch = batch;
        block.ok_or(CudaError::NotRegistered { what: "block for sums" })
    }
}

impl DeviceSums for CudaSums {
    /// The error is the driver's number; on a device that has failed for good, that of its first error.
    /// It is 909 (`CUDA_ERROR_TIMEOUT`) when patience is over, and −1 for errors that are not the
    /// driver's. [`of_range`](CudaSums::of_range) has the errors in words.
    fn sum(&self, payload: &gds::DeviceRange) -> Result<u64, i32> {
        let buffer = payload.buffer();
        let found = buffer.driver().describe().device;
        let sum = match found == self.device.ordinal() {
            true => {
                let (address, bytes) = (payload.address(), payload.size_bytes() as u64);
                self.sum(&Memory { address, bytes, owner: Arc::<gds::GdsBuffer>::clone(buffer) })
            }
            false => Err(self.of_another(found)),
        };
        sum.map_err(|error| match error {
            CudaError::Deadline { .. } | CudaError::Full { .. } => CudaCode::TIMEOUT.number(),
            other => other.number(),
        })
    }
}

impl fmt::Debug for CudaSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (idle, of) = (self.lock().len(), self.pinned.arena().blocks());
        write!(f, "CudaSums(of device:{}, {idle} of {of} seats idle)", self.device.ordinal())
    }
}
