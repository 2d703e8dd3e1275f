//! The calls of tenants.

use crate::calls::answer::Answer;
use crate::calls::purge::{self, PurgeError};
use crate::calls::tiers::Tiers;
use crate::engine::names::TenantError;
use crate::engine::request_span;
use crate::engine::tenants::TenantUse;
use crate::state::{Purge, Purged};
use crate::tier::Tier;
use kvstrata_core::TenantId;
use kvstrata_core::hash::{Salt, SaltParts};
use tracing::Instrument;

impl Tiers {
    /// Returns the same tiers, called for a tenant: their calls are this tenant's, which is known by
    /// this name from now on. At its quota of the device a tenant gives up its own least valuable
    /// blocks, and waits only for its own blocks.
    ///
    /// At most `quota.tenants` are known at once. Beyond that, tenants with nothing left are forgotten:
    /// no handle, no block in any tier, no transfer. Tenants that the settings name are never forgotten.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    ///
    /// # Errors
    /// [`TenantError`], for example if the name is empty, or `quota.tenants` are in use.
    pub fn tenant(&self, name: &str) -> Result<Tiers, TenantError> {
        if self.inner().is_inherited() {
            return Err(TenantError::Inherited);
        }
        let unused = |tenants| self.inner().of_whom_nothing_is_left(tenants);
        let (tenant, name) = self.inner().tenants.names.intern(name, unused)?;
        Ok(self.asked_by(tenant, name))
    }

    /// Returns the name of the tenant that calls. None: the calls are no tenant's.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn tenant_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the tenant's number here. It stays the tenant's while it has a handle or anything else
    /// here; then another tenant may get it.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn tenant_id(&self) -> TenantId {
        self.handle().tenant.id()
    }

    /// Returns the salt of sequences: sequences with the same salt share blocks. No other tenant has a
    /// tenant's salt. With the default hash function (`hash.function = "keyed"`) this holds against
    /// tenants that choose tokens and `extra` as they like.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/embed.rs)
    #[must_use]
    pub fn salt(&self, model: &str, lora: &str, extra: &[&[u8]]) -> Salt {
        SaltParts { tenant: self.name.as_deref().unwrap_or_default(), model, lora, extra }.salt(self.hasher())
    }

    /// Returns the tenant's use of a tier, over all groups.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn usage(&self, tier: Tier) -> TenantUse {
        self.inner().usage(self.handle().tenant.id(), tier)
    }

    /// Purges all of the tenant's blocks from all tiers. It begins at once, and goes on if the answer is
    /// dropped, or comes at its deadline. Until it is over the tenant gets no blocks, and none of its
    /// blocks is found.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    ///
    /// # Errors
    /// [`PurgeError`], if no purge begins.
    pub fn purge(&self, options: Purge) -> Answer<Result<Purged, PurgeError>> {
        let Some(name) = self.tenant_name() else { return Answer::now(Err(PurgeError::NoTenant)) };
        let span = request_span::purge(name, options.zero);
        let begun = span.in_scope(|| purge::purge(self.inner(), self.tenant_id(), options));
        let answered = match begun {
            Ok(answered) => answered,
            Err(refused) => return Answer::now(Err(refused)),
        };
        Answer::later(async move {
            let purged = answered.instrument(span.clone()).await.map_err(|_| PurgeError::Closed)?;
            request_span::purged(&span, &purged);
            Ok(purged)
        })
    }
}
