//! The owner of each block of a tier, and the number of blocks that each tenant has there: credits.
//!
//! ```text
//!   tags     by block: the tenant that registered it last
//!   used     by tenant: credits    ◄─ take ── before a block is allocated, or a place below taken for a copy
//!                                  ── give ─► a block that was not registered is freed;
//!                                             a registration has ended (the pool reports it)
//! ```
//!
//! A credit is for a block, or for one to come: it passes from the allocation to the registration, and
//! ends with the registration. So a tenant never has more than its quota, however many threads allocate,
//! and blocks need not be counted.
//!
//! The pool gives the credit of a registered block back, by [`Ends`]. Where the pool does not report ends
//! (slots of a disk, which leave it with their volume), the caller that exchanges the tag does: see I4.
//!
//! Invariants
//! - I1: a tenant's `used` counts, in each tier, its blocks that are owned by handles, by the wait queue
//!   and by onboards in flight, its registered blocks, and those that offloads in flight are to register.
//! - I2: a tag is written before its block is registered, by the block's owner. So the tag of a block
//!   that is registered, or was until its owner got it, is that registration's. Of other blocks the tag
//!   means nothing.
//! - I3: no take brings `used` above the quota. A claim may: of an unowned block that a tenant has used,
//!   or of the tenant's block that a restart has found.
//! - I4: for a slot whose pool does not report ends, the caller that exchanges a counting tag for one
//!   that does not count, or for another tenant's, gives its credit back, and no other caller does. So
//!   it is given back once, whichever calls are concurrent.
//! - I5: a caller that has read a state finds the blocks by which it differs from an earlier one: so a
//!   look that found none is repeated.
//!
//! # Orderings
//! Tags and credits are Relaxed. A tag is ordered by its block's transitions, as a parent is, or stands
//! for itself (I4). A credit publishes nothing; waiters for credits are woken by the fences of
//! [`Waiting`](crate::waiting::Waiting), as with blocks. Stirs and ends are Release, and a state is read
//! with Acquire (I5). Otherwise a look could see the count of a release but not the release, nor the
//! cursor that was pulled back for it; and the caller, remembering that state, would not look again.

use crate::events::EventSink;
use crate::hash::SequenceHash;
use crate::id::{BlockId, BlockRef};
use crate::sync::{Acquire, AtomicU16, AtomicU32, AtomicU64, Relaxed, Release, site, skipped};
use alloc::boxed::Box;
use alloc::sync::Arc;

/// The most tenant numbers, including the one for unowned blocks: a tag has 15 bits for it.
pub const MAX_TENANTS: usize = 1 << 15;

/// A tenant's number, below [`MAX_TENANTS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TenantId(pub u16);

impl TenantId {
    /// The number for blocks without a tenant.
    pub const NONE: TenantId = TenantId(0);
}

const NO_LIMIT: u32 = u32::MAX;
/// In a tag: the tenant's, but the credit was given back before the registration ended.
const SPENT: u16 = 1 << 15;
const _: () = assert!(MAX_TENANTS <= SPENT as usize);

/// Owners of the blocks of one tier of one group.
#[derive(Debug)]
pub struct Owners {
    tags: Box<[AtomicU16]>,
    used: Box<[AtomicU32]>,
    /// By tenant: the number of releases of its blocks, each of which may have made a victim.
    stirs: Box<[AtomicU32]>,
    /// Registrations that have ended.
    ended: AtomicU32,
    /// Limits of the tenants that the settings name, in their order.
    limits: Box<[u32]>,
    /// The limit of each other tenant.
    limit: u32,
    /// Number of lost volumes that the tags reflect.
    losses: AtomicU64,
}

/// Part of a tier's blocks; the whole is no limit.
fn limit(part: f64, blocks: usize) -> u32 {
    if part >= 1.0 { NO_LIMIT } else { (part * blocks as f64) as u32 }
}

