//! Whoever waits is answered in time, whether its future is polled or not: one attendant looks after all deadlines.
//!
//! ```text
//!   by time   (t1, place 7 in line) (t2, onboarding 3) (t3, offload 9) …
//!                 └ the runtime calls Attendant::on_time then, and is told of an earlier one (Runtime::wake_at)
//!   the runtime ends ──► Attendant::close_for_good: what has not begun to move is cancelled; deadlines that are left are still answered
//! ```
//!
//! A future that nobody polls would otherwise keep its place at the head of the line, with the blocks that it has gathered, and those
//! behind it would be late in its stead.
//!
//! Invariants
//! - I1: who waits in line, for flights up or for flights down has an entry here until it is answered; but for flights in line, whose
//!   onboarding has it, and for who waits without end. So has each moment that something waits for.
//! - I2: the runtime is told of each entry that comes before all others.
//! - I3: the attendant keeps no engine. While it answers it may be the last that has it, and then leaves its end to a thread ([`Inner::leave`]).

use super::inner::Inner;
use super::traffic::{Id, Traffic};
use crate::transfer::Path;
use futures_channel::oneshot;
use std::collections::{BTreeSet, HashMap};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

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
    /// For a moment.
    Moment(u64),
    /// In a group's line, for writes to the tier below.
    Below(u16),
    /// Until a path that was too slow has recovered.
    Recovery(Path),
    /// A flight, before another attempt: its number.
    Retry(Id, u64),
    /// Behind gates, for an engine that does not go on.
    Gates,
}

/// By time.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    by_time: BTreeSet<(Duration, Waits)>,
    /// Who is told that a moment has come.
    moments: HashMap<u64, oneshot::Sender<()>>,
    last_moment: u64,
}

/// A moment that somebody waits for. Dropped, nobody does any more.
pub(super) struct Moment<'i> {
    inner: &'i Arc<Inner>,
    at: Duration,
    number: u64,
    come: oneshot::Receiver<()>,
}

impl Inner {
    /// When so long will be over; none if that is beyond all clocks.
    pub(super) fn due_in(&self, wait: Duration) -> Option<Duration> {
        self.elapsed().checked_add(wait)
    }

    /// A future that ends at a moment, whatever has become of the runtime.
    pub(super) fn moment(self: &Arc<Inner>, at: Duration) -> Moment<'_> {
        let (tell, come) = oneshot::channel();
        let number = self.change(|traffic| {
            let deadlines = &mut traffic.deadlines;
            deadlines.last_moment += 1;
            let number = deadlines.last_moment;
            deadlines.moments.insert(number, tell);
            traffic.due(Some(at), Waits::Moment(number));
            number
        });
        Moment { inner: self, at, number, come }
    }

    /// Waits so long.
    pub(super) async fn pause(self: &Arc<Inner>, time: Duration) {
        if let Some(at) = self.due_in(time) {
            self.moment(at).await;
        }
    }
}

/// What a future gives, unless a moment comes before.
pub(super) async fn first_of<F: Future>(future: F, moment: impl Future<Output = ()>) -> Option<F::Output> {
    let (mut future, mut moment) = (pin!(future), pin!(moment));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => moment.as_mut().poll(context).map(|()| None),
    })
    .await
}

impl Future for Moment<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.come).poll(context).map(|_| ())
    }
}

impl Drop for Moment<'_> {
    fn drop(&mut self) {
        if self.inner.is_inherited() {
            return;
        }
        let mut traffic = self.inner.look();
        traffic.not_due(Some(self.at), Waits::Moment(self.number));
        let tell = traffic.deadlines.moments.remove(&self.number);
        drop(traffic);
        drop(tell);
    }
}

impl Traffic {
    /// Notes a deadline.
    pub(super) fn due(&mut self, at: Option<Duration>, who: Waits) {
        if let Some(at) = at {
            self.deadlines.by_time.insert((at, who));
            if self.deadlines.by_time.first() == Some(&(at, who)) {
                self.out.wake_at = Some(at);
            }
        }
    }

    /// It has been answered.
    pub(super) fn not_due(&mut self, at: Option<Duration>, who: Waits) {
        if let Some(at) = at {
            self.deadlines.by_time.remove(&(at, who));
        }
    }

    /// Answers all who are late. When the next one will be.
    fn answer_late(&mut self, inner: &Inner, now: Duration) -> Option<Duration> {
        while self.answer_first(inner, Some(now)) {}
        self.deadlines.by_time.first().map(|(at, _)| *at)
    }

    /// Answers the first, if it is late by now, or whenever it were. Whether there was such a one.
    fn answer_first(&mut self, inner: &Inner, now: Option<Duration>) -> bool {
        let Some((at, who)) = self.deadlines.by_time.first().copied() else { return false };
        if now.is_some_and(|now| at > now) {
            return false;
        }
        self.deadlines.by_time.pop_first();
        match who {
            Waits::Place { stack, number } => self.late_in_line(inner, stack, number),
            Waits::Onboarding(key) => self.late_onboarding(inner, key),
            Waits::Offloading(key) => self.late_offloading(inner, key),
            Waits::Iteration => self.no_iteration(),
            // Who waits is looked at with what follows from any change.
            Waits::Below(stack) => self.lines[stack as usize].alarm = false,
            Waits::Moment(number) => self.out.come.extend(self.deadlines.moments.remove(&number)),
            Waits::Retry(flight, serial) => self.resume(inner, flight, serial),
            // These may ask to be looked at again: at the end of all deadlines that would never end.
            Waits::Recovery(path) if now.is_some() => self.look_at_recovery(inner, path),
            Waits::Gates if now.is_some() => self.look_at_gates(inner),
            Waits::Recovery(_) | Waits::Gates => {}
        }
        true
    }
}

/// Answers an engine's deadlines, for its runtime. It keeps no engine.
#[derive(Debug, Clone)]
pub struct Attendant(pub(super) Weak<Inner>);

/// When an attendant is to be called next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// At this moment, or when the runtime is told of an earlier one.
    At(Duration),
    /// When the runtime is told of a moment.
    WhenTold,
    /// Never: the engine is gone.
    Never,
}

impl Attendant {
    /// Answers all who are late by now.
    #[must_use]
    pub fn on_time(&self) -> Next {
        let Some(inner) = self.0.upgrade() else { return Next::Never };
        let next = inner.with(|traffic| traffic.answer_late(&inner, inner.elapsed()));
        inner.leave();
        next.map_or(Next::WhenTold, Next::At)
    }

    /// The runtime ends: the engine gives nothing more, and what has not begun to move is cancelled. Whether the engine gave something
    /// until now; none: it is gone.
    #[must_use]
    pub fn close_for_good(&self) -> Option<bool> {
        let inner = self.0.upgrade()?;
        // Whoever has shut the tiers down, or let go of them, need not be told.
        let gave = !inner.refusing.load(Relaxed) && !inner.look().phase.refuses();
        inner.close_for_good();
        inner.leave();
        Some(gave)
    }

    /// There is neither a runtime nor a thread any more: all who wait are late at once.
    pub fn answer_all(&self) {
        if let Some(inner) = self.0.upgrade() {
            inner.with(|traffic| while traffic.answer_first(&inner, None) {});
            inner.leave();
        }
    }
}
