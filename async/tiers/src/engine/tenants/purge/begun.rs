//! How a purge begins and ends, and when tags are looked through.
//!
//! Invariants
//! - I1: what is registered when it begins is in its hands, or withdrawn, before anything else happens under the lock: so nobody evicts it.
//!   A handle that is being dropped this moment may be dropped before.
//! - I2: tags are looked through once at the beginning, once after each telling that some of the tenant's may have been registered
//!   (`look_again`), once more after a look that found one between two states, and before it is over; not each time that it is told.
//! - I3: it ends with its task, however that ends; or its tenant would have nothing for ever.

use super::{Purging, Work};
use crate::engine::inner::Inner;
use crate::engine::tenants::TenantId;
use crate::engine::traffic::Traffic;
use std::sync::Arc;

/// Ends the purge, whatever ends its task. What the task had by then is never used again.
pub(super) struct Begun(pub(super) Arc<Inner>, pub(super) TenantId);

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.change(|traffic| traffic.end_purge(&self.0, self.1));
    }
}

impl Purging {
    pub(super) fn of(tenant: TenantId, zero: bool) -> Purging {
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

impl Traffic {
    /// Some block of a tenant's may have been registered: a purge looks for it.
    pub(in crate::engine) fn look_again(&mut self, tenant: TenantId) {
        if let Some(purging) = self.purges.of(tenant) {
            purging.again = true;
        }
    }

    /// Whether tags are to be looked through now.
    pub(super) fn looks_again(&mut self, tenant: TenantId) -> bool {
        let Some(purging) = self.purges.of(tenant) else { return false };
        let again = std::mem::take(&mut purging.again);
        #[cfg(test)]
        {
            purging.scans += usize::from(again);
        }
        again
    }

    /// Under the lock that the purge begins with; what is found is for its task.
    pub(super) fn first_sweep(&mut self, inner: &Inner, work: &mut Work) {
        let (pieces, _) = self.sweep(inner, work);
        if let Some(purging) = self.purges.of(work.tenant) {
            purging.erasing.clear();
            purging.pieces = pieces;
        }
    }
}
