//! A group: the tiers of one group of layers, books and bytes.
//!
//! ```text
//!   device   pool ── parents          blocks of the device, which the mover reaches
//!   host     pool ── parents          blocks 0 … h-1 of the host memory     ┐ one arena
//!   staging  a list of free ones      blocks h … h+s-1 of it                ┘
//!   lower    a list of ports, each with its own pool
//! ```
//!
//! Invariants
//! - I1: block `b` of a pool is block `b` of its memory.
//! - I2: what a pool has registered has its bytes: of the device they have arrived, of the host they are
//!   sealed too.

use crate::engine::lower::LowerTier;
use crate::engine::needs::Needs;
use crate::sketch::Sketch;
use crate::state::{Effects, GroupId, Have};
use crate::tier::Tier;
use crate::transfer::{DeviceMover, HostMemory};
use kvstrata_core::classes::{Classes, below};
use kvstrata_core::owners::Owners;
use kvstrata_core::{
    Ages, BlockId, BlockPool, BlockRef, DevicePort, ImmutableBlock, Parents, Priority, SequenceHash, TenantId,
};
use kvstrata_ffi::disk::{Name, OwnerId};
use std::ops::Range;
use std::sync::Arc;

/// When a transfer's source was last used.
pub(crate) fn last_used(tier_pool: &TierPool, source: Have, now: u64) -> u64 {
    match source {
        Have::Owned(block) => tier_pool.ages.used(block, now),
        // By whoever holds it.
        Have::Held(_) => now,
        Have::Leased(block) => now.saturating_sub(tier_pool.ages.idle(block, now)),
    }
}

/// Lets go of what was held or leased.
pub(crate) fn let_go(tier_pool: &TierPool, have: Have, now: u64) {
    match have {
        Have::Held(block) => tier_pool.release(block, now),
        Have::Leased(block) => tier_pool.end_lease(block),
        Have::Owned(block) => _ = tier_pool.pool.give_back_ids([block]),
    }
}

/// A tier's books.
pub(crate) fn pool_of(group: &GroupTiers, tier: Tier) -> &TierPool {
    match (tier, &group.host) {
        (Tier::Host, Some(host)) => host,
        _ => &group.device,
    }
}

/// Whether the tier below has a block.
pub(crate) fn is_below(group: &GroupTiers, tier: Tier, hash: SequenceHash) -> bool {
    match tier {
        Tier::Device => group.is_below(hash),
        _ => group.all_lower_contain(hash),
    }
}

/// A tier's books.
pub(crate) struct TierPool {
    pool: BlockPool,
    ages: Ages,
    owners: Arc<Owners>,
    parents: Parents,
    classes: Classes,
    linked: bool,
    /// Whether what was copied ahead leaves first (`ready.rs`).
    ahead_first: bool,
}

impl TierPool {
    /// `linked`: whether blocks are registered with their parents, so that no policy evicts a parent before
    /// its children. Where nothing else is to be had, and somebody waits, parents of held blocks leave all
    /// the same ([`Traffic::evict`](crate::state::Traffic::evict)).
    pub(crate) fn new(pool: BlockPool, owners: Arc<Owners>, linked: bool, ahead_first: bool) -> TierPool {
        let blocks = pool.capacity();
        let (ages, parents, classes) = (Ages::new(blocks as u32), Parents::new(blocks), Classes::new(blocks));
        TierPool { pool, ages, owners, parents, classes, linked, ahead_first }
    }

    pub(crate) fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// How long blocks have been idle.
    pub(crate) fn ages(&self) -> &Ages {
        &self.ages
    }

    /// Whose blocks are, and credits.
    pub(crate) fn owners(&self) -> &Owners {
        &self.owners
    }

    /// The name of a block that was just evicted, or is held; whose it is, is added when it is written to a
    /// tier below.
    pub(crate) fn name(&self, block: BlockId, hash: SequenceHash) -> Name {
        Name { hash, parent: self.parents.get(block), owner: OwnerId::NOBODY }
    }

