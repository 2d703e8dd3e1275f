//! The kinds of storage.

use core::fmt;

/// The kind of a storage, which decides how its bytes may be reached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StorageKind {
    /// Memory of an accelerator (G1). Only a [`DevicePort`](super::DevicePort) or the
    /// device itself reaches it.
    Device {
        /// The device's number, as its driver counts.
        ordinal: u32,
    },
    /// Page-locked host memory that devices read and write by DMA (G2).
    Pinned,
    /// Ordinary host memory (G2).
    System,
    /// A file or a raw disk (G3).
    Disk {
        /// The volume's number, as the process counts its volumes: equal numbers are one address space.
        volume: u32,
    },
    /// Memory or a store on another machine (G4).
    Remote {
        /// The machine's number, as the process counts its peers: equal numbers are one address space.
        peer: u32,
    },
}

impl StorageKind {
    /// Returns whether the CPU reads and writes it with plain loads and stores.
    #[must_use]
    pub const fn is_host(self) -> bool {
        matches!(self, StorageKind::Pinned | StorageKind::System)
    }

    /// Returns whether its addresses are virtual addresses of this machine, so that 0 is invalid.
    #[must_use]
    pub const fn is_memory(self) -> bool {
        matches!(self, StorageKind::Device { .. } | StorageKind::Pinned | StorageKind::System)
    }
}

impl fmt::Display for StorageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageKind::Device { ordinal } => write!(f, "device:{ordinal}"),
            StorageKind::Pinned => f.write_str("pinned"),
            StorageKind::System => f.write_str("system"),
            StorageKind::Disk { volume } => write!(f, "disk:{volume}"),
            StorageKind::Remote { peer } => write!(f, "remote:{peer}"),
        }
    }
}
