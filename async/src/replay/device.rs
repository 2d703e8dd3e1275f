//! The device of a replay: its port, by which requests fill and read blocks, and the mover between it and host memory.

use super::error::ReplayError;
use super::settings::Settings;
use crate::movers::{PortMover, ThreadsError, ThreadsMover};
use crate::transfer::{DeviceMover, HostMemory};
use kvstrata_core::storage::DevicePort;
use kvstrata_ffi::device::SimDevice;
use std::fmt;
use std::sync::Arc;

type Made = Result<Arc<dyn DeviceMover>, ThreadsError>;
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
        let make =
            move |memory, threads| -> Made { Ok(Arc::new(ThreadsMover::new(device, memory, threads)?)) };
        Device { name: "sim", port, make: Box::new(make) }
    }

    /// Any device that has a port, which is then also what copies go through; `name` is for the report.
    pub fn of_port(name: &'static str, port: impl DevicePort + 'static) -> Device {
        let port: Arc<dyn DevicePort> = Arc::new(port);
        let of_mover = Arc::clone(&port);
        let make =
            move |memory, threads| -> Made { Ok(Arc::new(PortMover::new(of_mover, memory, threads)?)) };
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
    pub(super) fn moved_by(self, memory: Arc<HostMemory>, threads: usize) -> Result<Moved, ThreadsError> {
        Ok((self.port, (self.make)(memory, threads)?))
    }
}

/// What reaches a device's bytes, and what moves them.
pub(super) type Moved = (Arc<dyn DevicePort>, Arc<dyn DeviceMover>);

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name)
    }
}