    /// Notes the parent and the owner of a block that is about to be registered, of no class.
    pub(crate) fn note(&self, block: BlockId, parent: Option<SequenceHash>, tenant: TenantId) {
        self.parents.set(block, parent);
        self.owners.note(block, tenant);
        self.classes.set(block, Priority::Normal);
    }

    /// The class for eviction of a block that was just evicted, or is held.
    pub(crate) fn class(&self, block: BlockId) -> Priority {
        self.classes.get(block)
    }

    /// Whether no block has been given a class.
    pub(crate) fn are_of_one_class(&self) -> bool {
        self.classes.are_normal()
    }

    /// Gives a block a class for eviction.
    pub(crate) fn classify(&self, held: &ImmutableBlock<'_>, class: Priority) {
        if held.priority() != class {
            held.set_priority(class);
        }
        self.classes.set(held.id(), class);
    }

    /// See [`StackParts::ahead_first`](crate::StackParts::ahead_first).
    pub(crate) fn ahead_first(&self) -> bool {
        self.ahead_first
    }

    /// Whether parents are to be looked up at registration.
    pub(crate) fn links(&self) -> bool {
        self.linked
    }

    /// Registers an owned block whose bytes are there (I2), with its tenant's credit and its class, and gives
    /// a reference: to it, or to the one of its hash that was there, and then the block is free. None if the
    /// pool say that it is not owned: a bug, which must not spread.
    pub(crate) fn register(
        &self,
        block: BlockId,
        name: Name,
        tenant: TenantId,
        class: Priority,
    ) -> Option<BlockRef> {
        let registered = self.register_owned(block, name, tenant, class, true);
        if registered.is_none_or(|there| there.id != block) {
            self.owners.give(tenant, 1);
        }
        registered
    }

    /// As [`register`](TierPool::register), and the block stays whatever is there: for one that somebody
    /// reads.
    pub(crate) fn register_beside(
        &self,
        block: BlockId,
        name: Name,
        tenant: TenantId,
        class: Priority,
    ) -> Option<BlockRef> {
        let registered = self.register_owned(block, name, tenant, class, false);
        if registered.is_none() {
            self.owners.give(tenant, 1);
        }
        registered
    }

    fn register_owned(
        &self,
        block: BlockId,
        name: Name,
        tenant: TenantId,
        class: Priority,
        once: bool,
    ) -> Option<BlockRef> {
        let owned = self.pool.adopt_mutable(block).ok()?;
        self.note(block, name.parent, tenant);
        let parent = name.parent.filter(|_| self.linked).and_then(|parent| self.pool.find(parent));
        let complete = owned.complete(name.hash).ok()?;
        let registered = match once {
            true => self.pool.register(complete, parent.as_ref()).into_block(),
            false => self.pool.register_beside(complete, parent.as_ref()),
        };
        if registered.id() == block {
            self.classify(&registered, class);
        }
        Some(registered.into_ref())
    }

    /// Takes a tenant's registered block that the caller alone holds, to be filled on: its credit stays, and
    /// the reference is gone. None: it is another's, or others have it too; then nobody finds it any more.
    pub(crate) fn take_back(&self, block: BlockRef, tenant: TenantId) -> Option<BlockId> {
        // Nobody registers a block that is held: the tag is this registration's, and the caller's to write
        // until the reference is gone.
        if !self.pool.withdraw_held(block) || self.owners.owner(block.id) != tenant {
            return None;
        }
        // Nobody's registration ends, so that no credit does.
        self.owners.note(block.id, TenantId::NOBODY);
        let taken = self.pool.take_withdrawn(block).map(|taken| taken.into_mutable().into_id());
        if taken.is_none() {
            self.owners.note(block.id, tenant);
        }
        taken
    }

    /// One reference less.
    pub(crate) fn release(&self, block: BlockRef, now: u64) {
        self.ages.released(block, now);
        self.pool.release_refs([block]);
        self.owners.stir(block.id);
    }

    /// See [`Owners::state_of`].
    pub(crate) fn state_of(&self, tenant: TenantId) -> [u32; 3] {
        self.owners.state_of(tenant, self.linked)
    }

