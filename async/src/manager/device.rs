//! A group's blocks in a device.

use crate::transfer::DeviceMover;
use kvstrata_core::DevicePort;
use std::fmt;
use std::sync::Arc;

/// A group's blocks in a device, and what moves their bytes.
pub struct Device {
    pub(super) mover: Arc<dyn DeviceMover>,
    pub(super) port: Option<Arc<dyn DevicePort>>,
    /// What there is to say of it, for people.
    pub(super) note: Option<String>,
}

impl Device {
    /// Blocks whose bytes this mover copies to and from the host memory of the group.
    #[must_use]
    pub fn new(mover: Arc<dyn DeviceMover>) -> Device {
        Device { mover, port: None, note: None }
    }

    /// What reaches the blocks' bytes besides ([`Group::device_port`](super::Group::device_port)), for
    /// callers whose kernels do not.
    #[must_use]
    pub fn port(self, port: Arc<dyn DevicePort>) -> Device {
        Device { port: Some(port), ..self }
    }

    /// What [`describe`](super::Tiers::describe) says of it besides.
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
