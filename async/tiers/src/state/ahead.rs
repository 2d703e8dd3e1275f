//! Copies ahead of need: how far looks have come, and the copies that are deferred.

use crate::scheduler::Search;
use crate::state::{GroupId, Ready};
use crate::tier::Tier;
use kvstrata_core::{BlockRef, VictimsSeen};
use std::collections::VecDeque;

/// Maximum number of victims looked at between two iterations: the next ones, and as many behind them.
/// This takes some tens of microseconds.
pub(crate) const LOOK: usize = 4096;

/// Deferred copies that are begun at a time, under the lock.
pub(crate) const PART: usize = 64;

/// From this number of deferred copies on, copies of blocks that are gone are dropped.
const MANY: usize = 1024;

/// How far the looks at a tier have come.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// The search for idle blocks.
    pub(crate) search: Search,
    pub(crate) searching: bool,
    pub(crate) found: Vec<BlockRef>,
    /// How far the look has come through the window behind its first [`LOOK`] victims, and how many of
    /// the window it has seen. If victims are to be ready: through the whole window.
    pub(crate) seen: VictimsSeen,
    pub(crate) passed: usize,
    pub(crate) ready: Ready,
}

/// Copies that are to be made when there is room; for each tier of each group, the oldest first.
///
/// Invariants
/// - I1: `all` is the number of copies.
#[derive(Debug, Default)]
pub(crate) struct DeferredCopies {
    /// By place: group 0's device, group 0's host, group 1's device, …
    copies: Vec<VecDeque<BlockRef>>,
    /// The number of copies now, and after the last check for blocks that are gone.
    all: usize,
    looked: usize,
    /// The place that is served first.
    first: usize,
}

impl DeferredCopies {
    /// Whether there are enough copies, and twice as many as after the last check, to drop copies of
    /// blocks that are gone.
    pub(crate) fn are_many(&self) -> bool {
        self.all >= MANY.max(2 * self.looked)
    }

    /// Defers a copy.
    pub(crate) fn add(&mut self, (group, tier): (GroupId, Tier), block: BlockRef) {
        let at = 2 * group.index() + usize::from(tier == Tier::Host);
        if self.copies.len() <= at {
            self.copies.resize_with(at + 1, VecDeque::new);
        }
        self.copies[at].push_back(block);
        self.all += 1;
    }

    /// Keeps the copies that are still to be made.
    pub(crate) fn retain(&mut self, stays: impl Fn((GroupId, Tier), BlockRef) -> bool) {
        for (place, copies) in self.copies.iter_mut().enumerate() {
            copies.retain(|block| stays(DeferredCopies::whose(place), *block));
        }
        self.all = self.copies.iter().map(VecDeque::len).sum();
        self.looked = self.all;
    }

    /// Returns the places that have, or had, copies, in the order in which they are served.
    pub(crate) fn in_turn(&self) -> impl ExactSizeIterator<Item = usize> + use<> {
        let (first, places) = (self.first, self.copies.len());
        (0..places).map(move |turn| (first + turn) % places)
    }

    /// Returns the group and the tier of a place.
    pub(crate) fn whose(place: usize) -> (GroupId, Tier) {
        (GroupId::new(place / 2), if place.is_multiple_of(2) { Tier::Device } else { Tier::Host })
    }

    /// Returns the oldest copy at a place.
    pub(crate) fn oldest(&self, place: usize) -> Option<BlockRef> {
        self.copies[place].front().copied()
    }

    /// Removes the oldest copy at a place: it is made.
    pub(crate) fn pop_oldest(&mut self, place: usize) {
        self.all -= usize::from(self.copies[place].pop_front().is_some());
    }

    /// Makes the place behind this one, of so many, the first to be served.
    pub(crate) fn next_behind(&mut self, place: usize, places: usize) {
        self.first = (place + 1) % places;
    }
}
