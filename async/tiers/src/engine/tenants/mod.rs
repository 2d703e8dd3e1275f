//! Tenants: who shares a manager with others, and neither their blocks nor more than a part of each tier.
//!
//! ```text
//!   tenant "acme" = 3 ── salt ──► hashes that no other tenant has                     (sharing: the hashes')
//!                     ── calls ─► handles, entries of the line and flights carry 3
//!                     ── tags ──► of each block in each tier: whose it is             (quota and purge: by tag)
//! ```
//!
//! | file | what |
//! |---|---|
//! | `names.rs` | names and numbers, in this process and over restarts |
//! | `unused.rs` | of which tenants nothing is left |
//! | `quota.rs` | at its quota a tenant gives up its own blocks first, and waits for its own only |
//! | `held.rs` | who waits for that, and is in no line; why nobody waits in a circle |
//! | `shares.rs` | what of a run each tenant has |
//! | `purge.rs`, `purge/`, `erase.rs` | all of a tenant's blocks leave, with proof; their bytes overwritten |
//!
//! Tags and credits of a tier are the core's [`Owners`].
//!
//! A tenant's [`Tiers`] are asked for that tenant; so no call needs to be told whose it is. Calls without a tenant have the number
//! [`TenantId::NOBODY`], which has no quota and is not purged. Where hashes are equal, blocks are shared, whoever asks: a tenant's hashes begin
//! with its [`salt`](Tiers::salt).
//!
//! Invariants
//! - I1: a number is one name's as long as anything of its tenant is left: a handle, a block in any tier, a transfer. Then it may become
//!   another's (`names.rs`).
//! - I2: a block is of who registered it first, in each tier; a copy of it is of the same tenant. What a restart has found on the disk is of
//!   whom it was written for: it counts for its quota, and is purged, whether anybody has used it since or not; but for owners that no number
//!   is left for (`names.rs`).
//! - I3: a block of nobody's that a tenant uses is the tenant's, in this process. Its record says what it was written as, and so does a restart.

mod erase;
mod held;
mod names;
mod purge;
mod quota;
mod shares;
mod unused;

pub use kvstrata_core::TenantId;
pub use purge::{Purge, PurgeError, Purged, PurgedTier};

pub(super) use erase::Piece;
pub(super) use held::Held;
pub(super) use kvstrata_core::owners::{Ends, Owners};
use names::Names;
pub(super) use names::TenantHandle;
pub(super) use purge::Purges;
pub(super) use quota::OwnLooks;
pub(super) use shares::Shares;

use super::Tiers;
use super::asked;
use super::inner::{INHERITED, Inner};
use super::rules::Quotas;
use crate::tier::Tier;
use kvstrata_core::hash::{Salt, SaltParts};
use kvstrata_core::waiting::Waiting;
use std::sync::Arc;
use tracing::Instrument;

/// Why there is no such tenant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TenantError {
    /// A name is needed.
    #[error("a tenant's name is empty; the manager's own calls are nobody's")]
    Empty,
    /// Each has a number.
    #[error(
        "tenant {name:?} would be one more than quota.tenants = {most}, and each of those has a handle, blocks or transfers; purge one \
         and drop its handles, or raise quota.tenants"
    )]
    TooMany {
        /// Asked for.
        name: String,
        /// The setting.
        most: usize,
    },
    /// This process was forked from the manager's.
    #[error("{INHERITED}")]
    Inherited,
}

/// Who they are, and who is being purged.
#[derive(Debug)]
pub(super) struct Tenants {
    pub(super) names: Names,
    /// Purges under way, which wait for what is registered or given back: who must know asks under the lock only if there are any.
    pub(super) purges: Waiting,
}

impl Tenants {
    /// Those that the rules name, in their order: limits are by that.
    pub(super) fn of(quotas: &Quotas) -> Tenants {
        let named = quotas.named.iter().map(|(name, _)| name.as_str());
        Tenants { names: Names::new(quotas.tenants, named), purges: Waiting::new() }
    }

    /// Whether anyone is being purged. Asked after a registration it misses none that has not seen the blocks (`Waiting`, I1).
    pub(super) fn purging(&self) -> bool {
        self.purges.anyone()
    }
}

