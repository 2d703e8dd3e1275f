//! A manager of settings, or of parts.

use super::KvBlockManager;
use super::devices::{self, Device};
use super::inner::Inner;
use super::line::Line;
use super::rules::Rules;
use super::stack::{Books, Needs, Stack};
use super::tenants::{self, Ends, Tenants};
use super::traffic::Traffic;
use super::volumes::{self, DiskError};
use crate::config::{Group, GroupKind, ManagerConfig};
use crate::disk::{DiskMover, Sketch};
use crate::movers::{CudaMoverError, ThreadsError};
use crate::transfer::Limits;
use crate::transfer::{DeviceMover, DiskPort, HostMemory, MemoryError, Path};
use kvstrata_core::{BlockPool, ConfigError, DevicePort, Policy, PoolConfig};
use kvstrata_ffi::arena::ArenaError;
use std::sync::Arc;
use tokio::runtime::{Handle, Runtime};

/// The tiers of one group of layers.
pub struct StackParts {
    /// For messages.
    pub name: String,
    /// The device's blocks.
    pub device: PoolConfig,
    /// Reaches their bytes, for engines whose kernels do not.
    pub port: Option<Arc<dyn DevicePort>>,
    /// Moves bytes between them and `memory`.
    pub mover: Arc<dyn DeviceMover>,
    /// Host memory: the host tier's blocks, then those for staging.
    pub memory: Option<Arc<HostMemory>>,
    /// The host tier's blocks; none leaves it out.
    pub host: Option<PoolConfig>,
    /// The disk tier.
    pub disk: Option<Arc<dyn DiskPort>>,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Layers of a block.
    pub layers: u32,
    /// What of a sequence the group needs.
    pub needs: Needs,
    /// Whether blocks are registered with their parents, for policies that would otherwise evict these first.
    pub linked: bool,
}

/// What a manager is made of.
pub struct Parts {
    /// One a group of layers.
    pub stacks: Vec<StackParts>,
    /// Timers, and the movers' tasks.
    pub runtime: Handle,
    /// The runtime itself, where it is the manager's: it ends with it.
    pub own: Option<Runtime>,
}

/// Why there is no manager.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A pool.
    #[error("the {tier} tier of group {group}: {source}")]
    Pool {
        /// Which tier.
        tier: crate::tier::Tier,
        /// Of which group.
        group: String,
        /// What is wrong.
        source: ConfigError,
    },
    /// Memory.
    #[error("group {group}: {source}")]
    Memory {
        /// Of which group.
        group: String,
        /// What is wrong.
        source: MemoryError,
    },
    /// The simulated device.
    #[error("the simulated device of group {group}: {source}")]
    Device {
        /// Of which group.
        group: String,
        /// What is wrong.
        source: ArenaError,
    },
    /// The disk tier.
    #[error("the disk tier of group {group}: {source}")]
    Disk {
        /// Of which group.
        group: String,
        /// What is wrong.
        source: DiskError,
    },
    /// A runtime of the manager's own.
    #[error(
        "runtime.threads: the threads of a runtime cannot be had ({0}); use fewer, or enter a runtime before"
    )]
    Runtime(std::io::Error),
    /// A GPU.
    #[error("the CUDA device of group {group}: {source}")]
    Cuda {
        /// Of which group.
        group: String,
        /// What is wrong.
        source: CudaMoverError,
    },
    /// Threads that copy.
    #[error("host.copy_threads: {0}")]
    Threads(#[from] ThreadsError),
    /// Parts that do not fit together.
    #[error("group {group}: {why}")]
    Parts {
        /// Of which group.
        group: String,
        /// What does not fit.
        why: String,
    },
}

/// As the settings say.
pub(super) fn from_config(config: &ManagerConfig) -> Result<KvBlockManager, BuildError> {
    let (runtime, own) = match Handle::try_current() {
        Ok(handle) => (handle, None),
        Err(_) => {
            let mut own = tokio::runtime::Builder::new_multi_thread();
            let own =
                own.worker_threads(config.runtime.threads as usize).thread_name("kvstrata").enable_time();
            let own = own.build().map_err(BuildError::Runtime)?;
            (own.handle().clone(), Some(own))
        }
    };
    let stacks =
        config.groups().iter().map(|group| tiers(config, group, &runtime)).collect::<Result<_, _>>()?;
    of_parts(config, Parts { stacks, runtime, own })
}

