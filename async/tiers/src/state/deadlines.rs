//! Deadlines, by time.

use crate::state::{GroupId, OffloadingId, OnboardingId, TransferId};
use crate::transfer::Path;
use futures_channel::oneshot;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Waits {
    Place {
        group: GroupId,
        number: u64,
    },
    Onboarding(OnboardingId),
    Offloading(OffloadingId),
    /// For an iteration's bytes.
    Iteration,
    /// For a moment.
    Moment(u64),
    /// In a group's line, for writes to the tier below.
    Below(GroupId),
    /// Until a path that was too slow has recovered.
    Recovery(Path),
    /// A transfer, before another attempt: its number.
    Retry(TransferId, u64),
    /// Behind gates, for an engine that does not go on.
    Gates,
}

/// By time.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    by_time: BTreeSet<(Duration, Waits)>,
    /// Who is told that a moment has come.
    moments: HashMap<u64, oneshot::Sender<()>>,
    last_moment: u64,
}

impl Deadlines {
    /// Notes one. Whether it comes before all others.
    pub(crate) fn add(&mut self, at: Duration, who: Waits) -> bool {
        self.by_time.insert((at, who));
        self.by_time.first() == Some(&(at, who))
    }

    /// One is not waited for any more.
    pub(crate) fn remove(&mut self, at: Duration, who: Waits) {
        self.by_time.remove(&(at, who));
    }

    /// When the next one will be.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes the first one, if it has come by now, or whenever it were.
    pub(crate) fn take_first(&mut self, now: Option<Duration>) -> Option<Waits> {
        let at = self.next()?;
        if now.is_some_and(|now| at > now) {
            return None;
        }
        self.by_time.pop_first().map(|(_, who)| who)
    }

    /// A moment, and who is told that it has come. Its number.
    pub(crate) fn add_moment(&mut self, tell: oneshot::Sender<()>) -> u64 {
        self.last_moment += 1;
        self.moments.insert(self.last_moment, tell);
        self.last_moment
    }

    /// Who is told of a moment, or was to be.
    pub(crate) fn take_moment(&mut self, number: u64) -> Option<oneshot::Sender<()>> {
        self.moments.remove(&number)
    }
}
