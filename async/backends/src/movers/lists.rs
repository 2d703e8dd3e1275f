//! Lists of copies that threads carry out one copy at a time, and that are answered as a whole.
//!
//! ```text
//!   a started list              copy 0 │ copy 1 │ … │ copy n-1
//!                               ◄─ taken ─► ◄─ untaken ─►        `out`: taken copies that a thread has
//!   order                       by direction: keys of lists with untaken copies, oldest first
//! ```
//!
//! Invariants
//! - I1: a list is in `running` from its start until its last copy has ended. It then leaves, and is
//!   answered outside the lock.
//! - I2: a key is in `order` exactly while its list has untaken copies. For each copy, `turns.rs`
//!   decides anew which direction goes first.
//! - I3: a copy returns to its place: a list is answered in the order in which it was given.
//! - I4: after the lists are closed, no copy is handed out. Untaken copies end as abandoned, the others
//!   with their own outcome.

use super::turns::{Turns, brings_up};
use kvstrata_tiers::transfer::{Cause, Copies, Copy, Failure};
use slab::Slab;

/// A list that has untaken copies, or copies with threads.
#[derive(Debug)]
struct Running {
    copies: Copies,
    /// The first untaken copy.
    next: usize,
    out: usize,
}

/// The place to which a copy returns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    key: usize,
    at: usize,
}

/// Lists that were started and not yet answered.
#[derive(Debug, Default)]
pub(super) struct Lists {
    running: Slab<Running>,
    order: Turns<usize>,
    closed: bool,
}

impl Lists {
    /// Adds a list. Returns it if it has no work to do; dropping it is its answer.
    pub(super) fn push(&mut self, copies: Copies) -> Option<Copies> {
        if copies.list().is_empty() || self.closed {
            return Some(copies);
        }
        let up = brings_up(&copies);
        self.order.push(up, self.running.insert(Running { copies, next: 0, out: 0 }));
        None
    }

    /// Hands out a copy, with its place, from the oldest list of the direction that has its turn.
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

    /// Takes back a copy that has ended. Returns its list if it was the last copy.
    pub(super) fn end(&mut self, place: Place, copy: Copy) -> Option<Copies> {
        let list = &mut self.running[place.key];
        list.copies.list_mut()[place.at] = copy;
        list.out -= 1;
        (list.next == list.copies.list().len() && list.out == 0)
            .then(|| self.running.remove(place.key).copies)
    }

    /// Closes the lists (I4). Returns those without copies out.
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
