//! Lists of copies that threads carry out a copy at a time, and that are answered as a whole.
//!
//! ```text
//!   a list that was started     copy 0 │ copy 1 │ … │ copy n-1
//!                               ◄─ taken ─► ◄─ untaken ─►           of those that are taken, with threads: `out`
//!   order                       by direction: key of the oldest list with untaken copies, of the next one, …
//! ```
//!
//! Invariants
//! - I1: a list is in `running` from its start until its last copy has ended; then it leaves, to be answered
//!   outside the lock.
//! - I2: a key is in `order` exactly while its list has untaken copies; of each copy that is handed out it is
//!   asked anew which direction goes first (`turns.rs`).
//! - I3: a copy comes back to its place: a list is answered in the order in which it was given.
//! - I4: when the lists are closed, no copy is handed out any more: untaken ones end as abandoned, those that
//!   are out as they will.

use super::turns::{Turns, brings_up};
use kvstrata_tiers::transfer::{Cause, Copies, Copy, Failure};
use slab::Slab;

/// A list of which copies are untaken or out.
#[derive(Debug)]
struct Running {
    copies: Copies,
    /// The first untaken one.
    next: usize,
    out: usize,
}

/// Where a copy that is out comes back to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    key: usize,
    at: usize,
}

/// Lists that have been started and not answered.
#[derive(Debug, Default)]
pub(super) struct Lists {
    running: Slab<Running>,
    order: Turns<usize>,
    closed: bool,
}

impl Lists {
    /// Takes a list; gives it back where there is nothing to be done for it, which is its answer.
    pub(super) fn push(&mut self, copies: Copies) -> Option<Copies> {
        if copies.list().is_empty() || self.closed {
            return Some(copies);
        }
        let up = brings_up(&copies);
        self.order.push(up, self.running.insert(Running { copies, next: 0, out: 0 }));
        None
    }

    /// Hands out a copy of the oldest list of the direction whose turn it is, with its place.
    pub(super) fn take(&mut self) -> Option<(Place, Copy)> {
        let order = self.order.turn()?;
        let key = *order.front()?;
        let list = &mut self.running[key];
        let place = Place { key, at: list.next };
        list.next += 1;
        list.out += 1;
        if list.next == list.copies.list().len() {
            order.pop_front();
        }
        Some((place, list.copies.lend(place.at)))
    }

    /// Takes a copy back that has ended; gives its list where that was the last one.
    pub(super) fn end(&mut self, place: Place, copy: Copy) -> Option<Copies> {
        let list = &mut self.running[place.key];
        list.copies.list_mut()[place.at] = copy;
        list.out -= 1;
        (list.next == list.copies.list().len() && list.out == 0)
            .then(|| self.running.remove(place.key).copies)
    }

    /// No more copies (I4). Gives the lists of which none is out.
    pub(super) fn close(&mut self) -> Vec<Copies> {
        self.closed = true;
        let mut ended = Vec::new();
        while let Some(key) = self.order.turn().and_then(|order| order.pop_front()) {
            let list = &mut self.running[key];
            for copy in &mut list.copies.list_mut()[list.next..] {
                copy.outcome = Err(Failure::of(Cause::Abandoned));
            }
            list.next = list.copies.list().len();
            if list.out == 0 {
                ended.push(self.running.remove(key).copies);
            }
        }
        ended
    }

    /// Whether [`close`](Lists::close) was called.
    pub(super) fn closed(&self) -> bool {
        self.closed
    }
}
