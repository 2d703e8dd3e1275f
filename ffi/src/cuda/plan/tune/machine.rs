//! The memory of the measurements, and plans with exactly a given number of pieces of one size.
//!
//! ```text
//!   strewn   ├ layer 0 ─────────┼ layer 2 ─┼ layer 1 ─┼ layer 3 ─┤   device: layers apart, in no order
//!             ▪▪▪▪····▪▪▪▪···· …                                     16 tokens of two heads each; the plan
//!                                                                    has one head, so pieces never meet
//!   dense    ├ layer 0 ┼ layer 1 ┼ layer 2 ┼ layer 3 ┤               host or device: a block in one stretch
//! ```
//!
//! This resembles offloading some of the heads of an engine's tensors to a tier. One arena of one block
//! and two allocations serve all sizes and counts, so the slow pinning is done once.

use super::super::super::batch::{Batch, Held};
use super::super::super::context::CudaDevice;
use super::super::super::copy::Direction;
use super::super::super::error::CudaError;
use super::super::super::memory::DeviceStorage;
use super::super::super::pinned::{PinOptions, PinnedStorage};
use super::super::super::queue::{QueueOptions, TransferQueue};
use super::super::super::stream::Purpose;
use super::super::costs::CopyCosts;
use super::super::place::Place;
use super::super::prepare::CudaCopy;
use super::super::route::Route;
use super::super::submit::PreparedCopy;
use crate::arena::{BlockRead, BlockWrite};
use core::time::Duration;
use kvstrata_core::BlockId;
use kvstrata_core::layout::{Arrangement, Layout, LayoutConfig, LayoutError, Region};
use kvstrata_core::plan::CopyPlan;
use kvstrata_core::storage::Storage;
use std::sync::Arc;
use std::time::Instant;

/// The fewest bytes for a measurement.
const LEAST_BYTES: u64 = 64 << 10;

/// The maximum shift of the strewn side.
pub(super) const SHIFT: u64 = 16;

/// `count` pieces of `size` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) size: u64,
    pub(super) count: u64,
    /// Bytes by which the strewn side is off a multiple of 16: 8, 4, 2 and 1 leave a kernel vectors of
    /// that many bytes. 0 for none.
    pub(super) shift: u64,
}

impl Shape {
    pub(super) fn new(size: u64, count: u64) -> Shape {
        Shape { size, count, shift: 0 }
    }

    pub(super) fn bytes(self) -> u64 {
        self.size * self.count
    }

    /// Returns the bytes from the start of the strewn memory to the last byte that the shape's plan
    /// can reach.
    pub(super) fn strewn_bytes(self) -> u64 {
        2 * self.bytes() + self.shift
    }
}

/// A device, and the resources of its measurements.
pub(super) struct Machine {
    pub(super) copy: CudaCopy,
    queue: TransferQueue,
    pub(super) host: Arc<PinnedStorage>,
    pub(super) strewn: Arc<DeviceStorage>,
    pub(super) dense: Arc<DeviceStorage>,
    /// Maximum bytes of a shape.
    pub(super) most_bytes: u64,
    /// The deadline of one transfer.
    deadline: Duration,
    /// Reused, for its vectors.
    batch: Batch,
}

impl Machine {
    /// Creates a machine with room for shapes of `most_bytes`, or of as much as there is: three times
    /// that on the device, once on the host.
    pub(super) fn new(
        device: &Arc<CudaDevice>,
        copy: CudaCopy,
        most_bytes: u64,
        deadline: Duration,
    ) -> Result<Machine, CudaError> {
        // No more than half of the free memory: other users may want some.
        let free = device.memory()?.free_bytes;
        let mut most_bytes = most_bytes.min(free / 6).max(LEAST_BYTES);
        let (host, strewn, dense) = loop {
            match Machine::memory(device, most_bytes) {
                Ok(memory) => break memory,
                Err(error) if error.fault().is_some() || most_bytes / 2 < LEAST_BYTES => return Err(error),
                Err(_) => most_bytes /= 2,
            }
        };
        let queue = TransferQueue::new(device, Purpose::Offload, QueueOptions::new())?;
        Ok(Machine { copy, queue, host, strewn, dense, most_bytes, deadline, batch: Batch::new() })
    }

    #[expect(clippy::type_complexity, reason = "three kinds of memory")]
    fn memory(
        device: &Arc<CudaDevice>,
        bytes: u64,
    ) -> Result<(Arc<PinnedStorage>, Arc<DeviceStorage>, Arc<DeviceStorage>), CudaError> {
        let strewn = DeviceStorage::allocate(device, 2 * bytes + SHIFT)?;
        let dense = DeviceStorage::allocate(device, bytes)?;
        let host = PinnedStorage::allocate(device, 1, bytes as usize, PinOptions::new(), &mut |_, _| {})?;
        Ok((host, strewn, dense))
    }

