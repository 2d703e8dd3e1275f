//! The tiers: pools for the books, storages for the bytes.
//!
//! ```text
//!   G1  device pool   b ↔ block b of the device, behind its port
//!   G2  host pool     b ↔ block b of the arena          ┐ one arena, registered with the ring:
//!       staging       worker w: S blocks from h + w × S ┘   0 … h-1 │ w0 │ w1 │ …
//!   G3  disk tier     b ↔ slot b of the volumes
//! ```
//!
//! Invariants
//! - I1: a block number of a pool names the same number of its storage; each storage has at least as many.
//! - I2: staging blocks belong to their worker alone and are in no pool.

use super::error::ReplayError;
use super::gate::Gate;
use super::parents::Parents;
use super::settings::Settings;
use super::volume::{self, FillProgress};
use crate::disk::{DiskTier, RecoveryReport};
use kvstrata_core::pool::BlockPool;
use kvstrata_core::storage::DevicePort;
use kvstrata_core::{Policy, PoolConfig, SequenceHash};
use kvstrata_ffi::arena::HostArena;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use crate::trace::BLOCK_TOKENS;

/// All tiers of one replay. A tier of 0 blocks is `None`.
#[derive(Debug)]
pub(super) struct Tiers<D> {
    pub(super) device: BlockPool,
    /// Of the device's blocks.
    pub(super) parents: Parents,
    pub(super) port: D,
    pub(super) host: Option<HostTier>,
    pub(super) disk: Option<Disk>,
    pub(super) gate: Gate,
    pub(super) block_bytes: usize,
    /// Whether blocks are registered with their parents, so that no policy evicts a parent before its children. LRU does
    /// not need it, since sequences are released tail first, and is exact without it whatever the trace.
    pub(super) linked: bool,
    pub(super) workers: usize,
    staging_per_worker: usize,
}

/// G2.
#[derive(Debug)]
pub(super) struct HostTier {
    pub(super) pool: BlockPool,
    pub(super) parents: Parents,
    pub(super) arena: Arc<HostArena>,
}

/// G3, and the arena in which its bytes are staged.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) tier: DiskTier,
    pub(super) found: RecoveryReport,
    pub(super) arena: Arc<HostArena>,
    first_staging: usize,
}

thread_local! {
    static LANE: Cell<usize> = const { Cell::new(0) };
}

/// Gives this thread its lane in the pools' counters and free maps.
pub(super) fn enter_lane(worker: usize) {
    LANE.set(worker);
}

impl<D: DevicePort> Tiers<D> {
    pub(super) fn new(settings: &Settings, port: D, filled: &FillProgress) -> Result<Tiers<D>, ReplayError> {
        settings.check()?;
        check_port(settings, &port)?;
        let arena = match settings.host_blocks as usize + settings.staging_blocks() {
            0 => None,
            blocks => {
                Some(HostArena::new(blocks, settings.block_bytes).map_err(|source| ReplayError::Memory {
                    option: "--host-blocks",
                    blocks: u64::from(settings.host_blocks),
                    source,
                })?)
            }
        };
        // The file first: it is what most often cannot be had, and books of many slots take time.
        let (mut host, mut disk) = (None, None);
        if let Some(arena) = &arena
            && settings.disk_blocks > 0
        {
            let (tier, found) = volume::open(settings, arena, filled)?;
            let (arena, first_staging) = (Arc::clone(arena), settings.host_blocks as usize);
            disk = Some(Disk { tier, found, arena, first_staging });
        }
        if let Some(arena) = arena
            && settings.host_blocks > 0
        {
            let pool = pool("--host-blocks", settings.host_blocks, settings)?;
            host = Some(HostTier { parents: Parents::new(pool.capacity()), pool, arena });
        }
        let device = pool("--device-blocks", settings.device_blocks, settings)?;
        Ok(Tiers {
            gate: Gate::new(device.capacity()),
            parents: Parents::new(device.capacity()),
            device,
            port,
            host,
            disk,
            block_bytes: settings.block_bytes,
            linked: linked(settings),
            workers: settings.concurrency,
            staging_per_worker: settings.staging_per_worker(),
        })
    }
}

impl<D> Tiers<D> {
    /// The arena of the host tier and of what is staged.
    pub(super) fn arena(&self) -> Option<&HostArena> {
        let host = self.host.as_ref().map(|host| &*host.arena);
        host.or(self.disk.as_ref().map(|disk| &*disk.arena))
    }

    /// The arena's blocks in which a worker stages bytes from and to the disk; empty without a disk tier.
    pub(super) fn staging(&self, worker: usize) -> Range<usize> {
        let first =
            self.disk.as_ref().map_or(0, |disk| disk.first_staging) + worker * self.staging_per_worker;
        first..first + self.staging_per_worker
    }
}

/// See [`Tiers::linked`].
pub(super) fn linked(settings: &Settings) -> bool {
    settings.policy != Policy::Lru
}

pub(super) fn pool_config(blocks: u32, settings: &Settings) -> PoolConfig {
    PoolConfig::new(blocks)
        .policy(settings.policy)
        .page_size(BLOCK_TOKENS)
        .lanes(settings.concurrency.min(16))
        .lane_of(|| LANE.get())
}

fn pool(option: &'static str, blocks: u32, settings: &Settings) -> Result<BlockPool, ReplayError> {
    BlockPool::new(pool_config(blocks, settings)).map_err(|error| ReplayError::Setting {
        option,
        value: blocks.to_string(),
        why: error.to_string(),
    })
}

/// I1 for the device, which the caller made.
fn check_port(settings: &Settings, port: &impl DevicePort) -> Result<(), ReplayError> {
    let needed = u128::from(settings.device_blocks) * settings.block_bytes as u128;
    if port.block_bytes() == settings.block_bytes && u128::from(port.size_bytes()) >= needed {
        return Ok(());
    }
    Err(ReplayError::Setting {
        option: "--device-blocks",
        value: settings.device_blocks.to_string(),
        why: format!(
            "the device has {} bytes in blocks of {}, and {needed} in blocks of {} are needed",
            port.size_bytes(),
            port.block_bytes(),
            settings.block_bytes
        ),
    })
}

/// The sequence hash of an id. An id stands for a block and all before it, as a sequence hash does, so it needs no
/// chaining; each half is a bijection of it, so that no two ids meet.
pub(super) fn hash_of(id: u64) -> SequenceHash {
    use super::pattern::finish;
    let high = finish(id ^ 0x5851_f42d_4c95_7f2d);
    SequenceHash::from_u128(u128::from(high) << 64 | u128::from(finish(high ^ id.rotate_left(32))))
}