impl Owners {
    /// Owners for `blocks` unowned blocks and `tenants` tenant numbers, at most [`MAX_TENANTS`].
    /// `named` are the parts of the tier that the tenants from 1 on may have, in their order, and
    /// `part` is that of each other tenant: from 0 to 1, rounded down to blocks; 1 is no limit. Shared
    /// by its users and the pool's [`Ends`].
    #[must_use]
    pub fn new(blocks: usize, tenants: usize, named: impl Iterator<Item = f64>, part: f64) -> Arc<Owners> {
        let tenants = tenants.min(MAX_TENANTS);
        Arc::new(Owners {
            tags: (0..blocks).map(|_| AtomicU16::new(0)).collect(),
            used: (0..tenants).map(|_| AtomicU32::new(0)).collect(),
            stirs: (0..tenants).map(|_| AtomicU32::new(0)).collect(),
            ended: AtomicU32::new(0),
            limits: named.map(|part| limit(part, blocks)).collect(),
            limit: limit(part, blocks),
            losses: AtomicU64::new(0),
        })
    }

    /// Returns the owner of a registered block, or of one whose registration was ended
    /// by its present owner (I2).
    #[must_use]
    pub fn owner(&self, block: BlockId) -> TenantId {
        TenantId(self.tags.get(block.index()).map_or(0, |tag| tag.load(Relaxed) & !SPENT))
    }

    /// Sets the tenant of a block. Called by the owner of a block that is about to be registered, or by
    /// a holder of a withdrawn one: with no tenant, the end of its registration gives no credit back.
    pub fn note(&self, block: BlockId, tenant: TenantId) {
        if let Some(tag) = self.tags.get(block.index()) {
            tag.store(tenant.0, Relaxed);
        }
    }

    /// The most blocks that a tenant may have; none: no limit.
    #[must_use]
    pub fn limit(&self, tenant: TenantId) -> Option<usize> {
        let place = usize::from(tenant.0).checked_sub(1)?;
        let limit = self.limits.get(place).copied().unwrap_or(self.limit);
        (limit != NO_LIMIT).then_some(limit as usize)
    }

    /// The number of blocks that a tenant has, or is about to have (I1).
    #[must_use]
    pub fn used(&self, tenant: TenantId) -> usize {
        self.used.get(usize::from(tenant.0)).map_or(0, |used| used.load(Relaxed) as usize)
    }

    /// Counts a release of a block. Call it before the waiters are served: the blocks found
    /// then are known to be new (I5).
    pub fn stir(&self, block: BlockId) {
        let tenant = usize::from(self.owner(block).0);
        if let Some(stirs) = self.stirs.get(tenant).filter(|_| tenant > 0) {
            // Release: publishes the release before it; pairs with the Acquire in `state_of`.
            stirs.fetch_add(1, site!("owners_stir_relaxed", Release));
        }
    }

    /// A value that differs from an earlier one if the tenant may have other victims, or other credits.
    /// `linked`: a parent may have become a victim when its child went. Read it before looking for
    /// victims (I5).
    #[must_use]
    pub fn state_of(&self, tenant: TenantId, linked: bool) -> [u32; 3] {
        // Acquire, both: pair with the Releases in `stir` and `removed`: the look sees the counted changes.
        let stirs = |stirs: &AtomicU32| stirs.load(site!("owners_state_relaxed", Acquire));
        let stirs = self.stirs.get(usize::from(tenant.0)).map_or(0, stirs);
        let ended = if linked { self.ended.load(site!("owners_state_ended_relaxed", Acquire)) } else { 0 };
        [self.used(tenant) as u32, stirs, ended]
    }

