//! Copies between an engine's tensors on a CUDA device and pinned host memory.
//!
//! ```text
//!   Copies ──► flight ─┬─ onboard ── sums compared ──► queue ── the device copies ──────────────► answer
//!                      └─ offload ───────────────────► queue ── the device copies ── sums sealed ──► answer
//!              ▲ threads of ours: submit, sum, answer          ▲ the queue's thread wakes the flight
//! ```
//!
//! A list is one transfer for each range of layers that it has. Layers of the host's blocks lie one behind
//! the other, in the order of [`HostMemory`]; where the device's lie is its layout's business. Sums are made
//! on the CPU, of pinned memory: before onboarding, after offloading.
//!
//! Invariants
//! - I1: a guard is in its list, in a transfer's batch, or with a thread that sums its bytes. A batch whose
//!   device has not answered keeps it; the answer says
//!   [`HostSide::Kept`](kvstrata_tiers::transfer::HostSide::Kept) then.
//! - I2: a list is answered once: it is in one flight, and leaves it by being answered.
//! - I3: no lock is held while a list is answered, and a panic of whoever is told ends no thread.
//! - I4: nothing is allocated for a list after the first ones: flights, batches and prepared copies are used
//!   again.
//!
//! | file | what |
//! |---|---|
//! | `ends.rs` | the device's and the host's memory, the queues, order with the engine |
//! | `plans.rs` | prepared copies, by direction and range of layers |
//! | `zeros.rs` | what blocks are overwritten with |
//! | `flight.rs` | a list under way |
//! | `crew.rs` | the threads |
//! | `bounce.rs` | single blocks read and written by whoever waits: tests, engines without CUDA code |

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

/// Why there is no such mover, or a block cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaMoverError {
    /// The device, or its driver.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The layout of the host's or the device's blocks.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A plan between them.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The pinned memory is another one's.
    #[error("the registered arena is not the host memory's; register `HostMemory::arena`")]
    OtherArena,
    /// There are more layers on one side.
    #[error("layers per block: {device} on the device, {host} in host memory; make them equal")]
    Layers {
        /// The device's.
        device: u32,
        /// The host memory's.
        host: u32,
    },
    /// A layer lies elsewhere in the host memory's blocks than a contiguous block of the device's geometry has it.
    #[error(
        "layer {layer}: {wanted_bytes} bytes at {wanted_start}, but {found_bytes} at {found_start} in host memory; \
         make host memory with the geometry's layer_bytes"
    )]
    Layer {
        /// Which.
        layer: u32,
        /// Where the geometry has it.
        wanted_start: u64,
        /// Its bytes.
        wanted_bytes: u64,
        /// Where the host memory has it.
        found_start: u64,
        /// The bytes that are there for it.
        found_bytes: u64,
    },
    /// Bytes for a block that are not as long as it.
    #[error("bytes given: {found}, bytes of a block: {wanted}; give the whole block")]
    Bytes {
        /// How many were given.
        found: usize,
        /// How many there are.
        wanted: usize,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}; raise the limit on threads (ulimit -u)")]
    Thread(#[from] std::io::Error),
}

/// How a mover works.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct CudaMoverOptions {
    threads: usize,
    blocks_at_once: usize,
    patience: Duration,
    queue: QueueOptions,
}

impl CudaMoverOptions {
    /// Two threads: one hashes about as fast as half a PCIe 5 link (reasoned, not measured); lists of 64 blocks; a mover that is dropped
    /// waits for the device for 30 seconds; queues with what [`QueueOptions`] say.
    pub fn new() -> CudaMoverOptions {
        CudaMoverOptions {
            threads: 2,
            blocks_at_once: 64,
            patience: Duration::from_secs(30),
            queue: QueueOptions::new(),
        }
    }

    /// Threads that submit, sum and answer; at least 1.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Blocks that a list should have; at least 1.
    pub fn blocks_at_once(mut self, blocks: usize) -> Self {
        self.blocks_at_once = blocks.max(1);
        self
    }

    /// How long the drop of the mover waits for what is under way. What is not answered then still is, when the device answers.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How the two queues are made.
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

/// Order with the engine's own streams, kept by the device: nobody on the host waits for it. Where it is refused (the stream is being
/// captured), the copies fail, and may be tried again.
#[derive(Debug, Clone, Default)]
pub struct EngineOrder {
    /// Offloads, and overwriting, come after what this stream has queued when they are submitted: the engine's last writes.
    pub offload_after: Option<LentStream>,
    /// Onboards, and overwriting, come after what this stream has queued when they are submitted: for engines that release blocks on the CPU while
    /// kernels that read them are still queued, as with asynchronous scheduling. Where it is not set, what reads a block must be over
    /// before the block's last handle is dropped ([`Blocks`](kvstrata_tiers::Blocks)).
    pub onboard_after: Option<LentStream>,
    /// What this stream queues after an onboard was submitted comes after it. An answer tells that it has ended: for engines that launch
    /// before they have seen it.
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
    /// Between an engine's memory and `memory`, whose arena is registered as `pinned`. `place` has all regions of the layout.
    ///
    /// # Errors
    /// [`CudaMoverError`]: layers that do not agree, with their numbers; or what the driver has against it.
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

    /// The same with device memory of its own, a block in one piece behind the other; its bytes are whatever the device had there.
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
        // The driver aligns to 256 bytes for sure.
        let storage = DeviceStorage::allocate(device, size_bytes.saturating_add(config.alignment))?;
        let address = storage.base_address().next_multiple_of(config.alignment);
        let range = storage.range(address - storage.base_address(), size_bytes)?;
        let kind = StorageKind::Device { ordinal: device.ordinal() };
        let layout = Layout::fully_contiguous(config, Region { address, size_bytes, kind })?;
        CudaMover::new(copy, (&layout, Place::Device(vec![range])), host, options)
    }

    /// From now on copies are in this order with the engine's streams. Lists that were started before may have either.
    pub fn set_engine_order(&self, order: EngineOrder) {
        self.crew.ends().set_order(order);
    }

    /// The host memory.
    #[must_use]
    pub fn memory(&self) -> &Arc<HostMemory> {
        self.crew.ends().memory()
    }

    /// A block of the device, layer by layer as the host has it. Waits for the device; in no order with what the mover does.
    ///
    /// # Errors
    /// [`CudaMoverError`].
    pub fn read_block(&self, block: BlockId) -> Result<Vec<u8>, CudaMoverError> {
        self.bounce.read(self.crew.ends(), block)
    }

    /// Overwrites a block of the device, as [`read_block`](CudaMover::read_block) reads it.
    ///
    /// # Errors
    /// [`CudaMoverError`].
    pub fn write_block(&self, block: BlockId, bytes: &[u8]) -> Result<(), CudaMoverError> {
        self.bounce.write(self.crew.ends(), block, bytes)
    }
}

/// Blocks in one piece, as the arena has them, and as the memory says of their layers.
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

/// The device's geometry for the blocks of an arena.
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
    /// Lists that nothing is queued of are abandoned; what is queued is waited for, for as long as the options say.
    fn drop(&mut self) {
        self.crew.close(self.patience);
    }
}

impl fmt::Debug for CudaMover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaMover({})", self.describe())
    }
}
