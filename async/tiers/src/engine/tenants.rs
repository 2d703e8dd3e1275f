//! Tenants: who shares a manager with others, and neither their blocks nor more than a part of each tier.
//!
//! ```text
//!   tenant "acme" = 3 ── salt ──► hashes that no other tenant has                     (sharing: the hashes')
//!                     ── calls ─► handles, entries of the line and transfers carry 3
//!                     ── tags ──► of each block in each tier: whose it is             (quota and purge: by tag)
//! ```
//!
//! | file | what |
//! |---|---|
//! | `names.rs` | names and numbers, in this process and over restarts |
//! | `operations/unused.rs` | of which tenants nothing is left |
//! | `operations/quota.rs` | at its quota a tenant gives up its own blocks first, and waits for its own only |
//! | `operations/waiting_for_quota.rs` | who waits for that, and is in no line; why nobody waits in a circle |
//! | `state/shares.rs` | what of a run each tenant has |
//! | `operations/purge.rs`, `operations/sweep.rs`, `calls/purge.rs`, `calls/erase.rs` | all of a tenant's blocks leave, with proof; their bytes overwritten |
//!
//! Tags and credits of a tier are the core's [`Owners`].
//!
//! A tenant's [`Tiers`](crate::Tiers) are asked for that tenant; so no call needs to be told whose it is.
//! Calls without a tenant have the number [`TenantId::NOBODY`](crate::TenantId::NOBODY), which has no quota
//! and is not purged. Where hashes are equal, blocks are shared, whoever asks: a tenant's hashes begin with
//! its [`salt`](crate::Tiers::salt).
//!
//! Invariants
//! - I1: a number is one name's as long as anything of its tenant is left: a handle, a block in any tier, a
//!   transfer. Then it may become another's (`names.rs`).
//! - I2: a block is of who registered it first, in each tier; a copy of it is of the same tenant. What a
//!   restart has found on the disk is of whom it was written for: it counts for its quota, and is purged,
//!   whether anybody has used it since or not; but for owners that no number is left for (`names.rs`).
//! - I3: a block of nobody's that a tenant uses is the tenant's, in this process. Its record says what it was
//!   written as, and so does a restart.

use crate::engine::names::Names;
use crate::engine::rules::Quotas;
use crate::tier::Tier;
use kvstrata_core::owners::Owners;
use kvstrata_core::waiting::Waiting;
use std::sync::Arc;

/// Who they are, and who is being purged.
#[derive(Debug)]
pub(crate) struct Tenants {
    pub(crate) names: Names,
    /// Purges under way, which wait for what is registered or given back: who must know asks under the lock
    /// only if there are any.
    pub(crate) purges: Waiting,
}

impl Tenants {
    /// Those that the rules name, in their order: limits are by that.
    pub(crate) fn of(quotas: &Quotas) -> Tenants {
        let named = quotas.named.iter().map(|(name, _)| name.as_str());
        Tenants { names: Names::new(quotas.tenants, named), purges: Waiting::new() }
    }

    /// Whether anyone is being purged. Asked after a registration it misses none that has not seen the blocks
    /// (`Waiting`, I1).
    pub(crate) fn purging(&self) -> bool {
        self.purges.anyone()
    }
}

/// The owners of a tier, by its quotas.
pub(crate) fn owners(quotas: &Quotas, tier: Tier, blocks: usize) -> Arc<Owners> {
    let of = tier.index().min(Tier::Below(0).index());
    let part = quotas.parts[of];
    let named = quotas.named.iter().take(quotas.tenants).map(|(_, parts)| parts[of].unwrap_or(part));
    Owners::new(blocks, quotas.tenants + 1, named, part)
}

/// What to do about a quota of so many blocks of the device.
pub(crate) fn more_room(quota: usize) -> &'static str {
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
