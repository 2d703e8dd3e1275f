//! Copies ahead of need: how far looks have come, and the copies that are deferred.

use crate::scheduler::Search;
use crate::state::Ready;
use crate::tier::Tier;
use kvstrata_core::{BlockRef, VictimsSeen};
use std::collections::VecDeque;

/// Victims looked at between two iterations, at most: the next ones, and as many behind them; some tens of microseconds.
pub(crate) const LOOK: usize = 4096;

/// Owed copies that are begun at a time, under the lock.
pub(crate) const PART: usize = 64;

/// How far the looks at a tier have come.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// For what is idle.
    pub(crate) search: Search,
    pub(crate) searching: bool,
    pub(crate) found: Vec<BlockRef>,
    /// Through the window, behind its first [`LOOK`]: where, and how many of it have been seen. Of what is to be ready: through all of it.
    pub(crate) seen: VictimsSeen,
    pub(crate) passed: usize,
    pub(crate) ready: Ready,
}

/// Copies that are to be made when there is room: of each tier of each group the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// Of group 0's device and host, of group 1's, …
    pub(crate) copies: Vec<VecDeque<BlockRef>>,
    /// How many there are, and were when it was last looked which of them are gone.
    pub(crate) all: usize,
    pub(crate) looked: usize,
    /// Who is asked first.
    pub(crate) first: usize,
}

impl Owed {
    pub(crate) fn of(&mut self, (stack, tier): (u16, Tier)) -> &mut VecDeque<BlockRef> {
        let at = 2 * usize::from(stack) + usize::from(tier == Tier::Host);
        if self.copies.len() <= at {
            self.copies.resize_with(at + 1, VecDeque::new);
        }
        &mut self.copies[at]
    }
}

/// Whose copies are at a place of those that are owed.
pub(crate) fn owed_at(place: usize) -> (u16, Tier) {
    ((place / 2) as u16, if place.is_multiple_of(2) { Tier::Device } else { Tier::Host })
}
