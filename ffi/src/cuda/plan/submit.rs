//! One submission: blocks are looked up, a route is chosen, and its copies are queued or its kernel
//! is launched.
//!
//! ```text
//!   batch     guards of the host's blocks, and other objects that the caller keeps      in
//!   + pieces, rows     the copy engine's, if that is the route
//!   + the prepared plan     the device uses its places, bases, functions              back, with the batch
//! ```

use super::super::batch::Batch;
use super::super::error::CudaError;
use super::super::queue::TransferQueue;
use super::super::rejected::Rejected;
use super::super::transfer::Transfer;
use super::super::{Direction, RegionId};
use super::place::{Place, Stretches};
use super::prepared::{Launcher, Prepared, Scratch};
use super::route::{Fragments, Route};
use core::fmt;
use kvstrata_core::BlockId;
use kvstrata_core::plan::{CopyPlan, Family, Piece};
use kvstrata_kernels::THREADS;
use std::sync::Arc;

/// Copies between two layouts, of any blocks. Several threads may submit at the same time, to one queue
/// or several.
#[derive(Clone)]
pub struct PreparedCopy {
    prepared: Arc<Prepared>,
    /// Whether the copy engine can carry it out, too.
    engine: bool,
}

/// Copies that sum the bytes that they move.
#[derive(Clone)]
pub struct SummedCopy {
    prepared: Arc<Prepared>,
}

impl PreparedCopy {
    pub(super) fn new(prepared: Arc<Prepared>, engine: bool) -> PreparedCopy {
        PreparedCopy { prepared, engine }
    }

    /// Returns the direction of the copies.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.prepared.direction
    }

    /// Checks that there is such a route.
    ///
    /// # Errors
    /// [`CudaError::NoKernels`], [`CudaError::NotMapped`], [`CudaError::NoRoute`].
    pub fn has(&self, route: Route) -> Result<(), CudaError> {
        let why = |why| Err(CudaError::NoRoute { why });
        match route {
            _ if self.there(route) => Ok(()),
            Route::Kernel => self.prepared.launcher.as_ref().map(|_| ()).map_err(Clone::clone),
            _ if !self.engine => why("the copy engine does not convert elements; use kernels"),
            Route::Batch if !self.prepared.is_mapped() => Err(CudaError::NotMapped),
            Route::Batch => why("the driver has no call for many copies; install one of CUDA 12.8 or later"),
            Route::Rows => why("rows within a device need a pitch of cuMemAllocPitch; use another route"),
            Route::Single => Ok(()),
        }
    }

    fn there(&self, route: Route) -> bool {
        match route {
            Route::Kernel => self.prepared.launcher.is_ok(),
            Route::Batch => self.engine && self.prepared.is_mapped() && self.prepared.device.batches(),
            // Within a device cuMemcpy2DAsync "may fail" for pitches that cuMemAllocPitch did not give
            // (CUDA Driver API, "Memory Management").
            Route::Rows => self.engine && self.direction() != Direction::DeviceToDevice,
            Route::Single => self.engine,
        }
    }

    /// Queues copies of `src[i]` of the plan's source over `dst[i]` of its destination. `batch` must
    /// contain the guards of all host blocks: read guards for a host source, write guards for a host
    /// destination. It comes back with the transfer.
    ///
    /// The caller must ensure that no one else uses the device's blocks until then.
    ///
    /// # Errors
    /// [`Rejected`], with the batch as it was: [`CudaError::Plan`], [`CudaError::NotHeld`], and the
    /// errors of [`TransferQueue::submit`].
    pub fn submit(
        &self,
        queue: &TransferQueue,
        src: &[BlockId],
        dst: &[BlockId],
        batch: Batch,
    ) -> Result<Transfer, Box<Rejected>> {
        self.prepared.submit(queue, (src, dst), batch, 0, |plan| {
            let route = self.choose(plan);
            // If there is no route at all, this returns the reason.
            self.has(route).map(|()| route)
        })
    }

    /// As [`submit`](PreparedCopy::submit), by a route that the caller chooses.
    ///
    /// # Errors
    /// As for [`submit`](PreparedCopy::submit), and if [there is no such route](PreparedCopy::has).
    pub fn submit_by(
        &self,
        route: Route,
        queue: &TransferQueue,
        src: &[BlockId],
        dst: &[BlockId],
        batch: Batch,
    ) -> Result<Transfer, Box<Rejected>> {
        self.prepared.submit(queue, (src, dst), batch, 0, |_| self.has(route).map(|()| route))
    }

    /// Returns the route that [`submit`](PreparedCopy::submit) would choose for these blocks.
    ///
    /// # Errors
    /// [`CudaError::Plan`].
    pub fn route(&self, src: &[BlockId], dst: &[BlockId]) -> Result<Route, CudaError> {
        let mut scratch = self.prepared.scratch();
        let route = scratch.plan.replan(src, dst).map(|()| self.choose(&scratch.plan));
        self.prepared.give_back(scratch);
        Ok(route?)
    }

    fn choose(&self, plan: &CopyPlan) -> Route {
        let fragments = self.prepared.fragments(plan, self.there(Route::Rows));
        self.prepared.costs.choose(self.direction(), fragments, |route| self.there(route))
    }
}

