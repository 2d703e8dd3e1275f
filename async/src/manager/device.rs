//! A group's blocks in a device.

use kvstrata_core::DevicePort;
use kvstrata_tiers::transfer::DeviceMover;
use std::fmt;
use std::sync::Arc;

/// A group's device memory, and the mover that copies its blocks: for
/// [`ManagerBuilder::device`](super::ManagerBuilder::device), which has an example.
pub struct Device {
    pub(super) mover: Arc<dyn DeviceMover>,
    pub(super) port: Option<Arc<dyn DevicePort>>,
    /// A note on the device, for people.
    pub(super) note: Option<String>,
}

impl Device {
    /// Returns a device whose blocks this mover copies to and from the group's host memory.
    ///
    /// [`ManagerBuilder::device`](super::ManagerBuilder::device) has an example.
    #[must_use]
    pub fn new(mover: Arc<dyn DeviceMover>) -> Device {
        Device { mover, port: None, note: None }
    }

    /// Adds a port to the blocks' bytes ([`Group::device_port`](super::Group::device_port)), for callers
    /// whose kernels do not reach them.
    ///
    /// [`ManagerBuilder::device`](super::ManagerBuilder::device) has an example.
    #[must_use]
    pub fn port(self, port: Arc<dyn DevicePort>) -> Device {
        Device { port: Some(port), ..self }
    }

    /// Adds a note to the device's line in [`describe`](super::Tiers::describe).
    ///
    /// [`ManagerBuilder::device`](super::ManagerBuilder::device) has an example.
    #[must_use]
    pub fn note(self, note: impl Into<String>) -> Device {
        Device { note: Some(note.into()), ..self }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.mover.describe())
    }
}
