//! The caller's end of a request: wait for it, poll it, or drop it.
//!
//! The buffer is in the request, which the ring thread holds until the kernel has answered. Dropping a
//! [`Pending`] therefore drops only the caller's interest: the bytes still move, and then the buffer goes
//! back to its arena.
//!
//! Invariants
//! - I1: the outcome is put into the cell exactly once, after the last completion of the request. If the
//!   [`Pending`] has been dropped by then, the outcome is dropped at once.

use super::error::IoFailure;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// A request's outcome: the buffer, or why not all its bytes moved.
pub(crate) type Outcome<B, E = IoFailure> = Result<B, E>;

#[derive(Debug)]
enum State<B, E> {
    /// Under way, with the waiter to wake.
    Waiting(Interest),
    Done(Outcome<B, E>),
    /// The outcome has been taken, or the [`Pending`] was dropped.
    Taken,
}

#[derive(Debug)]
enum Interest {
    Nobody,
    Thread(Thread),
    Task(Waker),
}

/// The waiter for an outcome that is there. Dropping it wakes the waiter: that can be put off, but
/// not forgotten.
#[derive(Debug)]
pub(crate) struct Wake(Interest);

impl Drop for Wake {
    fn drop(&mut self) {
        match core::mem::replace(&mut self.0, Interest::Nobody) {
            Interest::Nobody => {}
            Interest::Thread(thread) => thread.unpark(),
            // A waker is a caller's code: its panic must not end the ring thread.
            Interest::Task(waker) => {
                let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
            }
        }
    }
}

impl Wake {
    /// Puts the waking off until `others` are dropped. A waiter that is among them already is woken once
    /// for all its outcomes.
    pub(crate) fn put_off(mut self, others: &mut Vec<Wake>) {
        match matches!(self.0, Interest::Nobody) || others.iter().any(|other| self.wakes_the_same(other)) {
            true => self.0 = Interest::Nobody,
            false => others.push(self),
        }
    }

    fn wakes_the_same(&self, other: &Wake) -> bool {
        match (&self.0, &other.0) {
            (Interest::Thread(one), Interest::Thread(other)) => one.id() == other.id(),
            (Interest::Task(one), Interest::Task(other)) => one.will_wake(other),
            _ => false,
        }
    }
}

/// The place where the ring thread leaves the outcome. The mutex is held for a few instructions, which
/// cost nothing beside a transfer.
#[derive(Debug)]
pub(crate) struct Cell<B, E = IoFailure>(Mutex<State<B, E>>);

impl<B, E> Cell<B, E> {
    pub(crate) fn new() -> Arc<Cell<B, E>> {
        Arc::new(Cell(Mutex::new(State::Waiting(Interest::Nobody))))
    }

    /// Resets the cell for the next request; no other reference exists.
    pub(super) fn renew(&mut self) {
        *self.0.get_mut().unwrap_or_else(PoisonError::into_inner) = State::Waiting(Interest::Nobody);
    }

    fn lock(&self) -> MutexGuard<'_, State<B, E>> {
        // A caller's waker may be cloned or dropped under the lock, and panic. The state is consistent
        // before and after.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the outcome (I1), and returns the waiter, to be woken now or together with others.
    pub(crate) fn complete(&self, outcome: Outcome<B, E>) -> Wake {
        let mut state = self.lock();
        match &mut *state {
            State::Waiting(interest) => {
                let interest = core::mem::replace(interest, Interest::Nobody);
                *state = State::Done(outcome);
                Wake(interest)
            }
            State::Done(_) | State::Taken => {
                drop(state);
                // After unlocking: a guard's drop is another module's code.
                drop(outcome);
                Wake(Interest::Nobody)
            }
        }
    }

    /// Takes the outcome, or leaves the waiter to wake.
    fn take_or(&self, interest: impl FnOnce() -> Interest) -> Option<Outcome<B, E>> {
        let mut state = self.lock();
        if let State::Waiting(slot) = &mut *state {
            *slot = interest();
            return None;
        }
        match core::mem::replace(&mut *state, State::Taken) {
            State::Done(outcome) => Some(outcome),
            State::Waiting(_) | State::Taken => None,
        }
    }
}

/// A request under way. [`wait`](Pending::wait) returns the buffer's guard `B`, or `E`: why the request
/// did not move all its bytes.
#[derive(Debug)]
#[must_use = "dropping it discards the request's outcome"]
pub struct Pending<B, E = IoFailure> {
    cell: Arc<Cell<B, E>>,
}

impl<B, E> Pending<B, E> {
    pub(crate) fn new(cell: Arc<Cell<B, E>>) -> Pending<B, E> {
        Pending { cell }
    }

    pub(crate) fn failed(failure: E) -> Pending<B, E> {
        Pending { cell: Arc::new(Cell(Mutex::new(State::Done(Err(failure))))) }
    }