    /// Takes credits for `blocks` blocks, all or none (I3). Without a tenant none are needed.
    #[must_use]
    pub fn take(&self, tenant: TenantId, blocks: usize) -> bool {
        if tenant == TenantId::NONE {
            return true;
        }
        let Some(used) = self.used.get(usize::from(tenant.0)) else { return false };
        // No tier has more blocks than that.
        let Ok(blocks) = u32::try_from(blocks) else { return false };
        let Some(limit) = self.limit(tenant) else {
            used.fetch_add(blocks, Relaxed);
            return true;
        };
        let more = |used: u32| used.checked_add(blocks).filter(|used| *used as usize <= limit);
        if skipped!("owners_take_no_exchange") {
            let taken = more(used.load(Relaxed));
            taken.into_iter().for_each(|taken| used.store(taken, Relaxed));
            return taken.is_some();
        }
        used.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Gives back the credits of `blocks` blocks.
    pub fn give(&self, tenant: TenantId, blocks: usize) {
        if tenant != TenantId::NONE
            && let Some(used) = self.used.get(usize::from(tenant.0))
        {
            used.fetch_sub(blocks as u32, Relaxed);
        }
    }

    /// Assigns a block to a tenant from now on: an unowned, registered and held block that the tenant
    /// uses, or one of the tenant's that a restart has found.
    pub fn claim(&self, block: BlockId, tenant: TenantId) {
        let (Some(tag), Some(used)) = (self.tags.get(block.index()), self.used.get(usize::from(tenant.0)))
        else {
            return;
        };
        if tenant != TenantId::NONE && exchange(tag, 0, tenant.0, skipped!("owners_claim_no_exchange")) {
            used.fetch_add(1, Relaxed);
        }
    }

    /// Hands a slot of the disk to a tenant, whose credit it takes over; the credit of the slot's
    /// previous owner is given back. For slots whose pool does not report ends.
    pub fn hand_over(&self, slot: BlockId, tenant: TenantId) {
        if let Some(tag) = self.tags.get(slot.index()) {
            let before = if skipped!("owners_hand_no_exchange") {
                let before = tag.load(Relaxed);
                tag.store(tenant.0, Relaxed);
                before
            } else {
                tag.swap(tenant.0, Relaxed)
            };
            self.give(TenantId(before & !SPENT), usize::from(before & SPENT == 0));
        }
    }

    /// The [`owner`](Owners::owner), if it has a credit for the block.
    #[must_use]
    pub fn counted(&self, block: BlockId) -> TenantId {
        let tag = self.tags.get(block.index()).map_or(0, |tag| tag.load(Relaxed));
        TenantId(if tag & SPENT == 0 { tag } else { 0 })
    }

    /// Stores the number of volumes lost. Returns whether it changed.
    #[must_use]
    pub fn hear_of(&self, losses: u64) -> bool {
        self.losses.swap(losses, Relaxed) != losses
    }

    /// Gives back the credits of lost slots. Their content stays their tenants': the volume may be
    /// opened again, and a purge reports it.
    pub fn give_up(&self, lost: impl Fn(BlockId) -> bool) {
        let blocks = (0..self.tags.len() as u32).map(BlockId);
        blocks
            .filter(|block| self.counted(*block) != TenantId::NONE && lost(*block))
            .for_each(|block| self.give_up_one(block));
    }

    /// The same for one slot, which can no longer be found, though it may be held.
    pub fn give_up_one(&self, slot: BlockId) {
        let owner = self.counted(slot);
        if let Some(tag) = self.tags.get(slot.index()).filter(|_| owner != TenantId::NONE)
            // If it was handed over meanwhile, its credit has been given back (I4).
            && exchange(tag, owner.0, owner.0 | SPENT, skipped!("owners_give_up_no_exchange"))
        {
            self.give(owner, 1);
        }
    }

    /// The tenant of each block, by block number.
    pub fn all(&self) -> impl Iterator<Item = TenantId> + '_ {
        self.tags.iter().map(|tag| TenantId(tag.load(Relaxed) & !SPENT))
    }

