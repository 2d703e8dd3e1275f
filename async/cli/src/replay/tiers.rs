//! The manager and its tiers.
//!
//! ```text
//!   G1  the device                          its port, and a mover
//!   G2  block b of the host memory   ┐ one memory, registered with the ring:
//!       staging, S for each request  ┘   0 … h-1 │ h … h + N × S - 1
//!   G3  slot b of the volumes               in the trace's time
//! ```
//!
//! With the settings made here, a block moves down only when its room is needed. So with one request at a
//! time, the place of each block is a function of the trace. This takes write-back, no watermarks, no
//! idle offloads, no headroom, no prefetch, one copy thread, and writes that complete in order.

use super::clock::{TimedDisk, TraceClock};
use super::device::Device;
use super::error::ReplayError;
use super::machine;
use super::settings::Settings;
use super::volume::{self, FillProgress};
use crate::trace::BLOCK_TOKENS;
use kvstrata::backend::disk::{DiskMover, DiskTier, RecoveryReport};
use kvstrata::backend::transfer::{HostMemory, MemoryError, TierPort};
use kvstrata::config::ManagerConfig;
use kvstrata::manager::{BuildError, KvBlockManager, Needs, Parts, StackParts, TierParts};
use kvstrata_core::hash::BlockHasher;
use kvstrata_core::storage::DevicePort;
use kvstrata_core::{Keyed, Policy, PoolConfig, SequenceHash};
use kvstrata_ffi::arena::Backing;
use std::io;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::oneshot::Receiver;

/// The deadline of every call: longer than any transfer takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// How long a request waits for writes to the disk without `--patience`: as long as they take. Requests
/// come as fast as they are served, so any disk is late, and the counts must not depend on how late.
const PATIENCE_OF_REQUESTS: Duration = Duration::from_secs(60 * 60);
/// Longer than any write, so that without `--patience` no drive counts as slow. With `--patience`, a
/// drive is slow if its writes take longer than that.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The default of `transfer.slow_above`, and its least value here.
const SLOW_ABOVE: Duration = Duration::from_secs(1);

/// The manager, and the parts that a replay uses directly.
#[derive(Debug)]
pub(super) struct Tiers {
    // Dropped before the tier, whose last owner closes the volumes.
    pub(super) manager: KvBlockManager,
    pub(super) port: Arc<dyn DevicePort>,
    pub(super) device: &'static str,
    pub(super) disk: Option<Disk>,
    pub(super) clock: Arc<TraceClock>,
    pub(super) backing: Option<Backing>,
    pub(super) runtime: Runtime,
}

/// The disk tier (G3).
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) tier: Arc<DiskTier>,
    pub(super) found: RecoveryReport,
    ended: Receiver<()>,
}

impl Tiers {
    pub(super) fn new(
        settings: &Settings,
        device: Device,
        filled: &FillProgress,
    ) -> Result<Tiers, ReplayError> {
        settings.check()?;
        device.check(settings)?;
        let runtime = runtime(settings)?;
        let memory = match settings.host_blocks as usize + settings.staging_blocks() {
            0 => None,
            blocks => Some(memory(settings, blocks)?),
        };
        // The file comes first: it fails most often, and pool metadata of many slots take time.
        let clock = Arc::new(TraceClock::default());
        let (mut disk, mut disk_port) = (None, None);
        if let Some(memory) = &memory
            && settings.disk_blocks > 0
        {
            let (tier, found) = volume::open(settings, memory.arena(), filled)?;
            let tier = Arc::new(tier);
            let mover = DiskMover::new(Arc::clone(&tier), runtime.handle());
            let mover = if settings.concurrency == 1 { mover.in_order() } else { mover };
            let (timed, ended) = TimedDisk::new(mover, Arc::clone(&clock));
            let timed: Arc<dyn TierPort> = Arc::new(timed);
            disk_port = Some(timed);
            disk = Some(Disk { tier, found, ended });
        }
        let name = device.name;
        let copied = match &memory {
            Some(memory) => Arc::clone(memory),
            // Without host memory no block is ever copied, but the manager needs a mover.
            None => self::memory(settings, 1)?,
        };
        let threads = settings.copy_threads();
        let (port, mover) = device.moved_by(copied, threads)?;
        let stack = StackParts {
            name: "trace".to_owned(),
            device: pool_config(settings.device_blocks, settings.policy),
            port: Some(Arc::clone(&port)),
            mover,
            host: (settings.host_blocks > 0)
                .then(|| pool_config(settings.host_blocks, settings.policy_below)),
            below: disk_port.map(|port| TierParts::new("disk", port)).into_iter().collect(),
            block_bytes: settings.block_bytes as u64,
            layers: 1,
            needs: Needs::All { page: u64::from(BLOCK_TOKENS) },
            linked: [settings.policy, settings.policy_below].map(linked),
            ahead_first: [settings.policy, settings.policy_below].map(|policy| policy == Policy::Reuse),
            memory: memory.clone(),
        };
        let parts = Parts { stacks: vec![stack], runtime: runtime.handle().clone(), own: None, names: None };
        let refused = |error| match (error, settings.metrics) {
            (BuildError::Metrics { source, .. }, Some(address)) => {
                let why = format!("cannot listen there ({source}); choose another address or port");
                ReplayError::Setting { option: "--metrics", value: address.to_string(), why }
            }
            (error, _) => ReplayError::Manager(Box::new(error)),
        };
        let manager = KvBlockManager::of_parts(&config(settings)?, parts).map_err(refused)?;
        let backing = memory.map(|memory| memory.arena().backing());
        Ok(Tiers { manager, port, device: name, disk, clock, backing, runtime })
    }