impl SummedCopy {
    pub(super) fn new(prepared: Arc<Prepared>) -> SummedCopy {
        SummedCopy { prepared }
    }

    /// Returns the bytes of sums per block: 8 for each 64 KiB of it; the last part may be shorter.
    #[must_use]
    pub fn sums_bytes(&self) -> u64 {
        self.prepared.launcher.as_ref().map_or(0, Launcher::sums_bytes)
    }

    /// As [`PreparedCopy::submit`]. The sums go to `sums`, a multiple of 8 in a region of the batch. They
    /// are little-endian words, a block's words one after the other, blocks by ascending number at the
    /// destination. A block's seal is the sum of its words, modulo 2⁶⁴ (`docs/disk-format.md`, "Seals",
    /// kind 1).
    ///
    /// # Errors
    /// As for [`PreparedCopy::submit`], and if the region has no room for the sums.
    pub fn submit(
        &self,
        queue: &TransferQueue,
        src: &[BlockId],
        dst: &[BlockId],
        mut batch: Batch,
        sums: (RegionId, u64),
    ) -> Result<Transfer, Box<Rejected>> {
        let bytes = self.sums_bytes().saturating_mul(dst.len() as u64);
        let address = match batch.kernel_address(sums, bytes, true) {
            Ok(address) if address % 8 == 0 => Ok(address),
            Ok(_) => Err(CudaError::OutOfRange {
                what: "sums, at a multiple of 8",
                offset: sums.1,
                bytes,
                limit: 0,
            }),
            Err(error) => Err(error),
        };
        let address =
            address.and_then(|address| self.prepared.apart((address, bytes), src, dst).map(|()| address));
        match address {
            Ok(address) => self.prepared.submit(queue, (src, dst), batch, address, |_| Ok(Route::Kernel)),
            Err(error) => Err(Box::new(Rejected { error, batch })),
        }
    }
}

impl Prepared {
    fn is_mapped(&self) -> bool {
        self.places.iter().all(Place::is_mapped)
    }

    fn fragments(&self, plan: &CopyPlan, rows: bool) -> Fragments {
        let pieces = plan.pieces_count();
        // Counting the families that neighbouring blocks share takes some 30 ns per run; many runs have
        // few neighbours.
        let families = match rows && plan.runs().len() <= COUNTED_RUNS {
            true => plan.families_count(),
            false => pieces.min(self.families * plan.blocks()),
        };
        Fragments {
            pieces,
            bytes: plan.bytes(),
            families,
            width: self.launcher.as_ref().map_or(1, |launcher| launcher.width),
        }
    }

