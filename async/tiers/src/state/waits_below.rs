//! How long requests of a group wait for writes to the tier below, and whether they may.

use crate::state::Spells;
use crate::transfer::Patience;
use std::time::Duration;

/// The waits of a group.
#[derive(Debug, Default)]
pub(crate) struct WaitsBelow {
    patience: Patience,
    waiting: Spells,
    /// A deadline is set for the next look.
    has_alarm: bool,
    /// Requests that had been served without waiting, at the last look.
    at_once: u64,
}

impl WaitsBelow {
    pub(crate) fn new(patience: Patience) -> WaitsBelow {
        WaitsBelow { patience, ..WaitsBelow::default() }
    }

    /// Returns how long its requests have waited, in all.
    pub(crate) fn until(&self, now: Duration) -> Duration {
        self.waiting.until(now)
    }

    /// Whether requests wait now.
    pub(crate) fn is_on(&self) -> bool {
        self.waiting.is_on()
    }

    /// Sets whether requests wait from now on.
    pub(crate) fn set(&mut self, on: bool, now: Duration) {
        self.waiting.set(on, || now);
    }

    /// Returns how long a request has waited when it is looked at.
    pub(crate) fn next_look(&self) -> Duration {
        self.patience.next_look()
    }

    /// Whether requests may wait: `waiting` of them have waited at least until the next look, the first
    /// one for `longest`.
    pub(crate) fn may_wait(&mut self, waiting: usize, longest: Duration, keeps_up: bool) -> bool {
        self.patience.may_wait(waiting, longest, keeps_up)
    }

    /// Notes that a request was served after it had waited so long for copies and for writes below. By
    /// now `at_once` requests were served without waiting.
    pub(crate) fn served(&mut self, copying: Duration, below: Duration, keeps_up: bool, at_once: u64) {
        let more = at_once.saturating_sub(std::mem::replace(&mut self.at_once, at_once));
        self.patience.served_at_once(more);
        self.patience.served(copying, below, keeps_up);
    }

    pub(crate) fn has_alarm(&self) -> bool {
        self.has_alarm
    }

    /// Notes that a deadline is set for the next look.
    pub(crate) fn alarm_set(&mut self) {
        self.has_alarm = true;
    }

    /// Notes that the deadline has come.
    pub(crate) fn alarm_over(&mut self) {
        self.has_alarm = false;
    }
}