    /// A lease is over.
    pub(crate) fn end_lease(&self, block: BlockRef) {
        self.pool.end_lease(block);
        self.owners.stir(block.id);
    }
}

/// The tiers of a group.
pub(crate) struct GroupTiers {
    /// Its place among the manager's.
    pub(crate) number: GroupId,
    pub(crate) name: String,
    pub(crate) device: TierPool,
    pub(crate) port: Option<Arc<dyn DevicePort>>,
    pub(crate) mover: Arc<dyn DeviceMover>,
    pub(crate) host: Option<TierPool>,
    /// Of the host tier and of what is staged; none if there is neither a host tier nor one below.
    pub(crate) memory: Option<Arc<HostMemory>>,
    /// Blocks of staging.
    pub(crate) staging: usize,
    /// The tiers below host memory, in order.
    pub(crate) lower: Box<[LowerTier]>,
    pub(crate) needs: Needs,
    /// How often blocks have been used of late; none where nobody asks.
    pub(crate) heat: Option<Sketch>,
    pub(crate) block_bytes: u64,
    pub(crate) layers: u32,
    /// What there is to say of the device.
    pub(crate) note: Option<String>,
}

impl GroupTiers {
    /// The pool of a tier.
    pub(crate) fn pool(&self, tier: Tier) -> Option<&BlockPool> {
        match tier {
            Tier::Device => Some(&self.device.pool),
            Tier::Host => self.host.as_ref().map(|host| &host.pool),
            Tier::Below(number) => self.lower(number).map(|lower| lower.port.pool()),
        }
    }

    /// Takes note of uses.
    pub(crate) fn used(&self, hashes: &[SequenceHash]) {
        for lower in &self.lower {
            hashes.iter().for_each(|hash| lower.port.used(*hash));
        }
        if let Some(heat) = &self.heat {
            hashes.iter().for_each(|hash| heat.add(heat.key(*hash)));
        }
    }

    /// Whether a block has been used so often of late.
    pub(crate) fn is_hot(&self, hash: SequenceHash, from: Option<u64>) -> bool {
        let count = || self.heat.as_ref().map_or(0, |heat| heat.count(heat.key(hash)));
        from.is_some_and(|from| count() >= from)
    }

    /// Whose blocks a tier has.
    pub(crate) fn owners(&self, tier: Tier) -> Option<&Owners> {
        match tier {
            Tier::Device => Some(&self.device.owners),
            Tier::Host => self.host.as_ref().map(|host| &*host.owners),
            Tier::Below(number) => self.lower(number).map(|lower| &*lower.owners),
        }
    }

    /// A tier below host memory.
    pub(crate) fn lower(&self, number: u8) -> Option<&LowerTier> {
        self.lower.get(usize::from(number))
    }

    /// The tiers below host memory, from this one down.
    pub(crate) fn lower_from(&self, number: u8) -> impl Iterator<Item = (u8, &LowerTier)> {
        (0..).zip(&self.lower).skip(usize::from(number))
    }

    /// Whether the tier below the device has a block: for this moment, and no use of it.
    pub(crate) fn is_below(&self, hash: SequenceHash) -> bool {
        match &self.host {
            Some(host) => host.pool.contains(hash),
            None => self.all_lower_contain(hash),
        }
    }

    /// Whether all tiers below host memory have a block, which has this class from now on.
    pub(crate) fn in_lower(&self, hash: SequenceHash, class: Priority) -> bool {
        let mut all = true;
        for lower in &self.lower {
            // Each of them, also behind one that lacks it.
            all &= lower.has(hash, class);
        }
        all
    }

    /// Whether they all have a block: for this moment, and no use of it.
    pub(crate) fn all_lower_contain(&self, hash: SequenceHash) -> bool {
        self.lower.iter().all(|lower| lower.contains(hash))
    }

    /// Whether one of them has a block: for this moment, and no use of it.
    pub(crate) fn any_lower_contains(&self, hash: SequenceHash) -> bool {
        self.lower.iter().any(|lower| lower.contains(hash))
    }

