//! Blocks that are never used again.

use crate::state::{GroupId, Piece};
use kvstrata_core::TenantId;
use std::collections::HashMap;

/// A block, and the tenant that its bytes belong to.
#[derive(Debug, Clone, Copy)]
struct Quarantined {
    tenant: TenantId,
    piece: Piece,
    /// It is registered, and a reference without a holder keeps it so.
    registered: bool,
}

/// All quarantined blocks.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    blocks: Vec<Quarantined>,
    /// By tenant: slots that a purge has found on volumes that are out of service.
    lost: HashMap<TenantId, usize>,
}

impl Quarantine {
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds a block, which is never used again.
    pub(crate) fn keep(&mut self, tenant: TenantId, piece: Piece, registered: bool) {
        self.blocks.push(Quarantined { tenant, piece, registered });
    }

    /// Whether a registered block is here.
    pub(crate) fn has_registered(&self, piece: Piece) -> bool {
        self.blocks.iter().any(|of| of.registered && of.piece == piece)
    }

    /// Counts a slot with a tenant's block, of a volume that is out of service.
    pub(crate) fn note_lost(&mut self, tenant: TenantId) {
        *self.lost.entry(tenant).or_default() += 1;
    }

    /// Returns the blocks that are not registered.
    pub(crate) fn owned(&self) -> impl Iterator<Item = Piece> {
        self.blocks.iter().filter(|of| !of.registered).map(|of| of.piece)
    }

    /// Whether all of a group's staging is here: then transfers must not wait for it.
    pub(crate) fn has_all_staging(&self, group: GroupId, staging: usize) -> bool {
        let of_group = |block: &&Quarantined| matches!(block.piece, Piece::Staged(of, _) if of == group);
        !self.is_empty() && self.blocks.iter().filter(of_group).count() >= staging
    }

    /// Returns the tenants that the bytes belong to.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = TenantId> {
        self.blocks.iter().map(|of| of.tenant)
    }

    /// Counts the blocks with a tenant's bytes, and its lost slots.
    pub(crate) fn of(&self, tenant: TenantId) -> usize {
        let lost = self.lost.get(&tenant).copied().unwrap_or_default();
        lost + self.tenants().filter(|of| *of == tenant).count()
    }

    /// Forgets the lost slots of these tenants.
    pub(crate) fn forget_lost(&mut self, is_gone: impl Fn(&TenantId) -> bool) {
        self.lost.retain(|tenant, _| !is_gone(tenant));
    }
}
