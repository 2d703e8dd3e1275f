//! How many blocks of a run each tenant has, or is to have, in the device. It is never more than the
//! tenant's quota, or the run would wait for itself (`quota.rs` I2).
//!
//! A block that is there already costs no credit, and counts all the same: the run holds it, so it makes
//! no room for a block that is to come up. Blocks that are there never exceed the quota by themselves: in
//! the device nothing is registered without a credit.

use kvstrata_core::owners::Owners;
use kvstrata_core::{BlockRef, TenantId};

/// Numbers of blocks, by tenant.
#[derive(Default)]
pub(crate) struct Shares(pub(crate) Vec<(TenantId, usize)>);

impl Shares {
    /// Counts one more block of a tenant, after the blocks that are there. Whether the tenant may have
    /// it, too.
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
