//! Deadlines: each waiter is answered in time, whether its future is polled or not. One attendant looks
//! after all of them.
//!
//! ```text
//!   by time   (t1, place 7 in the queue) (t2, onboarding 3) (t3, offload 9) …
//!                 └ the runtime calls Attendant::on_time then;
//!                   Runtime::wake_at tells it of an earlier deadline
//!   the runtime ends ──► Attendant::close_for_good: transfers that do not move yet are cancelled;
//!                        the remaining deadlines are still answered
//! ```
//!
//! Without the attendant, a future that is not polled would keep its place at the head of the wait queue,
//! with the blocks that it has gathered, and those behind it would be late in its stead.
//!
//! Invariants
//! - I1: each waiter in the queue, for transfers up or for transfers down has an entry here until it is
//!   answered. Exceptions: transfers in the queue (their onboarding has an entry), and waiters without a
//!   deadline. Each moment that a caller awaits has an entry, too.
//! - I2: the runtime is told of each entry that comes before all others.
//! - I3: the attendant does not keep the engine alive. While it answers it may be the last holder; then
//!   it leaves the engine's end to a thread ([`Inner::leave`]).

use crate::engine::inner::Inner;
use crate::state::{Traffic, Waits};
use std::time::Duration;

impl Traffic {
    pub(crate) fn due(&mut self, at: Option<Duration>, who: Waits) {
        if let Some(at) = at
            && self.deadlines.add(at, who)
        {
            self.effects.wake_at(at);
        }
    }

    /// Removes the deadline of a waiter that has been answered.
    pub(crate) fn not_due(&mut self, at: Option<Duration>, who: Waits) {
        if let Some(at) = at {
            self.deadlines.remove(at, who);
        }
    }

    /// Answers all late waiters. Returns the next deadline.
    pub(crate) fn answer_late(&mut self, inner: &Inner, now: Duration) -> Option<Duration> {
        while self.answer_first(inner, Some(now)) {}
        self.deadlines.next()
    }

    /// Answers the first deadline: only if it has passed by `now`, or, without `now`, in any case.
    /// Returns whether it did.
    pub(crate) fn answer_first(&mut self, inner: &Inner, now: Option<Duration>) -> bool {
        let Some(who) = self.deadlines.take_first(now) else { return false };
        match who {
            Waits::Place { group, number } => self.late_in_queue(inner, group, number),
            Waits::Onboarding(key) => self.late_onboarding(inner, key),
            Waits::Offloading(key) => self.late_offloading(inner, key),
            Waits::Iteration => self.no_iteration(),
            // The advance after each change looks at the waiters.
            Waits::Below(group) => self.groups[group].below.alarm_over(),
            Waits::Moment(number) => {
                if let Some(tell) = self.deadlines.take_moment(number) {
                    self.effects.moment_has_come(tell);
                }
            }
            Waits::Retry(transfer, serial) => self.resume(inner, transfer, serial),
            // These may set a new deadline: when all remaining deadlines are answered, that would never end.
            Waits::Recovery(path) if now.is_some() => self.look_at_recovery(inner, path),
            Waits::Gates if now.is_some() => self.look_at_gates(inner),
            Waits::Recovery(_) | Waits::Gates => {}
        }
        true
    }
}
