//! Blocks on their way to a caller that waited in a queue.
//!
//! The caller may be gone before it takes them. If they are dropped, they go back to their tiers.

use crate::state::GroupId;
use kvstrata_core::{BlockId, TenantId};
use std::sync::Arc;

/// The answer to a caller that waits for blocks.
pub(crate) type Grant = Result<Granted, Late>;

/// A deadline has passed: the state then.
#[derive(Debug)]
pub(crate) struct Late {
    /// Callers that were ahead.
    pub(crate) ahead: usize,
    /// Blocks that were free, evictable, or gathered.
    pub(crate) available: usize,
}

/// Takes back blocks that their caller has not taken.
pub(crate) trait Home: Send + Sync {
    /// Frees the blocks and the tenant's credits.
    fn take_back(self: Arc<Self>, group: GroupId, blocks: Vec<BlockId>, tenant: TenantId);
}

/// Blocks of a group, with credits of a tenant.
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

    /// Hands the blocks to the caller.
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
