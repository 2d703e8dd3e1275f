//! Finds tenants that have nothing left, so that other tenants may get their numbers.
//!
//! Credits come first, without the lock: most tenants without a handle have blocks. For those without
//! credits, the state under the lock and the tags of disks are examined. A slot of a volume that is out
//! of service counts for no quota, and may come back.
//!
//! Invariants
//! - I1: the caller keeps these tenants from getting handles. A tenant without a handle gets a credit
//!   only through a block of its own (which has a credit, or a tag on a disk) or through a transfer. This
//!   module looks at both, and both begin under the lock.

use crate::engine::inner::Inner;
use crate::state::{Entry, Traffic};
use kvstrata_core::TenantId;
use std::collections::HashSet;

impl Inner {
    /// Returns those of some tenants without a handle (I1) that have nothing left, and forgets their records.
    pub(crate) fn of_whom_nothing_is_left(&self, mut tenants: Vec<TenantId>) -> Vec<TenantId> {
        tenants.retain(|tenant| self.tiers().all(|tier| self.usage(*tenant, tier).blocks == 0));
        if tenants.is_empty() {
            return tenants;
        }
        let mut traffic = self.look();
        // Once more: a block that has moved between tiers meanwhile is in a transfer, or has its credit.
        tenants.retain(|tenant| self.tiers().all(|tier| self.usage(*tenant, tier).blocks == 0));
        let mut known = traffic.tenants();
        known.extend(self.groups.iter().flat_map(|of| &of.lower).flat_map(|lower| lower.owners.all()));
        tenants.retain(|tenant| !known.contains(tenant));
        traffic.forget_tenants(&tenants);
        drop(traffic);
        for tenant in &tenants {
            self.counts.notices.forget(*tenant);
        }
        tenants
    }
}

impl Traffic {
    /// Returns the tenants of transfers, places in the queue, hints, purges and quarantined blocks.
    fn tenants(&self) -> HashSet<TenantId> {
        let mut all: HashSet<TenantId> = self.ups.iter().map(|(_, up)| up.tenant()).collect();
        all.extend(self.downs.iter().flat_map(|(_, down)| [down.tenant(), down.slot_was()]));
        all.extend(self.groups.iter().flat_map(|of| of.queue.iter()).map(Entry::tenant));
        all.extend(self.waiting_for_quota.tenants());
        all.extend(self.guesses.tenants());
        all.extend(self.purges.tenants());
        all.extend(self.quarantine.tenants());
        all
    }

    fn forget_tenants(&mut self, tenants: &[TenantId]) {
        let gone: HashSet<&TenantId> = tenants.iter().collect();
        self.quarantine.forget_lost(|tenant| gone.contains(tenant));
        self.groups.iter_mut().for_each(|of| of.own_looks.forget(|tenant| gone.contains(tenant)));
    }
}
