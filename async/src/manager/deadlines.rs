//! Whoever waits is answered in time, whether its future is polled or not: one task looks after all deadlines.
//!
//! ```text
//!   by time   (t1, place 7 in line) (t2, onboarding 3) (t3, offload 9) …
//!                 └ the task sleeps until then, and is told of what comes before
//!   the runtime ends ──► the task is dropped ──► the manager is closed, and a thread looks after the deadlines that are left
//! ```
//!
//! A future that nobody polls would otherwise keep its place at the head of the line, with the blocks that it has gathered, and those
//! behind it would be late in its stead.
//!
//! The manager's runtime may be its engine's, and end while handles live. What has not begun to move is cancelled then. What a mover or a disk
//! has begun is answered by it, or by its deadline, which a thread looks after from then on; so a shutdown waits as long as ever.
//!
//! Invariants
//! - I1: who waits in line, for flights up or for flights down has an entry here until it is answered; but for flights in line, whose
//!   onboarding has it, and for who waits without end. So has a shutdown, for each moment that it waits for.
//! - I2: the task, or the thread, sleeps no longer than until the first entry: it is told of an earlier one.
//! - I3: asleep, it keeps no manager; awake, it may be the last that has it, and then leaves its end to a thread ([`Inner::leave`]).
//! - I4: there is a task or a thread, or the system gives no thread. Then all who wait are late at once, and whoever comes asks for a thread anew.

use super::inner::Inner;
use super::traffic::Traffic;
use crate::transfer::Path;
use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};
use tracing::error;

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
}

/// By time.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    by_time: BTreeSet<(Instant, Waits)>,
    /// Who is told that a moment has come.
    moments: HashMap<u64, oneshot::Sender<()>>,
    last_moment: u64,
}

/// A moment that somebody waits for. Dropped, nobody does any more.
pub(super) struct Moment<'i> {
    inner: &'i Arc<Inner>,
    at: Instant,
    number: u64,
    come: oneshot::Receiver<()>,
}

impl Inner {
    /// When so long will be over; none if that is beyond all clocks.
    pub(super) fn due_in(&self, wait: Duration) -> Option<Instant> {
        let _in = self.runtime.enter();
        Instant::now().checked_add(wait)
    }

    /// A future that ends at a moment, whatever has become of the runtime.
    pub(super) fn moment(self: &Arc<Inner>, at: Instant) -> Moment<'_> {
        let (tell, come) = oneshot::channel();
        let number = self.with(|traffic| {
            let deadlines = &mut traffic.deadlines;
            deadlines.last_moment += 1;
            let number = deadlines.last_moment;
            deadlines.moments.insert(number, tell);
            traffic.due(Some(at), Waits::Moment(number));
            number
        });
        Moment { inner: self, at, number, come }
    }

    /// Has a thread look after deadlines, since the runtime has gone. Where there is none to be had, all who wait are late (I4).
    fn attend_by_thread(self: &Arc<Inner>) {
        let (of, earlier) = (Arc::downgrade(self), Arc::clone(&self.earlier));
        let started =
            thread::Builder::new().name("kvstrata-late".to_owned()).spawn(move || by_thread(&of, &earlier));
        // Relaxed: who reads it late tells a thread that is there, or asks for another one, of which one finds nothing to do.
        self.unattended.store(started.is_err(), Relaxed);
        if started.is_err() {
            self.with(|traffic| while traffic.answer_first(self, None) {});
        }
    }

    /// A deadline comes before all others.
    pub(super) fn tell_of_earlier(self: &Arc<Inner>) {
        self.earlier.notify_one();
        if self.unattended.load(Relaxed) {
            self.attend_by_thread();
        }
    }
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
    pub(super) fn due(&mut self, at: Option<Instant>, who: Waits) {
        if let Some(at) = at {
            self.deadlines.by_time.insert((at, who));
            self.out.earlier |= self.deadlines.by_time.first() == Some(&(at, who));
        }
    }

    /// It has been answered.
    pub(super) fn not_due(&mut self, at: Option<Instant>, who: Waits) {
        if let Some(at) = at {
            self.deadlines.by_time.remove(&(at, who));
        }
    }

    /// Answers all who are late. When the next one will be.
    fn answer_late(&mut self, inner: &Inner, now: Instant) -> Option<Instant> {
        while self.answer_first(inner, Some(now)) {}
        self.deadlines.by_time.first().map(|(at, _)| *at)
    }

    /// Answers the first, if it is late by now, or whenever it were. Whether there was such a one.
    fn answer_first(&mut self, inner: &Inner, now: Option<Instant>) -> bool {
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
            // It may ask to be looked at again: at the end of all deadlines that would never end.
            Waits::Recovery(path) if now.is_some() => self.look_at_recovery(inner, path),
            Waits::Recovery(_) => {}
            Waits::Moment(number) => self.out.come.extend(self.deadlines.moments.remove(&number)),
        }
        true
    }
}

/// The task; it ends with the manager.
pub(super) fn task(inner: &Arc<Inner>) {
    let (of, earlier) = (Arc::downgrade(inner), Arc::clone(&inner.earlier));
    let attending = Attending(Weak::clone(&of));
    inner.runtime.spawn(async move {
        // Dropped with the task.
        let _attending = attending;
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

/// Somebody looks after deadlines.
struct Attending(Weak<Inner>);

impl Drop for Attending {
    /// If there is a manager still, its runtime has ended.
    fn drop(&mut self) {
        let Some(inner) = self.0.upgrade() else { return };
        // What nobody asks any more needs no word.
        if !inner.refusing.load(Relaxed) {
            error!(
                remedy =
                    "let the manager's runtime live as long as the manager, and shut the manager down before",
                "the manager's runtime has ended: the manager is closed"
            );
        }
        inner.close_for_good();
        inner.attend_by_thread();
        inner.leave();
    }
}

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Unparks>) {
        self.0.unpark();
    }
}

/// What the task does, on a thread.
fn by_thread(of: &Weak<Inner>, earlier: &Notify) {
    let waker = Waker::from(Arc::new(Unparks(thread::current())));
    while let Some(inner) = of.upgrade() {
        let next = inner.with(|traffic| traffic.answer_late(&inner, Instant::now()));
        drop(inner);
        let mut told = pin!(earlier.notified());
        while told.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            match next.map(|next| next.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => break,
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
        }
    }
}
