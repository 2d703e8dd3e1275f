//! Copies ahead of need: how far looks have come, and the copies that are deferred.

use crate::scheduler::Search;
use crate::state::{GroupId, Ready};
use crate::tier::Tier;
use kvstrata_core::{BlockRef, VictimsSeen};
use std::collections::VecDeque;

/// Victims looked at between two iterations, at most: the next ones, and as many behind them; some tens of
/// microseconds.
pub(crate) const LOOK: usize = 4096;

/// Owed copies that are begun at a time, under the lock.
pub(crate) const PART: usize = 64;

/// Deferred copies from which on those of blocks that are gone are dropped.
const MANY: usize = 1024;

/// How far the looks at a tier have come.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// For what is idle.
    pub(crate) search: Search,
    pub(crate) searching: bool,
    pub(crate) found: Vec<BlockRef>,
    /// Through the window, behind its first [`LOOK`]: where, and how many of it have been seen. Of what is to
    /// be ready: through all of it.
    pub(crate) seen: VictimsSeen,
    pub(crate) passed: usize,
    pub(crate) ready: Ready,
}

/// Copies that are to be made when there is room: of each tier of each group the oldest first.
///
/// Invariants
/// - I1: `all` is how many there are.
#[derive(Debug, Default)]
pub(crate) struct DeferredCopies {
    /// Of group 0's device and host, of group 1's, …
    copies: Vec<VecDeque<BlockRef>>,
    /// How many there are, and were when it was last looked which of them are gone.
    all: usize,
    looked: usize,
    /// The place that is asked first.
    first: usize,
}

impl DeferredCopies {
    /// Whether there are so many, and twice as many as at the last look, that those of blocks that are gone
    /// are to be dropped.
    pub(crate) fn are_many(&self) -> bool {
        self.all >= MANY.max(2 * self.looked)
    }

    /// A copy is deferred.
    pub(crate) fn add(&mut self, (group, tier): (GroupId, Tier), block: BlockRef) {
        let at = 2 * group.index() + usize::from(tier == Tier::Host);
        if self.copies.len() <= at {
            self.copies.resize_with(at + 1, VecDeque::new);
        }
        self.copies[at].push_back(block);
        self.all += 1;
    }

    /// Keeps those that are still to be made.
    pub(crate) fn retain(&mut self, stays: impl Fn((GroupId, Tier), BlockRef) -> bool) {
        for (place, copies) in self.copies.iter_mut().enumerate() {
            copies.retain(|block| stays(DeferredCopies::whose(place), *block));
        }
        self.all = self.copies.iter().map(VecDeque::len).sum();
        self.looked = self.all;
    }

    /// The places of tiers of groups that have, or had, some: in the order in which they are asked.
    pub(crate) fn in_turn(&self) -> impl ExactSizeIterator<Item = usize> + use<> {
        let (first, places) = (self.first, self.copies.len());
        (0..places).map(move |turn| (first + turn) % places)
    }

    /// Which tier of which group a place is of.
    pub(crate) fn whose(place: usize) -> (GroupId, Tier) {
        (GroupId::new(place / 2), if place.is_multiple_of(2) { Tier::Device } else { Tier::Host })
    }

    /// The oldest at a place.
    pub(crate) fn oldest(&self, place: usize) -> Option<BlockRef> {
        self.copies[place].front().copied()
    }

    /// It is made.
    pub(crate) fn pop_oldest(&mut self, place: usize) {
        self.all -= usize::from(self.copies[place].pop_front().is_some());
    }

    /// The place behind this one, of so many, is asked first from now on.
    pub(crate) fn next_behind(&mut self, place: usize, places: usize) {
        self.first = (place + 1) % places;
    }
}
