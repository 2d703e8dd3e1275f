//! The model's iterations, and what waits for them.
//!
//! Invariants
//! - I1: while something waits for a gate there is a deadline at which it is looked at again (`watch`).

use crate::scheduler::{Clock, Gate, Gated, Key, Misuse};
use crate::state::{Marked, Waiter};
use std::time::Duration;

/// How far the model is, and what waits for it.
pub(crate) struct Iterations {
    clock: Clock,
    gated: Gated<Waiter>,
    /// Memory for those that are taken out.
    taken: Vec<Waiter>,
    /// When the engine last said how far it is.
    went_on: Duration,
    /// There is a deadline for those that have waited too long.
    watched: bool,
    /// The iteration after which another is waited for, for its bytes; and whether it ran when that began.
    expected_after: Option<(u64, bool)>,
}

impl Iterations {
    /// Of a model of so many layers; so many may wait for gates.
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

    /// The engine tells how far it is.
    pub(crate) fn tell<T>(
        &mut self,
        now: Duration,
        call: impl FnOnce(&mut Clock) -> Result<T, Misuse>,
    ) -> Result<T, Misuse> {
        let told = call(&mut self.clock)?;
        self.went_on = now;
        Ok(told)
    }

    /// Which iteration the engine is in, and when it last said how far it is.
    pub(crate) fn engine(&self) -> (u64, Duration) {
        (self.clock.iteration(), self.went_on)
    }

    /// What waits for a gate.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.gated.iter()
    }

    /// Whether nothing waits for one.
    pub(crate) fn none_waits(&self) -> bool {
        self.gated.waiting() == 0
    }

    /// Holds something back until a gate opens. If too much waits already, it is given back.
    pub(crate) fn hold(&mut self, gate: Gate, waiter: Waiter) -> Option<Waiter> {
        self.gated.hold(gate, waiter).err().map(|full| full.item)
    }

    /// The same, however much waits.
    pub(crate) fn hold_beyond(&mut self, gate: Gate, waiter: Waiter) -> Key {
        self.gated.hold_beyond(gate, waiter)
    }

    /// One waits no more.
    pub(crate) fn remove(&mut self, key: Key) {
        self.gated.remove(key);
    }

    /// Takes any one out.
    pub(crate) fn pop(&mut self) -> Option<Waiter> {
        self.gated.pop()
    }

    /// A list of blocks that waits to be written.
    pub(crate) fn marked_mut(&mut self, key: Key) -> Option<&mut Marked> {
        match self.gated.get_mut(key) {
            Some(Waiter::Marked(marked)) => Some(marked),
            _ => None,
        }
    }

    /// Takes those out whose gates are open; their list is to be [given back](Iterations::give_back).
    pub(crate) fn take_open(&mut self) -> Vec<Waiter> {
        let mut open = std::mem::take(&mut self.taken);
        self.gated.released(&self.clock, |waiter| open.push(waiter));
        open
    }

    /// The same of such.
    pub(crate) fn take_if(&mut self, which: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let mut taken = std::mem::take(&mut self.taken);
        self.gated.give_up(which, |waiter| taken.push(waiter));
        taken
    }

    /// An empty list, for its memory.
    pub(crate) fn give_back(&mut self, list: Vec<Waiter>) {
        self.taken = list;
    }

    /// There is a deadline for those that wait from now on. Whether there was none.
    pub(crate) fn watch(&mut self) -> bool {
        !std::mem::replace(&mut self.watched, true)
    }

    /// It has come.
    pub(crate) fn watch_over(&mut self) {
        self.watched = false;
    }

    /// The next iteration is waited for. Whether it was not before.
    pub(crate) fn expect_next(&mut self) -> bool {
        let news = self.expected_after.is_none();
        self.expected_after.get_or_insert((self.clock.iteration(), self.clock.is_running()));
        news
    }

    /// The time for it is over. Whether none has come: one that ran when that began may have ended a moment
    /// ago, and the time begins anew.
    pub(crate) fn is_missing(&mut self) -> bool {
        let since = self.expected_after.take();
        since == Some((self.clock.iteration(), false)) && !self.clock.is_running()
    }
}