    /// Returns the layouts of a shape, source and destination, and their places.
    pub(super) fn sides(
        &self,
        direction: Direction,
        shape: Shape,
    ) -> Result<[(Layout, Place); 2], CudaError> {
        let within = direction == Direction::DeviceToDevice;
        let dense = if within { Region::of(&*self.dense) } else { Region::of(&*self.host) };
        let [strewn, dense] = layouts(shape, Region::of(&*self.strewn), dense)?;
        let strewn = (strewn, Place::Device(vec![self.strewn.range(0, self.strewn.size_bytes())?]));
        let dense = match within {
            true => (dense, Place::Device(vec![self.dense.range(0, self.dense.size_bytes())?])),
            false => (dense, Place::Host(Arc::clone(&self.host))),
        };
        Ok(if direction == Direction::HostToDevice { [dense, strewn] } else { [strewn, dense] })
    }

    /// Returns the plan of a shape: the first of two heads.
    pub(super) fn prepare(&self, direction: Direction, shape: Shape) -> Result<PreparedCopy, CudaError> {
        let [(from, source), (to, destination)] = self.sides(direction, shape)?;
        let plan = CopyPlan::new(&from, &[], &to, &[], .., 0..1)?;
        self.copy.prepare(&plan, source, destination)
    }

    /// Copies a shape, and returns the time from its submission to its completion.
    pub(super) fn time(&mut self, prepared: &PreparedCopy, route: Route) -> Result<Duration, CudaError> {
        let mut batch = core::mem::take(&mut self.batch);
        match prepared.direction() {
            Direction::HostToDevice => batch.read(self.to_read()?, &self.host).map(|_| ())?,
            Direction::DeviceToHost => batch.write(self.to_write()?, &self.host).map(|_| ())?,
            Direction::DeviceToDevice => {}
        }
        let block = [BlockId(0)];
        let begun = Instant::now();
        let transfer = prepared.submit_by(route, &self.queue, &block, &block, batch);
        let ended = transfer.map_err(|rejected| rejected.error)?.wait_for(self.deadline);
        let took = begun.elapsed();
        self.batch = ended?;
        self.batch.release().for_each(drop::<Held>);
        Ok(took)
    }

    pub(super) fn to_read(&self) -> Result<BlockRead, CudaError> {
        self.host.arena().read(0).map_err(|why| CudaError::Arena { why: why.to_string() })
    }

    pub(super) fn to_write(&self) -> Result<BlockWrite, CudaError> {
        self.host.arena().write(0).map_err(|why| CudaError::Arena { why: why.to_string() })
    }

    /// Copies bytes between the arena's block and device memory, down or up.
    pub(super) fn carry(&self, device: &Arc<DeviceStorage>, down: bool, bytes: u64) -> Result<(), CudaError> {
        let mut batch = Batch::new();
        let range = batch.device(device.range(0, bytes)?);
        if down {
            let block = batch.write(self.to_write()?, &self.host)?;
            batch.copy((range, 0), (block, 0), bytes)?;
        } else {
            let block = batch.read(self.to_read()?, &self.host)?;
            batch.copy((block, 0), (range, 0), bytes)?;
        }
        let transfer = self.queue.submit(batch).map_err(|rejected| rejected.error)?;
        transfer.wait_for(self.deadline)?.release().for_each(drop::<Held>);
        Ok(())
    }
}

/// Returns a shape's layouts in these regions: strewn and dense.
pub(super) fn layouts(shape: Shape, strewn: Region, dense: Region) -> Result<[Layout; 2], LayoutError> {
    let tokens = shape.count.min(CopyCosts::FAMILY);
    let layers = shape.count / tokens;
    let config = LayoutConfig::new().num_layers(layers as u32).page_size(tokens as u32);
    let span = 2 * shape.size * tokens;
    let bits = u64::BITS - layers.trailing_zeros();
    let region = |layer: u64| Region {
        // The layer's bits in reverse: from 4 layers on, the steps are never equal.
        address: strewn.address + shape.shift + span * layer.reverse_bits().checked_shr(bits).unwrap_or(0),
        size_bytes: span,
        kind: strewn.kind,
    };
    let regions: Vec<_> = (0..layers).map(region).collect();
    let two = config.heads(2, shape.size as u32);
    Ok([
        Layout::layer_separated(two, Arrangement::BlockFirst, &regions)?,
        Layout::fully_contiguous(config.heads(1, shape.size as u32), dense)?,
    ])
}
