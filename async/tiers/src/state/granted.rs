//! Blocks for a caller that waited in a queue, on their way to it.
//!
//! The caller may go away before it takes them: dropped, they go back to the tiers that they are of.

use crate::state::GroupId;
use kvstrata_core::{BlockId, TenantId};
use std::sync::Arc;

/// The answer to a caller that waits for blocks.
pub(crate) type Grant = Result<Granted, Late>;

/// A deadline has passed: how things were then.
#[derive(Debug)]
pub(crate) struct Late {
    /// Who was before.
    pub(crate) ahead: usize,
    /// Blocks that were free, evictable, or gathered.
    pub(crate) available: usize,
}

/// Takes blocks back that a caller has not taken.
pub(crate) trait Home: Send + Sync {
    /// They are free again, and so are their tenant's credits.
    fn take_back(self: Arc<Self>, group: GroupId, blocks: Vec<BlockId>, tenant: TenantId);
}

/// Blocks of a group, with the credits of a tenant.
pub(crate) struct Granted {
    /// None: the caller has taken them.
    home: Option<Arc<dyn Home>>,
    group: GroupId,
    blocks: Vec<BlockId>,
    tenant: TenantId,
}

impl Granted {
    pub(crate) fn new(
        home: Arc<dyn Home>,
        group: GroupId,
        blocks: Vec<BlockId>,
        tenant: TenantId,
    ) -> Granted {
        Granted { home: Some(home), group, blocks, tenant }
    }

    /// The caller's from now on.
    pub(crate) fn take(mut self) -> Vec<BlockId> {
        self.home = None;
        std::mem::take(&mut self.blocks)
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.take_back(self.group, std::mem::take(&mut self.blocks), self.tenant);
        }
    }
}
