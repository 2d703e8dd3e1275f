//! How long the requests of a group wait for writes to the tier below, and may.

use crate::state::Spells;
use crate::transfer::Patience;
use std::time::Duration;

/// Of a group.
#[derive(Debug, Default)]
pub(crate) struct WaitsBelow {
    patience: Patience,
    waiting: Spells,
    /// There is a deadline at which it is looked at again.
    has_alarm: bool,
    /// Requests that were served without waiting, when it was last asked.
    at_once: u64,
}

impl WaitsBelow {
    pub(crate) fn new(patience: Patience) -> WaitsBelow {
        WaitsBelow { patience, ..WaitsBelow::default() }
    }

    /// How long its requests have waited, in all.
    pub(crate) fn until(&self, now: Duration) -> Duration {
        self.waiting.until(now)
    }

    /// Whether some wait now.
    pub(crate) fn is_on(&self) -> bool {
        self.waiting.is_on()
    }

    /// Some wait from now on, or none do.
    pub(crate) fn set(&mut self, on: bool, now: Duration) {
        self.waiting.set(on, || now);
    }

    /// How long a request has waited when that is to be looked at.
    pub(crate) fn next_look(&self) -> Duration {
        self.patience.next_look()
    }

    /// Whether requests may wait: so many wait for longer than the next look, the first one for so long.
    pub(crate) fn may_wait(&mut self, waiting: usize, longest: Duration, keeps_up: bool) -> bool {
        self.patience.may_wait(waiting, longest, keeps_up)
    }

    /// A request was served, which has waited so long for copies and for writes below; so many were served at
    /// once until now.
    pub(crate) fn served(&mut self, copying: Duration, below: Duration, keeps_up: bool, at_once: u64) {
        let more = at_once.saturating_sub(std::mem::replace(&mut self.at_once, at_once));
        self.patience.served_at_once(more);
        self.patience.served(copying, below, keeps_up);
    }

    pub(crate) fn has_alarm(&self) -> bool {
        self.has_alarm
    }

    /// There is a deadline for the next look.
    pub(crate) fn alarm_set(&mut self) {
        self.has_alarm = true;
    }

    /// The deadline has come.
    pub(crate) fn alarm_over(&mut self) {
        self.has_alarm = false;
    }
}
