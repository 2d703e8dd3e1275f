//! The tiers of one group of layers: their pools' metadata and their bytes.
//!
//! ```text
//!   device   pool ── parents          blocks of the device, which the mover reaches
//!   host     pool ── parents          blocks 0 … h-1 of the host memory     ┐ one arena
//!   staging  a list of free blocks    blocks h … h+s-1 of it                ┘
//!   lower    a list of ports, each with its own pool
//! ```
//!
//! Invariants
//! - I1: block `b` of a pool is block `b` of its memory.
//! - I2: a registered block has its bytes. In the device they have arrived; in the host they are
//!   also sealed.

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

/// Returns when the source of a transfer was last used.
pub(crate) fn last_used(tier_pool: &TierPool, source: Have, now: u64) -> u64 {
    match source {
        Have::Owned(block) => tier_pool.ages.used(block, now),
        // Its holder uses it now.
        Have::Held(_) => now,
        Have::Leased(block) => now.saturating_sub(tier_pool.ages.idle(block, now)),
    }
}

/// Gives back the source of a transfer: ends a reference or a lease, or frees an owned block.
pub(crate) fn let_go(tier_pool: &TierPool, have: Have, now: u64) {
    match have {
        Have::Held(block) => tier_pool.release(block, now),
        Have::Leased(block) => tier_pool.end_lease(block),
        Have::Owned(block) => _ = tier_pool.pool.give_back_ids([block]),
    }
}

/// Returns the pool metadata of the host, or of the device.
pub(crate) fn pool_of(group: &GroupTiers, tier: Tier) -> &TierPool {
    match (tier, &group.host) {
        (Tier::Host, Some(host)) => host,
        _ => &group.device,
    }
}

/// Whether the tier below has a block; below the host, whether all lower tiers have it.
pub(crate) fn is_below(group: &GroupTiers, tier: Tier, hash: SequenceHash) -> bool {
    match tier {
        Tier::Device => group.is_below(hash),
        _ => group.all_lower_contain(hash),
    }
}

/// The pool of the device or of the host, with metadata of its blocks.
pub(crate) struct TierPool {
    pool: BlockPool,
    ages: Ages,
    owners: Arc<Owners>,
    parents: Parents,
    classes: Classes,
    linked: bool,
    /// Whether victims that were copied ahead leave first (`ready.rs`).
    ahead_first: bool,
}

impl TierPool {
    /// `linked`: whether blocks are registered with their parents, so that no policy evicts a parent
    /// before its children. If a request waits and nothing else can be evicted, parents of held blocks
    /// are ([`Traffic::evict`](crate::state::Traffic::evict)).
    pub(crate) fn new(pool: BlockPool, owners: Arc<Owners>, linked: bool, ahead_first: bool) -> TierPool {
        let blocks = pool.capacity();
        let (ages, parents, classes) = (Ages::new(blocks as u32), Parents::new(blocks), Classes::new(blocks));
        TierPool { pool, ages, owners, parents, classes, linked, ahead_first }
    }

    pub(crate) fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Idle times of blocks.
    pub(crate) fn ages(&self) -> &Ages {
        &self.ages
    }

    /// Owners of blocks, and their credits.
    pub(crate) fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Returns the name of a block that was just evicted, or is held. The owner is added when the block
    /// is written to a lower tier.
    pub(crate) fn name(&self, block: BlockId, hash: SequenceHash) -> Name {
        Name { hash, parent: self.parents.get(block), owner: OwnerId::NONE }
    }

    /// Notes the parent and the owner of a block that is about to be registered, and gives it the
    /// normal class.
    pub(crate) fn note(&self, block: BlockId, parent: Option<SequenceHash>, tenant: TenantId) {
        self.parents.set(block, parent);
        self.owners.note(block, tenant);
        self.classes.set(block, Priority::Normal);
    }

    /// Returns the eviction class of a block that was just evicted, or is held.
    pub(crate) fn class(&self, block: BlockId) -> Priority {
        self.classes.get(block)
    }

    /// Whether all blocks have had the normal class only.
    pub(crate) fn are_of_one_class(&self) -> bool {
        self.classes.are_normal()
    }

    /// Sets the eviction class of a block.
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

    /// Whether parents are looked up at registration.
    pub(crate) fn links(&self) -> bool {
        self.linked
    }

    /// Registers an owned block whose bytes are there (I2), with its tenant's credit and its class.
    /// Returns a reference to it; if the hash is registered already, to that block, and this one becomes
    /// free. None if the pool says that the block is not owned: a bug, which must not spread.
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

    /// Registers a block as [`register`](TierPool::register) does, but it stays even if its hash is
    /// registered already: for a block that a caller reads.
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

    /// Takes back a tenant's registered block that only the caller holds, so that it can be filled
    /// further. The credit stays, the reference ends. None if the block is another tenant's, or has other
    /// holders; lookups do not find it any more then.
    pub(crate) fn take_back(&self, block: BlockRef, tenant: TenantId) -> Option<BlockId> {
        // A held block is not registered anew. So the tag belongs to this registration, and the caller
        // may write it until its reference ends.
        if !self.pool.withdraw_held(block) || self.owners.owner(block.id) != tenant {
            return None;
        }
        // Unowned, so that the end of this registration gives back no credit.
        self.owners.note(block.id, TenantId::NONE);
        let taken = self.pool.take_withdrawn(block).map(|taken| taken.into_mutable().into_id());
        if taken.is_none() {
            self.owners.note(block.id, tenant);
        }
        taken
    }

    /// Ends one reference.
    pub(crate) fn release(&self, block: BlockRef, now: u64) {
        self.ages.released(block, now);
        self.pool.release_refs([block]);
        self.owners.stir(block.id);
    }