    fn submit(
        self: &Arc<Self>,
        queue: &TransferQueue,
        blocks: (&[BlockId], &[BlockId]),
        batch: Batch,
        sums: u64,
        choose: impl FnOnce(&CopyPlan) -> Result<Route, CudaError>,
    ) -> Result<Transfer, Box<Rejected>> {
        let mut scratch = self.scratch();
        let transfer = self.submit_with(&mut scratch, queue, blocks, batch, sums, choose);
        self.give_back(scratch);
        transfer
    }

    fn submit_with(
        self: &Arc<Self>,
        scratch: &mut Scratch,
        queue: &TransferQueue,
        blocks: (&[BlockId], &[BlockId]),
        mut batch: Batch,
        sums: u64,
        choose: impl FnOnce(&CopyPlan) -> Result<Route, CudaError>,
    ) -> Result<Transfer, Box<Rejected>> {
        let mark = batch.mark();
        let route = self.checked(queue, scratch, blocks, &batch).and_then(|()| choose(&scratch.plan));
        let route = match route {
            Ok(route) => route,
            Err(error) => return Err(Box::new(Rejected { error, batch })),
        };
        if route != Route::Kernel {
            // SAFETY: inside the places (the prepared plan's I1), which the batch holds together with the
            // plan; the batch holds the host's blocks by their guards.
            unsafe { self.add(route, &scratch.plan, &mut batch) };
        }
        batch.keep(Arc::<Prepared>::clone(self));
        // The context is bound once for all calls.
        let queued = self.device.bound(|| queue_it(queue, route, self, scratch, sums, &mut batch));
        match queued {
            Ok(Ok(transfer)) => Ok(transfer),
            Ok(Err(mut rejected)) => {
                rejected.batch.rewind(&mark);
                Err(rejected)
            }
            Err(error) => {
                batch.rewind(&mark);
                Err(Box::new(Rejected { error, batch }))
            }
        }
    }

    /// Checks that the sums go to memory outside the plan's blocks.
    fn apart(&self, sums: (u64, u64), src: &[BlockId], dst: &[BlockId]) -> Result<(), CudaError> {
        let meets = self.places.iter().zip([src, dst]).any(|(place, blocks)| place.meets(sums, blocks));
        match meets {
            true => Err(CudaError::NoRoute {
                why: "the sums would overwrite blocks of the copy; put them elsewhere",
            }),
            false => Ok(()),
        }
    }

    /// Makes the plan of these blocks, and checks that the batch holds the host's blocks.
    fn checked(
        &self,
        queue: &TransferQueue,
        scratch: &mut Scratch,
        (src, dst): (&[BlockId], &[BlockId]),
        batch: &Batch,
    ) -> Result<(), CudaError> {
        if !Arc::ptr_eq(queue.device(), &self.device) {
            let (found, wanted) = (queue.device().ordinal(), self.device.ordinal());
            return Err(CudaError::WrongDevice { what: "the queue", found, wanted });
        }
        // The copy engine would carry out these pieces with the plan's, and a kernel would not.
        if batch.pieces() > 0 {
            return Err(CudaError::Pieces { pieces: batch.pieces() });
        }
        let Scratch { plan, blocks, .. } = scratch;
        plan.replan(src, dst)?;
        match &self.places {
            [Place::Host(arena), _] => blocks.are_held(batch, arena, false, src.iter().map(|block| block.0)),
            [_, Place::Host(arena)] => blocks.are_held(batch, arena, true, dst.iter().map(|block| block.0)),
            _ => Ok(()),
        }
    }

