//! Deadlines, by time.

use crate::state::{GroupId, OffloadingId, OnboardingId, TransferId};
use crate::transfer::Path;
use futures_channel::oneshot;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Waits that have a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Waits {
    Place {
        group: GroupId,
        number: u64,
    },
    Onboarding(OnboardingId),
    Offloading(OffloadingId),
    /// Transfers that wait for an iteration's bytes.
    Iteration,
    /// A future that waits for a moment, by its number.
    Moment(u64),
    /// Requests in a group's queue that wait for writes to the tier below.
    Below(GroupId),
    /// A path that was too slow, until it has recovered.
    Recovery(Path),
    /// A transfer that pauses before another attempt, and its number.
    Retry(TransferId, u64),
    /// Waiters behind gates, for an engine that makes no progress.
    Gates,
}

/// Deadlines by time.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    by_time: BTreeSet<(Duration, Waits)>,
    /// Senders that tell futures that their moment has come.
    moments: HashMap<u64, oneshot::Sender<()>>,
    last_moment: u64,
}

impl Deadlines {
    /// Adds a deadline. Returns whether it comes before all others.
    pub(crate) fn add(&mut self, at: Duration, who: Waits) -> bool {
        self.by_time.insert((at, who));
        self.by_time.first() == Some(&(at, who))
    }

    /// Removes a deadline.
    pub(crate) fn remove(&mut self, at: Duration, who: Waits) {
        self.by_time.remove(&(at, who));
    }

    /// Returns the next deadline.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes the first deadline, if it has come by now; without `now`, in any case.
    pub(crate) fn take_first(&mut self, now: Option<Duration>) -> Option<Waits> {
        let at = self.next()?;
        if now.is_some_and(|now| at > now) {
            return None;
        }
        self.by_time.pop_first().map(|(_, who)| who)
    }

    /// Adds a moment with its sender. Returns its number.
    pub(crate) fn add_moment(&mut self, tell: oneshot::Sender<()>) -> u64 {
        self.last_moment += 1;
        self.moments.insert(self.last_moment, tell);
        self.last_moment
    }

    /// Takes the sender of a moment.
    pub(crate) fn take_moment(&mut self, number: u64) -> Option<oneshot::Sender<()>> {
        self.moments.remove(&number)
    }
}
