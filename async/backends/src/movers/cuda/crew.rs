//! The threads of a mover: each takes a flight that can go on, and runs its next step.
//!
//! ```text
//!   start ─► ready ─► thread: step ─┬─ answered ─► idle ─► the next list
//!              ▲                    └─ the device has it ┐
//!              └── waker, of the queue's thread ◄────────┘
//! ```
//!
//! `ready` has no bound of its own: the caller bounds the bytes in flight. Lists that bring blocks up go
//! first ([`turns.rs`](crate::movers::turns)); a list that goes down also gives way between the sums of
//! a step.
//!
//! Invariants
//! - I1: `under_way` counts the flights that have a list. The threads end once the crew is closing and
//!   it is 0.
//! - I2: a step that panics answers its list, and ends neither its thread nor another list.
//! - I3: a flight may be in `ready` several times, or without work: the step finds out.

#[cfg(test)]
mod tests;

use super::CudaMoverError;
use super::ends::Ends;
use super::flight::Flight;
use crate::movers::turns::Turns;
use core::time::Duration;
use kvstrata_ffi::process::Origin;
use kvstrata_tiers::transfer::Copies;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// The lists at a time that fit without a later allocation.
const USUAL: usize = 256;

/// The threads, and their shared state.
pub(super) struct Crew {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    origin: Origin,
}

/// The part of the crew that flights know.
pub(super) struct Shared {
    pub(super) ends: Ends,
    threads: usize,
    state: Mutex<State>,
    work: Condvar,
    ended: Condvar,
}

struct State {
    ready: Turns<Arc<Flight>>,
    idle: Vec<Arc<Flight>>,
    under_way: usize,
    closing: bool,
}

impl Crew {
    pub(super) fn new(ends: Ends, threads: usize) -> Result<Crew, CudaMoverError> {
        let state = State {
            ready: Turns::with_capacity(USUAL),
            idle: Vec::with_capacity(USUAL),
            under_way: 0,
            closing: false,
        };
        let (work, ended) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { ends, threads, state: Mutex::new(state), work, ended });
        let mut crew = Crew { shared, threads: Vec::with_capacity(threads), origin: Origin::here() };
        for number in 0..threads {
            let shared = Arc::clone(&crew.shared);
            let thread = thread::Builder::new().name(format!("kvstrata-mover-{number}"));
            let started = thread.spawn(move || shared.serve());
            match started {
                Ok(thread) => crew.threads.push(thread),
                Err(error) => {
                    crew.close(Duration::ZERO);
                    return Err(error.into());
                }
            }
        }
        Ok(crew)
    }

    pub(super) fn ends(&self) -> &Ends {
        &self.shared.ends
    }

    pub(super) fn start(&self, copies: Copies) {
        if copies.list().is_empty() {
            return drop(copies);
        }
        let mut state = self.shared.lock();
        state.under_way += 1;
        let idle = state.idle.pop();
        drop(state);
        let flight = idle.unwrap_or_else(|| Flight::new(&self.shared));
        flight.board(copies);
        self.shared.ready(&flight, 1);
    }

    /// Ends the threads once no flight has a list. Waits for that for at most `patience`, and not on one
    /// of these threads.
    pub(super) fn close(&mut self, patience: Duration) {
        // A forked child has none of the threads, and one of them may have held the lock.
        if !self.origin.is_here() {
            return std::mem::forget(std::mem::take(&mut self.threads));
        }
        let mut state = self.shared.lock();
        state.closing = true;
        self.shared.work.notify_all();
        let own = thread::current().id();
        if self.threads.iter().any(|thread| thread.thread().id() == own) {
            return;
        }
        let waited = self.shared.ended.wait_timeout_while(state, patience, |state| state.under_way > 0);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let ended = state.under_way == 0;
        drop(state);
        for thread in self.threads.drain(..).filter(|_| ended) {
            // It does not panic: steps are contained.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No caller code runs under the lock, so a poisoned state is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `threads` threads look at a flight.
    pub(super) fn ready(&self, flight: &Arc<Flight>, threads: usize) {
        let mut state = self.lock();
        for _ in 0..threads {
            state.ready.push(flight.brings_up(), Arc::clone(flight));
        }
        drop(state);
        if threads == 1 { self.work.notify_one() } else { self.work.notify_all() }
    }

    /// The number of other threads that are worth waking for `sums` sums.
    pub(super) fn helpers(&self, sums: usize) -> usize {
        self.threads.min(sums).saturating_sub(1)
    }

    /// Whether a list that goes down should give way.
    pub(super) fn has_up(&self) -> bool {
        self.lock().ready.has_up()
    }

    pub(super) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    /// Answers the list of a flight that has ended. The flight is reused if it is `whole`.
    pub(super) fn end(&self, flight: &Arc<Flight>, copies: Copies, whole: bool) {
        if whole {
            // Before the answer: its landing may start the next list.
            self.lock().idle.push(Arc::clone(flight));
        }
        // The hook has reported its panic.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(copies)));
        let mut state = self.lock();
        state.under_way -= 1;
        let last = state.under_way == 0;
        drop(state);
        if last {
            self.ended.notify_all();
            self.work.notify_all();
        }
    }

    /// The body of a thread.
    fn serve(self: Arc<Self>) {
        let mut state = self.lock();
        loop {
            if let Some(flight) = state.ready.turn().and_then(|ready| ready.pop_front()) {
                drop(state);
                if catch_unwind(AssertUnwindSafe(|| flight.step(&self))).is_err() {
                    flight.crash(&self);
                }
                state = self.lock();
            } else if state.closing && state.under_way == 0 {
                return;
            } else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}
