//! A tenant at its quota: its own blocks make room for its own, and whoever waits for that holds nobody up.
//!
//! ```text
//!   allocate, onboard ──► a credit for each block? ── yes ──► the wait queue, as everybody
//!                             │ no
//!                             ▼
//!                         held (`waiting_for_quota.rs`)       credits come back: a release lets its blocks be evicted, a handle is dropped, a purge
//! ```
//!
//! What makes room is the tenant's next victims, in the order of the tier's eviction; they go down as any
//! victim does. All that are needed, or none. To find them the order is looked through, under the lock, from
//! where the tenant's last look has come: others' blocks are passed once, and not with each block that needs
//! room; where that finds too few, once more from the oldest. In the device, where these are too few, copies
//! by choice that wait themselves are called off, and then parents leave too that the policy keeps for held
//! children's sake, as for the wait queue. Who is held is looked for again when the tenant's credits have
//! changed, or one of its blocks was let go of, or it needs fewer, and not at each change of anybody's;
//! copies are hurried for it then, and when transfers have begun or come to blocks.
//!
//! Below, a copy of a tenant at its quota takes the place of its own next victim, or is not made. Where there
//! was none it is not looked for again with each copy of a list, but when something of the tenant's has
//! changed.
//!
//! Invariants
//! - I1: who is in a line has a credit for each block that it needs.
//! - I2: no request waits for credits that it has itself: of a run that somebody else asks for, what is more
//!   than its owner may have is a miss at once (`onboard.rs`).

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

/// What is to leave the device, so that a tenant has credits.
#[derive(Default)]
struct Leaving {
    blocks: Vec<BlockRef>,
    /// Copies that keep some of these, by key: to be called off first.
    copies: Vec<DownId>,
}

/// Up to `wanted` of the next victims of a tier that are a tenant's.
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

/// The next one. Where there was none it is looked for again only when things have changed.
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

/// The pool tells nobody of what becomes of its blocks: so it is asked.
fn state_below(pool: &BlockPool, owners: &Owners, tenant: TenantId) -> State {
    let [used, stirs, _] = owners.state_of(tenant, false);
    [used, stirs, 0, pool.stats().removed as u32, pool.available() as u32]
}

/// Adds, up to `wanted`, a tenant's blocks that nobody holds or copies, and that the policy keeps out of its
/// order for their children's sake: the children are held, perhaps by who waits here. Lower classes first.
fn add_parents(tier_pool: &TierPool, tenant: TenantId, wanted: usize, own: &mut Vec<BlockRef>) {
    let mut known: Vec<BlockId> = own.iter().map(|block| block.id).collect();
    known.sort_unstable();
    let registered = tier_pool.owners().tagged(tenant).filter_map(|block| tier_pool.pool().registered(block));
    let may_leave = |block: &BlockRef| {
        tier_pool.pool().evictable(*block).is_some() && !tier_pool.pool().is_leased(*block)
    };
    let unheld = registered.map(|(block, _)| block).filter(may_leave);
    let mut more = unheld.filter(|block| known.binary_search(&block.id).is_err());
    // Lower classes first: where there are some, all are looked at.
    let mut by_class = Vec::new();
    if !tier_pool.are_of_one_class() {
        by_class.extend(more.by_ref());
        by_class.sort_by_key(|block| tier_pool.class(block.id));
    }
    own.extend(by_class.into_iter().chain(more).take(wanted - own.len()).collect::<Vec<_>>());
}

impl Traffic {
    /// What of a tenant's is to leave the device, so that it has credits for so many more: nothing if it has
    /// them. None: there is too little.
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

    /// Whether a tenant can have credits of the device, by its own victims, if need be: as things are now.
    pub(crate) fn has_credits(
        &mut self,
        inner: &Inner,
        group: GroupId,
        tenant: TenantId,
        need: usize,
    ) -> bool {
        self.own_that_leave(inner, group, tenant, need).is_some()
    }

    /// Takes credits of the device for a tenant, for blocks that its own victims make room for, if need be.
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
                // Used meanwhile: then it is found no more, and others are looked for.
                let Ok(victim) = tier_pool.pool().evict_this(block) else { continue };
                let name = tier_pool.name(victim.id(), victim.hash());
                let block = victim.into_mutable().into_id();
                if let Left::Free(block) = self.victim(inner, group, block, name, class) {
                    self.freed(inner, group, block);
                }
            }
        }
    }

    /// A credit of the host for a copy; at the quota the tenant's next victim there makes room.
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
            // Used meanwhile: then it is found no more.
            let Ok(victim) = host.pool().evict_this(block) else { continue };
            let name = host.name(victim.id(), victim.hash());
            let block = victim.into_mutable().into_id();
            self.host_left(inner, group, block, name, class);
        }
    }

    /// A slot of a tier below host memory for a copy of a tenant's block, whose credit goes with it; and whose block
    /// is there still.
    pub(crate) fn slot_of(
        &mut self,
        of: &GroupTiers,
        number: u8,
        tenant: TenantId,
    ) -> Option<(BlockId, TenantId)> {
        let lower = of.lower(number)?;
        let (port, owners) = (&lower.port, &lower.owners);
        // Slots of a lost volume leave the pool without a word, now and then: at once they count for nobody.
        if owners.hear_of(port.losses()) {
            owners.give_up(|slot| port.is_lost(slot));
        }
        if !owners.take(tenant, 1) {
            let state = state_below(port.pool(), owners, tenant);
            let looks = self.groups[of.number].own_looks.of(Tier::Below(number), tenant);
            let own = next_own_victim(looks, port.pool(), |slot| owners.counted(slot), tenant, state);
            // Its credit is the new one's.
            return port.reserve_this(own?).map(|slot| (slot, tenant));
        }
        loop {
            let Some(slot) = self.scratch.one(|slots| port.reserve(Reserve::Some(1), slots)) else {
                owners.give(tenant, 1);
                return None;
            };
            // A block that has come to the tier since the last sweep.
            let owner = owners.owner(slot);
            if !self.hand_to_purge(owner, Piece::Below(of.number, number, slot)) {
                owners.hand_over(slot, tenant);
                return Some((slot, owner));
            }
        }
    }

    /// A slot for a transfer that has none any more. False: there is none.
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
    /// Whether a tenant has credits of the host, and all are in use, by what may leave later.
    pub(crate) fn waits_for_host_credit(&self, inner: &Inner, group: GroupId, tenant: TenantId) -> bool {
        let Some(host) = &inner.group(group).host else { return false };
        let looks = self.groups[group].own_looks.known(Tier::Host, tenant);
        let vain = looks.is_some_and(|looks| looks.was_vain(state_in_host(host, tenant)));
        vain && host.owners().limit(tenant) != Some(0)
    }

    /// A block of the host that was evicted: down to the disk, or free.
    fn host_left(&mut self, inner: &Inner, group: GroupId, block: BlockId, name: Name, class: Class) {
        if self.sink_or_drop(inner, group, block, name, class).is_none() {
            self.freed_host(inner, group, HostSlot::of(block));
        }
    }
}
