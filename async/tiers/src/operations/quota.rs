//! A tenant at its quota: its own blocks make room for its own, and its requests that wait for that hold
//! no other tenant up.
//!
//! ```text
//!   allocate, onboard ──► a credit for each block? ── yes ──► the wait queue, as for any request
//!                             │ no
//!                             ▼
//!                         held (`waiting_for_quota.rs`)    credits come back: a release lets its blocks be
//!                                                          evicted, a handle is dropped, a purge
//! ```
//!
//! The tenant's next victims make room, in the tier's eviction order: as many as are needed, or none.
//! They go down as any victim does. The search goes through the order, under the lock, from where the
//! tenant's last look stopped. So it passes others' blocks once, and not with each block that needs room.
//! If it finds too few, it starts once more from the oldest. If these are too few in the device, copies
//! by choice that wait themselves are called off. Then parents leave, too, that the policy keeps for the
//! sake of held children, as for the wait queue.
//!
//! A held request is examined again when its tenant's credits have changed, when one of its tenant's
//! blocks was released, or when it needs fewer blocks; not at each change by others. Copies are hurried
//! for it then, and when transfers have begun or got blocks.
//!
//! Below, a copy for a tenant at its quota takes the place of the tenant's own next victim, or is not
//! made. If there was no such victim, the next look waits for a change of the tenant's; it does not come
//! with each copy of a list.
//!
//! Invariants
//! - I1: an entry in a wait queue has a credit for each block that it needs.
//! - I2: no request waits for credits that it has itself: a run's blocks beyond their owner's quota are a
//!   miss at once (`onboard.rs`).

#[cfg(test)]
mod tests;

use crate::engine::group_tiers::{GroupTiers, TierPool};
use crate::engine::inner::Inner;
use crate::state::{Down, DownId, GroupId, HostSlot, Left, OwnLooks, Piece, State, Traffic};
use crate::tier::Tier;
use crate::transfer::{Class, Reserve};
use kvstrata_core::owners::Owners;
use kvstrata_core::{BlockId, BlockPool, BlockRef, TenantId};
use kvstrata_ffi::disk::Name;

/// Blocks that are to leave the device, so that a tenant has credits.
#[derive(Default)]
struct Leaving {
    blocks: Vec<BlockRef>,
    /// Copies that keep some of these, by key: to be called off first.
    copies: Vec<DownId>,
}

/// Returns up to `wanted` of a tier's next victims that are a tenant's.
fn own_victims(
    looks: &mut OwnLooks,
    pool: &BlockPool,
    owner: impl Fn(BlockId) -> TenantId,
    tenant: TenantId,
    wanted: usize,
) -> Vec<BlockRef> {
    #[cfg(test)]
    tests::LOOKS.with(|looks| looks.set(looks.get() + 1));
    let mut own = Vec::with_capacity(wanted);
    let is_own = |block: BlockRef| {
        #[cfg(test)]
        tests::PASSED.with(|passed| passed.set(passed.get() + 1));
        owner(block.id) == tenant
    };
    pool.next_victims_among(looks.passed_mut(), wanted, is_own, &mut own);
    own
}

/// Returns the next such victim. If there was none, it looks again only after the state has changed.
fn next_own_victim(
    looks: &mut OwnLooks,
    pool: &BlockPool,
    owner: impl Fn(BlockId) -> TenantId,
    tenant: TenantId,
    state: State,
) -> Option<BlockRef> {
    if looks.was_vain(state) {
        return None;
    }
    let own = own_victims(looks, pool, owner, tenant, 1).pop();
    looks.note(own.is_some(), state);
    own
}

fn state_in_host(host: &TierPool, tenant: TenantId) -> State {
    let [used, stirs, ended] = host.state_of(tenant);
    [used, stirs, ended, 0, 0]
}

/// The pool does not report changes of its blocks, so its counters are read.
fn state_below(pool: &BlockPool, owners: &Owners, tenant: TenantId) -> State {
    let [used, stirs, _] = owners.state_of(tenant, false);
    [used, stirs, 0, pool.stats().removed as u32, pool.available() as u32]
}

