//! Copies between an engine's tensors on a CUDA device and pinned host memory.
//!
//! ```text
//!   Copies ──► flight ─┬─ onboard ── sums compared ──► queue ── the device copies ──────────────► answer
//!                      └─ offload ───────────────────► queue ── the device copies ── sums sealed ──► answer
//!              ▲ the mover's threads: submit, sum, answer      ▲ the queue's thread wakes the flight
//! ```
//!
//! A list becomes one transfer for each of its ranges of layers. Layers of a host block are contiguous,
//! in the order of [`HostMemory`]; the device's layout says where its layers are. The CPU makes the
//! sums, of pinned memory: before an onboard, after an offload.
//!
//! Invariants
//! - I1: a guard is in its list, in a transfer's batch, or with a thread that sums its bytes. If the
//!   device has not answered, the batch keeps the guard, and the answer says
//!   [`HostSide::Kept`](kvstrata_tiers::transfer::HostSide::Kept).
//! - I2: a list is answered once: it is in one flight, and leaves it with its answer.
//! - I3: no lock is held while a list is answered, and a panic in its landing ends no thread.
//! - I4: after the first lists, no list allocates: flights, batches and prepared copies are reused.
//!
//! | file | contents |
//! |---|---|
//! | `ends.rs` | memory of the device and the host, the queues, order with the engine |
//! | `plans.rs` | prepared copies, by direction and range of layers |
//! | `zeros.rs` | the zeros that overwrite blocks |
//! | `flight.rs` | a list in flight |
//! | `crew.rs` | the threads |
//! | `bounce.rs` | synchronous reads and writes of single blocks: tests, engines without CUDA code |

mod bounce;
mod crew;
mod ends;
mod flight;
mod plans;
mod zeros;

use bounce::Bounce;
use core::fmt;
use core::time::Duration;
use crew::Crew;
use ends::Ends;
use kvstrata_core::layout::{Arrangement, Layout, LayoutConfig, LayoutError, Region};
use kvstrata_core::plan::PlanError;
use kvstrata_core::storage::Storage;
use kvstrata_core::{BlockId, storage::StorageKind};
use kvstrata_ffi::cuda::{
    CudaCopy, CudaError, DeviceStorage, LentStream, PinnedStorage, Place, QueueOptions,
};
use kvstrata_tiers::transfer::{Copies, DeviceMover, HostMemory};
use plans::Plans;
use std::sync::Arc;
use zeros::Zeros;

/// Why the mover cannot be made, or a block cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaMoverError {
    /// An error of the device or its driver.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// An error in the layout of the host's or the device's blocks.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// An error in the copy plan between them.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The pinned memory is not that of the host memory.
    #[error("the registered arena is not the host memory's; register `HostMemory::arena`")]
    OtherArena,
    /// Device and host memory differ in layers.
    #[error("layers per block: {device} on the device, {host} in host memory; make them equal")]
    Layers {
        /// Layers of the device.
        device: u32,
        /// Layers of the host memory.
        host: u32,
    },
    /// Host memory has a layer at another place than a contiguous block of the device's geometry.
    #[error(
        "layer {layer}: {wanted_bytes} bytes at {wanted_start}, but {found_bytes} at {found_start} in host memory; \
         make host memory with the geometry's layer_bytes"
    )]
    Layer {
        /// The layer.
        layer: u32,
        /// Its start by the geometry.
        wanted_start: u64,
        /// Its bytes by the geometry.
        wanted_bytes: u64,
        /// Its start in host memory.
        found_start: u64,
        /// Its bytes in host memory.
        found_bytes: u64,
    },
    /// The bytes given are not as long as a block.
    #[error("bytes given: {found}, bytes of a block: {wanted}; give the whole block")]
    Bytes {
        /// Bytes given.
        found: usize,
        /// Bytes of a block.
        wanted: usize,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}; raise the limit on threads (ulimit -u)")]
    Thread(#[from] std::io::Error),
}

/// Options of a mover.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct CudaMoverOptions {
    threads: usize,
    blocks_at_once: usize,
    patience: Duration,
    queue: QueueOptions,
}

