//! The blocks that a purge finds, and those that each sweep examines.
//!
//! | a block of the tenant's, by its tag | outcome |
//! |---|---|
//! | registered, without a holder | taken out |
//! | registered and held | withdrawn, by a reference of the purge's own |
//! | already withdrawn (rotten, or forgotten: `forget.rs`), still held | the same reference |
//! | withdrawn, and kept by a failed device | counted, and not waited for |
//!
//! A purge is told of each change of the manager, and most of them concern other tenants. So it examines
//! all held blocks when a block of the tenant's was released (`Owners::stir`), and a few in turn otherwise.
//!
//! Invariants
//! - I1: a block that was found is not free before the purge has it: the purge's reference keeps it
//!   (`core/src/pool/withdraw.rs`, I1 and I2).
//! - I2: a release of a block that a request or a transfer has held stirs, and then tells the purge; the
//!   count is read before the look. So the look that follows the last release examines all held blocks. A
//!   hold for a moment, without a notice (a passing look-up of another hash), is found out by the looks
//!   in turn, after a bounded number of changes.

use crate::engine::group_tiers::GroupTiers;
use crate::engine::inner::Inner;
use crate::state::{FEW, GroupId, HostSlot, Piece, Place, Traffic, Work};
use crate::tier::Tier;
use kvstrata_core::{BlockId, BlockPool, BlockRef, ImmutableBlock, SequenceHash, TenantId};
use std::ops::Bound;

/// The result of looking at a block.
enum Found {
    /// It had no holder: it is the caller's.
    Idle(BlockId, SequenceHash),
    /// Withdrawn, with a reference that is the caller's.
    Held(BlockRef, SequenceHash),
    Nothing,
    /// Between two states: to be looked at again.
    Moves,
}

/// Takes a block that is registered, or was until it was withdrawn, if `ours` holds for its owner.
fn find(pool: &BlockPool, block: BlockId, ours: impl Fn() -> bool) -> Found {
    if let Some((block, hash)) = pool.registered(block) {
        // The tag is of the registration just seen, or of a later one (`owners`, I2).
        if !ours() {
            return Found::Nothing;
        }
        if let Ok(taken) = pool.take_out(block) {
            return Found::Idle(taken.into_mutable().into_id(), hash);
        }
        let Some(held) = pool.upgrade(block).map(ImmutableBlock::into_ref) else { return Found::Moves };
        pool.withdraw_held(held);
        return Found::Held(held, hash);
    }
    match pool.hold_withdrawn(block) {
        Some((held, hash)) if ours() => Found::Held(held, hash),
        Some((held, _)) => {
            pool.release_refs([held]);
            Found::Nothing
        }
        None => Found::Nothing,
    }
}

impl Work {
    /// Whether blocks of the tenant were released since the last time (I2).
    fn hears(&mut self, inner: &Inner) -> bool {
        let tiers = inner.groups.iter().flat_map(|of| inner.tiers().map(|tier| of.owners(tier)));
        let stirs = tiers.flatten().map(|owners| {
            let [_, stirs, _] = owners.state_of(self.tenant, false);
            stirs
        });
        let now = stirs.collect();
        let before = std::mem::replace(&mut self.heard, now);
        before != self.heard
    }

    /// Returns the held blocks to examine now: all of them, or the next few.
    fn next(&mut self, all: bool) -> Vec<Place> {
        if all {
            return self.held.keys().copied().collect();
        }
        let behind = self.turn.map_or(Bound::Unbounded, Bound::Excluded);
        let few = self.held.range((behind, Bound::Unbounded)).take(FEW);
        let few: Vec<Place> = few.map(|(place, _)| *place).collect();
        self.turn = few.last().copied().filter(|_| few.len() == FEW);
        few
    }
}

