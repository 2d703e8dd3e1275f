//! A block that a lookup has found.

use crate::engine::group_tiers::GroupTiers;
use crate::tier::Tier;
use kvstrata_core::{BlockRef, SequenceHash};
use kvstrata_ffi::disk::Name;

/// A block of a run, from the first block on that the device lacks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) name: Name,
    pub(crate) place: Place,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    Device(BlockRef),
    Host(BlockRef),
    Below(u8, BlockRef),
    Pending,
}

impl Found {
    pub(crate) fn tier(&self) -> Option<Tier> {
        match self.place {
            Place::Device(_) => Some(Tier::Device),
            Place::Host(_) => Some(Tier::Host),
            Place::Below(number, _) => Some(Tier::Below(number)),
            Place::Pending => None,
        }
    }
}

impl GroupTiers {
    /// Finds a block that is at rest below the device, and holds it.
    pub(crate) fn find_below(&self, hash: SequenceHash) -> Option<Place> {
        let host = self.host.as_ref().and_then(|host| host.pool().lookup_ref(hash)).map(Place::Host);
        host.or_else(|| self.find_lower(0, hash).map(|(number, block)| Place::Below(number, block)))
    }

    /// Finds a block in the first tier below host memory that has it, from this tier down, and holds it.
    pub(crate) fn find_lower(&self, from: u8, hash: SequenceHash) -> Option<(u8, BlockRef)> {
        self.lower_from(from)
            .find_map(|(number, lower)| Some((number, lower.port.find(hash, true)?.into_ref())))
    }
}
