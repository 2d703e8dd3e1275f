//! Hints, hot blocks, and the prefetches under way.

use crate::state::{GroupId, UpId};
use kvstrata_core::{SequenceHash, TenantId};
use kvstrata_ffi::disk::{Name, OwnerId};
use std::collections::{BTreeSet, VecDeque};

/// A hint: blocks to be brought up, and how far that is.
#[derive(Debug)]
struct Hint {
    number: u64,
    group: GroupId,
    tenant: TenantId,
    hashes: Vec<SequenceHash>,
    next: usize,
}

/// A block to be brought up: its group and tenant, and the number of its hint; 0: none, it is hot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guess {
    pub(crate) group: GroupId,
    pub(crate) tenant: TenantId,
    pub(crate) hint: u64,
    pub(crate) name: Name,
}

/// Hints, blocks that were used often, and the prefetches under way.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    /// The oldest first.
    hints: VecDeque<Hint>,
    /// Victims that were used often.
    hot: VecDeque<(GroupId, Name)>,
    /// How often a block was noted as hot.
    noted: u64,
    /// Transfers of prefetches.
    under_way: BTreeSet<UpId>,
}

impl Guesses {
    /// Returns the tenants that have hints.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = TenantId> {
        self.hints.iter().map(|hint| hint.tenant)
    }

    /// Adds a hint, unless the device has all its blocks; it has those before `next`. The oldest hints
    /// give way if there are more than `most`.
    pub(crate) fn hint(
        &mut self,
        (number, group, tenant): (u64, GroupId, TenantId),
        hashes: &[SequenceHash],
        next: usize,
        most: usize,
    ) {
        if next < hashes.len() {
            self.hints.push_back(Hint { number, group, tenant, hashes: hashes.to_vec(), next });
        }
        while self.hints.len() > most {
            self.hints.pop_front();
        }
    }

    /// Removes a hint.
    pub(crate) fn withdraw(&mut self, number: u64) {
        self.hints.retain(|hint| hint.number != number);
    }

    /// Returns the next block that the oldest hint lacks. Drops hints that lack none.
    pub(crate) fn next_hint(&mut self, there: impl Fn(GroupId, SequenceHash) -> bool) -> Option<Guess> {
        loop {
            let hint = self.hints.front_mut()?;
            while hint.next < hint.hashes.len() && there(hint.group, hint.hashes[hint.next]) {
                hint.next += 1;
            }
            if let Some(hash) = hint.hashes.get(hint.next).copied() {
                let parent = hint.next.checked_sub(1).map(|before| hint.hashes[before]);
                let name = Name { hash, parent, owner: OwnerId::NONE };
                return Some(Guess { group: hint.group, tenant: hint.tenant, hint: hint.number, name });
            }
            self.hints.pop_front();
        }
    }

    /// Moves the oldest hint past that block.
    pub(crate) fn advance_hint(&mut self) {
        if let Some(hint) = self.hints.front_mut() {
            hint.next += 1;
        }
    }

    /// Ends the oldest hint, if it has this number.
    pub(crate) fn end_hint(&mut self, number: u64) {
        if let Some(hint) = self.hints.front_mut().filter(|hint| hint.number == number) {
            hint.hashes.clear();
        }
    }

    /// Notes a block that was used often, and is below. The oldest gives way if there are `most` already.
    pub(crate) fn note_hot(&mut self, group: GroupId, name: Name, most: usize) {
        if self.hot.len() >= most {
            self.hot.pop_front();
        }
        self.hot.push_back((group, name));
        self.noted += 1;
    }

    /// Returns how often a block was noted as hot.
    pub(crate) fn noted(&self) -> u64 {
        self.noted
    }

    /// Returns the hot block that was noted last.
    pub(crate) fn last_hot(&self) -> Option<(GroupId, Name)> {
        self.hot.back().copied()
    }

    /// Removes that block.
    pub(crate) fn pop_hot(&mut self) {
        self.hot.pop_back();
    }

    /// Adds a prefetch that begins.
    pub(crate) fn begin(&mut self, key: UpId) {
        self.under_way.insert(key);
    }

    /// Removes a prefetch that has ended, or has become a request's.
    pub(crate) fn end(&mut self, key: UpId) {
        self.under_way.remove(&key);
    }

    /// Returns the prefetches under way.
    pub(crate) fn under_way(&self) -> impl ExactSizeIterator<Item = UpId> {
        self.under_way.iter().copied()
    }
}
