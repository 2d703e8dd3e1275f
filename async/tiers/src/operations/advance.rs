//! All work in progress, behind one lock: transfers and their waiters, the wait queue for blocks, the
//! queues of the paths.
//!
//! A device hit, an allocation of free blocks and a release do not come here. A call that does is about
//! to move a block's bytes, which takes longer by orders of magnitude than the lock is held. Under the
//! lock there is no copy, no system call, no waking, no mover ([`Effects`](crate::state::Effects)).
//!
//! ```text
//!   a call, or a landing ──► change ──► advance ──► effects
//!
//!   advance:  transfers that waited behind their parent
//!          ─► victims that wait for host memory, headroom, other copies
//!          ─► requests that wait for credits ─► the wait queue ─► guesses
//!          ─► transfers beside a full queue ─► reads that are pressed
//!          ─► the queues, transfers beside them, deferred copies: until nothing more begins
//! ```

use crate::engine::inner::Inner;
use crate::state::{Down, PART, Since, Traffic, TransferId, Up};
use crate::transfer::{Class, Path};
use std::sync::Arc;

impl Traffic {
    pub(crate) fn enqueue(
        &mut self,
        inner: &Inner,
        (path, lane): (Path, u16),
        class: Class,
        request: u64,
        bytes: u64,
        item: TransferId,
    ) {
        // Never refused: the transfer owns its ends already, so a refusal would make no room. The bound
        // applies where transfers begin.
        let ticket = self.queues.push((path, lane), class, request, bytes, item);
        match item {
            TransferId::Up(key) => self.ups[key].is_queued(path, ticket),
            TransferId::Down(key) => self.downs[key].is_queued(path, ticket),
        }
        self.wanted(inner, item);
    }

    /// Notes that a transfer waits for its next copy, read or write, if that is not noted yet.
    pub(crate) fn wanted(&mut self, inner: &Inner, transfer: TransferId) {
        let now = self.when(inner);
        if let Some(since) = self.since(transfer) {
            since.begin(now);
        }
    }

    /// Continues everything that can go on. It terminates: each round after the first is for a transfer
    /// that has ended.
    pub(crate) fn advance(&mut self, inner: &Arc<Inner>) {
        loop {
            self.again = false;
            self.serve_behind(inner);
            self.advance_once(inner);
            if !self.again && !self.waiting_for_parent.any_over() {
                return;
            }
        }
    }

    fn advance_once(&mut self, inner: &Arc<Inner>) {
        let groups = self.groups.numbers();
        for group in groups.clone() {
            self.serve_victims(inner, group);
            self.serve_headroom(inner, group);
            self.serve_chosen(inner, group);
        }
        self.serve_waiting_for_quota(inner);
        for group in groups.clone() {
            self.serve_queue(inner, group);
        }
        self.serve_guesses(inner);
        self.serve_waiting_for_queue(inner);
        self.press_for_reads(inner);
        // The path that is asked first gets most of an iteration's budget, so the paths take turns.
        let (in_turn, mut part) = (self.queues.in_turn(), PART);
        loop {
            for path in in_turn.clone() {
                while let Some(next) = self.next_on(inner, path) {
                    let now = self.when(inner);
                    let wanted = self.since(next.item).map(|since| std::mem::replace(since, now));
                    inner.watch.started(path, wanted.unwrap_or_default(), now);
                    match next.item {
                        TransferId::Up(key) => self.start_up(inner, key, path, next.bytes),
                        TransferId::Down(key) => self.start_down(inner, key, path, next.bytes),
                    }
                }
                let busy = self.queues[path].in_flight() > 0;
                inner.counts.busy(path, busy, || inner.elapsed());
                self.busy(inner, path, busy);
            }
            // Started transfers made room. If one has failed at once, no landing will follow: look now.
            let left = self.serve_waiting_for_queue(inner);
            let begun = self.copy_deferred(inner, part);
            part = part.saturating_sub(begun);
            if !left && begun == 0 {
                groups.for_each(|group| self.note_below(inner, group));
                return self.expect_iteration(inner);
            }
        }
    }

    /// Returns the time of this change. The clock is read once, however many blocks the change is of.
    pub(crate) fn when(&mut self, inner: &Inner) -> Since {
        *self.when.get_or_insert_with(|| inner.watch.now())
    }

    /// Since when a transfer waits for its next copy, read or write, or when that has started.
    pub(crate) fn since(&mut self, transfer: TransferId) -> Option<&mut Since> {
        match transfer {
            TransferId::Up(key) => self.ups.get_mut(key).map(Up::since_mut),
            TransferId::Down(key) => self.downs.get_mut(key).map(Down::since_mut),
        }
    }
}
