//! A manager of settings, or of parts. Past 500 lines because each part's doc is here, and each setting that becomes one.

use super::KvBlockManager;
use super::devices::{self, Device};
use super::hash_key::{self, Chosen, HashKeyError};
use super::inner::Inner;
use super::line::Line;
use super::own::OwnRuntime;
use super::preempt::Naming;
use super::rules::Rules;
use super::stack::{Books, Needs, Stack};
use super::tenants::{self, Ends, Tenants};
use super::traffic::Traffic;
use super::volumes::{self, DiskError};
use super::watch::Watch;
use super::{agree, memory, metrics};
use crate::config::{DeviceKind, Group, GroupKind, ManagerConfig};
use crate::disk::{DiskMover, Sketch};
use crate::metrics::Bound;
use crate::movers::{CudaMoverError, ThreadsError};
use crate::places::Places;
use crate::tier::Tier;
use crate::transfer::{Breaker, Limits, Patience};
use crate::transfer::{DeviceMover, DiskPort, HostMemory, MemoryError, Path};
use kvstrata_core::{BlockPool, ConfigError, DevicePort, Policy, PoolConfig};
use kvstrata_ffi::arena::ArenaError;
use kvstrata_ffi::probe::Bound as Bounded;
use kvstrata_ffi::shown::shown;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

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
    /// Whether blocks of device and host are registered with their parents, for policies that would otherwise evict these first.
    pub linked: [bool; 2],
    /// Whether victims of device and host that were copied ahead of need leave first, though the policy might take others by then: for
    /// [`Policy::Reuse`], which is told of what leaves so.
    pub ahead_first: [bool; 2],
}

/// What a manager is made of.
pub struct Parts {
    /// One a group of layers.
    pub stacks: Vec<StackParts>,
    /// Timers, and the movers' tasks.
    pub runtime: Handle,
    /// The runtime itself, where it is the manager's: it ends with it.
    pub own: Option<OwnRuntime>,
    /// What the names of blocks that are not full begin from: random unless told, so that no two managers over one disk have the same. For
    /// tests that do the same each time.
    pub names: Option<u64>,
}

/// Why there is no manager.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A pool.
    #[error("{tier}.blocks = {blocks} in group {}: {source}", shown(group))]
    Pool {
        /// Which tier.
        tier: Tier,
        /// Of which group.
        group: String,
        /// Blocks of it.
        blocks: u32,
        /// What is wrong.
        source: ConfigError,
    },
    /// Memory.
    #[error("{given}, for host memory of group {}: {source}", shown(group))]
    Memory {
        /// Settings that ask for it, with their values.
        given: String,
        /// Of which group.
        group: String,
        /// What is wrong.
        source: MemoryError,
    },
    /// More memory than there is.
    #[error(
        "{given}: needs {needed}, and {available} are there, by {bound}; use fewer or smaller blocks{}",
        if matches!(bound, Bounded::Machine) { "" } else { ", or raise that limit" }
    )]
    Room {
        /// The setting that asks for most of it, with its value.
        given: String,
        /// What is needed, and for what.
        needed: String,
        /// What is there.
        available: String,
        /// What bounds it.
        bound: Bounded,
    },
    /// The simulated device.
    #[error("{given}, for the simulated device of group {}: {source}", shown(group))]
    Device {
        /// Settings that ask for it, with their values.
        given: String,
        /// Of which group.
        group: String,
        /// What is wrong.
        source: ArenaError,
    },
    /// The disk tier.
    #[error("{given}, for the disk tier of group {}: {source}", shown(group))]
    Disk {
        /// Settings that ask for it, with their values.
        given: String,
        /// Of which group.
        group: String,
        /// What is wrong.
        source: Box<DiskError>,
    },
    /// A runtime of the manager's own.
    #[error(
        "{given}: the threads of a runtime cannot be had ({source}); use fewer, enter a runtime before, or raise the limit on \
         threads (ulimit -u, the cgroup's pids.max)"
    )]
    Runtime {
        /// The setting that asks for them, with its value.
        given: String,
        /// What is wrong.
        source: std::io::Error,
    },
    /// The runtime that was handed in: whoever waits has a deadline.
    #[error(
        "the tokio runtime has no timers; build it with enable_time(), or make the manager outside of it, for one of its own"
    )]
    Timers,
    /// A GPU.
    #[error("{given}, for group {}: {source}; device.kind may also be auto or sim", shown(group))]
    Cuda {
        /// Settings that ask for it, with their values.
        given: String,
        /// Of which group.
        group: String,
        /// What is wrong.
        source: CudaMoverError,
    },
    /// Threads that copy.
    #[error("{given}: {source}; use from 1 to 256, or leave it out")]
    Threads {
        /// The setting that asks for them, with its value.
        given: String,
        /// What is wrong.
        source: ThreadsError,
    },
    /// Where figures are to be served.
    #[error(
        "{given}: nothing can be served there ({source}); choose another address or port, or leave it out"
    )]
    Metrics {
        /// The setting that asks for it, with its value.
        given: String,
        /// What is wrong.
        source: std::io::Error,
    },
    /// The secret of the block hashes.
    #[error(transparent)]
    HashKey(#[from] HashKeyError),
    /// Parts that do not fit together.
    #[error("group {}: {why}", shown(group))]
    Parts {
        /// Of which group.
        group: String,
        /// What does not fit.
        why: String,
    },
}

