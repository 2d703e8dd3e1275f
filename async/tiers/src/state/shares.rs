//! How many blocks of a run each tenant has, or is to have, in the device: never more than it may, or the run
//! would wait for itself (`quota.rs` I2).
//!
//! A block that is there already costs no credit, and counts all the same: the run holds it, so that it makes
//! no room for one that is to come up. Those that are there are never too many by themselves: in the device
//! nothing is registered without a credit.

use kvstrata_core::owners::Owners;
use kvstrata_core::{BlockRef, TenantId};

/// By tenant: how many.
#[derive(Default)]
pub(crate) struct Shares(pub(crate) Vec<(TenantId, usize)>);

impl Shares {
    /// Counts one more block of a tenant's, behind those that were there. Whether its owner may have it too.
    pub(crate) fn has_room(&mut self, owners: &Owners, there: &[BlockRef], tenant: TenantId) -> bool {
        let Some(limit) = owners.limit(tenant) else { return true };
        let known = self.0.iter().position(|(of, _)| *of == tenant);
        let at = known.unwrap_or_else(|| {
            let before = there.iter().filter(|block| owners.owner(block.id) == tenant).count();
            self.0.push((tenant, before));
            self.0.len() - 1
        });
        self.0[at].1 += 1;
        self.0[at].1 <= limit
    }
}
