//! A search for victims, as a policy sees it: the pool's part, which alone claims.

use crate::slot::Slot;
use crate::timeline::{Candidate, Timeline, Verdict};

/// What a policy asks of the pool while it looks for victims.
pub(crate) trait Scan<'p> {
    fn slots(&self) -> &'p [Slot];

    fn timeline(&self) -> &'p Timeline;

    /// The parent of a block that was claimed, if it is registered still.
    fn parent_of(&self, slot: &Slot) -> Option<u32>;

    /// Claims the oldest of a list, as they come.
    fn take_oldest(&self, list: usize, wanted: usize) -> usize {
        self.timeline().take_oldest(self.slots(), list, wanted, |candidate, _| self.claim(candidate))
    }

    /// Victims so far.
    fn claimed(&self) -> usize;

    /// Blocks that will come for those which the caller has been given so far.
    fn coming(&self) -> usize;

    /// Victims behind so many, which are the caller's.
    fn claimed_since(&self, before: usize) -> impl Iterator<Item = &'p Slot>;

    /// Whether a parent came back into its list since the last call: an older victim than the next, perhaps of a lower class.
    fn reordered(&self) -> bool;

    /// As [`reordered`](Scan::reordered), and stays so.
    fn is_reordered(&self) -> bool;

    /// Claims one candidate, or says why not.
    fn claim(&self, candidate: Candidate) -> Verdict;

    /// Gives an inactive block a new place, in another list or at the end of its own.
    fn requeue(&self, candidate: Candidate, list: u8) -> Verdict;
}