    /// Releases all tiers. On return the volumes are closed, and another process can open them.
    pub(super) fn close(self) {
        let Tiers { manager, disk, runtime, .. } = self;
        drop(manager);
        if let Some(Disk { tier, ended, .. }) = disk {
            // A thread that has just completed a transfer may hold the manager a moment longer. The
            // channel carries no message, only its end.
            let _ = runtime.block_on(async { tokio::time::timeout(PATIENCE, ended).await });
            drop(tier);
        }
        drop(runtime);
    }
}

/// The settings of the manager; see the module.
fn config(settings: &Settings) -> Result<ManagerConfig, ReplayError> {
    ManagerConfig::builder()
        .geometry_block_bytes(Some(settings.block_bytes as u64))
        .device_blocks(settings.device_blocks)
        .host_blocks(settings.host_blocks)
        .host_headroom(0)
        .watermark_device(1.0)
        .watermark_host(1.0)
        .idle_host_after(None)
        .idle_disk_after(None)
        .prefetch_blocks(0)
        .transfer_patience(Some(settings.patience.unwrap_or(PATIENCE_OF_REQUESTS)))
        .transfer_slow_above(settings.patience.map_or(A_DAY, |patience| patience.clamp(SLOW_ABOVE, A_DAY)))
        .metrics_listen(settings.metrics)
        .metrics_histograms(settings.histograms)
        .deadline_allocate(PATIENCE)
        .deadline_onboard(PATIENCE)
        .deadline_shutdown(PATIENCE)
        .build()
        .map_err(|error| ReplayError::Config(Box::new(error)))
}

fn memory(settings: &Settings, blocks: usize) -> Result<Arc<HostMemory>, ReplayError> {
    HostMemory::new(blocks, &[settings.block_bytes]).map_err(|error| match error {
        MemoryError::Arena(source) => {
            ReplayError::Memory { option: "--host-blocks", blocks: u64::from(settings.host_blocks), source }
        }
        source => ReplayError::Setting {
            option: "--block-bytes",
            value: settings.block_bytes.to_string(),
            why: source.to_string(),
        },
    })
}

/// A runtime with a thread for each request served at a time, as far as there are
/// cores, and one for completions.
fn runtime(settings: &Settings) -> Result<Runtime, ReplayError> {
    let threads = settings.concurrency.min(machine::cores()) + 1;
    // A runtime that cannot start all of its threads panics, or never ends.
    try_threads(threads).map_err(|source| ReplayError::Runtime { workers: settings.concurrency, source })?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(threads).thread_name("kvstrata-replay").enable_time().build();
    runtime.map_err(|source| ReplayError::Runtime { workers: settings.concurrency, source })
}

/// Checks that the system gives `count` threads at the same time.
fn try_threads(count: usize) -> io::Result<()> {
    let (go_on, waits) = mpsc::channel::<()>();
    let waits = Arc::new(Mutex::new(waits));
    let start = |_| {
        let waits = Arc::clone(&waits);
        let wait = move || _ = waits.lock().unwrap_or_else(PoisonError::into_inner).recv();
        thread::Builder::new().name("kvstrata-replay".to_owned()).spawn(wait)
    };
    let started: Vec<_> = (0..count).map(start).collect();
    drop(go_on);
    started.into_iter().try_for_each(|thread| thread?.join().map_err(|_| io::ErrorKind::Other.into()))
}

/// Whether blocks are registered with their parents, so that the policy does not evict a parent
/// before its children. LRU does not need parents, because sequences are released tail first; without
/// them it is exact on any trace.
pub(super) fn linked(policy: Policy) -> bool {
    policy != Policy::Lru
}

/// The configuration of a pool. Its seed is fixed, so that the counts are the same in every run.
pub(super) fn pool_config(blocks: u32, policy: Policy) -> PoolConfig {
    PoolConfig::new(blocks).policy(policy).page_size(BLOCK_TOKENS).seed(0)
}

/// The sequence hash of an id, by the default hash function. An id stands for a block and all blocks
/// before it, like a sequence hash, so it needs no chaining. The secret is fixed, so that the counts are
/// the same in every run and a run finds the blocks of the last one.
pub(crate) fn hash_of(id: u64) -> SequenceHash {
    static HASHER: LazyLock<Keyed> = LazyLock::new(|| Keyed::new(b"blocks of a replay are no secret"));
    SequenceHash::from_u128(HASHER.bytes(&id.to_le_bytes()))
}
