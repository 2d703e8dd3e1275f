//! The contents of a simulated disk, and counts of its requests.

use super::super::{Fate, Fault, flip};
use kvstrata_core::{BlockId, MutableBlock, SequenceHash};
use kvstrata_ffi::disk::{OwnerId, sum_of_payload};
use kvstrata_tiers::transfer::Cause;
use std::collections::{BTreeMap, BTreeSet};

/// Counts of requests. `violations` lists calls that break the port's contract.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    pub read: u64,
    pub written: u64,
    pub failed: u64,
    pub rejected: u64,
    pub used: u64,
    pub asked: u64,
    pub refused: u64,
    pub quarantined: u64,
    pub violations: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Books {
    /// Records that a restart would find.
    pub(super) slots: BTreeMap<u32, Stored>,
    pub(super) writes: u64,
    /// Owners of the blocks that the opening has found.
    pub(super) owners: Vec<(BlockId, OwnerId)>,
    /// By slot: reads in flight, and whether a write is.
    pub(super) under_way: BTreeMap<u32, (u32, bool)>,
    /// All reads in flight, and all writes of the manager.
    pub(super) in_flight: [u32; 2],
    /// Slots that are free once their blocks are forgotten.
    pub(super) unforgotten: Vec<BlockId>,
    /// A request that waits for room is about to forget them.
    pub(super) expected: bool,
    pub(super) lost: BTreeSet<u32>,
    pub(super) counts: Counts,
}

#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) hash: SequenceHash,
    pub(super) owner: OwnerId,
    /// Of two records of one hash the later one is found.
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) sum: u64,
}

impl Books {
    /// Puts a slot back: it is free now, or once its block is forgotten.
    pub(super) fn put_back(&mut self, slot: MutableBlock<'_>) {
        if self.slots.contains_key(&slot.id().0) {
            self.unforgotten.push(slot.into_id());
        }
    }

    pub(super) fn violation(&mut self, what: String) {
        self.counts.violations.push(what);
    }

    pub(super) fn enters(&mut self, kind: usize, at_once: u32) {
        self.in_flight[kind] += 1;
        if self.in_flight[kind] > at_once {
            let what = ["reads", "writes"][kind];
            self.violation(format!("{} {what} are under way, of {at_once} at once", self.in_flight[kind]));
        }
    }

    pub(super) fn begins(&mut self, slot: BlockId, write: bool) {
        let (reads, written) = self.under_way.entry(slot.0).or_default();
        let conflict = *written || write && *reads > 0;
        if write {
            *written = true;
        } else {
            *reads += 1;
        }
        if conflict {
            let what = if write { "written" } else { "read" };
            self.violation(format!("{slot} is {what} beside another request of it"));
        }
    }

    pub(super) fn ends(&mut self, slot: BlockId, write: bool) {
        let Some((reads, written)) = self.under_way.get_mut(&slot.0) else { return };
        if write {
            *written = false;
        } else {
            *reads -= 1;
        }
    }

    /// Brings the slot's bytes, if they are the block's. Any other content is gone then.
    pub(super) fn bring(
        &mut self,
        slot: BlockId,
        hash: SequenceHash,
        buffer: &mut [u8],
        fate: Fate,
    ) -> Result<(), Cause> {
        if fate.fault == Some(Fault::Fails) {
            self.slots.remove(&slot.0);
            self.counts.failed += 1;
            return Err(Cause::Tier);
        }
        if fate.fault == Some(Fault::Damaged)
            && let Some(stored) = self.slots.get_mut(&slot.0)
        {
            match fate.number % 2 {
                0 => flip(&mut stored.bytes, fate.number),
                _ => stored.hash = SequenceHash::from_u128(hash.to_u128() ^ 1),
            }
        }
        let whole = |stored: &&Stored| stored.hash == hash && sum_of_payload(&stored.bytes) == stored.sum;
        match self.slots.get(&slot.0).filter(whole) {
            // The caller's mistake: the block stays.
            Some(stored) if stored.bytes.len() != buffer.len() => {
                self.counts.failed += 1;
                Err(Cause::Buffer)
            }
            Some(stored) => {
                buffer.copy_from_slice(&stored.bytes);
                self.counts.read += 1;
                Ok(())
            }
            None => {
                self.slots.remove(&slot.0);
                self.counts.rejected += 1;
                Err(Cause::Rejected)
            }
        }
    }
}