    /// Blocks the thread until the request has ended, and returns the buffer.
    ///
    /// # Errors
    /// `E`, if not all bytes moved. The buffer has gone back to its owner; after a read it holds rubbish.
    pub fn wait(self) -> Result<B, E> {
        loop {
            if let Some(outcome) = self.cell.take_or(|| Interest::Thread(thread::current())) {
                return outcome;
            }
            // May return early; the loop checks again.
            thread::park();
        }
    }

    /// [`wait`](Pending::wait), but no longer than `patience`. Giving up does not change the request: it
    /// keeps its buffer until the device has answered.
    ///
    /// # Errors
    /// Itself, if the request is still under way.
    pub fn wait_for(self, patience: Duration) -> Result<Result<B, E>, Pending<B, E>> {
        let since = Instant::now();
        loop {
            if let Some(outcome) = self.cell.take_or(|| Interest::Thread(thread::current())) {
                return Ok(outcome);
            }
            match patience.checked_sub(since.elapsed()) {
                // May return early; the loop checks again.
                Some(left) if !left.is_zero() => thread::park_timeout(left),
                _ => return Err(self),
            }
        }
    }

    /// Returns the outcome if the request has ended, otherwise itself. Never blocks.
    ///
    /// # Errors
    /// Itself, if the request is still under way.
    pub fn try_wait(self) -> Result<Result<B, E>, Pending<B, E>> {
        match self.cell.take_or(|| Interest::Nobody) {
            Some(outcome) => Ok(outcome),
            None => Err(self),
        }
    }

    /// Leaves a waker to wake, as polling does. Returns false if the outcome is there: the waker
    /// will not be woken.
    pub fn tell(&self, waker: &Waker) -> bool {
        match &mut *self.cell.lock() {
            State::Waiting(interest) => *interest = Interest::Task(waker.clone()),
            State::Done(_) | State::Taken => return false,
        }
        true
    }

    /// Whether the outcome is there.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(*self.cell.lock(), State::Done(_))
    }
}

impl<B, E> Drop for Pending<B, E> {
    /// Marks that the outcome will not be taken: the buffer goes back as soon as the outcome
    /// is there (I1).
    fn drop(&mut self) {
        let before = core::mem::replace(&mut *self.cell.lock(), State::Taken);
        // After unlocking: the drop of a waker or a guard is others' code.
        drop(before);
    }
}

impl<B, E> Future for Pending<B, E> {
    type Output = Result<B, E>;

    /// Ready with the outcome, once; after that it stays pending.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.cell.take_or(|| Interest::Task(context.waker().clone())) {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl std::task::Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The wake of a completed request that `of` waits for.
    fn ended(of: &Arc<Counted>) -> Wake {
        let cell = Cell::<u8>::new();
        let waker = Waker::from(Arc::clone(of));
        let mut pending = Box::pin(Pending::new(Arc::clone(&cell)));
        assert!(pending.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        cell.complete(Ok(1))
    }

    #[test]
    fn deferred_wakes_wake_each_waiter_once() {
        let [one, other] = [0, 1].map(|_| Arc::new(Counted::default()));
        let woken = || [&one, &other].map(|of| of.0.load(Ordering::Relaxed));
        let mut together = Vec::new();
        ended(&one).put_off(&mut together);
        ended(&other).put_off(&mut together);
        ended(&one).put_off(&mut together);
        Cell::<u8>::new().complete(Ok(1)).put_off(&mut together);
        assert_eq!((together.len(), woken()), (2, [0, 0]));
        together.clear();
        assert_eq!(woken(), [1, 1]);
        drop(ended(&one));
        assert_eq!(woken(), [2, 1], "what is not put off wakes at once");
    }

    #[test]
    fn outcome_without_a_waiter_is_dropped() {
        for done_first in [false, true] {
            let (cell, guard) = (Cell::new(), Arc::new(()));
            let pending = Pending::new(Arc::clone(&cell));
            let complete = || drop(cell.complete(Outcome::<Arc<()>>::Ok(Arc::clone(&guard))));
            match done_first {
                true => (complete(), drop(pending)).1,
                false => (drop(pending), complete()).1,
            }
            assert_eq!(Arc::strong_count(&guard), 1, "the buffer is given back");
        }
    }

    #[test]
    fn waker_left_before_the_outcome_is_woken_once() {
        let cell = Cell::<u8>::new();
        let pending = Pending::new(Arc::clone(&cell));
        let told = Arc::new(Counted::default());
        let waker = Waker::from(Arc::clone(&told));
        assert!(pending.tell(&waker));
        drop(cell.complete(Ok(1)));
        assert_eq!(told.0.load(Ordering::Relaxed), 1);
        assert!(!pending.tell(&waker));
        assert_eq!(pending.wait(), Ok(1), "the outcome is still there");
    }
}