/// Settings with their values, as messages of the configuration have them.
pub(super) fn given(config: &ManagerConfig, settings: &[(&str, &dyn Display)]) -> String {
    let said =
        |(key, value): &(&str, &dyn Display)| format!("{key} = {} ({})", shown(value), config.origin(key));
    settings.iter().map(said).collect::<Vec<_>>().join(" and ")
}

/// As the settings say.
pub(super) fn from_config(config: &ManagerConfig) -> Result<KvBlockManager, BuildError> {
    let (runtime, own) = match Handle::try_current() {
        Ok(handle) if !has_timers(&handle) => return Err(BuildError::Timers),
        Ok(handle) => (handle, None),
        Err(_) => {
            let failed = |source| {
                let given = given(config, &[("runtime.threads", &config.runtime.threads)]);
                BuildError::Runtime { given, source }
            };
            let own = OwnRuntime::start(config.runtime.threads).map_err(failed)?;
            (own.handle().clone(), Some(own))
        }
    };
    memory::check(config, memory::is_simulated(config))?;
    // Before volumes are opened, which may take long, and is in vain if this fails.
    let bound = bound(config)?;
    let of_disks = |group| own.as_ref().map_or(&runtime, |own: &OwnRuntime| own.of_disks(group));
    let hashing = hash_key::choose(config)?;
    let groups = config.groups().iter().enumerate();
    let tiers = groups.map(|(number, group)| tiers(config, group, of_disks(number), &hashing));
    let (stacks, notes) = tiers.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    assemble(config, Parts { stacks, runtime, own, names: None }, notes, bound, hashing)
}

/// There is no asking but by making a timer, which panics where there are none.
fn has_timers(runtime: &Handle) -> bool {
    let _in = runtime.enter();
    std::panic::catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok()
}

