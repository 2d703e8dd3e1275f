//! The ways between tiers, and who goes first on them.

use crate::tier::Tier;

/// A way from one tier to another; each has a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// Offload.
    DeviceToHost,
    /// Offload.
    HostToDisk,
    /// Onboard.
    HostToDevice,
    /// Onboard: a read into host memory, which [`HostToDevice`](Path::HostToDevice) then takes up.
    DiskToDevice,
}

impl Path {
    /// All of them.
    pub const ALL: [Path; 4] = [Path::DeviceToHost, Path::HostToDisk, Path::HostToDevice, Path::DiskToDevice];

    /// As settings and reports spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Path::DeviceToHost => "device_to_host",
            Path::HostToDisk => "host_to_disk",
            Path::HostToDevice => "host_to_device",
            Path::DiskToDevice => "disk_to_device",
        }
    }

    /// Where bytes come from.
    #[must_use]
    pub const fn from(self) -> Tier {
        match self {
            Path::DeviceToHost => Tier::Device,
            Path::HostToDisk | Path::HostToDevice => Tier::Host,
            Path::DiskToDevice => Tier::Disk,
        }
    }

    /// Whether it leads towards the device.
    #[must_use]
    pub const fn is_up(self) -> bool {
        matches!(self, Path::HostToDevice | Path::DiskToDevice)
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Who goes first: all of a class before the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A request waits for it: onboarding, and what makes room for it.
    Urgent,
    /// Somebody will soon: watermarks, preempted requests.
    Offload,
    /// Nobody waits: idle blocks, write-through.
    Background,
    /// A guess; the first to be dropped.
    Prefetch,
}

impl Class {
    /// All of them, the first one first.
    pub const ALL: [Class; 4] = [Class::Urgent, Class::Offload, Class::Background, Class::Prefetch];

    /// As metrics spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Class::Urgent => "urgent",
            Class::Offload => "offload",
            Class::Background => "background",
            Class::Prefetch => "prefetch",
        }
    }
}
