//! The device of a group, by the settings: a GPU, or host memory that simulates one.

use super::device::Device;
use super::error::{BuildError, given};
use crate::config::{DeviceKind, Group, ManagerConfig};
use crate::costs::costs_for;
use crate::movers::{CudaMover, CudaMoverError, CudaMoverOptions, ThreadsMover};
use crate::tier::Tier;
use crate::transfer::HostMemory;
use kvstrata_core::Storage;
use kvstrata_core::layout::{Layout, Region};
use kvstrata_ffi::cuda::{CopyOptions, CudaCopy, CudaDevice, CudaDriver, PinOptions, PinnedStorage, Place};
use kvstrata_ffi::device::{CudaDeviceTier, SimDevice};
use std::sync::Arc;

/// Opens the device of a group. For a GPU, `memory` is pinned.
pub(super) fn open(
    config: &ManagerConfig,
    group: &Group,
    memory: &Arc<HostMemory>,
) -> Result<Device, BuildError> {
    match config.device.kind {
        DeviceKind::Sim => simulated(config, group, memory),
        DeviceKind::Cuda => cuda(config, group, memory).map_err(|source| {
            let given = of_device(config, true);
            BuildError::Cuda { given, group: group.name.clone(), source }
        }),
        // If no GPU is used, `describe` tells the engine why.
        DeviceKind::Auto => cuda(config, group, memory).or_else(|error| {
            // Only once, before any group's memory is touched: later checks would count the first groups
            // twice.
            if config.groups().first() == Some(group) {
                super::memory::check(config, true)?;
            }
            let device = simulated(config, group, memory)?;
            let note = format!("{}: no GPU used: {error}", of_device(config, true));
            Ok(Device { note: Some(note), ..device })
        }),
    }
}

/// Returns the settings that determine the device, with their values.
fn of_device(config: &ManagerConfig, cuda: bool) -> String {
    let device = &config.device;
    match cuda {
        true => given(
            config,
            &[
                ("device.kind", &device.kind),
                ("device.ordinal", &device.ordinal),
                ("device.blocks", &device.blocks),
            ],
        ),
        false => given(config, &[("device.blocks", &device.blocks)]),
    }
}

fn simulated(config: &ManagerConfig, group: &Group, memory: &Arc<HostMemory>) -> Result<Device, BuildError> {
    let layers: Vec<usize> =
        (0..memory.layers()).filter_map(|layer| Some(memory.layer(layer)?.len())).collect();
    let blocks = config.blocks_of(group, Tier::Device) as usize;
    let failed = |source| {
        let given = of_device(config, false);
        BuildError::Device { given, group: group.name.clone(), source }
    };
    let sim = Arc::new(SimDevice::with_layers(0, blocks, &layers).map_err(failed)?);
    let threads = config.host.copy_threads.map_or_else(copy_threads, |threads| threads as usize);
    let mover = ThreadsMover::new(Arc::clone(&sim), Arc::clone(memory), threads).map_err(|source| {
        let given = given(config, &[("host.copy_threads", &threads)]);
        BuildError::Threads { given, source }
    })?;
    Ok(Device { mover: Arc::new(mover), port: Some(sim), note: None })
}

/// Allocates device memory of the manager, with contiguous blocks: block `b` is at the port's
/// `base_address()` plus `b` times its `block_bytes()`. An engine with its own tensors makes a mover
/// over them, and passes it to [`ManagerBuilder::device`](super::ManagerBuilder::device).
fn cuda(config: &ManagerConfig, group: &Group, memory: &Arc<HostMemory>) -> Result<Device, CudaMoverError> {
    let driver = CudaDriver::load()?;
    let device = CudaDevice::open(&driver, config.device.ordinal)?;
    let arena = Arc::clone(memory.arena());
    let pinned = PinnedStorage::register(&device, arena, PinOptions::new(), &mut |_, _| {})?;
    let (costs, _) = costs_for(device.describe(), driver.describe().version);
    let copy = CudaCopy::new(&device, CopyOptions::new().costs(costs));
    let layout = group.layout.num_blocks(config.blocks_of(group, Tier::Device));
    let stride = group.stride_bytes(Tier::Device, DeviceKind::Cuda);
    let stride = usize::try_from(stride).unwrap_or(usize::MAX);
    let tier = Arc::new(CudaDeviceTier::new(&device, layout.num_blocks as usize, stride)?);
    let storage = tier.memory();
    let place = Place::Device(vec![storage.range(0, storage.size_bytes())?]);
    let layout = Layout::fully_contiguous(layout, Region::of(&**storage))?;
    let mut options = CudaMoverOptions::new();
    if let Some(threads) = config.host.copy_threads {
        options = options.threads(threads as usize);
    }
    let mover = CudaMover::new(copy, (&layout, place), (Arc::clone(memory), pinned), options)?;
    Ok(Device { mover: Arc::new(mover), port: Some(tier), note: None })
}

/// One thread a core; more than four do not use memory better.
fn copy_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(4)
}

/// Whether the device is certainly host memory. `auto` may be, and is checked when it turns out so.
pub(super) fn is_simulated(config: &ManagerConfig) -> bool {
    config.device.kind == DeviceKind::Sim
}