impl CudaMoverOptions {
    /// Returns the defaults: two threads, since one hashes about as fast as half a PCIe 5 link
    /// (reasoned, not measured); lists of 64 blocks; a dropped mover waits for the device for 30
    /// seconds; the defaults of [`QueueOptions`].
    pub fn new() -> CudaMoverOptions {
        CudaMoverOptions {
            threads: 2,
            blocks_at_once: 64,
            patience: Duration::from_secs(30),
            queue: QueueOptions::new(),
        }
    }

    /// Sets the number of threads that submit, sum and answer; at least 1.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Sets the number of blocks that a list should have; at least 1.
    pub fn blocks_at_once(mut self, blocks: usize) -> Self {
        self.blocks_at_once = blocks.max(1);
        self
    }

    /// Sets how long the mover's drop waits for transfers in flight. Later ones are still answered when
    /// the device answers.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the options of the two queues.
    pub fn queue(mut self, queue: QueueOptions) -> Self {
        self.queue = queue;
        self
    }
}

impl Default for CudaMoverOptions {
    fn default() -> CudaMoverOptions {
        CudaMoverOptions::new()
    }
}

/// Order with the engine's own streams. The device keeps it, and no host thread waits. If the driver
/// refuses it (the stream is being captured), the copies fail, and may be retried.
#[derive(Debug, Clone, Default)]
pub struct EngineOrder {
    /// Offloads and overwrites run after the work that this stream has queued when they are submitted:
    /// the engine's last writes.
    pub offload_after: Option<LentStream>,
    /// Onboards and overwrites run after the work that this stream has queued when they are submitted.
    /// For engines that release blocks on the CPU while kernels that read them are still queued, as with
    /// asynchronous scheduling. If not set, kernels that read a block must end before its last handle is
    /// dropped ([`Blocks`](kvstrata_tiers::Blocks)).
    pub onboard_after: Option<LentStream>,
    /// Work that this stream queues after an onboard was submitted runs after it. For engines that
    /// launch before they have seen the onboard's answer, which says that it has ended.
    pub onboard_before: Option<LentStream>,
}

/// Moves blocks between a CUDA device and host memory.
pub struct CudaMover {
    crew: Crew,
    bounce: Bounce,
    blocks_at_once: usize,
    patience: Duration,
}

impl CudaMover {
    /// Makes a mover between an engine's memory and `memory`, whose arena is registered as `pinned`.
    /// `place` has all regions of the layout.
    ///
    /// # Errors
    /// [`CudaMoverError`]: the layers differ (with their numbers), or the driver refuses.
    pub fn new(
        copy: CudaCopy,
        (layout, place): (&Layout, Place),
        (memory, pinned): (Arc<HostMemory>, Arc<PinnedStorage>),
        options: CudaMoverOptions,
    ) -> Result<CudaMover, CudaMoverError> {
        if !Arc::ptr_eq(memory.arena(), pinned.arena()) {
            return Err(CudaMoverError::OtherArena);
        }
        let host = host_layout(layout.config(), &memory, &pinned)?;
        let device_blocks = layout.config().num_blocks;
        let bounce = Bounce::new((layout.clone(), place.clone()), pinned.device());
        let block_bytes = memory.arena().block_bytes();
        let zeros = Zeros::new((layout.clone(), place.clone()), pinned.device(), block_bytes);
        let sides = [(layout.clone(), place), (host, Place::Host(Arc::clone(&pinned)))];
        let plans = Plans::new(copy, sides)?;
        let ends = Ends::new((memory, pinned), (plans, zeros, device_blocks), options.queue)?;
        let CudaMoverOptions { threads, blocks_at_once, patience, .. } = options;
        Ok(CudaMover { crew: Crew::new(ends, threads)?, bounce, blocks_at_once, patience })
    }