/// A group's tiers, and what there is to say of its device.
fn tiers(
    config: &ManagerConfig,
    group: &Group,
    runtime: &Handle,
    hashing: &Chosen,
) -> Result<(StackParts, Option<String>), BuildError> {
    let name = group.name.clone();
    let layers = vec![usize::try_from(group.layer_bytes()).unwrap_or(usize::MAX); group.layers.len()];
    let [device, host] = [Tier::Device, Tier::Host].map(|tier| config.blocks_of(group, tier));
    let block_bytes = group.block_bytes();
    let staging = memory::staging(config, group);
    let failed = |source| {
        let blocks = &config.host.blocks;
        let given = match staging {
            0 => given(config, &[("host.blocks", blocks)]),
            _ => given(config, &[("host.blocks", blocks), ("disk.staging", &staging)]),
        };
        BuildError::Memory { given, group: name.clone(), source }
    };
    let memory = HostMemory::new((host + staging).max(1) as usize, &layers).map_err(failed)?;
    let Device { mover, port, note } = devices::open(config, group, &memory)?;
    let disk = match config.disk.blocks {
        0 => None,
        _ => {
            let opened = volumes::open(config, group, memory.arena(), hashing);
            let failed = |source| BuildError::Disk {
                given: disk_given(config),
                group: name.clone(),
                source: Box::new(source),
            };
            let tier = opened.map_err(failed)?;
            let port: Arc<dyn DiskPort> = Arc::new(DiskMover::new(Arc::new(tier), runtime));
            Some(port)
        }
    };
    let pool = |blocks: u32, policy: Policy| {
        PoolConfig::new(blocks).policy(policy).page_size(group.page_size).seed(hashing.seed)
    };
    let policies = [config.device.policy, config.host.policy];
    let parts = StackParts {
        name,
        device: pool(device, config.device.policy),
        port,
        mover,
        memory: (host + staging > 0).then_some(memory),
        host: (host > 0).then(|| pool(host, config.host.policy)),
        disk,
        block_bytes,
        layers: layers.len() as u32,
        needs: needs(group),
        linked: policies.map(|policy| policy != Policy::Lru),
        ahead_first: policies.map(|policy| policy == Policy::Reuse),
    };
    Ok((parts, note))
}

fn disk_given(config: &ManagerConfig) -> String {
    let blocks = config.disk.blocks;
    match config.disk.paths.first() {
        None => given(config, &[("disk.blocks", &blocks)]),
        Some(_) => {
            let paths: Vec<String> =
                config.disk.paths.iter().map(|path| path.display().to_string()).collect();
            given(config, &[("disk.blocks", &blocks), ("disk.paths", &paths.join(","))])
        }
    }
}

pub(super) fn needs(group: &Group) -> Needs {
    let page = u64::from(group.page_size.max(1));
    match (group.kind, group.window) {
        (GroupKind::State, _) => Needs::State { page },
        (GroupKind::Window, Some(window)) => Needs::Last { page, window: u64::from(window) },
        _ => Needs::All { page },
    }
}

pub(super) fn of_parts(config: &ManagerConfig, parts: Parts) -> Result<KvBlockManager, BuildError> {
    let notes = parts.stacks.iter().map(|_| None).collect();
    assemble(config, parts, notes, bound(config)?, hash_key::choose(config)?)
}

/// Where figures are to be served, if they are.
fn bound(config: &ManagerConfig) -> Result<Option<Bound>, BuildError> {
    config
        .metrics
        .listen
        .map(|address| Bound::at(address).map_err(|source| not_served(config, source)))
        .transpose()
}

fn not_served(config: &ManagerConfig, source: std::io::Error) -> BuildError {
    let address = config.metrics.listen.map(|address| address.to_string()).unwrap_or_default();
    BuildError::Metrics { given: given(config, &[("metrics.listen", &address)]), source }
}

