//! A tenant at its quota: its own blocks make room for its own, and whoever waits for that holds nobody up.
//!
//! ```text
//!   allocate, onboard ──► a credit for each block? ── yes ──► the line, as everybody
//!                             │ no
//!                             ▼
//!                         held (`held.rs`)       credits come back: a release lets its blocks be evicted, a handle is dropped, a purge
//! ```
//!
//! What makes room is the tenant's next victims, in the order of the tier's eviction; they go down as any victim does. All that are needed, or
//! none. To find them the order is looked through, under the lock, from where the tenant's last look has come: others' blocks are passed once,
//! and not with each block that needs room; where that finds too few, once more from the oldest. In the device, where these are too
//! few, parents leave too that the policy keeps for held children's sake, as for the line. Who is held is looked for again
//! when the tenant's credits have changed, or one of its blocks was let go of, or it needs fewer, and not at each change of anybody's; copies are
//! hurried for it then, and when flights have begun or come to blocks.
//!
//! Below, a copy of a tenant at its quota takes the place of its own next victim, or is not made.
//!
//! Invariants
//! - I1: who is in a line has a credit for each block that it needs.
//! - I2: no request waits for credits that it has itself: of a run that somebody else asks for, what is more than its owner may have is a miss
//!   at once (`onboard.rs`).

#[cfg(test)]
mod tests;

use super::TenantId;
use crate::manager::down::{Cargo, Have, Left};
use crate::manager::inner::Inner;
use crate::manager::line::Line;
use crate::manager::stack::{Books, Stack};
use crate::manager::traffic::Traffic;
use crate::tier::Tier;
use crate::transfer::Class;
use kvstrata_core::{BlockId, BlockPool, BlockRef};
use kvstrata_ffi::disk::Name;

/// Up to `wanted` of the next victims of a tier that are a tenant's, but for those that are known to be in use, or under a copy.
fn own_victims(
    line: &mut Line,
    (pool, tier): (&BlockPool, Tier),
    owner: impl Fn(BlockId) -> TenantId,
    tenant: TenantId,
    wanted: usize,
    known: &[BlockRef],
) -> Vec<BlockRef> {
    #[cfg(test)]
    tests::LOOKS.with(|looks| looks.set(looks.get() + 1));
    let mut own = Vec::with_capacity(wanted);
    let is_own = |block: BlockRef| {
        #[cfg(test)]
        tests::PASSED.with(|passed| passed.set(passed.get() + 1));
        owner(block.id) == tenant && !known.contains(&block)
    };
    let passed = line.passed.entry((tier, tenant)).or_default();
    pool.next_victims_among(passed, wanted, is_own, &mut own);
    own
}

/// Adds, up to `wanted`, a tenant's blocks that nobody holds, and that the policy keeps out of its order for their children's sake: the
/// children are held, perhaps by who waits here. Lower classes first.
fn add_parents(books: &Books, tenant: TenantId, wanted: usize, passed: &[BlockRef], own: &mut Vec<BlockRef>) {
    let mut known: Vec<BlockId> = own.iter().chain(passed).map(|block| block.id).collect();
    known.sort_unstable();
    let registered = books.owners.tagged(tenant).filter_map(|block| books.pool.registered(block));
    let unheld = registered.map(|(block, _)| block).filter(|block| books.pool.evictable(*block).is_some());
    let mut more = unheld.filter(|block| known.binary_search(&block.id).is_err());
    // Lower classes first: where there are some, all are looked at.
    let mut by_class = Vec::new();
    if !books.are_of_one_class() {
        by_class.extend(more.by_ref());
        by_class.sort_by_key(|block| books.class(block.id));
    }
    own.extend(by_class.into_iter().chain(more).take(wanted - own.len()).collect::<Vec<_>>());
}

impl Traffic {
    /// The blocks of a tenant that are to leave the device, so that it has credits for so many more: none if it has them, and nothing if there
    /// are too few.
    fn own_that_leave(
        &mut self,
        inner: &Inner,
        stack: u16,
        tenant: TenantId,
        need: usize,
        passed: &[BlockRef],
    ) -> Option<Vec<BlockRef>> {
        let books = &inner.stack(stack).device;
        let limit = books.owners.limit(tenant).unwrap_or(usize::MAX);
        let short = (books.owners.used(tenant) + need).saturating_sub(limit);
        if need > limit {
            return None;
        }
        if short == 0 {
            return Some(Vec::new());
        }
        let (line, of) = (&mut self.lines[stack as usize], (&books.pool, Tier::Device));
        let mut own = own_victims(line, of, |block| books.owners.owner(block), tenant, short, passed);
        if own.len() < short && books.links() && !self.is_copying(inner, stack, |whose| whose == tenant) {
            add_parents(books, tenant, short, passed, &mut own);
        }
        (own.len() == short).then_some(own)
    }

