//! Whose each block of a tier is, and how many blocks each tenant has there: credits.
//!
//! ```text
//!   tags     by block: the tenant that registered it last
//!   used     by tenant: credits    ◄─ take ── before a block is allocated, or a place below is taken for a copy
//!                                  ── give ─► a block that was not registered is free; a registration has ended (the pool tells)
//! ```
//!
//! A credit is for a block, or one to come: it goes from the allocation to the registration, and ends with
//! that. So a tenant never has more than its quota, however many threads allocate, and no count has to be
//! made of blocks.
//!
//! Who gives the credit of a registered block back is the pool, by [`Ends`]. Where the pool does not tell
//! (slots of a disk, which leave it with their volume) it is whoever exchanges the tag: see I4.
//!
//! Invariants
//! - I1: `used` of a tenant is its blocks that are owned by handles, by the line and by flights up, those
//!   registered, and those that flights down are to register; in each tier.
//! - I2: a tag is written before its block is registered, by the block's owner, whoever that is; so of what
//!   is registered, or was until its owner has it, the tag is that registration's. Of other blocks it says
//!   nothing.
//! - I3: no take brings `used` above the quota. A claim may: a block of nobody's that a tenant has used, or
//!   of the tenant's that a restart has found.
//! - I4: of a slot whose pool does not tell, who exchanges a tag that counts for one that does not, or for
//!   another's, gives its credit back; nobody else does. So it is given back once, whoever comes beside.
//! - I5: who reads a state finds the blocks by which it differs from an earlier one: a look that found none
//!   is made again.
//!
//! # Orderings
//! Tags and credits are Relaxed: a tag is ordered by its block's transitions, as a parent is, or stands for
//! itself (I4); a credit publishes nothing, and who waits for credits is told by the fences of
//! [`Waiting`](crate::waiting::Waiting), as with blocks. Stirs and ends are Release, and a state is read with
//! Acquire (I5): otherwise a look could see the count of a release and not the release, nor the cursor that
//! was pulled back for it, and who remembers that state would not look again.

use crate::events::EventSink;
use crate::hash::SequenceHash;
use crate::id::{BlockId, BlockRef};
use crate::sync::{Acquire, AtomicU16, AtomicU32, AtomicU64, Relaxed, Release, site, skipped};
use alloc::boxed::Box;
use alloc::sync::Arc;

/// The most numbers of tenants, with that of blocks of no tenant: a tag has 15 bits for it.
pub const MAX_TENANTS: usize = 1 << 15;

/// A tenant's number, below [`MAX_TENANTS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TenantId(pub u16);

impl TenantId {
    /// Whose blocks are those that no tenant has asked for.
    pub const NOBODY: TenantId = TenantId(0);
}

const NO_LIMIT: u32 = u32::MAX;
/// In a tag: whose it is, and the credit was given back before the registration ended.
const SPENT: u16 = 1 << 15;
const _: () = assert!(MAX_TENANTS <= SPENT as usize);

/// Owners of the blocks of one tier of one group.
#[derive(Debug)]
pub struct Owners {
    tags: Box<[AtomicU16]>,
    used: Box<[AtomicU32]>,
    /// By tenant: how often one of its blocks was let go of, which may be a victim since.
    stirs: Box<[AtomicU32]>,
    /// Registrations that have ended.
    ended: AtomicU32,
    /// Of the tenants that the settings name, in their order.
    limits: Box<[u32]>,
    /// Of all others.
    limit: u32,
    /// Losses of volumes that the tags know of.
    losses: AtomicU64,
}

/// Part of a tier's blocks; all of them is no limit.
fn limit(part: f64, blocks: usize) -> u32 {
    if part >= 1.0 { NO_LIMIT } else { (part * blocks as f64) as u32 }
}