    /// The same over device memory of its own, with contiguous blocks. The bytes are not initialised.
    ///
    /// # Errors
    /// As for [`new`](CudaMover::new).
    pub fn allocate(
        copy: CudaCopy,
        config: LayoutConfig,
        host: (Arc<HostMemory>, Arc<PinnedStorage>),
        options: CudaMoverOptions,
    ) -> Result<CudaMover, CudaMoverError> {
        let size_bytes = Arrangement::FullyContiguous.needs(&config)?.bytes;
        let device = host.1.device();
        // The driver guarantees an alignment of 256 bytes.
        let storage = DeviceStorage::allocate(device, size_bytes.saturating_add(config.alignment))?;
        let address = storage.base_address().next_multiple_of(config.alignment);
        let range = storage.range(address - storage.base_address(), size_bytes)?;
        let kind = StorageKind::Device { ordinal: device.ordinal() };
        let layout = Layout::fully_contiguous(config, Region { address, size_bytes, kind })?;
        CudaMover::new(copy, (&layout, Place::Device(vec![range])), host, options)
    }

    /// Sets the order with the engine's streams for copies from now on. Lists that were started before
    /// may have either order.
    pub fn set_engine_order(&self, order: EngineOrder) {
        self.crew.ends().set_order(order);
    }

    /// Returns the host memory.
    #[must_use]
    pub fn memory(&self) -> &Arc<HostMemory> {
        self.crew.ends().memory()
    }

    /// Reads a block of the device, layer by layer as the host has it. Waits for the device. It is not
    /// ordered with the mover's copies.
    ///
    /// # Errors
    /// [`CudaMoverError`], if the driver refuses or the copy fails.
    pub fn read_block(&self, block: BlockId) -> Result<Vec<u8>, CudaMoverError> {
        self.bounce.read(self.crew.ends(), block)
    }

    /// Overwrites a block of the device; layout and order are those of
    /// [`read_block`](CudaMover::read_block).
    ///
    /// # Errors
    /// [`CudaMoverError`], if `bytes` has another length than a block, the driver refuses, or the copy
    /// fails.
    pub fn write_block(&self, block: BlockId, bytes: &[u8]) -> Result<(), CudaMoverError> {
        self.bounce.write(self.crew.ends(), block, bytes)
    }
}

/// Returns the layout of the arena's contiguous blocks, after checking the memory's layers.
fn host_layout(
    device: &LayoutConfig,
    memory: &HostMemory,
    pinned: &PinnedStorage,
) -> Result<Layout, CudaMoverError> {
    let (found, wanted) = (memory.layers(), device.num_layers);
    if found != wanted {
        return Err(CudaMoverError::Layers { device: wanted, host: found });
    }
    let wanted_bytes = device.layer_bytes()?;
    for (layer, range) in (0..wanted).filter_map(|layer| Some((layer, memory.layer(layer)?))) {
        let wanted_start = u64::from(layer) * wanted_bytes;
        let (found_start, found_bytes) = (range.start as u64, range.len() as u64);
        if (wanted_start, wanted_bytes) != (found_start, found_bytes) {
            return Err(CudaMoverError::Layer {
                layer,
                wanted_start,
                wanted_bytes,
                found_start,
                found_bytes,
            });
        }
    }
    Ok(Layout::fully_contiguous(host_config(device, pinned), Region::of(pinned))?)
}

/// Returns the device's geometry for the blocks of an arena.
fn host_config(device: &LayoutConfig, pinned: &PinnedStorage) -> LayoutConfig {
    let blocks = u32::try_from(pinned.arena().blocks()).unwrap_or(u32::MAX);
    device.num_blocks(blocks).alignment(kvstrata_ffi::arena::BLOCK_ALIGN_BYTES as u64)
}

impl DeviceMover for CudaMover {
    fn start(&self, copies: Copies) {
        self.crew.start(copies);
    }

    fn blocks_at_once(&self) -> usize {
        self.blocks_at_once
    }

    fn describe(&self) -> String {
        self.crew.ends().describe()
    }
}

impl Drop for CudaMover {
    /// Abandons lists with nothing queued. Waits for queued copies, for at most the options' patience.
    fn drop(&mut self) {
        self.crew.close(self.patience);
    }
}

impl fmt::Debug for CudaMover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaMover({})", self.describe())
    }
}
