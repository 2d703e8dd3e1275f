//! Purges under way.

use crate::state::Purged;
use crate::tier::Tier;
use kvstrata_core::{BlockId, BlockRef, SequenceHash, TenantId};
use std::collections::BTreeMap;

/// A block in a purge's hands: of which group, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    Device(u16, BlockId),
    Host(u16, u32),
    /// A block of host memory that is for staging.
    Staged(u16, u32),
    Disk(u16, BlockId),
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Erased {
    pub(crate) free: Vec<Piece>,
    pub(crate) zeroed_bytes: u64,
    /// Blocks that could not be overwritten.
    pub(crate) failed: Vec<Piece>,
}

impl Erased {
    pub(crate) fn count(&mut self, piece: Piece, done: Option<u64>) {
        match done {
            Some(bytes) => {
                self.free.push(piece);
                self.zeroed_bytes += bytes;
            }
            None => self.failed.push(piece),
        }
    }
}

/// A purge under way, under the lock.
#[derive(Debug)]
pub(crate) struct Purging {
    pub(crate) tenant: TenantId,
    /// Bytes are to be overwritten.
    pub(crate) zero: bool,
    /// Slots whose write has failed, which the port has freed as they are; not counted yet.
    pub(crate) left: usize,
    /// What has come into its hands.
    pub(crate) pieces: Vec<Piece>,
    /// What its task has taken over, to be erased.
    pub(crate) erasing: Vec<Piece>,
    /// Tags are to be looked through (`purge.rs`).
    pub(crate) again: bool,
    #[cfg(test)]
    pub(crate) scans: usize,
    /// Looks at blocks that are held.
    #[cfg(test)]
    pub(crate) looks: usize,
}

/// Those under way.
#[derive(Debug, Default)]
pub(crate) struct Purges(pub(crate) Vec<Purging>);

impl Purges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whose they are.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = TenantId> {
        self.0.iter().map(|purging| purging.tenant)
    }

    /// A tenant's.
    pub(crate) fn of(&mut self, tenant: TenantId) -> Option<&mut Purging> {
        self.0.iter_mut().find(|purging| purging.tenant == tenant)
    }

    /// A write to the disk has failed, of a tenant's block to a slot that has had another's: what of it is in the slot is not overwritten;
    /// and what of it is found, if the volume is lost, is not forgotten.
    pub(crate) fn note_left(&mut self, tenants: [TenantId; 2], lost: bool) {
        let of = self.0.iter_mut().filter(|purging| tenants.contains(&purging.tenant));
        of.filter(|purging| purging.zero || lost).for_each(|purging| purging.left += 1);
    }
}

/// Held blocks that are looked at in turn, a change.
pub(crate) const FEW: usize = 64;

/// A block's group, tier and number.
pub(crate) type Place = (u16, Tier, BlockId);

/// What the task has.
pub(crate) struct Work {
    pub(crate) tenant: TenantId,
    /// Blocks of its own references, withdrawn: one reference each.
    pub(crate) held: BTreeMap<Place, BlockRef>,
    /// The one that was looked at last, of those that are looked at in turn.
    pub(crate) turn: Option<Place>,
    /// How often blocks of the tenant were let go of, by the last look at all that are held: in each tier of each group.
    pub(crate) heard: Vec<u32>,
    pub(crate) hashes: Vec<(u16, SequenceHash)>,
    /// By tier: blocks that were found, and are being erased.
    pub(crate) erasing: [usize; 3],
    pub(crate) done: Purged,
}

impl Purging {
    pub(crate) fn of(tenant: TenantId, zero: bool) -> Purging {
        Purging {
            tenant,
            zero,
            left: 0,
            pieces: Vec::new(),
            erasing: Vec::new(),
            again: true,
            #[cfg(test)]
            scans: 0,
            #[cfg(test)]
            looks: 0,
        }
    }
}