impl Owners {
    /// So many blocks of no tenant, and so many numbers of tenants, at most [`MAX_TENANTS`]. Parts of the tier that the tenants from 1 on
    /// may have, in their order, and that all others may: from 0 to 1, rounded down to blocks; 1 is no limit. Shared by its users and
    /// the pool's [`Ends`].
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

    /// Who registered a block that is registered, or that is in the hands of who has ended that (I2).
    #[must_use]
    pub fn owner(&self, block: BlockId) -> TenantId {
        TenantId(self.tags.get(block.index()).map_or(0, |tag| tag.load(Relaxed) & !SPENT))
    }

    /// For the owner of a block that is about to be registered, or a holder of one that is withdrawn: nobody's, its end gives no credit
    /// back.
    pub fn note(&self, block: BlockId, tenant: TenantId) {
        if let Some(tag) = self.tags.get(block.index()) {
            tag.store(tenant.0, Relaxed);
        }
    }

    /// The blocks that a tenant may have at most; none: as many as there are.
    #[must_use]
    pub fn limit(&self, tenant: TenantId) -> Option<usize> {
        let place = usize::from(tenant.0).checked_sub(1)?;
        let limit = self.limits.get(place).copied().unwrap_or(self.limit);
        (limit != NO_LIMIT).then_some(limit as usize)
    }

    /// The blocks that a tenant has, or is about to (I1).
    #[must_use]
    pub fn used(&self, tenant: TenantId) -> usize {
        self.used.get(usize::from(tenant.0)).map_or(0, |used| used.load(Relaxed) as usize)
    }

    /// A block has been let go of. Before whoever waits is looked after: what is found then is known to be new (I5).
    pub fn stir(&self, block: BlockId) {
        let tenant = usize::from(self.owner(block).0);
        if let Some(stirs) = self.stirs.get(tenant).filter(|_| tenant > 0) {
            // Release: publishes the release before it; pairs with the Acquire in `state_of`.
            stirs.fetch_add(1, site!("owners_stir_relaxed", Release));
        }
    }

    /// Differs from before if a tenant may have other victims, or other credits. `linked`: a parent may be one since its child has gone.
    /// To be read before one looks for them (I5).
    #[must_use]
    pub fn state_of(&self, tenant: TenantId, linked: bool) -> [u32; 3] {
        // Acquire, both: pair with the Releases in `stir` and `removed`: the look sees what was told of.
        let stirs = |stirs: &AtomicU32| stirs.load(site!("owners_state_relaxed", Acquire));
        let stirs = self.stirs.get(usize::from(tenant.0)).map_or(0, stirs);
        let ended = if linked { self.ended.load(site!("owners_state_ended_relaxed", Acquire)) } else { 0 };
        [self.used(tenant) as u32, stirs, ended]
    }

