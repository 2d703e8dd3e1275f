//! Forgotten names leave all tiers. They belong to blocks of a preempted request that were not full: no
//! caller knows these names any more.
//!
//! ```text
//!   forget ─┬─ on its way down: called back; if it moves, when it has landed
//!           ├─ on its way up: when it has landed
//!           └─ at rest: withdrawn from device and host; its slot of the disk freed, if it has no holder
//! ```
//!
//! It costs one look-up for each name and tier, however much the tiers hold. A block that is being purged
//! is left to the purge, which finds it by its tag.
//!
//! Invariants
//! - I1: a name is in `forgotten` only while a transfer has it; the transfer's end forgets it once more.

use crate::engine::group_tiers::give_up_slot;
use crate::engine::inner::Inner;
use crate::state::{GroupId, Traffic};
use crate::tier::Tier;
use crate::transfer::Cause;
use kvstrata_core::{ImmutableBlock, SequenceHash};

impl Traffic {
    /// Removes the block of a name from all tiers.
    pub(crate) fn forget(&mut self, inner: &Inner, group: GroupId, hash: SequenceHash) {
        let name = (group, hash);
        if let Some(key) = self.downs.find(name) {
            self.forgotten.insert(name);
            self.groups[group].waiting_for_host.remove(key);
            let at = self.downs.get(key).map(|down| down.at());
            if at.is_some_and(|at| self.recall(at)) {
                self.ended_down(inner, key, Err(Cause::Cancelled));
            }
            return;
        }
        if self.ups.has(name) {
            self.forgotten.insert(name);
            return;
        }
        let of = inner.group(group);
        for tier in inner.tiers() {
            let (Some(pool), Some(owners)) = (of.pool(tier), of.owners(tier)) else { continue };
            let Some(block) = pool.find(hash).map(ImmutableBlock::into_ref) else { continue };
            let purged = self.is_purging(owners.owner(block.id));
            let lower = match tier {
                Tier::Below(number) => of.lower(number).map(|lower| (number, lower)),
                Tier::Device | Tier::Host => None,
            };
            if lower.is_none() && !purged {
                pool.withdraw_held(block);
            }
            pool.release_refs([block]);
            if let Some((number, lower)) = lower.filter(|_| !purged) {
                let slot = lower.port.reserve_this(block);
                give_up_slot(&mut self.effects, of, slot.map(|slot| (number, slot)));
            }
        }
    }

    /// Whether a block that lands under this name is to go.
    pub(crate) fn is_forgotten(&self, group: GroupId, hash: SequenceHash) -> bool {
        !self.forgotten.is_empty() && self.forgotten.contains(&(group, hash))
    }

    /// Forgets a name once more when a transfer of it has ended.
    pub(crate) fn forget_again(&mut self, inner: &Inner, group: GroupId, hash: SequenceHash) {
        if self.is_forgotten(group, hash) {
            self.forgotten.remove(&(group, hash));
            self.forget(inner, group, hash);
        }
    }
}
