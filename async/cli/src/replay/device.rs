//! The device of a replay: its port, by which requests fill and read blocks, and the mover between it and
//! host memory.

use super::error::ReplayError;
use super::settings::Settings;
use kvstrata::costs::copies_for;
use kvstrata::movers::{CudaMover, CudaMoverError, CudaMoverOptions, PortMover, ThreadsError, ThreadsMover};
use kvstrata::transfer::{DeviceMover, HostMemory};
use kvstrata_core::layout::{Layout, LayoutConfig, Region};
use kvstrata_core::storage::{DevicePort, Storage};
use kvstrata_ffi::cuda::{PinOptions, PinnedStorage, Place};
use kvstrata_ffi::device::{CudaDeviceTier, SimDevice};
use std::fmt;
use std::sync::Arc;

type Made = Result<Arc<dyn DeviceMover>, ReplayError>;
type Make = Box<dyn FnOnce(Arc<HostMemory>, usize) -> Made + Send>;

/// A device, and how its mover is made when the host memory is there.
pub struct Device {
    pub(super) name: &'static str,
    pub(super) port: Arc<dyn DevicePort>,
    make: Make,
}

impl Device {
    /// Host memory that poses as a device, with copies by threads that sum on the way.
    #[must_use]
    pub fn simulated(device: SimDevice) -> Device {
        let device = Arc::new(device);
        let port = Arc::clone(&device);
        let make = move |memory, threads| by_threads(threads, ThreadsMover::new(device, memory, threads));
        Device { name: "sim", port, make: Box::new(make) }
    }

    /// A GPU's memory. Requests fill and read blocks by its port, as an engine does by kernels; between it and host memory, which is
    /// registered with the GPU, blocks go by prepared copies, as with a manager by settings.
    #[must_use]
    pub fn cuda(device: CudaDeviceTier) -> Device {
        let device = Arc::new(device);
        let port = Arc::clone(&device);
        let make = move |memory, threads| -> Made { Ok(Arc::new(cuda_mover(&device, memory, threads)?)) };
        Device { name: "cuda", port, make: Box::new(make) }
    }

    /// Any device that has a port, which is then also what copies go through; `name` is for the report.
    pub fn of_port(name: &'static str, port: impl DevicePort + 'static) -> Device {
        let port: Arc<dyn DevicePort> = Arc::new(port);
        let of_mover = Arc::clone(&port);
        let make = move |memory, threads| by_threads(threads, PortMover::new(of_mover, memory, threads));
        Device { name, port, make: Box::new(make) }
    }

    /// It has `--device-blocks` blocks of `--block-bytes`.
    pub(super) fn check(&self, settings: &Settings) -> Result<(), ReplayError> {
        let (port, needed) = (&self.port, u128::from(settings.device_blocks) * settings.block_bytes as u128);
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

    /// The port, and the mover between the device and this memory.
    pub(super) fn moved_by(self, memory: Arc<HostMemory>, threads: usize) -> Result<Moved, ReplayError> {
        Ok((self.port, (self.make)(memory, threads)?))
    }
}

fn by_threads(threads: usize, made: Result<impl DeviceMover + 'static, ThreadsError>) -> Made {
    made.map(|mover| -> Arc<dyn DeviceMover> { Arc::new(mover) })
        .map_err(|source| ReplayError::Threads { threads, source })
}

/// A block lies in the device as its port has it: all its bytes in one piece, the next block behind it.
fn cuda_mover(
    tier: &CudaDeviceTier,
    memory: Arc<HostMemory>,
    threads: usize,
) -> Result<CudaMover, CudaMoverError> {
    let (storage, device) = (tier.memory(), tier.memory().device());
    // Both came from the settings, which bound them far below this.
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

/// What reaches a device's bytes, and what moves them.
pub(super) type Moved = (Arc<dyn DevicePort>, Arc<dyn DeviceMover>);

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name)
    }
}