    /// The blocks that have a tenant's tag.
    pub fn tagged(&self, tenant: TenantId) -> impl Iterator<Item = BlockId> + '_ {
        let its = move |(_, tag): &(u32, &AtomicU16)| tag.load(Relaxed) & !SPENT == tenant.0;
        (0..).zip(&self.tags).filter(its).map(|(block, _)| BlockId(block))
    }
}

/// Exchanges a tag if it is still `from`. Returns whether it was (I4). `blindly`: a mutation.
fn exchange(tag: &AtomicU16, from: u16, to: u16, blindly: bool) -> bool {
    if blindly {
        let same = tag.load(Relaxed) == from;
        if same {
            tag.store(to, Relaxed);
        }
        return same;
    }
    tag.compare_exchange(from, to, Relaxed, Relaxed).is_ok()
}

/// Receives the ends of a pool's registrations: before the block gets another owner.
#[derive(Debug)]
pub struct Ends(pub Arc<Owners>);

impl EventSink for Ends {
    fn stored(&self, _: BlockRef, _: SequenceHash, _: Option<BlockRef>) {}

    fn removed(&self, block: BlockRef, _: SequenceHash) {
        self.0.give(self.0.owner(block.id), 1);
        // Release: publishes that a parent has one child less; pairs with the Acquire in `state_of`.
        self.0.ended.fetch_add(1, site!("owners_ended_relaxed", Release));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn owners_credits_stay_in_quota_and_claims_may_exceed_it() {
        let owners = Owners::new(10, 4, [0.5, 1.0].into_iter(), 0.19);
        let [half, all, other] = [1, 2, 3].map(TenantId);
        assert_eq!([half, all, other].map(|tenant| owners.limit(tenant)), [Some(5), None, Some(1)]);
        assert_eq!(owners.limit(TenantId::NONE), None);
        assert!(owners.take(half, 4) && !owners.take(half, 2) && owners.take(half, 1));
        assert!(owners.take(all, 11) && owners.take(TenantId::NONE, 1000));
        assert_eq!([half, all, other, TenantId::NONE].map(|tenant| owners.used(tenant)), [5, 11, 0, 0]);
        owners.claim(BlockId(3), half);
        owners.claim(BlockId(3), all);
        assert_eq!((owners.owner(BlockId(3)), owners.used(half), owners.used(all)), (half, 6, 11));
        assert!(!owners.take(all, 1 << 32) && !owners.take(half, usize::MAX), "more than any tier has");
        assert_eq!((owners.used(half), owners.used(all)), (6, 11));
        owners.give(half, 1);
        assert!(!owners.take(half, 1), "still at its quota");
        owners.hand_over(BlockId(3), other);
        assert_eq!((owners.used(half), owners.tagged(other).collect::<Vec<_>>()), (4, vec![BlockId(3)]));
        assert!(owners.take(half, 1));
    }

    #[test]
    fn owners_give_up_returns_credits_once_and_keeps_tags() {
        let owners = Owners::new(4, 2, [0.5].into_iter(), 1.0);
        let tenant = TenantId(1);
        assert!(owners.take(tenant, 2) && !owners.take(tenant, 1));
        [0, 3].into_iter().for_each(|slot| owners.note(BlockId(slot), tenant));
        assert!(owners.hear_of(1) && !owners.hear_of(1));
        for _ in 0..2 {
            owners.give_up(|slot| slot.0 > 1);
        }
        assert_eq!((owners.used(tenant), owners.tagged(tenant).count()), (1, 2));
        assert_eq!([0, 3].map(|slot| owners.owner(BlockId(slot))), [tenant; 2]);
        assert_eq!([0, 3].map(|slot| owners.counted(BlockId(slot))), [tenant, TenantId::NONE]);
        owners.hand_over(BlockId(3), TenantId::NONE);
        owners.hand_over(BlockId(0), TenantId::NONE);
        assert_eq!((owners.used(tenant), owners.tagged(tenant).count()), (0, 0));
    }
}