/// Adds, up to `wanted`, a tenant's blocks that no caller holds or copies, and that the policy keeps out
/// of its order for their children's sake. The children are held, perhaps by the waiter itself. Lower
/// classes first.
fn add_parents(tier_pool: &TierPool, tenant: TenantId, wanted: usize, own: &mut Vec<BlockRef>) {
    let mut known: Vec<BlockId> = own.iter().map(|block| block.id).collect();
    known.sort_unstable();
    let registered = tier_pool.owners().tagged(tenant).filter_map(|block| tier_pool.pool().registered(block));
    let may_leave = |block: &BlockRef| {
        tier_pool.pool().evictable(*block).is_some() && !tier_pool.pool().is_leased(*block)
    };
    let unheld = registered.map(|(block, _)| block).filter(may_leave);
    let mut more = unheld.filter(|block| known.binary_search(&block.id).is_err());
    // Lower classes first: where there are several, all blocks are examined.
    let mut by_class = Vec::new();
    if !tier_pool.are_of_one_class() {
        by_class.extend(more.by_ref());
        by_class.sort_by_key(|block| tier_pool.class(block.id));
    }
    own.extend(by_class.into_iter().chain(more).take(wanted - own.len()).collect::<Vec<_>>());
}

impl Traffic {
    /// Returns the tenant's blocks that are to leave the device so that it has credits for `need` more;
    /// nothing if it has them. Returns none if there are too few.
    fn own_that_leave(
        &mut self,
        inner: &Inner,
        group: GroupId,
        tenant: TenantId,
        need: usize,
    ) -> Option<Leaving> {
        let tier_pool = &inner.group(group).device;
        let limit = tier_pool.owners().limit(tenant).unwrap_or(usize::MAX);
        let short = (tier_pool.owners().used(tenant) + need).saturating_sub(limit);
        if need > limit {
            return None;
        }
        if short == 0 {
            return Some(Leaving::default());
        }
        let is_own = |block| tier_pool.owners().owner(block) == tenant;
        let looks = self.groups[group].own_looks.of(Tier::Device, tenant);
        let mut blocks =
            own_victims(looks, tier_pool.pool(), |block| tier_pool.owners().owner(block), tenant, short);
        let kept = self.kept_by_choice(inner, group, short - blocks.len(), is_own);
        blocks.extend(kept.iter().map(|(_, block)| *block));
        let mut copies: Vec<DownId> = kept.iter().map(|(key, _)| *key).collect();
        copies.sort_unstable();
        let others = |key, down: &Down| down.tenant() == tenant && copies.binary_search(&key).is_err();
        if blocks.len() < short && tier_pool.links() && !self.is_copying(inner, group, others) {
            add_parents(tier_pool, tenant, short, &mut blocks);
        }
        (blocks.len() == short).then_some(Leaving { blocks, copies })
    }

    /// Whether a tenant can have credits of the device now, by its own victims if need be.
    pub(crate) fn has_credits(
        &mut self,
        inner: &Inner,
        group: GroupId,
        tenant: TenantId,
        need: usize,
    ) -> bool {
        self.own_that_leave(inner, group, tenant, need).is_some()
    }

    /// Takes credits of the device for a tenant; its own victims make room if need be.
    pub(crate) fn take_credits(
        &mut self,
        inner: &Inner,
        group: GroupId,
        tenant: TenantId,
        need: usize,
        class: Class,
    ) -> bool {
        let tier_pool = &inner.group(group).device;
        loop {
            if tier_pool.owners().take(tenant, need) {
                return true;
            }
            let Some(own) = self.own_that_leave(inner, group, tenant, need) else { return false };
            self.call_off(inner, group, &own.copies);
            for block in own.blocks {
                // Used meanwhile: it is found no more, and the next look finds others.
                let Ok(victim) = tier_pool.pool().evict_this(block) else { continue };
                let name = tier_pool.name(victim.id(), victim.hash());
                let block = victim.into_mutable().into_id();
                if let Left::Free(block) = self.victim(inner, group, block, name, class) {
                    self.freed(inner, group, block);
                }
            }
        }
    }