fn assemble(
    config: &ManagerConfig,
    parts: Parts,
    notes: Vec<Option<String>>,
    bound: Option<Bound>,
    hashing: Chosen,
) -> Result<KvBlockManager, BuildError> {
    if !has_timers(&parts.runtime) {
        return Err(BuildError::Timers);
    }
    // Blocks that the settings do not tell apart into layers may be of several layers, and groups.
    let told: &[Group] = match config.groups() {
        [one] if one.layers.len() == 1 => &[],
        groups => groups,
    };
    let (count, is_told) = (parts.stacks.len(), !told.is_empty());
    if count == 0 || is_told && count != told.len() {
        let groups: Vec<&str> = config.groups().iter().map(|group| group.name.as_str()).collect();
        let why = format!(
            "the settings have {} groups, and the parts {count} stacks; give one for each",
            groups.len()
        );
        return Err(BuildError::Parts { group: groups.join(", "), why });
    }
    let rules = Rules::of(config);
    let (mut stacks, mut lines) = (Vec::new(), Vec::new());
    let heats = rules.hot_from.is_some();
    // Where tables put hashes: secret, unless the parts have a seed of their own.
    let seed = parts.stacks.first().and_then(|stack| stack.device.given_seed()).unwrap_or(hashing.seed);
    let mut layers = 0;
    for (index, (part, note)) in parts.stacks.into_iter().zip(notes).enumerate() {
        let told = told.get(index).map_or(part.layers, |group| group.layers.len() as u32);
        fits(&part, told, config.groups().get(index))
            .map_err(|why| BuildError::Parts { group: part.name.clone(), why })?;
        layers += told;
        let (stack, line) = stack(config, part, heats, seed)?;
        if let Some(group) = config.groups().get(index).or(config.groups().first()) {
            agree::check(config, group, is_told, &stack)?;
        }
        // As many as the settings have groups, of which there are few.
        stacks.push(Stack { note, number: index as u16, ..stack });
        lines.push(line);
    }
    let traffic = Traffic::new(
        limits(config, &stacks),
        config.transfer.queue,
        (config.iteration.bytes, Breaker::new(config.transfer.slow_above, config.transfer.slow_below)),
        layers,
        lines.into(),
        Places::new(seed),
    );
    let tenants = Tenants::of(config);
    let recovered = |stack: &Stack| stack.disk.iter().flat_map(|disk| disk.recovered()).collect();
    let recovered: Vec<Vec<_>> = stacks.iter().map(recovered).collect();
    if !hashing.lasts && recovered.iter().any(|blocks| !blocks.is_empty()) {
        tracing::warn!(
            remedy = "set hash.key_file or hash.key_env to the secret that they were hashed under",
            "the disk tier has blocks of an earlier process, and block hashes have a secret of this process alone: \
             the manager's hashes find none of those blocks"
        );
    }
    let claim = |stack: usize, slot, tenant| stacks[stack].disk_owners.claim(slot, tenant);
    tenants.names.recovered(&recovered, claim);
    let naming = Naming::new(parts.names);
    let watch = Watch::new(stacks.len(), config.metrics.histograms);
    let inner = Inner::new(
        stacks.into(),
        rules,
        watch,
        traffic,
        (tenants, naming, hashing),
        parts.runtime,
        parts.own,
    );
    if let Some(bound) = bound {
        let endpoint = metrics::serve(&inner, bound).map_err(|source| not_served(config, source))?;
        *inner.endpoint() = Some(endpoint);
    }
    Ok(KvBlockManager::over(inner))
}