    /// Takes credits for so many blocks, all or none (I3). Nobody needs none.
    #[must_use]
    pub fn take(&self, tenant: TenantId, blocks: usize) -> bool {
        if tenant == TenantId::NOBODY {
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

    /// Gives credits of so many blocks back.
    pub fn give(&self, tenant: TenantId, blocks: usize) {
        if tenant != TenantId::NOBODY
            && let Some(used) = self.used.get(usize::from(tenant.0))
        {
            used.fetch_sub(blocks as u32, Relaxed);
        }
    }

    /// A block of nobody's, registered and held, that a tenant uses, or one of the tenant's that a restart has found: it is the tenant's from now on.
    pub fn claim(&self, block: BlockId, tenant: TenantId) {
        let (Some(tag), Some(used)) = (self.tags.get(block.index()), self.used.get(usize::from(tenant.0)))
        else {
            return;
        };
        if tenant != TenantId::NOBODY && exchange(tag, 0, tenant.0, skipped!("owners_claim_no_exchange")) {
            used.fetch_add(1, Relaxed);
        }
    }

    /// Hands a slot of the disk to a tenant, whose credit it takes over; the one of whose block was there is given back. For slots
    /// whose pool does not tell.
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

    /// The [`owner`](Owners::owner), if the block counts as its.
    #[must_use]
    pub fn counted(&self, block: BlockId) -> TenantId {
        let tag = self.tags.get(block.index()).map_or(0, |tag| tag.load(Relaxed));
        TenantId(if tag & SPENT == 0 { tag } else { 0 })
    }

    /// So many volumes have been lost. Whether that is news.
    #[must_use]
    pub fn hear_of(&self, losses: u64) -> bool {
        self.losses.swap(losses, Relaxed) != losses
    }

    /// Gives back the credits of slots that are lost. What is in them stays its tenant's: the volume may be opened again, and a purge says so.
    pub fn give_up(&self, lost: impl Fn(BlockId) -> bool) {
        let blocks = (0..self.tags.len() as u32).map(BlockId);
        blocks
            .filter(|block| self.counted(*block) != TenantId::NOBODY && lost(*block))
            .for_each(|block| self.give_up_one(block));
    }

    /// The same of one slot, which nobody finds any more, though some may hold it.
    pub fn give_up_one(&self, slot: BlockId) {
        let owner = self.counted(slot);
        if let Some(tag) = self.tags.get(slot.index()).filter(|_| owner != TenantId::NOBODY)
            // Handed over meanwhile, its credit has been given back (I4).
            && exchange(tag, owner.0, owner.0 | SPENT, skipped!("owners_give_up_no_exchange"))
        {
            self.give(owner, 1);
        }
    }

    /// Whose tags there are, once a block.
    pub fn all(&self) -> impl Iterator<Item = TenantId> + '_ {
        self.tags.iter().map(|tag| TenantId(tag.load(Relaxed) & !SPENT))
    }

    /// The blocks that have a tenant's tag.
    pub fn tagged(&self, tenant: TenantId) -> impl Iterator<Item = BlockId> + '_ {
        let its = move |(_, tag): &(u32, &AtomicU16)| tag.load(Relaxed) & !SPENT == tenant.0;
        (0..).zip(&self.tags).filter(its).map(|(block, _)| BlockId(block))
    }
}

/// Exchanges a tag, if it is still `from`: whether that was so (I4). `blindly`: a mutation.
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

/// Hears from a pool when a registration has ended: before the block is anybody else's.
#[derive(Debug)]
pub struct Ends(pub Arc<Owners>);

impl EventSink for Ends {
    fn stored(&self, _: BlockRef, _: SequenceHash, _: Option<BlockRef>) {}

    fn removed(&self, block: BlockRef, _: SequenceHash) {
        self.0.give(self.0.owner(block.id), 1);
        // Release: publishes that a parent has a child less; pairs with the Acquire in `state_of`.
        self.0.ended.fetch_add(1, site!("owners_ended_relaxed", Release));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn credits_never_exceed_a_quota_and_claims_may() {
        let owners = Owners::new(10, 4, [0.5, 1.0].into_iter(), 0.19);
        let [half, all, other] = [1, 2, 3].map(TenantId);
        assert_eq!([half, all, other].map(|tenant| owners.limit(tenant)), [Some(5), None, Some(1)]);
        assert_eq!(owners.limit(TenantId::NOBODY), None);
        assert!(owners.take(half, 4) && !owners.take(half, 2) && owners.take(half, 1));
        assert!(owners.take(all, 11) && owners.take(TenantId::NOBODY, 1000));
        assert_eq!([half, all, other, TenantId::NOBODY].map(|tenant| owners.used(tenant)), [5, 11, 0, 0]);
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
    fn the_credits_of_lost_slots_are_given_back_once_and_their_tags_stay() {
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
        assert_eq!([0, 3].map(|slot| owners.counted(BlockId(slot))), [tenant, TenantId::NOBODY]);
        owners.hand_over(BlockId(3), TenantId::NOBODY);
        owners.hand_over(BlockId(0), TenantId::NOBODY);
        assert_eq!((owners.used(tenant), owners.tagged(tenant).count()), (0, 0));
    }
}
