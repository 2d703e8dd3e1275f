//! A block that a lookup has found.

use crate::engine::group_tiers::GroupTiers;
use crate::tier::Tier;
use kvstrata_core::{BlockRef, SequenceHash};
use kvstrata_ffi::disk::Name;

/// A block of a run, behind the first that the device lacks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) name: Name,
    pub(crate) place: Place,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    Device(BlockRef),
    Host(BlockRef),
    Disk(BlockRef),
    Pending,
}

impl Found {
    pub(crate) fn tier(&self) -> Option<Tier> {
        match self.place {
            Place::Device(_) => Some(Tier::Device),
            Place::Host(_) => Some(Tier::Host),
            Place::Disk(_) => Some(Tier::Disk),
            Place::Pending => None,
        }
    }
}

impl GroupTiers {
    /// Where a block is below the device, at rest, held.
    pub(crate) fn find_below(&self, hash: SequenceHash) -> Option<Place> {
        let host = self.host.as_ref().and_then(|host| host.pool().lookup_ref(hash)).map(Place::Host);
        host.or_else(|| Some(Place::Disk(self.disk.as_ref()?.find(hash, true)?.into_ref())))
    }
}