    /// # Safety
    /// The batch will hold the places and the host's blocks of the plan.
    unsafe fn add(&self, route: Route, plan: &CopyPlan, batch: &mut Batch) {
        // A piece longer than a block continues in the next block, which may be in another stretch.
        let goes_on =
            self.stretches.iter().any(Stretches::are_many) && plan.largest_piece() > plan.block_bytes();
        let cut = self.crosses || goes_on;
        if route != Route::Rows {
            for piece in plan.pieces() {
                // SAFETY: the caller's promise.
                unsafe { self.add_piece(piece, cut, batch) };
            }
            return;
        }
        for family in plan.families() {
            let Family { first, count, src_stride, dst_stride } = family;
            let turns = u64::from(count);
            let spans = [(first.src, src_stride), (first.dst, dst_stride)].into_iter().zip(&self.stretches);
            let one_copy = count > 1
                && spans.into_iter().all(|((at, stride), stretches)| {
                    let span = stride.checked_mul(turns - 1).and_then(|span| span.checked_add(first.bytes));
                    stride <= MOST_PITCH && span.is_some_and(|span| stretches.has(at, span))
                });
            if one_copy {
                // SAFETY: the caller's promise.
                unsafe { batch.add_family(self.direction, &family) };
                continue;
            }
            for turn in 0..turns {
                let src = first.src.wrapping_add(turn.wrapping_mul(src_stride));
                let dst = first.dst.wrapping_add(turn.wrapping_mul(dst_stride));
                // SAFETY: the caller's promise.
                unsafe { self.add_piece(Piece { src, dst, ..first }, cut, batch) };
            }
        }
    }

    /// Adds a piece. A piece across stretches is added in parts, if possible.
    ///
    /// # Safety
    /// As for `add`.
    unsafe fn add_piece(&self, mut piece: Piece, cut: bool, batch: &mut Batch) {
        let left = |stretches: &Stretches, at: u64| stretches.end_of(at) - at;
        loop {
            let [src, dst] = &self.stretches;
            let bytes = if cut { left(src, piece.src).min(left(dst, piece.dst)) } else { 0 };
            if bytes == 0 || bytes >= piece.bytes {
                break;
            }
            // SAFETY: the caller's promise.
            unsafe { batch.add_piece(self.direction, Piece { bytes, ..piece }) };
            piece = Piece { src: piece.src + bytes, dst: piece.dst + bytes, bytes: piece.bytes - bytes };
        }
        // SAFETY: the caller's promise.
        unsafe { batch.add_piece(self.direction, piece) };
    }
}

/// The maximum number of runs whose families are counted.
const COUNTED_RUNS: usize = 256;

/// The largest `CU_DEVICE_ATTRIBUTE_MAX_PITCH` that drivers report.
const MOST_PITCH: u64 = i32::MAX as u64;

/// Queues the operations of the route. The batch goes into the work.
fn queue_it(
    queue: &TransferQueue,
    route: Route,
    prepared: &Prepared,
    scratch: &mut Scratch,
    sums: u64,
    batch: &mut Batch,
) -> Result<Transfer, Box<Rejected>> {
    let mut work = queue.begin(core::mem::take(batch))?;
    match (route, &prepared.launcher) {
        (Route::Kernel, Ok(launcher)) => {
            let Scratch { plan, parameters, .. } = scratch;
            launcher.launches(plan.runs(), sums, parameters, |function, launch| {
                // SAFETY: the kernel was made for the plan, and all bytes of the plan lie in the places
                // (the prepared plan's I1). The batch holds the places together with the plan, and also
                // the host's blocks. The parameters have the size that the kernel takes, the bases are
                // where they were put, and the room for the sums was checked.
                unsafe { work.launch(function, launch.grid, THREADS, launch.parameters) };
            });
        }
        (Route::Single, _) => work.copy_singly(),
        _ => work.copy(),
    }
    work.finish()
}

impl fmt::Debug for PreparedCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PreparedCopy({}, {:?})", self.direction().name(), self.prepared.places)
    }
}

impl fmt::Debug for SummedCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SummedCopy({}, {:?})", self.prepared.direction.name(), self.prepared.places)
    }
}
