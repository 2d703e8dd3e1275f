//! Tenants: users that share a manager. None finds the others' blocks, or has more than its part of
//! a tier.
//!
//! ```text
//!   tenant "acme" = 3 ── salt ──► hashes that no other tenant has                 (sharing: by hash)
//!                     ── calls ─► handles, entries of wait queues and transfers carry 3
//!                     ── tags ──► each block of each tier has its owner's number   (quota and purge: by tag)
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `names.rs` | names and numbers, in this process and over restarts |
//! | `operations/unused.rs` | finds tenants that have nothing left |
//! | `operations/quota.rs` | at its quota a tenant gives up its own blocks first, and waits only for these |
//! | `operations/waiting_for_quota.rs` | requests that wait for credits; why no circle of waits arises |
//! | `state/shares.rs` | how many blocks of a run each tenant has |
//! | `operations/purge.rs`, `operations/sweep.rs` | all of a tenant's blocks leave |
//! | `calls/purge.rs`, `calls/erase.rs` | the task of a purge, and its proof; bytes overwritten |
//!
//! Tags and credits of a tier are the core's [`Owners`].
//!
//! Calls on a tenant's [`Tiers`](crate::Tiers) are for that tenant, so no call names it. Calls without a
//! tenant have the number [`TenantId::NONE`](crate::TenantId::NONE), which has no quota and is not
//! purged. Blocks with equal hashes are shared, whichever tenant asks: so a tenant's hashes begin with
//! its [`salt`](crate::Tiers::salt).
//!
//! Invariants
//! - I1: a number stands for one name as long as anything of its tenant is left: a handle, a block in any
//!   tier, a transfer. Then it may become another name's (`names.rs`).
//! - I2: in each tier, a block belongs to the tenant that registered it first; a copy of it belongs to
//!   the same tenant. A block that a restart has found on the disk belongs to the tenant that it was
//!   written for: it counts for that tenant's quota, and is purged, whether it has been used since or
//!   not. Exception: blocks of owners for which no number is left (`names.rs`).
//! - I3: an unowned block that a tenant uses becomes the tenant's, in this process. Its record keeps the
//!   owner that it was written with, and a restart finds that one.

use crate::engine::names::Names;
use crate::engine::rules::Quotas;
use crate::tier::Tier;
use kvstrata_core::owners::Owners;
use kvstrata_core::waiting::Waiting;
use std::sync::Arc;

/// Tenants by name and number, and those that are being purged.
#[derive(Debug)]
pub(crate) struct Tenants {
    pub(crate) names: Names,
    /// Purges under way, which wait for blocks to be registered or given back. A thread takes the lock to
    /// learn of them only if there are any.
    pub(crate) purges: Waiting,
}

impl Tenants {
    /// Gives the tenants that the rules name the first numbers, in order: limits are by number.
    pub(crate) fn of(quotas: &Quotas) -> Tenants {
        let named = quotas.named.iter().map(|(name, _)| name.as_str());
        Tenants { names: Names::new(quotas.tenants, named), purges: Waiting::new() }
    }

    /// Whether any tenant is being purged. Asked after a registration, it misses no purge that has not
    /// seen the blocks (`Waiting`, I1).
    pub(crate) fn purging(&self) -> bool {
        self.purges.anyone()
    }
}

/// Makes the owners of a tier, by its quotas.
pub(crate) fn owners(quotas: &Quotas, tier: Tier, blocks: usize) -> Arc<Owners> {
    let of = tier.index().min(Tier::Below(0).index());
    let part = quotas.parts[of];
    let named = quotas.named.iter().take(quotas.tenants).map(|(_, parts)| parts[of].unwrap_or(part));
    Owners::new(blocks, quotas.tenants + 1, named, part)
}

/// Remedy at a quota of so many blocks of the device.
pub(crate) fn more_room(quota: usize) -> &'static str {
    match quota {
        // A request asks for at least one block.
        0 => "raise its quota to at least one block: [[tenant]] device, else quota.device",
        _ => "request fewer, or raise its quota: [[tenant]] device, else quota.device",
    }
}

/// The blocks that a tenant has of a tier, and its quota there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantUse {
    /// Blocks that it has, or is about to have.
    pub blocks: usize,
    /// Its quota in blocks; none: no limit but the tier's.
    pub quota: Option<usize>,
}
