//! A tenant at its quota: its own blocks make room for its own, and whoever waits for that holds nobody up.
//!
//! ```text
//!   allocate, onboard ──► a credit for each block? ── yes ──► the line, as everybody
//!                             │ no
//!                             ▼
//!                         held: in order of arrival among its tenant's     credits come back: a release lets its blocks be evicted,
//!                                                                          a handle is dropped, a purge
//! ```
//!
//! What makes room is the tenant's next victims, in the order of the tier's eviction; they go down as any victim does. All that are needed, or
//! none. To find them the order is looked through, further with each doubling: a tenant at its quota whose blocks are the most recent
//! of a large tier pays for that with each allocation, under the lock; tens of nanoseconds a block passed. In the device, where these are too
//! few, parents leave too that the policy keeps for held children's sake, as for the line. Who is held is looked for again
//! when the tenant's credits have changed, or one of its blocks was let go of, and not at each change of anybody's; copies are hurried for it
//! then, and when flights have begun or come to blocks.
//!
//! Below, a copy of a tenant at its quota takes the place of its own next victim, or is not made.
//!
//! Invariants
//! - I1: who is held has no credit and no block; who is in the line has a credit for each block that it needs.
//! - I2: of one tenant, who came first is served first.
//! - I3: no request waits for credits that it has itself: of a run that somebody else asks for, what is more than its owner may have is a miss
//!   at once (`onboard.rs`).

#[cfg(test)]
mod tests;

use super::TenantId;
use crate::manager::down::{Cargo, Have, Left};
use crate::manager::inner::Inner;
use crate::manager::stack::{Books, Stack};
use crate::manager::traffic::Traffic;
use crate::transfer::Class;
use kvstrata_core::{BlockId, BlockPool, BlockRef};
use kvstrata_ffi::disk::Name;

/// How far the eviction order is looked through at first.
const LOOK: usize = 256;

/// Up to `wanted` of the next victims that are a tenant's, but for those that are known to be in use, or under a copy.
fn own_victims(
    pool: &BlockPool,
    owner: impl Fn(BlockId) -> TenantId,
    tenant: TenantId,
    wanted: usize,
    passed: &[BlockRef],
) -> Vec<BlockRef> {
    #[cfg(test)]
    tests::LOOKS.with(|looks| looks.set(looks.get() + 1));
    let (mut look, mut next) = (LOOK.max(wanted), Vec::new());
    loop {
        next.clear();
        pool.next_victims(look, &mut next);
        let own = next.iter().map(|(block, _)| *block);
        let own = own.filter(|block| owner(block.id) == tenant && !passed.contains(block));
        let own: Vec<BlockRef> = own.take(wanted).collect();
        if own.len() == wanted || next.len() < look {
            return own;
        }
        look *= 2;
    }
}

/// Adds, up to `wanted`, a tenant's blocks that nobody holds, and that the policy keeps out of its order for their children's sake: the
/// children are held, perhaps by who waits here.
fn add_parents(books: &Books, tenant: TenantId, wanted: usize, passed: &[BlockRef], own: &mut Vec<BlockRef>) {
    let mut known: Vec<BlockId> = own.iter().chain(passed).map(|block| block.id).collect();
    known.sort_unstable();
    let registered = books.owners.tagged(tenant).filter_map(|block| books.pool.registered(block));
    let unheld = registered.map(|(block, _)| block).filter(|block| books.pool.evictable(*block).is_some());
    let more = unheld.filter(|block| known.binary_search(&block.id).is_err());
    own.extend(more.take(wanted - own.len()).collect::<Vec<_>>());
}

impl Traffic {
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
            let limit = books.owners.limit(tenant).unwrap_or(usize::MAX);
            let short = (books.owners.used(tenant) + need).saturating_sub(limit);
            if need > limit || short == 0 {
                // Short of none: some were given back between the two looks, which the next take finds.
                if need > limit {
                    return false;
                }
                continue;
            }
            let mut own = own_victims(&books.pool, |block| books.owners.owner(block), tenant, short, &passed);
            if own.len() < short && books.links() && !self.is_copying(stack) {
                add_parents(books, tenant, short, &passed, &mut own);
            }
            if own.len() < short {
                return false;
            }
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
            let own = own_victims(&host.pool, |block| host.owners.owner(block), tenant, 1, &passed);
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

    /// A slot of the disk for a copy of a tenant's block, whose credit goes with it.
    pub(in crate::manager) fn slot_of(
        &mut self,
        inner: &Inner,
        of: &Stack,
        tenant: TenantId,
    ) -> Option<BlockId> {
        let (disk, owners) = (of.disk.as_ref()?, &of.disk_owners);
        // Slots of a lost volume leave the pool without a word, now and then: at once they count for nobody.
        if owners.hear_of(disk.losses()) {
            owners.give_up(|slot| disk.is_lost(slot));
        }
        if !owners.take(tenant, 1) {
            let own = own_victims(disk.pool(), |slot| owners.counted(slot), tenant, 1, &[]);
            // Its credit is the new one's.
            return own.first().and_then(|block| disk.take_this(*block));
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
                return Some(slot);
            }
        }
    }

    /// Puts those of the held into the line who can have credits by now.
    pub(in crate::manager) fn serve_held(&mut self, inner: &Inner, stack: u16) {
        let (mut waiting, mut news) = (Vec::new(), false);
        let mut at = 0;
        while let Some(entry) = self.lines[stack as usize].held.get(at) {
            let (tenant, need) = (entry.tenant, entry.need);
            let looked = entry.looked;
            // Not past an earlier one of the same tenant (I2). Before the look: what changes meanwhile is another state.
            let state = inner.stack(stack).device.state_of(tenant);
            let barred = waiting.contains(&tenant) || looked == Some(state);
            if barred || !self.take_credits(inner, stack, tenant, need, Class::Urgent) {
                if !barred {
                    self.lines[stack as usize].held[at].looked = Some(state);
                    news = true;
                }
                waiting.push(tenant);
                at += 1;
                continue;
            }
            let line = &mut self.lines[stack as usize];
            line.entries.extend(line.held.remove(at));
        }
        if !waiting.is_empty() && (news || self.lines[stack as usize].news) {
            self.hurry(inner, stack);
        }
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