/// The owners of a tier, by its quotas.
pub(super) fn owners(quotas: &Quotas, tier: Tier, blocks: usize) -> Arc<Owners> {
    let part = quotas.parts[tier as usize];
    let named =
        quotas.named.iter().take(quotas.tenants).map(|(_, parts)| parts[tier as usize].unwrap_or(part));
    Owners::new(blocks, quotas.tenants + 1, named, part)
}

/// What to do about a quota of so many blocks of the device.
pub(super) fn more_room(quota: usize) -> &'static str {
    match quota {
        // Nobody can ask for fewer than one.
        0 => {
            "give it a part that makes at least one block: the device of its [[tenant]], or quota.device where it has none of its own"
        }
        _ => {
            "ask for fewer, or raise its quota: the device of its [[tenant]], or quota.device where it has none of its own"
        }
    }
}

/// What a tenant has of a tier, and may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantUse {
    /// Blocks that it has, or is about to.
    pub blocks: usize,
    /// Its quota in blocks; none: no limit but the tier's.
    pub quota: Option<usize>,
}

impl Tiers {
    /// The same tiers, asked by a tenant: what is asked for by them is the tenant's, who is known by this name from now on. At its quota of the
    /// device a tenant gives up its own blocks that are least worth, and waits for its own only.
    ///
    /// At most `quota.tenants` are known at once: when there are so many, those are forgotten of whom nothing is left, no handle, no block in
    /// any tier and no transfer. Tenants that the settings name are never forgotten.
    ///
    /// # Errors
    /// [`TenantError`].
    pub fn tenant(&self, name: &str) -> Result<Tiers, TenantError> {
        if self.inner.is_inherited() {
            return Err(TenantError::Inherited);
        }
        let unused = |tenants| self.inner.of_whom_nothing_is_left(tenants);
        let (tenant, name) = self.inner.tenants.names.intern(name, unused)?;
        Ok(Tiers { tenant, name: Some(name), ..self.clone() })
    }

    /// The name of the tenant that asks; none: the calls are no tenant's.
    #[must_use]
    pub fn tenant_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The tenant's number here, while it has a handle or anything else here; then another tenant may get it.
    #[must_use]
    pub fn tenant_id(&self) -> TenantId {
        self.tenant.id()
    }

    /// The salt of sequences: those that share it share blocks. A tenant's no other tenant has. With the default hash function
    /// (`hash.function = "keyed"`) this holds against tenants that choose tokens and `extra` as they like.
    #[must_use]
    pub fn salt(&self, model: &str, lora: &str, extra: &[&[u8]]) -> Salt {
        SaltParts { tenant: self.name.as_deref().unwrap_or_default(), model, lora, extra }.salt(self.hasher())
    }

    /// What the tenant has of a tier, over all groups.
    #[must_use]
    pub fn usage(&self, tier: Tier) -> TenantUse {
        self.inner.usage(self.tenant.id(), tier)
    }

    /// Purges all of the tenant's blocks from all tiers. Begins when it is first polled, and goes on if the future is dropped, or has answered at its
    /// deadline. Until it is over the tenant gets no blocks, and none of its own is found.
    ///
    /// # Errors
    /// [`PurgeError`].
    pub async fn purge(&self, options: Purge) -> Result<Purged, PurgeError> {
        let Some(name) = self.tenant_name() else { return Err(PurgeError::NoTenant) };
        let span = asked::purge(name, options.zero);
        let purged = purge::purge(&self.inner, self.tenant.id(), options).instrument(span.clone()).await?;
        asked::purged(&span, &purged);
        Ok(purged)
    }
}

impl Inner {
    /// What a tenant has of a tier, over all groups.
    pub(super) fn usage(&self, tenant: TenantId, tier: Tier) -> TenantUse {
        let owners = self.stacks.iter().filter_map(|stack| stack.owners(tier));
        owners.fold(TenantUse::default(), |so_far, owners| TenantUse {
            blocks: so_far.blocks + owners.used(tenant),
            quota: owners.limit(tenant).map(|limit| so_far.quota.unwrap_or(0) + limit).or(so_far.quota),
        })
    }
}
