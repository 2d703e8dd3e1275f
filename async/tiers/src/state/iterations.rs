//! The model's iterations, and the waiters at their gates.
//!
//! Invariants
//! - I1: while something waits for a gate, there is a deadline for looking at it again (`watch`).

use crate::scheduler::{Clock, Gate, Gated, Key, Misuse};
use crate::state::{Marked, Waiter};
use std::time::Duration;

/// How far the model is, and the waiters at its gates.
pub(crate) struct Iterations {
    clock: Clock,
    gated: Gated<Waiter>,
    /// Memory for waiters that are taken out.
    taken: Vec<Waiter>,
    /// When the engine last reported progress.
    went_on: Duration,
    /// There is a deadline for waiters that have waited too long.
    watched: bool,
    /// Set while the next iteration is awaited, for its bytes: the iteration when that began, and whether
    /// it was running then.
    expected_after: Option<(u64, bool)>,
}

impl Iterations {
    /// For a model of so many layers; at most `most` may wait for gates.
    pub(crate) fn new(layers: u32, most: u32) -> Iterations {
        Iterations {
            clock: Clock::new(layers),
            gated: Gated::new(most),
            taken: Vec::new(),
            went_on: Duration::ZERO,
            watched: false,
            expected_after: None,
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Takes the engine's report on its progress.
    pub(crate) fn tell<T>(
        &mut self,
        now: Duration,
        call: impl FnOnce(&mut Clock) -> Result<T, Misuse>,
    ) -> Result<T, Misuse> {
        let told = call(&mut self.clock)?;
        self.went_on = now;
        Ok(told)
    }

    /// Returns the iteration that the engine is in, and the time of its last report.
    pub(crate) fn engine(&self) -> (u64, Duration) {
        (self.clock.iteration(), self.went_on)
    }

    /// Returns all waiters.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.gated.iter()
    }

    /// Whether nothing waits for a gate.
    pub(crate) fn none_waits(&self) -> bool {
        self.gated.waiting() == 0
    }

    /// Makes a waiter wait until a gate opens. If too many wait already, it is returned.
    pub(crate) fn hold(&mut self, gate: Gate, waiter: Waiter) -> Option<Waiter> {
        self.gated.hold(gate, waiter).err().map(|full| full.item)
    }

    /// The same, however many wait.
    pub(crate) fn hold_beyond(&mut self, gate: Gate, waiter: Waiter) -> Key {
        self.gated.hold_beyond(gate, waiter)
    }

    /// Removes a waiter.
    pub(crate) fn remove(&mut self, key: Key) {
        self.gated.remove(key);
    }

    /// Takes any one waiter out.
    pub(crate) fn pop(&mut self) -> Option<Waiter> {
        self.gated.pop()
    }

    /// Returns a waiting list of blocks that are to be written.
    pub(crate) fn marked_mut(&mut self, key: Key) -> Option<&mut Marked> {
        match self.gated.get_mut(key) {
            Some(Waiter::Marked(marked)) => Some(marked),
            _ => None,
        }
    }

    /// Takes out the waiters at open gates; the list is to be [given back](Iterations::give_back).
    pub(crate) fn take_open(&mut self) -> Vec<Waiter> {
        let mut open = std::mem::take(&mut self.taken);
        self.gated.released(&self.clock, |waiter| open.push(waiter));
        open
    }

    /// Takes out matching waiters; the list is to be given back, too.
    pub(crate) fn take_if(&mut self, which: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let mut taken = std::mem::take(&mut self.taken);
        self.gated.give_up(which, |waiter| taken.push(waiter));
        taken
    }

    /// Gives an empty list back, for its memory.
    pub(crate) fn give_back(&mut self, list: Vec<Waiter>) {
        self.taken = list;
    }

    /// Sets the watch over waiters: a deadline is due from now on. Returns whether there was none.
    pub(crate) fn watch(&mut self) -> bool {
        !std::mem::replace(&mut self.watched, true)
    }

    /// Ends the watch: its deadline has come.
    pub(crate) fn watch_over(&mut self) {
        self.watched = false;
    }

    /// Awaits the next iteration. Returns whether that is new.
    pub(crate) fn expect_next(&mut self) -> bool {
        let news = self.expected_after.is_none();
        self.expected_after.get_or_insert((self.clock.iteration(), self.clock.is_running()));
        news
    }

    /// Ends the wait for the next iteration. Returns whether none has come. An iteration that ran when
    /// the wait began may have ended just now: then the wait must begin anew.
    pub(crate) fn is_missing(&mut self) -> bool {
        let since = self.expected_after.take();
        since == Some((self.clock.iteration(), false)) && !self.clock.is_running()
    }
}
