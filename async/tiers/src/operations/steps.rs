//! Copies down by layers: the layers that a pass of the model is done with go down while the pass goes
//! on, so that little is left when it ends.
//!
//! ```text
//!   the pass   0   1   2   3   4   5   6   7   8   9      ten layers, and a gate at layer 3: steps of four
//!                          ▼               ▼       ▼
//!   copies                 0 1 2 3         4 5 6 7  8 9   one for each step; if several steps are open
//!                                                         when one has landed, they go in one copy
//!
//!   Wants ──► Queued ──► Moving ─┬─ all layers are down: as any transfer
//!                ▲               ├─ the next step is open ──► Queued
//!                │               └─ it is not ──► Gated ─┬─ the engine goes on ──► Queued
//!                │                                       ├─ it does not: late, by `deadline.offload`
//!                └──── Wants ◄─── the last layer is done ┴─ its staging is needed: Gated without it,
//!                                                           all layers once more
//! ```
//!
//! A copy goes by layers if it is gated at a layer that is not the last, in a model of one group: there
//! the clock's layers are the block's. Any other copy goes whole, when the last layer is done.
//!
//! A Gated transfer moves nothing, and goes on when the engine says so, or never. So no other need waits
//! for its host memory: a block of the host tier is not counted among those that come back (`landing`),
//! and staging is given up to victims and urgent reads. Its device block is held, as that of any gated
//! copy. A request for that block waits for the engine, until the first of both deadlines at the latest.
//!
//! Invariants
//! - I1: no layer is copied before the clock has passed the last one of its step.
//! - I2: a Gated transfer is in `gated`, once, until it goes on or ends: each way of ending takes it out.
//! - I3: a transfer gives its staging up at most once: from then on it goes whole.

use crate::engine::group_tiers::GroupTiers;
use crate::engine::inner::Inner;
use crate::engine::notices::About;
use crate::scheduler::Gate;
use crate::state::{Down, DownId, GatedTransfer, GroupId, HostSlot, Steps, Traffic, TransferId, Waiter};
use crate::transfer::{Cause, Failure, Path};

impl Traffic {
    /// Returns the gate of whole copies, and the steps if the copy goes by layers: then it begins behind
    /// the given gate itself.
    pub(crate) fn steps_of(&self, of: &GroupTiers, gate: Gate) -> (Gate, Option<Steps>) {
        let whole = self.iterations.clock().of_all_layers(gate);
        let fits = self.groups.len() == 1 && of.layers == self.iterations.clock().layers();
        match gate {
            Gate::Layer { iteration, layer }
                if fits && layer < of.layers.saturating_sub(1) && !self.iterations.clock().passed(whole) =>
            {
                (whole, Some(Steps::new(iteration, layer + 1)))
            }
            _ => (whole, None),
        }
    }

    /// Queues the open layers of a transfer that has its host block, as one copy. If there are none, it
    /// waits for the next step.
    pub(crate) fn queue_layers(&mut self, inner: &Inner, key: DownId) {
        let Some(down) = self.downs.get_mut(key) else { return };
        let group = inner.group(down.group());
        if let Some(steps) = down.steps() {
            let open = steps.open(self.iterations.clock().layers_done(steps.iteration()), group.layers);
            if open <= down.layers().start {
                let gate = steps.next(down.layers().start, group.layers);
                return self.wait_for_layer(inner, key, gate);
            }
            down.copies_to(open);
        } else {
            down.copies_to(group.layers);
        }
        let (class, request, bytes) = (down.class(), down.request(), group.bytes_of(&down.layers()));
        self.enqueue(inner, (Path::DeviceToHost, 0), class, request, bytes, TransferId::Down(key));
    }

    fn wait_for_layer(&mut self, inner: &Inner, key: DownId, gate: Gate) {
        if self.is_closed() {
            // The engine iterates no more.
            inner.counts.failed(Path::DeviceToHost, Cause::Cancelled, About::default());
            return self.down_failed(inner, key, Failure::of(Cause::Cancelled));
        }
        let down = &self.downs[key];
        self.groups[down.group()].on_their_way.landing_over();
        self.gate_transfer(inner, key, gate);
    }

    fn gate_transfer(&mut self, inner: &Inner, key: DownId, gate: Gate) {
        let down = &mut self.downs[key];
        let transfer = GatedTransfer { key, serial: down.serial(), since: inner.elapsed() };
        down.is_held_by_gate(self.iterations.hold_beyond(gate, Waiter::Transfer(transfer)));
        self.watch_gates(inner, inner.rules.offload_deadline);
    }

    /// Returns the transfer, if it still is the one that waits.
    fn gated_transfer(&mut self, GatedTransfer { key, serial, .. }: GatedTransfer) -> Option<&mut Down> {
        let waits = |down: &&mut Down| down.serial() == serial && down.is_gated();
        self.downs.get_mut(key).filter(waits)
    }

    /// Ends a transfer that has waited for its engine for too long.
    pub(crate) fn late_for_layer(&mut self, inner: &Inner, transfer: GatedTransfer) {
        if self.gated_transfer(transfer).is_some() {
            self.down_failed(inner, transfer.key, Failure::of(Cause::Deadline));
        }
    }

    /// Continues a transfer after its gate has opened.
    pub(crate) fn go_on(&mut self, inner: &Inner, transfer: GatedTransfer) {
        let key = transfer.key;
        let Some(down) = self.gated_transfer(transfer) else { return };
        let (group, has_host) = (down.group(), down.host().is_some());
        // If it has given up its staging, it waits for some as it did before it had any.
        down.wants_host();
        self.groups[group].queue.note_change();
        if !has_host {
            self.wanted(inner, TransferId::Down(key));
            return self.wait_for_host(group, key);
        }
        self.groups[group].on_their_way.landing_begun();
        self.queue_layers(inner, key);
    }

    /// Frees staging that is needed: a transfer that waits for the engine gives its own up, and goes
    /// whole when the last layer is done (I3). Returns whether there is one.
    pub(crate) fn reclaim_staging(&mut self, inner: &Inner, group: GroupId) -> bool {
        if self.iterations.none_waits() {
            return false;
        }
        let gated = |staged: HostSlot, down: &Down| {
            (down.group(), down.host()) == (group, Some(staged)) && down.is_gated()
        };
        let of_transfer = |(staged, transfer): (HostSlot, TransferId)| match transfer {
            TransferId::Down(key) => self.downs.get(key).filter(|down| gated(staged, down)).map(|_| key),
            TransferId::Up(_) => None,
        };
        let found = self.groups[group].staging.holders().find_map(of_transfer);
        let Some(key) = found else { return false };
        let down = &mut self.downs[key];
        let (at, (host, steps)) = (down.at(), down.starts_over());
        host.into_iter().for_each(|host| self.groups[group].staging.give(host));
        self.recall(at);
        let iteration = steps.map_or(0, |steps| steps.iteration());
        let gate = self.iterations.clock().of_all_layers(Gate::Layer { iteration, layer: 0 });
        self.gate_transfer(inner, key, gate);
        true
    }
}
