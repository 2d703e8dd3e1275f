//! The device of a replay: its port, through which requests fill and read blocks, and the mover
//! between it and host memory.

use super::error::ReplayError;
use super::settings::Settings;
use kvstrata::backend::costs::copies_for;
use kvstrata::backend::movers::{
    CudaMover, CudaMoverError, CudaMoverOptions, PortMover, ThreadsError, ThreadsMover,
};
use kvstrata::backend::transfer::{DeviceMover, HostMemory};
use kvstrata_core::layout::{Layout, LayoutConfig, Region};
use kvstrata_core::storage::{DevicePort, Storage};
use kvstrata_ffi::cuda::{PinOptions, PinnedStorage, Place};
use kvstrata_ffi::device::{CudaDeviceTier, SimDevice};
use std::fmt;
use std::sync::Arc;

type Made = Result<Arc<dyn DeviceMover>, ReplayError>;
type Make = Box<dyn FnOnce(Arc<HostMemory>, usize) -> Made + Send>;

/// A device, and the constructor of its mover, which needs the host memory.
pub struct Device {
    pub(super) name: &'static str,
    pub(super) port: Arc<dyn DevicePort>,
    make: Make,
}

impl Device {
    /// Host memory that stands in for a device. Threads copy its blocks and make their checksums.
    #[must_use]
    pub fn simulated(device: SimDevice) -> Device {
        let device = Arc::new(device);
        let port = Arc::clone(&device);
        let make = move |memory, threads| by_threads(threads, ThreadsMover::new(device, memory, threads));
        Device { name: "sim", port, make: Box::new(make) }
    }

    /// A GPU's memory. Requests fill and read blocks through its port, as an engine does by kernels.
    /// Blocks move between it and host memory, which is registered with the GPU, by prepared copies, as
    /// in a manager made from settings.
    #[must_use]
    pub fn cuda(device: CudaDeviceTier) -> Device {
        let device = Arc::new(device);
        let port = Arc::clone(&device);
        let make = move |memory, threads| -> Made { Ok(Arc::new(cuda_mover(&device, memory, threads)?)) };
        Device { name: "cuda", port, make: Box::new(make) }
    }

    /// Any device with a port, through which copies go too. The report shows `name`.
    pub fn of_port(name: &'static str, port: impl DevicePort + 'static) -> Device {
        let port: Arc<dyn DevicePort> = Arc::new(port);
        let of_mover = Arc::clone(&port);
        let make = move |memory, threads| by_threads(threads, PortMover::new(of_mover, memory, threads));
        Device { name, port, make: Box::new(make) }
    }

    /// Checks that the device has `--device-blocks` blocks of `--block-bytes`.
    pub(super) fn check(&self, settings: &Settings) -> Result<(), ReplayError> {
        let (port, needed) = (&self.port, u128::from(settings.device_blocks) * settings.block_bytes as u128);
        if port.block_bytes() == settings.block_bytes && u128::from(port.size_bytes()) >= needed {
            return Ok(());
        }
        Err(ReplayError::Setting {
            option: "--device-blocks",
            value: settings.device_blocks.to_string(),
            why: format!(
                "the device has {} bytes in blocks of {}, but {needed} in blocks of {} are needed",
                port.size_bytes(),
                port.block_bytes(),
                settings.block_bytes
            ),
        })
    }

    /// Makes the mover between the device and `memory`, and returns it with the port.
    pub(super) fn moved_by(self, memory: Arc<HostMemory>, threads: usize) -> Result<Moved, ReplayError> {
        Ok((self.port, (self.make)(memory, threads)?))
    }
}

fn by_threads(threads: usize, made: Result<impl DeviceMover + 'static, ThreadsError>) -> Made {
    made.map(|mover| -> Arc<dyn DeviceMover> { Arc::new(mover) })
        .map_err(|source| ReplayError::Threads { threads, source })
}

/// Makes a mover for the device's layout, which is that of its port: each block in one
/// piece, one after the other.
fn cuda_mover(
    tier: &CudaDeviceTier,
    memory: Arc<HostMemory>,
    threads: usize,
) -> Result<CudaMover, CudaMoverError> {
    let (storage, device) = (tier.memory(), tier.memory().device());
    // The settings bound both far below u32::MAX.
    let [blocks, bytes] =
        [tier.blocks(), tier.block_bytes()].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    let config = LayoutConfig::new().num_blocks(blocks).inner_dim(bytes);
    let layout = Layout::fully_contiguous(config, Region::of(&**storage))?;
    let place = Place::Device(vec![storage.range(0, storage.size_bytes())?]);
    let pinned =
        PinnedStorage::register(device, Arc::clone(memory.arena()), PinOptions::new(), &mut |_, _| {})?;
    let options = CudaMoverOptions::new().threads(threads);
    CudaMover::new(copies_for(device), (&layout, place), (memory, pinned), options)
}

/// A device's port and its mover.
pub(super) type Moved = (Arc<dyn DevicePort>, Arc<dyn DeviceMover>);

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name)
    }
}