    /// See [`Owners::state_of`].
    pub(crate) fn state_of(&self, tenant: TenantId) -> [u32; 3] {
        self.owners.state_of(tenant, self.linked)
    }

    /// Ends a lease.
    pub(crate) fn end_lease(&self, block: BlockRef) {
        self.pool.end_lease(block);
        self.owners.stir(block.id);
    }
}

/// The tiers of a group.
pub(crate) struct GroupTiers {
    /// Its place among the manager's groups.
    pub(crate) number: GroupId,
    pub(crate) name: String,
    pub(crate) device: TierPool,
    pub(crate) port: Option<Arc<dyn DevicePort>>,
    pub(crate) mover: Arc<dyn DeviceMover>,
    pub(crate) host: Option<TierPool>,
    /// Memory of the host tier and of staging; none if there is neither a host tier nor one below.
    pub(crate) memory: Option<Arc<HostMemory>>,
    /// Number of staging blocks.
    pub(crate) staging: usize,
    /// The tiers below host memory, in order.
    pub(crate) lower: Box<[LowerTier]>,
    pub(crate) needs: Needs,
    /// How often blocks were used lately; none if no setting needs it.
    pub(crate) heat: Option<Sketch>,
    pub(crate) block_bytes: u64,
    pub(crate) layers: u32,
    /// A note on the device, for people.
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

    /// Notes uses of blocks.
    pub(crate) fn used(&self, hashes: &[SequenceHash]) {
        for lower in &self.lower {
            hashes.iter().for_each(|hash| lower.port.used(*hash));
        }
        if let Some(heat) = &self.heat {
            hashes.iter().for_each(|hash| heat.add(heat.key(*hash)));
        }
    }

    /// Whether a block was used at least `from` times lately.
    pub(crate) fn is_hot(&self, hash: SequenceHash, from: Option<u64>) -> bool {
        let count = || self.heat.as_ref().map_or(0, |heat| heat.count(heat.key(hash)));
        from.is_some_and(|from| count() >= from)
    }

    /// The owners of a tier's blocks.
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

    /// Whether the tier below the device has a block now, without a use of it.
    pub(crate) fn is_below(&self, hash: SequenceHash) -> bool {
        match &self.host {
            Some(host) => host.pool.contains(hash),
            None => self.all_lower_contain(hash),
        }
    }

    /// Whether all tiers below host memory have a block. In those that have it, its class follows `class`
    /// from now on.
    pub(crate) fn in_lower(&self, hash: SequenceHash, class: Priority) -> bool {
        let mut all = true;
        for lower in &self.lower {
            // No short circuit: the class is set also in tiers behind one that lacks the block.
            all &= lower.has(hash, class);
        }
        all
    }

    /// Whether all of them have a block now, without a use of it.
    pub(crate) fn all_lower_contain(&self, hash: SequenceHash) -> bool {
        self.lower.iter().all(|lower| lower.contains(hash))
    }

    /// Whether any of them has a block now, without a use of it.
    pub(crate) fn any_lower_contains(&self, hash: SequenceHash) -> bool {
        self.lower.iter().any(|lower| lower.contains(hash))
    }

    /// Whether a block that leaves a tier is found below it, now and without a use. True if there is no
    /// tier below.
    pub(crate) fn is_kept_below(&self, tier: Tier, hash: SequenceHash) -> bool {
        match &self.host {
            Some(host) if tier == Tier::Device => host.pool.contains(hash),
            _ => self.lower.is_empty() || self.any_lower_contains(hash),
        }
    }

    /// Whether the host has a block, whose class there follows `class` from now on.
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

/// Gives up a slot of a lower tier that was not written, or is to be forgotten.
pub(crate) fn give_up_slot(effects: &mut Effects, of: &GroupTiers, slot: Option<(u8, BlockId)>) {
    if let Some((number, slot)) = slot
        && let Some(lower) = of.lower(number)
    {
        lower.give_up(slot);
        effects.slot_given_back();
    }
}

/// Gives back a credit of the host tier that was not used.
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

    const NAME: Name = Name { hash: SequenceHash::from_u128(7), parent: None, owner: OwnerId::NONE };

    fn tier_pool() -> (TierPool, TenantId) {
        let owners = Owners::new(1, 3, std::iter::once(1.0), 1.0);
        let pool = BlockPool::new(PoolConfig::new(1).events(Box::new(Ends(Arc::clone(&owners)))));
        (TierPool::new(pool.expect("a pool"), owners, false, false), TenantId(1))
    }

    /// Registers the pool's only block with a tenant's credit, and holds it.
    fn register(tier_pool: &TierPool, tenant: TenantId) -> BlockRef {
        let mut ids = Vec::new();
        tier_pool.pool.allocate_free_ids(1, &mut ids).expect("it is free");
        assert!(tier_pool.owners.take(tenant, 1));
        tier_pool.register(ids[0], NAME, tenant, Priority::Normal).expect("owned")
    }

    #[test]
    fn sole_holder_takes_a_block_back_with_its_credit() {
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
    fn released_block_is_neither_taken_back_nor_retagged() {
        let (tier_pool, tenant) = tier_pool();
        let released = register(&tier_pool, tenant);
        tier_pool.release(released, 0);
        // It may have been evicted this moment, and its next owner may have written its tag already.
        assert_eq!(tier_pool.take_back(released, tenant), None, "nobody holds it");
        let mut victims = Vec::new();
        assert_eq!(tier_pool.pool.evict_ids(1, &mut victims), 1);
        tier_pool.owners.note(released.id, TenantId(2));
        assert_eq!(tier_pool.take_back(released, tenant), None);
        assert_eq!(tier_pool.owners.owner(released.id), TenantId(2));
    }
}
