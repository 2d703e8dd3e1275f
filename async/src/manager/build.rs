//! Builds a manager from settings, or from parts.

use super::KvBlockManager;
use super::attendance::Attendance;
use super::device::Device;
use super::error::{BuildError, given};
use super::hash_key;
use super::own::OwnRuntime;
use super::{agree, memory, rules, volumes};
use crate::config::{DeviceKind, Group, ManagerConfig};
use crate::disk::DiskMover;
use crate::metrics::{Bound, Endpoint};
use crate::tier::Tier;
use crate::transfer::{HostMemory, TierPort};
use kvstrata_core::{Policy, PoolConfig};
use kvstrata_tiers::{Hashing, StackParts, TierParts, Tiers, TiersParts};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// The parts of a manager, if settings do not make its tiers: for
/// [`of_parts`](super::KvBlockManager::of_parts).
pub struct Parts {
    /// The tiers of each group of layers.
    pub stacks: Vec<StackParts>,
    /// The tokio runtime for timers and tasks.
    pub runtime: Handle,
    /// The runtime itself, if the manager should own it: it ends with the manager.
    pub own: Option<OwnRuntime>,
    /// Seed of the names of partial blocks; random if `None`, so that no two managers over one disk have
    /// the same names. For tests that repeat the same run.
    pub names: Option<u64>,
}

/// Opens the device of a group, over its host memory.
pub(super) type OpenDevice<'o> = dyn FnMut(&Group, &Arc<HostMemory>) -> Result<Device, BuildError> + 'o;

/// Builds a manager from settings, over devices that `open` opens. `simulated`: the devices are host
/// memory, too.
pub(super) fn from_config(
    config: &ManagerConfig,
    runtime: Option<Handle>,
    simulated: bool,
    open: &mut OpenDevice<'_>,
) -> Result<KvBlockManager, BuildError> {
    let (runtime, own) = match runtime.map_or_else(Handle::try_current, Ok) {
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
    memory::check(config, simulated)?;
    // Before the volumes are opened: that may take long, and would be in vain if this fails.
    let bound = bound(config)?;
    let of_disks = |group| own.as_ref().map_or(&runtime, |own: &OwnRuntime| own.of_disks(group));
    let hashing = hash_key::choose(config)?;
    let groups = config.groups().iter().enumerate();
    let tiers = groups.map(|(number, group)| tiers(config, group, of_disks(number), &hashing, open));
    let (stacks, notes) = tiers.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    assemble(config, Parts { stacks, runtime, own, names: None }, notes, bound, hashing)
}

/// Tries a timer: a runtime without timers panics, and there is no other way to find out.
fn has_timers(runtime: &Handle) -> bool {
    let _in = runtime.enter();
    std::panic::catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok()
}

/// Makes a group's tiers. Returns them with a note on the device.
fn tiers(
    config: &ManagerConfig,
    group: &Group,
    runtime: &Handle,
    hashing: &Hashing,
    open: &mut OpenDevice<'_>,
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
    let Device { mover, port, note } = open(group, &memory)?;
    let below = match config.disk.blocks {
        0 => Vec::new(),
        _ => {
            let opened = volumes::open(config, group, memory.arena(), hashing);
            let failed = |source| BuildError::Disk {
                given: disk_given(config),
                group: name.clone(),
                source: Box::new(source),
            };
            let tier = opened.map_err(failed)?;
            let port: Arc<dyn TierPort> = Arc::new(DiskMover::new(Arc::new(tier), runtime));
            vec![TierParts::new(Tier::DISK.name(), port)]
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
        below,
        block_bytes,
        layers: layers.len() as u32,
        needs: agree::needs(group),
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

pub(super) fn of_parts(config: &ManagerConfig, parts: Parts) -> Result<KvBlockManager, BuildError> {
    let notes = parts.stacks.iter().map(|_| None).collect();
    assemble(config, parts, notes, bound(config)?, hash_key::choose(config)?)
}

/// Binds the address for the figures, if one is set.
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
    hashing: Hashing,
) -> Result<KvBlockManager, BuildError> {
    if !has_timers(&parts.runtime) {
        return Err(BuildError::Timers);
    }
    // If the settings do not distinguish layers, the parts may have any number of layers and groups.
    let told: &[Group] = match config.groups() {
        [one] if one.layers.len() == 1 => &[],
        groups => groups,
    };
    let (count, is_told) = (parts.stacks.len(), !told.is_empty());
    if count == 0 || is_told && count != told.len() {
        let groups: Vec<&str> = config.groups().iter().map(|group| group.name.as_str()).collect();
        let why = format!(
            "groups of the settings: {}, stacks of the parts: {count}; give one stack for each group",
            groups.len()
        );
        return Err(BuildError::Parts { group: groups.join(", "), why });
    }
    for (index, part) in parts.stacks.iter().enumerate() {
        let told = told.get(index).map_or(part.layers, |group| group.layers.len() as u32);
        part.check()?;
        fits(part, told, config.groups().get(index))
            .map_err(|why| BuildError::Parts { group: part.name.clone(), why })?;
        if let Some(group) = config.groups().get(index).or(config.groups().first()) {
            agree::check(config, group, is_told, part)?;
        }
    }
    let attendance = Attendance::new(parts.runtime, parts.own);
    let (tiers, attendant) = Tiers::of_parts(TiersParts {
        stacks: parts.stacks,
        notes,
        names: parts.names,
        hashing,
        rules: rules::of(config),
        runtime: Arc::<Attendance>::clone(&attendance),
    })?;
    attendance.attend(attendant);
    if let Some(bound) = bound {
        let endpoint = serve(&tiers, bound).map_err(|source| not_served(config, source))?;
        *attendance.endpoint() = Some(endpoint);
    }
    Ok(KvBlockManager { tiers, attendance })
}

/// Serves the figures while the tiers exist: also during a shutdown, when an operator watches the
/// transfers in flight.
fn serve(tiers: &Tiers, bound: Bound) -> std::io::Result<Endpoint> {
    let (figures_of, alive_of) = (tiers.watcher(), tiers.watcher());
    let figures = move || Some(figures_of.metrics()?.to_prometheus());
    let alive = move || alive_of.gives();
    bound.serve(figures, alive)
}

/// Checks that a group's parts agree with its settings, which have `told` layers.
fn fits(parts: &StackParts, told: u32, group: Option<&Group>) -> Result<(), String> {
    let StackParts { port, block_bytes, layers, .. } = parts;
    if *layers != told {
        return Err(format!("layers per block: {layers}, by the settings: {told}; make them equal"));
    }
    let Some(port) = port else { return Ok(()) };
    let on_device = port.block_bytes() as u64;
    // On a GPU, blocks are aligned to geometry.alignment.
    let padded = group.map(|group| group.stride_bytes(Tier::Device, DeviceKind::Cuda));
    if on_device != *block_bytes && Some(on_device) != padded {
        return Err(format!(
            "bytes per block: {block_bytes}, of the device's port: {on_device}; make them equal"
        ));
    }
    let (blocks, there) = (u64::from(parts.device.blocks()), port.size_bytes() / on_device.max(1));
    if there < blocks {
        return Err(format!(
            "blocks of the device: {blocks}, of the device's port: {there}; make them equal"
        ));
    }
    Ok(())
}