    /// Whether a block may leave a tier, and be found below it: for this moment, and no use of it. Where nothing is below it may.
    pub(crate) fn is_kept_below(&self, tier: Tier, hash: SequenceHash) -> bool {
        match &self.host {
            Some(host) if tier == Tier::Device => host.pool.contains(hash),
            _ => self.lower.is_empty() || self.any_lower_contains(hash),
        }
    }

    /// The same of the host.
    pub(crate) fn in_host(&self, hash: SequenceHash, class: Priority) -> bool {
        let host = self.host.as_ref();
        host.and_then(|host| Some((host, host.pool.find(hash)?))).is_some_and(|(host, there)| {
            host.classify(&there, below(class));
            true
        })
    }

    /// Bytes of some layers of a block.
    pub(crate) fn bytes_of(&self, layers: &Range<u32>) -> u64 {
        match &self.memory {
            Some(memory) if layers.len() < self.layers as usize => memory.bytes_of(layers) as u64,
            _ => self.block_bytes,
        }
    }
}

/// A slot of a tier below that was not written, or is to be forgotten.
pub(crate) fn give_up_slot(effects: &mut Effects, of: &GroupTiers, slot: Option<(u8, BlockId)>) {
    if let Some((number, slot)) = slot
        && let Some(lower) = of.lower(number)
    {
        lower.give_up(slot);
        effects.slot_given_back();
    }
}

/// A credit of the host tier that was not used.
pub(crate) fn give_credit(of: &GroupTiers, tenant: TenantId, credit: bool) {
    if let Some(host) = of.host.as_ref().filter(|_| credit) {
        host.owners.give(tenant, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvstrata_core::PoolConfig;
    use kvstrata_core::owners::Ends;

    const NAME: Name = Name { hash: SequenceHash::from_u128(7), parent: None, owner: OwnerId::NOBODY };

    fn tier_pool() -> (TierPool, TenantId) {
        let owners = Owners::new(1, 3, std::iter::once(1.0), 1.0);
        let pool = BlockPool::new(PoolConfig::new(1).events(Box::new(Ends(Arc::clone(&owners)))));
        (TierPool::new(pool.expect("a pool"), owners, false, false), TenantId(1))
    }

    /// The block of the pool, registered with a tenant's credit, and held.
    fn register(tier_pool: &TierPool, tenant: TenantId) -> BlockRef {
        let mut ids = Vec::new();
        tier_pool.pool.allocate_free_ids(1, &mut ids).expect("it is free");
        assert!(tier_pool.owners.take(tenant, 1));
        tier_pool.register(ids[0], NAME, tenant, Priority::Normal).expect("owned")
    }

    #[test]
    fn who_alone_holds_a_block_takes_it_back_with_its_credit() {
        let (tier_pool, tenant) = tier_pool();
        let held = register(&tier_pool, tenant);
        let other = tier_pool.pool.hold_again(held).expect("held");
        assert_eq!(tier_pool.take_back(held, tenant), None, "somebody else has it");
        assert_eq!((tier_pool.owners.owner(held.id), tier_pool.pool.contains(NAME.hash)), (tenant, false));
        tier_pool.release(other, 0);
        assert_eq!(tier_pool.take_back(held, tenant), Some(held.id));
        assert_eq!((tier_pool.owners.used(tenant), tier_pool.pool.census().owned), (1, 1));
    }

    #[test]
    fn a_block_that_may_be_anybodys_by_now_is_not_taken_back_nor_is_its_tag_written() {
        let (tier_pool, tenant) = tier_pool();
        let released = register(&tier_pool, tenant);
        tier_pool.release(released, 0);
        // Evicted this moment, it may be about to be registered by its next owner, who has written its tag.
        assert_eq!(tier_pool.take_back(released, tenant), None, "nobody holds it");
        let mut victims = Vec::new();
        assert_eq!(tier_pool.pool.evict_ids(1, &mut victims), 1);
        tier_pool.owners.note(released.id, TenantId(2));
        assert_eq!(tier_pool.take_back(released, tenant), None);
        assert_eq!(tier_pool.owners.owner(released.id), TenantId(2));
    }
}
