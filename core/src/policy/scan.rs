//! The pool's part of a search for victims: only the pool claims.

use crate::slot::Slot;
use crate::timeline::{Candidate, Timeline, Verdict};

/// The pool's operations for a policy that searches for victims.
pub(crate) trait Scan<'p> {
    fn slots(&self) -> &'p [Slot];

    fn timeline(&self) -> &'p Timeline;

    /// The parent of a claimed block, if it is still registered.
    fn parent_of(&self, slot: &Slot) -> Option<u32>;

    /// Claims the oldest blocks of a list, in order.
    fn take_oldest(&self, list: usize, wanted: usize) -> usize {
        self.timeline().take_oldest(self.slots(), list, wanted, |candidate, _| self.claim(candidate))
    }

    /// Number of victims so far.
    fn claimed(&self) -> usize;

    /// Number of blocks that will come for the victims that the caller has so far.
    fn coming(&self) -> usize;

    /// The victims after the first `before`, which are the caller's.
    fn claimed_since(&self, before: usize) -> impl Iterator<Item = &'p Slot>;

    /// Returns whether a parent was requeued since the last call: it is older than the next
    /// victim, and perhaps of a lower class.
    fn reordered(&self) -> bool;

    /// As [`reordered`](Scan::reordered), but does not clear the mark.
    fn is_reordered(&self) -> bool;

    /// Claims one candidate, or returns why not.
    fn claim(&self, candidate: Candidate) -> Verdict;

    /// Gives an inactive block a new place, in another list or at the end of its own.
    fn requeue(&self, candidate: Candidate, list: u8) -> Verdict;
}
