//! Purges under way.

use crate::state::{GroupId, HostSlot, Purged};
use crate::tier::{MOST_BELOW, Tier};
use kvstrata_core::{BlockId, BlockRef, SequenceHash, TenantId};
use std::collections::BTreeMap;

/// A block that a purge has, with its group and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    Device(GroupId, BlockId),
    Host(GroupId, HostSlot),
    /// A block of host memory for staging.
    Staged(GroupId, HostSlot),
    /// A slot of a tier below host memory.
    Below(GroupId, u8, BlockId),
}

/// The outcome of erasing blocks.
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

/// A running purge, under the lock.
#[derive(Debug)]
struct Purging {
    tenant: TenantId,
    /// Bytes are to be overwritten.
    zero: bool,
    /// Slots that the port has freed as they are, after a failed write; not counted yet.
    left: usize,
    /// Blocks that it has been given.
    pieces: Vec<Piece>,
    /// Blocks that its task has taken over, to be erased.
    erasing: Vec<Piece>,
    /// Tags are to be searched (`operations/purge.rs` I2).
    again: bool,
    #[cfg(test)]
    scans: usize,
    /// Number of looks at held blocks.
    #[cfg(test)]
    looks: usize,
}

/// The running purges.
///
/// Invariants
/// - I1: a tenant has at most one.
#[derive(Debug, Default)]
pub(crate) struct Purges(Vec<Purging>);

impl Purges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the tenants that are being purged.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = TenantId> {
        self.0.iter().map(|purging| purging.tenant)
    }

    /// Whether a tenant is being purged.
    pub(crate) fn has(&self, tenant: TenantId) -> bool {
        self.tenants().any(|of| of == tenant)
    }

    /// Returns the blocks that purges have.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.0.iter().flat_map(|purging| purging.pieces.iter().chain(&purging.erasing))
    }

    /// Begins the purge of a tenant.
    pub(crate) fn begin(&mut self, tenant: TenantId, zero: bool) {
        self.0.push(Purging {
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
        });
    }

    /// Ends the purge of a tenant.
    pub(crate) fn end(&mut self, tenant: TenantId) {
        self.0.retain(|purging| purging.tenant != tenant);
    }

    fn of(&mut self, tenant: TenantId) -> Option<&mut Purging> {
        self.0.iter_mut().find(|purging| purging.tenant == tenant)
    }

    /// Gives a block to a tenant's purge. False: there is none.
    pub(crate) fn give(&mut self, tenant: TenantId, piece: Piece) -> bool {
        self.of(tenant).map(|purging| purging.pieces.push(piece)).is_some()
    }

    /// Adds the blocks that a tenant's purge was given to those that its task takes over. Returns the
    /// number of slots that were left as they are.
    pub(crate) fn hand_over(&mut self, tenant: TenantId, pieces: &mut Vec<Piece>) -> usize {
        let Some(purging) = self.of(tenant) else { return 0 };
        pieces.append(&mut purging.pieces);
        purging.erasing.clone_from(pieces);
        std::mem::take(&mut purging.left)
    }

    /// Takes these blocks back: the task that was to take them over has not begun.
    pub(crate) fn keep(&mut self, tenant: TenantId, pieces: Vec<Piece>) {
        if let Some(purging) = self.of(tenant) {
            purging.erasing.clear();
            purging.pieces = pieces;
        }
    }

    /// Forgets the task's blocks: each has an owner again, or never will.
    pub(crate) fn erased(&mut self, tenant: TenantId) {
        if let Some(purging) = self.of(tenant) {
            purging.erasing.clear();
        }
    }

    /// Asks for a search of the tags.
    pub(crate) fn look_again(&mut self, tenant: TenantId) {
        if let Some(purging) = self.of(tenant) {
            purging.again = true;
        }
    }

    /// Returns whether a search of the tags was asked for, and clears that.
    pub(crate) fn takes_look(&mut self, tenant: TenantId) -> bool {
        let Some(purging) = self.of(tenant) else { return false };
        let again = std::mem::take(&mut purging.again);
        #[cfg(test)]
        {
            purging.scans += usize::from(again);
        }
        again
    }

    /// Notes a failed write to a lower tier, of one tenant's block to a slot with another's. Bytes of
    /// either in the slot are not overwritten: counted by purges that overwrite. If the volume is lost,
    /// the bytes may be found again: counted by all purges.
    pub(crate) fn note_left(&mut self, tenants: [TenantId; 2], lost: bool) {
        let of = self.0.iter_mut().filter(|purging| tenants.contains(&purging.tenant));
        of.filter(|purging| purging.zero || lost).for_each(|purging| purging.left += 1);
    }
}

#[cfg(test)]
impl Purges {
    /// Counts looks at held blocks of a tenant.
    pub(crate) fn count_looks(&mut self, tenant: TenantId, looks: usize) {
        if let Some(purging) = self.of(tenant) {
            purging.looks += looks;
        }
    }

    /// Returns how often tags were searched, and held blocks looked at, by the first purge.
    pub(crate) fn looks(&self) -> Option<(usize, usize)> {
        self.0.first().map(|purging| (purging.scans, purging.looks))
    }
}

/// Maximum number of held blocks that are looked at in turn, for each change.
pub(crate) const FEW: usize = 64;

/// A block's group, tier and number.
pub(crate) type Place = (GroupId, Tier, BlockId);

/// The state of a purge's task.
pub(crate) struct Work {
    pub(crate) tenant: TenantId,
    /// Withdrawn blocks, each held by one reference of the task.
    pub(crate) held: BTreeMap<Place, BlockRef>,
    /// Of the blocks that are looked at in turn, the one that was looked at last.
    pub(crate) turn: Option<Place>,
    /// By tier of each group: how often blocks of the tenant had been released at the last look at all
    /// held ones.
    pub(crate) heard: Vec<u32>,
    pub(crate) hashes: Vec<(GroupId, SequenceHash)>,
    /// By tier: blocks that were found, and are being erased.
    pub(crate) erasing: [usize; 2 + MOST_BELOW],
    pub(crate) done: Purged,
}
