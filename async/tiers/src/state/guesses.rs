//! Hints, hot blocks, and the prefetches under way.

use crate::state::{GroupId, UpId};
use kvstrata_core::{SequenceHash, TenantId};
use kvstrata_ffi::disk::{Name, OwnerId};
use std::collections::{BTreeSet, VecDeque};

/// What is to be brought up, and how far it is.
#[derive(Debug)]
struct Hint {
    number: u64,
    group: GroupId,
    tenant: TenantId,
    hashes: Vec<SequenceHash>,
    next: usize,
}

/// A block that a hint wants: of which group, for whom, and by which hint; 0: since it is hot.
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
    /// How often something was said to be hot.
    noted: u64,
    /// Transfers of this class.
    under_way: BTreeSet<UpId>,
}

impl Guesses {
    /// Whose hints there are.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = TenantId> {
        self.hints.iter().map(|hint| hint.tenant)
    }

    /// Takes a hint, of which the device has the blocks before `next`; the oldest give way if there are more
    /// than so many.
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

    /// A hint is withdrawn.
    pub(crate) fn withdraw(&mut self, number: u64) {
        self.hints.retain(|hint| hint.number != number);
    }

    /// The next block that the oldest hint lacks.
    pub(crate) fn next_hint(&mut self, there: impl Fn(GroupId, SequenceHash) -> bool) -> Option<Guess> {
        loop {
            let hint = self.hints.front_mut()?;
            while hint.next < hint.hashes.len() && there(hint.group, hint.hashes[hint.next]) {
                hint.next += 1;
            }
            if let Some(hash) = hint.hashes.get(hint.next).copied() {
                let parent = hint.next.checked_sub(1).map(|before| hint.hashes[before]);
                let name = Name { hash, parent, owner: OwnerId::NOBODY };
                return Some(Guess { group: hint.group, tenant: hint.tenant, hint: hint.number, name });
            }
            self.hints.pop_front();
        }
    }

    /// The oldest hint lacks that one no more.
    pub(crate) fn advance_hint(&mut self) {
        if let Some(hint) = self.hints.front_mut() {
            hint.next += 1;
        }
    }

    /// Nothing of the oldest hint is to be brought up any more, if it is this one.
    pub(crate) fn end_hint(&mut self, number: u64) {
        if let Some(hint) = self.hints.front_mut().filter(|hint| hint.number == number) {
            hint.hashes.clear();
        }
    }

    /// A block was used often, and is below. The oldest of such give way if there are more than so many.
    pub(crate) fn note_hot(&mut self, group: GroupId, name: Name, most: usize) {
        if self.hot.len() >= most {
            self.hot.pop_front();
        }
        self.hot.push_back((group, name));
        self.noted += 1;
    }

    /// How often that was so.
    pub(crate) fn noted(&self) -> u64 {
        self.noted
    }

    /// The last one that is hot.
    pub(crate) fn last_hot(&self) -> Option<(GroupId, Name)> {
        self.hot.back().copied()
    }

    /// It is brought up.
    pub(crate) fn pop_hot(&mut self) {
        self.hot.pop_back();
    }

    /// A prefetch begins.
    pub(crate) fn begin(&mut self, key: UpId) {
        self.under_way.insert(key);
    }

    /// It ends, or becomes a request's.
    pub(crate) fn end(&mut self, key: UpId) {
        self.under_way.remove(&key);
    }

    /// Prefetches under way.
    pub(crate) fn under_way(&self) -> impl ExactSizeIterator<Item = UpId> {
        self.under_way.iter().copied()
    }
}
