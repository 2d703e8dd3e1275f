//! Purges under way.

use crate::state::{GroupId, HostSlot, Purged};
use crate::tier::{MOST_BELOW, Tier};
use kvstrata_core::{BlockId, BlockRef, SequenceHash, TenantId};
use std::collections::BTreeMap;

/// A block in a purge's hands: of which group, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    Device(GroupId, BlockId),
    Host(GroupId, HostSlot),
    /// A block of host memory that is for staging.
    Staged(GroupId, HostSlot),
    /// A slot of a tier below host memory.
    Below(GroupId, u8, BlockId),
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
struct Purging {
    tenant: TenantId,
    /// Bytes are to be overwritten.
    zero: bool,
    /// Slots whose write has failed, which the port has freed as they are; not counted yet.
    left: usize,
    /// What has come into its hands.
    pieces: Vec<Piece>,
    /// What its task has taken over, to be erased.
    erasing: Vec<Piece>,
    /// Tags are to be looked through (`operations/purge.rs` I2).
    again: bool,
    #[cfg(test)]
    scans: usize,
    /// Looks at blocks that are held.
    #[cfg(test)]
    looks: usize,
}

/// Those under way.
///
/// Invariants
/// - I1: a tenant has one at most.
#[derive(Debug, Default)]
pub(crate) struct Purges(Vec<Purging>);

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

    /// Whether a tenant has one.
    pub(crate) fn has(&self, tenant: TenantId) -> bool {
        self.tenants().any(|of| of == tenant)
    }

    /// Blocks that they have.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.0.iter().flat_map(|purging| purging.pieces.iter().chain(&purging.erasing))
    }

    /// A tenant's begins.
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

    /// It is over.
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

    /// Adds what a tenant's purge has been given to what its task takes over. Slots that were left as they
    /// are.
    pub(crate) fn hand_over(&mut self, tenant: TenantId, pieces: &mut Vec<Piece>) -> usize {
        let Some(purging) = self.of(tenant) else { return 0 };
        pieces.append(&mut purging.pieces);
        purging.erasing.clone_from(pieces);
        std::mem::take(&mut purging.left)
    }

    /// The task that takes these over has not begun.
    pub(crate) fn keep(&mut self, tenant: TenantId, pieces: Vec<Piece>) {
        if let Some(purging) = self.of(tenant) {
            purging.erasing.clear();
            purging.pieces = pieces;
        }
    }

    /// What the task had has an owner again, or never will.
    pub(crate) fn erased(&mut self, tenant: TenantId) {
        if let Some(purging) = self.of(tenant) {
            purging.erasing.clear();
        }
    }

    /// Tags are to be looked through.
    pub(crate) fn look_again(&mut self, tenant: TenantId) {
        if let Some(purging) = self.of(tenant) {
            purging.again = true;
        }
    }

    /// Whether they are, from now on no more.
    pub(crate) fn takes_look(&mut self, tenant: TenantId) -> bool {
        let Some(purging) = self.of(tenant) else { return false };
        let again = std::mem::take(&mut purging.again);
        #[cfg(test)]
        {
            purging.scans += usize::from(again);
        }
        again
    }

    /// A write to a tier below has failed, of a tenant's block to a slot that has had another's: what of it is in
    /// the slot is not overwritten; and what of it is found, if the volume is lost, is not forgotten.
    pub(crate) fn note_left(&mut self, tenants: [TenantId; 2], lost: bool) {
        let of = self.0.iter_mut().filter(|purging| tenants.contains(&purging.tenant));
        of.filter(|purging| purging.zero || lost).for_each(|purging| purging.left += 1);
    }
}

#[cfg(test)]
impl Purges {
    /// So many held blocks of a tenant are looked at.
    pub(crate) fn count_looks(&mut self, tenant: TenantId, looks: usize) {
        if let Some(purging) = self.of(tenant) {
            purging.looks += looks;
        }
    }

    /// How often tags were looked through, and held blocks looked at, by the first purge.
    pub(crate) fn looks(&self) -> Option<(usize, usize)> {
        self.0.first().map(|purging| (purging.scans, purging.looks))
    }
}

/// Held blocks that are looked at in turn, a change.
pub(crate) const FEW: usize = 64;

/// A block's group, tier and number.
pub(crate) type Place = (GroupId, Tier, BlockId);

/// What the task has.
pub(crate) struct Work {
    pub(crate) tenant: TenantId,
    /// Blocks of its own references, withdrawn: one reference each.
    pub(crate) held: BTreeMap<Place, BlockRef>,
    /// The one that was looked at last, of those that are looked at in turn.
    pub(crate) turn: Option<Place>,
    /// How often blocks of the tenant were let go of, by the last look at all that are held: in each tier of
    /// each group.
    pub(crate) heard: Vec<u32>,
    pub(crate) hashes: Vec<(GroupId, SequenceHash)>,
    /// By tier: blocks that were found, and are being erased.
    pub(crate) erasing: [usize; 2 + MOST_BELOW],
    pub(crate) done: Purged,
}