    /// Whether a tenant can have credits of the device, by its own victims, if need be: as things are now.
    pub(super) fn has_credits(&mut self, inner: &Inner, stack: u16, tenant: TenantId, need: usize) -> bool {
        self.own_that_leave(inner, stack, tenant, need, &[]).is_some()
    }

    /// Takes credits of the device for a tenant, for blocks that its own victims make room for, if need be.
    pub(in crate::manager) fn take_credits(
        &mut self,
        inner: &Inner,
        stack: u16,
        tenant: TenantId,
        need: usize,
        class: Class,
    ) -> bool {
        let books = &inner.stack(stack).device;
        let mut passed = Vec::new();
        loop {
            if books.owners.take(tenant, need) {
                return true;
            }
            let Some(own) = self.own_that_leave(inner, stack, tenant, need, &passed) else { return false };
            for block in own {
                // Used meanwhile, or leased: then others are looked for.
                let Ok(victim) = books.pool.evict_this(block) else {
                    passed.push(block);
                    continue;
                };
                let name = books.name(victim.id(), victim.hash());
                let block = victim.into_mutable().into_id();
                if let Left::Free(block) = self.victim(inner, stack, block, name, class) {
                    self.freed(inner, stack, block);
                }
            }
        }
    }

    /// A credit of the host for a copy; at the quota the tenant's next victim there makes room.
    pub(in crate::manager) fn host_credit(
        &mut self,
        inner: &Inner,
        stack: u16,
        tenant: TenantId,
        class: Class,
    ) -> bool {
        let Some(host) = &inner.stack(stack).host else { return true };
        let mut passed = Vec::new();
        loop {
            if host.owners.take(tenant, 1) {
                return true;
            }
            let (line, of) = (&mut self.lines[stack as usize], (&host.pool, Tier::Host));
            let own = own_victims(line, of, |block| host.owners.owner(block), tenant, 1, &passed);
            let Some(block) = own.first() else { return false };
            let Ok(victim) = host.pool.evict_this(*block) else {
                passed.push(*block);
                continue;
            };
            let name = host.name(victim.id(), victim.hash());
            let block = victim.into_mutable().into_id();
            self.host_left(inner, stack, block, name, class);
        }
    }

    /// A slot of the disk for a copy of a tenant's block, whose credit goes with it; and whose block is there still.
    pub(in crate::manager) fn slot_of(
        &mut self,
        inner: &Inner,
        of: &Stack,
        tenant: TenantId,
    ) -> Option<(BlockId, TenantId)> {
        let (disk, owners) = (of.disk.as_ref()?, &of.disk_owners);
        // Slots of a lost volume leave the pool without a word, now and then: at once they count for nobody.
        if owners.hear_of(disk.losses()) {
            owners.give_up(|slot| disk.is_lost(slot));
        }
        if !owners.take(tenant, 1) {
            let line = &mut self.lines[inner.number_of(of) as usize];
            let of_disk = (disk.pool(), Tier::Disk);
            let own = own_victims(line, of_disk, |slot| owners.counted(slot), tenant, 1, &[]);
            // Its credit is the new one's.
            let slot = own.first().and_then(|block| disk.take_this(*block));
            return slot.map(|slot| (slot, tenant));
        }
        loop {
            disk.take(1, &mut self.slots);
            let Some(slot) = self.slots.pop() else {
                owners.give(tenant, 1);
                return None;
            };
            // A block that has come to the disk since the last sweep.
            let owner = owners.owner(slot);
            if !self.hand_to_purge(owner, super::Piece::Disk(inner.number_of(of), slot)) {
                owners.hand_over(slot, tenant);
                return Some((slot, owner));
            }
        }
    }

    /// A slot for a flight that has none any more. False: there is none.
    pub(in crate::manager) fn give_slot(&mut self, inner: &Inner, key: u32, tenant: TenantId) -> bool {
        let Some(stack) = self.downs.get(key as usize).map(|down| down.stack) else { return false };
        let Some((slot, was)) = self.slot_of(inner, inner.stack(stack), tenant) else { return false };
        let down = &mut self.downs[key as usize];
        (down.disk, down.slot, down.was) = (Some(slot), Some(slot), was);
        true
    }
}

impl Traffic {
    /// A block of the host that was evicted: down to the disk, or free.
    fn host_left(&mut self, inner: &Inner, stack: u16, block: BlockId, name: Name, class: Class) {
        if self.sink(inner, stack, Cargo::new(Have::Owned(block), name, class)).is_none() {
            self.freed_host(inner, stack, block.0);
        }
    }
}
