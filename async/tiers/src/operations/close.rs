//! Closing: no transfer begins any more, and all waiters are answered.

use crate::engine::inner::Inner;
use crate::state::{At, DownId, Phase, Traffic};
use crate::transfer::{Cause, Failure};

impl Traffic {
    /// Lets no transfer begin any more, cancels those that do not move yet, and answers all waiters.
    pub(crate) fn close(&mut self, inner: &Inner) {
        if !self.reach(Phase::Closed) {
            return;
        }
        self.drop_gated(inner);
        self.forget_deferred();
        for group in self.groups.numbers() {
            self.dissolve_queue(inner, group);
        }
        let cancelled = Failure::of(Cause::Cancelled);
        let ups = self.ups.keys_of(|_| true);
        for key in ups {
            let Some(at) = self.ups.get(key).map(|up| up.at()) else { continue };
            if self.recall(at) {
                self.up_failed(inner, key, cancelled);
            }
        }
        self.groups.iter_mut().for_each(|of| of.waiting_for_host.clear());
        let downs = self.downs.keys_of(|_| true);
        for key in downs {
            let Some(at) = self.downs.get(key).map(|down| down.at()) else { continue };
            if self.recall(at) {
                self.down_failed(inner, key, cancelled);
            }
        }
    }

    /// Ends the copies behind gates: the engine opens none any more, so they and their waiters would wait
    /// in vain.
    pub(crate) fn end_gated(&mut self, inner: &Inner) {
        let gated = self.downs.iter().filter(|(_, down)| down.is_gated());
        let gated: Vec<(DownId, At)> = gated.map(|(key, down)| (key, down.at())).collect();
        for (key, at) in gated {
            self.recall(at);
            self.down_failed(inner, key, Failure::of(Cause::Cancelled));
        }
        self.drop_gated(inner);
    }

    /// Takes a transfer out of its queue or gate. Returns false if it is moving.
    pub(crate) fn recall(&mut self, at: At) -> bool {
        match at {
            At::Moving => return false,
            At::Queued(path, ticket) => self.queues.cancel(path, ticket),
            At::Gated(key) => self.iterations.remove(key),
            At::Wants | At::Pausing | At::Behind => {}
        }
        true
    }
}