/// A group's tiers.
fn tiers(config: &ManagerConfig, group: &Group, runtime: &Handle) -> Result<StackParts, BuildError> {
    let name = group.name.clone();
    let layers = layer_bytes(group);
    let (device, host) = (group.blocks(config.device.blocks), group.blocks(config.host.blocks));
    let staging = if config.disk.blocks > 0 { config.disk.staging } else { 0 };
    let failed = |source| BuildError::Memory { group: name.clone(), source };
    let memory = HostMemory::new((host + staging).max(1) as usize, &layers).map_err(failed)?;
    let Device { mover, port } = devices::open(config, group, &memory)?;
    let disk = match config.disk.blocks {
        0 => None,
        _ => {
            let opened = volumes::open(config, group, memory.arena());
            let tier = opened.map_err(|source| BuildError::Disk { group: name.clone(), source })?;
            let port: Arc<dyn DiskPort> = Arc::new(DiskMover::new(Arc::new(tier), runtime));
            Some(port)
        }
    };
    let pool =
        |blocks: u32, policy: Policy| PoolConfig::new(blocks).policy(policy).page_size(group.page_size);
    Ok(StackParts {
        name,
        device: pool(device, config.device.policy),
        port,
        mover,
        memory: (host + staging > 0).then_some(memory),
        host: (host > 0).then(|| pool(host, config.host.policy)),
        disk,
        block_bytes: layers.iter().map(|bytes| *bytes as u64).sum(),
        layers: layers.len() as u32,
        needs: needs(group),
        linked: config.device.policy != Policy::Lru,
    })
}

fn needs(group: &Group) -> Needs {
    let page = u64::from(group.page_size.max(1));
    match (group.kind, group.window) {
        (GroupKind::State, _) => Needs::State { page },
        (GroupKind::Window, Some(window)) => Needs::Last { page, window: u64::from(window) },
        _ => Needs::All { page },
    }
}

/// Bytes of each layer of a block.
fn layer_bytes(group: &Group) -> Vec<usize> {
    let layers = group.layers.len().max(1);
    let bytes = usize::try_from(group.block_bytes()).unwrap_or(usize::MAX);
    // Layers of a group are alike.
    vec![bytes / layers; layers]
}

pub(super) fn of_parts(config: &ManagerConfig, parts: Parts) -> Result<KvBlockManager, BuildError> {
    let rules = Rules::of(config);
    let (mut stacks, mut lines) = (Vec::new(), Vec::new());
    let heats = rules.hot_from.is_some();
    for part in parts.stacks {
        let (stack, line) = stack(config, part, heats)?;
        stacks.push(stack);
        lines.push(line);
    }
    let layers = config.groups().iter().map(|group| group.layers.len() as u32).sum();
    let traffic = Traffic::new(limits(config), config.iteration.bytes, layers, lines.into());
    let tenants = Tenants::of(config);
    let inner = Inner::new(stacks.into(), rules, traffic, tenants, parts.runtime, parts.own);
    Ok(KvBlockManager::over(inner))
}

fn stack(config: &ManagerConfig, parts: StackParts, heats: bool) -> Result<(Stack, Line), BuildError> {
    let StackParts { name, device, port, mover, memory, host, disk, block_bytes, layers, needs, linked } =
        parts;
    let pool = |tier, blocks: PoolConfig| {
        let failed = |source| BuildError::Pool { tier, group: name.clone(), source };
        let owners = tenants::owners(config, tier, blocks.blocks() as usize);
        let blocks = blocks.events(Box::new(Ends(Arc::clone(&owners))));
        BlockPool::new(blocks).map(|pool| Books::new(pool, owners, linked)).map_err(failed)
    };
    let device = pool(crate::tier::Tier::Device, device)?;
    let host = host.map(|host| pool(crate::tier::Tier::Host, host)).transpose()?;
    let in_memory = memory.as_ref().map_or(0, |memory| memory.arena().blocks()) as u32;
    let of_host = host.as_ref().map_or(0, |host| host.pool.capacity()) as u32;
    let misfit = |why: String| Err(BuildError::Parts { group: name.clone(), why });
    if in_memory < of_host {
        return misfit(format!(
            "the host tier has {of_host} blocks and host memory {in_memory}; make it larger"
        ));
    }
    if disk.is_some() && in_memory < of_host + 2 {
        return misfit(format!(
            "host memory has {in_memory} blocks, {of_host} of them the host tier's; a disk tier needs 2 more for staging"
        ));
    }
    // The last one is the first to be taken.
    let staging = (of_host..in_memory).rev();
    let below = host.as_ref().map_or(0, |host| host.pool.capacity())
        + disk.as_ref().map_or(0, |disk| disk.pool().capacity());
    let heat = (heats && below > 0).then(|| Sketch::new(device.pool.capacity() + below));
    let mut line = Line::default();
    line.staging.extend(staging);
    let slots = disk.as_ref().map_or(0, |disk| disk.pool().capacity());
    let disk_owners = tenants::owners(config, crate::tier::Tier::Disk, slots);
    let stack = Stack {
        name,
        device,
        port,
        mover,
        host,
        memory,
        disk,
        disk_owners,
        needs,
        heat,
        block_bytes,
        layers,
    };
    Ok((stack, line))
}

fn limits(config: &ManagerConfig) -> [Limits; 4] {
    let transfer = &config.transfer;
    Path::ALL.map(|path| {
        let own = match path {
            Path::DeviceToHost => transfer.in_flight_device_to_host,
            Path::HostToDisk => transfer.in_flight_host_to_disk,
            Path::HostToDevice => transfer.in_flight_host_to_device,
            Path::DiskToDevice => transfer.in_flight_disk_to_device,
        };
        Limits {
            waiting: transfer.queue,
            in_flight_bytes: own.unwrap_or(transfer.in_flight),
            quantum_bytes: transfer.quantum,
        }
    })
}
