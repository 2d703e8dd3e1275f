//! A stretch of memory, or of a file, for a layout's bytes.

use super::{Field, LayoutError};
use crate::storage::{Storage, StorageKind};

/// A stretch of bytes in some address space: of a tensor, an arena or a volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Region {
    /// Address of its first byte, in its own address space; an offset for files.
    pub address: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The kind of memory or medium.
    pub kind: StorageKind,
}

impl Region {
    /// A stretch of ordinary host memory.
    #[must_use]
    pub const fn system(address: u64, size_bytes: u64) -> Region {
        Region { address, size_bytes, kind: StorageKind::System }
    }

    /// The whole of a storage.
    #[must_use]
    pub fn of<S: Storage + ?Sized>(storage: &S) -> Region {
        Region { address: storage.base_address(), size_bytes: storage.size_bytes(), kind: storage.kind() }
    }

    /// The address behind its last byte.
    ///
    /// # Errors
    ///
    /// It exceeds 64 bits.
    pub(super) fn end(&self) -> Result<u64, LayoutError> {
        let end = self.address.checked_add(self.size_bytes);
        end.ok_or(LayoutError::Overflow { field: Field::SizeBytes, value: self.size_bytes })
    }

    /// Returns whether addresses here and there are of one space, so that equal ones are the same byte.
    /// The host's memory is one space, and so is each device, volume and peer.
    pub(crate) const fn shares_space(&self, other: &Region) -> bool {
        match (self.kind, other.kind) {
            (StorageKind::Device { ordinal: a }, StorageKind::Device { ordinal: b }) => a == b,
            (StorageKind::Disk { volume: a }, StorageKind::Disk { volume: b }) => a == b,
            (StorageKind::Remote { peer: a }, StorageKind::Remote { peer: b }) => a == b,
            (a, b) => a.is_host() && b.is_host(),
        }
    }
}

impl Storage for Region {
    fn kind(&self) -> StorageKind {
        self.kind
    }

    fn base_address(&self) -> u64 {
        self.address
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}
