//! Blocks that are never used again.

use crate::state::Piece;
use kvstrata_core::TenantId;
use std::collections::HashMap;

/// A block, and whose bytes are in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parked {
    pub(crate) tenant: TenantId,
    pub(crate) piece: Piece,
    /// It is registered, and nobody's reference keeps it so.
    pub(crate) registered: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    pub(crate) blocks: Vec<Parked>,
    /// By tenant: slots that a purge has found, of volumes that are out of service.
    pub(crate) lost: HashMap<TenantId, usize>,
}

impl Quarantine {
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Those that are not registered.
    pub(crate) fn owned(&self) -> impl Iterator<Item = Piece> {
        self.blocks.iter().filter(|parked| !parked.registered).map(|parked| parked.piece)
    }

    /// Whether all of a group's staging is here: then no transfer waits for some.
    pub(crate) fn has_all_staging(&self, stack: u16, staging: usize) -> bool {
        let of_stack = |parked: &&Parked| matches!(parked.piece, Piece::Staged(of, _) if of == stack);
        !self.is_empty() && self.blocks.iter().filter(of_stack).count() >= staging
    }

    /// Whose bytes are here.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = TenantId> {
        self.blocks.iter().map(|parked| parked.tenant)
    }

    /// Blocks with bytes of a tenant's, and its slots that are lost.
    pub(crate) fn of(&self, tenant: TenantId) -> usize {
        let lost = self.lost.get(&tenant).copied().unwrap_or_default();
        lost + self.tenants().filter(|of| *of == tenant).count()
    }

    /// Slots that these tenants have lost are counted no more.
    pub(crate) fn forget_lost(&mut self, is_gone: impl Fn(&TenantId) -> bool) {
        self.lost.retain(|tenant, _| !is_gone(tenant));
    }
}