/// Whether the parts of a group, whose layers are said to be so many, say the same: what is copied as so many layers of so many bytes must
/// be that everywhere.
fn fits(parts: &StackParts, told: u32, group: Option<&Group>) -> Result<(), String> {
    let StackParts { memory, port, block_bytes, layers, needs, .. } = parts;
    if *layers == 0 {
        return Err("its blocks have 0 layers; give at least 1".to_owned());
    }
    if *layers != told {
        return Err(format!("its blocks have {layers} layers, and the settings' {told}; make them equal"));
    }
    if needs.page() == 0 {
        return Err("its pages have 0 tokens; give at least 1".to_owned());
    }
    if let Some(memory) = memory {
        let (of_memory, in_memory) = (memory.layers(), memory.arena().block_bytes());
        if of_memory != *layers {
            return Err(format!(
                "its blocks have {layers} layers, and those of host memory {of_memory}; make them equal"
            ));
        }
        if in_memory as u64 != *block_bytes {
            return Err(format!(
                "its blocks have {block_bytes} bytes, and those of host memory {in_memory}; make them equal"
            ));
        }
    }
    if let Some(port) = port {
        let on_device = port.block_bytes() as u64;
        // A GPU's blocks are as far apart as geometry.alignment says.
        let padded = group.map(|group| group.stride_bytes(Tier::Device, DeviceKind::Cuda));
        if on_device != *block_bytes && Some(on_device) != padded {
            return Err(format!(
                "its blocks have {block_bytes} bytes, and those of the device's port {on_device}; make them equal"
            ));
        }
        let (blocks, there) = (u64::from(parts.device.blocks()), port.size_bytes() / on_device.max(1));
        if there < blocks {
            return Err(format!(
                "its device has {blocks} blocks, and the device's port {there}; make them equal"
            ));
        }
    }
    Ok(())
}

fn stack(
    config: &ManagerConfig,
    parts: StackParts,
    heats: bool,
    seed: u64,
) -> Result<(Stack, Line), BuildError> {
    let StackParts {
        name,
        device,
        port,
        mover,
        memory,
        host,
        disk,
        block_bytes,
        layers,
        needs,
        linked,
        ahead_first,
    } = parts;
    let pool = |tier, blocks: PoolConfig| {
        let count = blocks.blocks();
        let failed = |source| BuildError::Pool { tier, group: name.clone(), blocks: count, source };
        let owners = tenants::owners(config, tier, count as usize);
        let seed = blocks.given_seed().unwrap_or(seed);
        let blocks = blocks.seed(seed).events(Box::new(Ends(Arc::clone(&owners))));
        let books = |pool| Books::new(pool, owners, linked[tier as usize], ahead_first[tier as usize]);
        BlockPool::new(blocks).map(books).map_err(failed)
    };
    let device = pool(Tier::Device, device)?;
    let host = host.map(|host| pool(Tier::Host, host)).transpose()?;
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
    let heat = (heats && below > 0).then(|| Sketch::new(device.pool.capacity() + below, seed));
    let mut line = Line::default();
    line.patience = Patience::new(config.transfer.patience);
    line.staging.extend(staging);
    let slots = disk.as_ref().map_or(0, |disk| disk.pool().capacity());
    let disk_owners = tenants::owners(config, Tier::Disk, slots);
    let stack = Stack {
        number: 0,
        name,
        device,
        port,
        mover,
        host,
        memory,
        staging: (in_memory - of_host) as usize,
        disk,
        disk_owners,
        needs,
        heat,
        block_bytes,
        layers,
        note: None,
    };
    Ok((stack, line))
}

/// What paths have in flight, by the settings, and by what the disks take without making anybody wait: the one that takes least, since the
/// groups share the queue.
fn limits(config: &ManagerConfig, stacks: &[Stack]) -> [Limits; 4] {
    let transfer = &config.transfer;
    Path::ALL.map(|path| {
        let at_once = |disk: &Arc<dyn DiskPort>| match path {
            Path::HostToDisk => disk.writes_at_once(),
            Path::DiskToDevice => disk.reads_at_once(),
            Path::DeviceToHost | Path::HostToDevice => u32::MAX,
        };
        let in_flight = stacks.iter().flat_map(|stack| &stack.disk).map(at_once).min();
        let own = match path {
            Path::DeviceToHost => transfer.in_flight_device_to_host,
            Path::HostToDisk => transfer.in_flight_host_to_disk,
            Path::HostToDevice => transfer.in_flight_host_to_device,
            Path::DiskToDevice => transfer.in_flight_disk_to_device,
        };
        Limits {
            in_flight: in_flight.unwrap_or(u32::MAX),
            in_flight_bytes: own.unwrap_or(transfer.in_flight),
            quantum_bytes: transfer.quantum,
        }
    })
}
