//! Whoever waits is answered in time, whether its future is polled or not: one task looks after all deadlines.
//!
//! ```text
//!   by time   (t1, place 7 in line) (t2, onboarding 3) (t3, offload 9) …
//!                 └ the task sleeps until then, and is told of what comes before
//! ```
//!
//! A future that nobody polls would otherwise keep its place at the head of the line, with the blocks that it has gathered, and those
//! behind it would be late in its stead.
//!
//! Invariants
//! - I1: who waits in line, for flights up or for flights down has an entry here until it is answered; but for flights in line, whose
//!   onboarding has it, and for who waits without end.
//! - I2: the task sleeps no longer than until the first entry: it is told of an earlier one.
//! - I3: asleep, it keeps no manager; awake, it may be the last that has it, and then leaves its end to a thread ([`Inner::leave`]).

use super::inner::Inner;
use super::traffic::Traffic;
use crate::transfer::Path;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waits {
    Place {
        stack: u16,
        number: u64,
    },
    Onboarding(u32),
    Offloading(u32),
    /// For an iteration's bytes.
    Iteration,
    /// In a group's line, for writes to the tier below.
    Below(u16),
    /// Until a path that was too slow has recovered.
    Recovery(Path),
}

/// By time.
#[derive(Debug, Default)]
pub(super) struct Deadlines(BTreeSet<(Instant, Waits)>);

impl Inner {
    /// When so long will be over; none if that is beyond all clocks.
    pub(super) fn due_in(&self, wait: Duration) -> Option<Instant> {
        let _in = self.runtime.enter();
        Instant::now().checked_add(wait)
    }
}

impl Traffic {
    /// Notes a deadline.
    pub(super) fn due(&mut self, at: Option<Instant>, who: Waits) {
        if let Some(at) = at {
            self.deadlines.0.insert((at, who));
            self.out.earlier |= self.deadlines.0.first() == Some(&(at, who));
        }
    }

    /// It has been answered.
    pub(super) fn not_due(&mut self, at: Option<Instant>, who: Waits) {
        if let Some(at) = at {
            self.deadlines.0.remove(&(at, who));
        }
    }

    /// Answers all who are late. When the next one will be.
    fn answer_late(&mut self, inner: &Inner, now: Instant) -> Option<Instant> {
        while let Some((at, who)) = self.deadlines.0.first().copied() {
            if at > now {
                return Some(at);
            }
            self.deadlines.0.pop_first();
            match who {
                Waits::Place { stack, number } => self.late_in_line(inner, stack, number),
                Waits::Onboarding(key) => self.late_onboarding(inner, key),
                Waits::Offloading(key) => self.late_offloading(inner, key),
                Waits::Iteration => self.no_iteration(),
                // Who waits is looked at with what follows from any change.
                Waits::Below(stack) => self.lines[stack as usize].alarm = false,
                Waits::Recovery(path) => self.look_at_recovery(inner, path),
            }
        }
        None
    }
}

/// The task; it ends with the manager.
pub(super) fn task(inner: &Arc<Inner>) {
    let (of, earlier) = (Arc::downgrade(inner), Arc::clone(&inner.earlier));
    inner.runtime.spawn(async move {
        while let Some(inner) = of.upgrade() {
            let next = inner.with(|traffic| traffic.answer_late(&inner, Instant::now()));
            inner.leave();
            let told = earlier.notified();
            match next {
                Some(next) => _ = timeout_at(next, told).await,
                None => told.await,
            }
        }
    });
}
