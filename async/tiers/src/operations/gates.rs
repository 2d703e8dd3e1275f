//! The engine's clock, and the waiters for its gates.

use crate::engine::group_tiers::let_go;
use crate::engine::inner::Inner;
use crate::engine::notices::About;
use crate::metrics::Refusal;
use crate::scheduler::Gate;
use crate::state::{Cargo, GatedCopy, Have, Traffic, Waiter, Waits, written_after};
use crate::transfer::{Cause, Path};
use std::time::Duration;

impl Traffic {
    /// Continues the waiters for each layer or iteration that has come.
    pub(crate) fn open_gates(&mut self, inner: &Inner) {
        // Twice: a copy may be let through before a later list's mark is gone from its block, and then
        // waits for that mark.
        for _ in 0..2 {
            let mut open = self.iterations.take_open();
            let is_last = open.is_empty();
            for waiter in open.drain(..) {
                match waiter {
                    Waiter::Copy(copy) => self.let_through(inner, copy),
                    Waiter::Transfer(transfer) => self.go_on(inner, transfer),
                    Waiter::Marked(marked) => self.written(inner, marked),
                }
            }
            self.iterations.give_back(open);
            if is_last {
                break;
            }
        }
    }

    pub(crate) fn let_through(&mut self, inner: &Inner, copy: GatedCopy) {
        let GatedCopy { group, block, name, class, request, steps, asked, since } = copy;
        let source = Have::Held(block);
        let there = inner.group(group).device.pool().registered(block.id);
        if there.is_none_or(|(there, _)| there != block) {
            // Withdrawn meanwhile.
            let_go(&inner.group(group).device, source, inner.now());
            if !asked.is_some_and(|asked| self.is_late(asked)) {
                inner.counts.failed(Path::DeviceToHost, Cause::Cancelled, About::of_group(group));
            }
            asked.iter().for_each(|asked| self.offload_answered(*asked, Err(Cause::Cancelled)));
            return;
        }
        // The list of the awaited pass has withdrawn; another list's pass writes the block.
        let written_by = |writes: &u64| steps.is_none_or(|steps| steps.iteration() < *writes);
        if let Some(writes) = self.unwritten.iteration(group, block.id).filter(written_by) {
            let gate = self.iterations.clock().of_all_layers(written_after(writes));
            let copy = GatedCopy { group, block, name, class, request, steps: None, asked, since };
            self.iterations.hold_beyond(gate, Waiter::Copy(copy));
            return self.watch_gates(inner, inner.rules.offload_deadline);
        }
        match self.copy_down(inner, group, Cargo { source, name, class, request, steps }) {
            Some(transfer) => asked.iter().for_each(|asked| self.downs[transfer].asked_by(*asked)),
            None => {
                let of = inner.group(group);
                let why = self.why_refused(Path::DeviceToHost, class);
                let wanted = self.wants_copy(of, group, name, of.device.class(block.id));
                let_go(&of.device, source, inner.now());
                let Some(asked) = asked else { return };
                match self.downs.find((group, name.hash)) {
                    // Another caller has asked for it, too.
                    Some(transfer) => self.downs[transfer].asked_by(asked),
                    None if !wanted => self.offload_there(asked),
                    None => self.offload_refused(inner, asked, why),
                }
            }
        }
    }

    /// Holds a copy back until its gate opens. If the gate is open, the copy begins now; if too many
    /// wait, it is refused.
    pub(crate) fn copy_at(&mut self, inner: &Inner, gate: Gate, copy: GatedCopy) {
        if self.iterations.clock().passed(gate) {
            return self.let_through(inner, copy);
        }
        match self.iterations.hold(gate, Waiter::Copy(copy)) {
            None => self.watch_gates(inner, inner.rules.offload_deadline),
            Some(refused) => self.refuse_gated(inner, refused, Refusal::Gates),
        }
    }

    /// Refuses a gated copy, or gives up a mark. A transfer that has begun is ended where it is.
    fn refuse_gated(&mut self, inner: &Inner, waiter: Waiter, why: Refusal) {
        let GatedCopy { group, block, asked, .. } = match waiter {
            Waiter::Copy(copy) => copy,
            Waiter::Transfer(_) => return,
            Waiter::Marked(marked) => return self.never_written(inner, marked, Cause::Cancelled),
        };
        let_go(&inner.group(group).device, Have::Held(block), inner.now());
        if let Some(asked) = asked {
            self.offload_refused(inner, asked, why);
        }
    }

    /// Limits the wait for an iteration's bytes to the time that an iterating engine takes for one.
    pub(crate) fn expect_iteration(&mut self, inner: &Inner) {
        let waits = || self.queues.iter().any(|queue| queue.waiting() > 0);
        let Some(idle) = inner.rules.idle_engine_after else { return };
        if self.queues.is_limited() && waits() && self.iterations.expect_next() {
            self.due(inner.due_in(idle), Waits::Iteration);
        }
    }

    /// Lifts the budget if no iteration has come in time: then no engine is disturbed by transfers.
    pub(crate) fn no_iteration(&mut self) {
        if self.iterations.is_missing() {
            self.queues.lift_budget();
        }
    }

    /// Schedules a look at the waiters for gates, unless one is scheduled. That one comes no later, since
    /// all of them may wait for the same time.
    pub(crate) fn watch_gates(&mut self, inner: &Inner, after: Duration) {
        if self.iterations.watch() {
            self.due(inner.due_in(after), Waits::Gates);
        }
    }

    /// Gives up waiters that have waited too long for their gate: an engine that begins no more
    /// iterations must not keep its blocks for ever.
    pub(crate) fn look_at_gates(&mut self, inner: &Inner) {
        self.iterations.watch_over();
        let (now, patience) = (inner.elapsed(), inner.rules.offload_deadline);
        let engine = self.iterations.engine();
        let mut late = self.iterations.take_if(|waiter| waiter.since(engine) + patience <= now);
        for waiter in late.drain(..) {
            match waiter {
                Waiter::Copy(GatedCopy { group, block, asked, .. }) => {
                    if !asked.is_some_and(|asked| self.is_late(asked)) {
                        inner.counts.failed(Path::DeviceToHost, Cause::Deadline, About::of_group(group));
                    }
                    let_go(&inner.group(group).device, Have::Held(block), inner.now());
                    if let Some(asked) = asked {
                        self.offload_answered(asked, Err(Cause::Deadline));
                    }
                }
                Waiter::Transfer(transfer) => self.late_for_layer(inner, transfer),
                Waiter::Marked(marked) => self.never_written(inner, marked, Cause::Deadline),
            }
        }
        self.iterations.give_back(late);
        if let Some(oldest) = self.iterations.waiters().map(|waiter| waiter.since(engine)).min() {
            self.watch_gates(inner, (oldest + patience).saturating_sub(now));
        }
    }

    /// Drops all waiters for gates. Copies are refused; the closing call ends the transfers.
    pub(crate) fn drop_gated(&mut self, inner: &Inner) {
        while let Some(waiter) = self.iterations.pop() {
            self.refuse_gated(inner, waiter, Refusal::Closed);
        }
    }
}