    /// Takes a credit of the host for a copy. At the quota the tenant's next victim there makes room.
    pub(crate) fn host_credit(
        &mut self,
        inner: &Inner,
        group: GroupId,
        tenant: TenantId,
        class: Class,
    ) -> bool {
        let Some(host) = &inner.group(group).host else { return true };
        loop {
            if host.owners().take(tenant, 1) {
                return true;
            }
            let state = state_in_host(host, tenant);
            let looks = self.groups[group].own_looks.of(Tier::Host, tenant);
            let owner = |block| host.owners().owner(block);
            let Some(block) = next_own_victim(looks, host.pool(), owner, tenant, state) else { return false };
            // Used meanwhile: it is found no more.
            let Ok(victim) = host.pool().evict_this(block) else { continue };
            let name = host.name(victim.id(), victim.hash());
            let block = victim.into_mutable().into_id();
            self.host_left(inner, group, block, name, class);
        }
    }

    /// Takes a slot of a tier below host memory, and its credit, for a copy of a tenant's block. Also
    /// returns the owner of the block that is still in the slot.
    pub(crate) fn slot_of(
        &mut self,
        of: &GroupTiers,
        number: u8,
        tenant: TenantId,
    ) -> Option<(BlockId, TenantId)> {
        let lower = of.lower(number)?;
        let (port, owners) = (&lower.port, &lower.owners);
        // Slots of a lost volume leave the pool without notice, now and then: they stop counting at once.
        if owners.hear_of(port.losses()) {
            owners.give_up(|slot| port.is_lost(slot));
        }
        if !owners.take(tenant, 1) {
            let state = state_below(port.pool(), owners, tenant);
            let looks = self.groups[of.number].own_looks.of(Tier::Below(number), tenant);
            let own = next_own_victim(looks, port.pool(), |slot| owners.counted(slot), tenant, state);
            // The new block takes over its credit.
            return port.reserve_this(own?).map(|slot| (slot, tenant));
        }
        loop {
            let Some(slot) = self.scratch.one(|slots| port.reserve(Reserve::Some(1), slots)) else {
                owners.give(tenant, 1);
                return None;
            };
            // A block of a purged tenant may have come to the tier since the last sweep.
            let owner = owners.owner(slot);
            if !self.hand_to_purge(owner, Piece::Below(of.number, number, slot)) {
                owners.hand_over(slot, tenant);
                return Some((slot, owner));
            }
        }
    }

    /// Gives a slot to a transfer that has lost its own. Returns false if there is none.
    pub(crate) fn give_slot(&mut self, inner: &Inner, key: DownId, tenant: TenantId) -> bool {
        let Some((group, number)) = self.downs.get(key).map(|down| (down.group(), down.below())) else {
            return false;
        };
        let Some((slot, was)) = self.slot_of(inner.group(group), number, tenant) else { return false };
        self.downs[key].gets_slot(number, slot, was);
        true
    }
}

impl Traffic {
    /// Whether a tenant has credits of the host, all in use by blocks that may leave later.
    pub(crate) fn waits_for_host_credit(&self, inner: &Inner, group: GroupId, tenant: TenantId) -> bool {
        let Some(host) = &inner.group(group).host else { return false };
        let looks = self.groups[group].own_looks.known(Tier::Host, tenant);
        let vain = looks.is_some_and(|looks| looks.was_vain(state_in_host(host, tenant)));
        vain && host.owners().limit(tenant) != Some(0)
    }

    /// Sends an evicted block of the host down to the disk, or frees it.
    fn host_left(&mut self, inner: &Inner, group: GroupId, block: BlockId, name: Name, class: Class) {
        if self.sink_or_drop(inner, group, block, name, class).is_none() {
            self.freed_host(inner, group, HostSlot::of(block));
        }
    }
}