impl Traffic {
    /// Takes the blocks that are available. Also returns whether those were all there will be.
    pub(crate) fn sweep(&mut self, inner: &Inner, work: &mut Work) -> (Vec<Piece>, bool) {
        let tenant = work.tenant;
        let mut pieces = Vec::new();
        let scan = self.purges.takes_look(tenant);
        if scan {
            self.scan(inner, work, &mut pieces);
        }
        let all = work.hears(inner) || scan;
        self.look_at_held(inner, work, all, &mut pieces);
        work.done.failed += self.purges.hand_over(tenant, &mut pieces);
        if !pieces.is_empty() || !work.held.is_empty() {
            return (pieces, false);
        }
        let credits = |of: &GroupTiers| {
            [Tier::Device, Tier::Host]
                .iter()
                .any(|tier| of.owners(*tier).is_some_and(|of| of.used(tenant) > 0))
        };
        if inner.groups.iter().any(credits) || self.has_transfers(tenant) {
            return (pieces, false);
        }
        if !scan {
            self.look_again(tenant);
            return self.sweep(inner, work);
        }
        for of in &inner.groups {
            // Slots that lost their blocks without notice: the read failed, and the record ended; or the
            // volume is lost, and may be opened again.
            for lower in &of.lower {
                for slot in lower.owners.tagged(tenant) {
                    if lower.port.is_lost(slot) {
                        self.note_lost(tenant);
                    }
                    lower.owners.hand_over(slot, TenantId::NONE);
                }
            }
        }
        (pieces, true)
    }

    /// Whether the tenant has a transfer, or another's transfer is about to overwrite its block in a slot.
    fn has_transfers(&self, tenant: TenantId) -> bool {
        self.ups.iter().any(|(_, up)| up.tenant() == tenant)
            || self.downs.iter().any(|(_, down)| down.tenant() == tenant || down.slot_was() == tenant)
    }

    /// Looks through the tags.
    fn scan(&mut self, inner: &Inner, work: &mut Work, pieces: &mut Vec<Piece>) {
        let tenant = work.tenant;
        for (of, group) in inner.groups.iter().zip(GroupId::all(inner.groups.len())) {
            for tier in inner.tiers() {
                let (Some(owners), Some(pool)) = (of.owners(tier), of.pool(tier)) else { continue };
                for block in owners.tagged(tenant) {
                    let hash = match find(pool, block, || owners.owner(block) == tenant) {
                        Found::Idle(block, hash) => {
                            pieces.push(piece(group, tier, block));
                            work.erasing[tier.index()] += 1;
                            hash
                        }
                        // Found by an earlier scan.
                        Found::Held(held, _) if work.held.contains_key(&(group, tier, block)) => {
                            pool.release_refs([held]);
                            continue;
                        }
                        Found::Held(held, hash) => {
                            work.held.insert((group, tier, block), held);
                            hash
                        }
                        Found::Nothing => continue,
                        Found::Moves => {
                            self.look_again(tenant);
                            continue;
                        }
                    };
                    work.done.tier(tier).found += 1;
                    work.hashes.push((group, hash));
                }
            }
        }
    }

    /// Takes those of the examined held blocks that have no other holder any more.
    fn look_at_held(&mut self, inner: &Inner, work: &mut Work, all: bool, pieces: &mut Vec<Piece>) {
        let tenant = work.tenant;
        let places = work.next(all);
        #[cfg(test)]
        self.purges.count_looks(tenant, places.len());
        for place in places {
            let (group, tier, block) = place;
            let (of, Some(held)) = (inner.group(group), work.held.get(&place).copied()) else { continue };
            if self.is_quarantined(piece(group, tier, block)) {
                // Neither its registration nor its references will end.
                if let Some(owners) = of.owners(tier) {
                    owners.note(block, TenantId::NONE);
                    owners.give(tenant, 1);
                }
                work.done.tier(tier).purged += 1;
            } else if let Some(taken) = of.pool(tier).and_then(|pool| pool.take_withdrawn(held)) {
                pieces.push(piece(group, tier, taken.into_mutable().into_id()));
                work.erasing[tier.index()] += 1;
            } else {
                continue;
            }
            work.held.remove(&place);
        }
    }
}

fn piece(group: GroupId, tier: Tier, block: BlockId) -> Piece {
    match tier {
        Tier::Device => Piece::Device(group, block),
        Tier::Host => Piece::Host(group, HostSlot::of(block)),
        Tier::Below(number) => Piece::Below(group, number, block),
    }
}
