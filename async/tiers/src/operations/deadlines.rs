//! Whoever waits is answered in time, whether its future is polled or not: one attendant looks after all
//! deadlines.
//!
//! ```text
//!   by time   (t1, place 7 in the queue) (t2, onboarding 3) (t3, offload 9) …
//!                 └ the runtime calls Attendant::on_time then, and is told of an earlier one (Runtime::wake_at)
//!   the runtime ends ──► Attendant::close_for_good: what has not begun to move is cancelled; deadlines that are left are still answered
//! ```
//!
//! A future that nobody polls would otherwise keep its place at the head of the wait queue, with the blocks
//! that it has gathered, and those behind it would be late in its stead.
//!
//! Invariants
//! - I1: who waits in the queue, for transfers up or for transfers down has an entry here until it is
//!   answered; but for transfers in the queue, whose onboarding has it, and for who waits without end. So has
//!   each moment that something waits for.
//! - I2: the runtime is told of each entry that comes before all others.
//! - I3: the attendant keeps no engine. While it answers it may be the last that has it, and then leaves its
//!   end to a thread ([`Inner::leave`]).

use crate::engine::inner::Inner;
use crate::state::{Traffic, Waits};
use std::time::Duration;

impl Traffic {
    /// Notes a deadline.
    pub(crate) fn due(&mut self, at: Option<Duration>, who: Waits) {
        if let Some(at) = at
            && self.deadlines.add(at, who)
        {
            self.effects.wake_at(at);
        }
    }

    /// It has been answered.
    pub(crate) fn not_due(&mut self, at: Option<Duration>, who: Waits) {
        if let Some(at) = at {
            self.deadlines.remove(at, who);
        }
    }

    /// Answers all who are late. When the next one will be.
    pub(crate) fn answer_late(&mut self, inner: &Inner, now: Duration) -> Option<Duration> {
        while self.answer_first(inner, Some(now)) {}
        self.deadlines.next()
    }

    /// Answers the first, if it is late by now, or whenever it were. Whether there was such a one.
    pub(crate) fn answer_first(&mut self, inner: &Inner, now: Option<Duration>) -> bool {
        let Some(who) = self.deadlines.take_first(now) else { return false };
        match who {
            Waits::Place { group, number } => self.late_in_queue(inner, group, number),
            Waits::Onboarding(key) => self.late_onboarding(inner, key),
            Waits::Offloading(key) => self.late_offloading(inner, key),
            Waits::Iteration => self.no_iteration(),
            // Who waits is looked at with what follows from any change.
            Waits::Below(group) => self.groups[group].below.alarm_over(),
            Waits::Moment(number) => {
                if let Some(tell) = self.deadlines.take_moment(number) {
                    self.effects.moment_has_come(tell);
                }
            }
            Waits::Retry(transfer, serial) => self.resume(inner, transfer, serial),
            // These may ask to be looked at again: at the end of all deadlines that would never end.
            Waits::Recovery(path) if now.is_some() => self.look_at_recovery(inner, path),
            Waits::Gates if now.is_some() => self.look_at_gates(inner),
            Waits::Recovery(_) | Waits::Gates => {}
        }
        true
    }
}
