//! The calls by which an engine tells how far its model is.

use crate::engine::inner::Inner;
use crate::scheduler::{Call, Clock, Misuse, Reason};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Inner {
    fn may(&self, call: Call) -> Result<(), Misuse> {
        if self.is_inherited() { Err(Misuse { call, reason: Reason::Inherited }) } else { Ok(()) }
    }

    /// An iteration begins. See [`Tiers::iteration_begin`](crate::Tiers::iteration_begin).
    pub(crate) fn iteration_begin(self: &Arc<Inner>) -> Result<u64, Misuse> {
        self.may(Call::Begin)?;
        self.with(|traffic| {
            let iteration = traffic.iterations.tell(self.elapsed(), Clock::begin)?;
            self.iteration.store(iteration, Relaxed);
            traffic.queues.iteration_begins();
            Ok(iteration)
        })
    }

    pub(crate) fn layer_done(self: &Arc<Inner>, layer: u32) -> Result<(), Misuse> {
        self.may(Call::LayerDone(layer))?;
        self.with(|traffic| {
            traffic.iterations.tell(self.elapsed(), |clock| clock.layer_done(layer))?;
            traffic.open_gates(self);
            Ok(())
        })
    }

    pub(crate) fn iteration_end(self: &Arc<Inner>) -> Result<u64, Misuse> {
        self.may(Call::End)?;
        self.with(|traffic| {
            let iteration = traffic.iterations.tell(self.elapsed(), Clock::end)?;
            traffic.open_gates(self);
            traffic.copy_ahead(self);
            Ok(iteration)
        })
    }

    pub(crate) fn step(self: &Arc<Inner>) -> Result<u64, Misuse> {
        self.may(Call::Step)?;
        self.with(|traffic| {
            let iteration = traffic.iterations.tell(self.elapsed(), Clock::step)?;
            self.iteration.store(iteration, Relaxed);
            traffic.queues.iteration_begins();
            traffic.open_gates(self);
            traffic.copy_ahead(self);
            Ok(iteration)
        })
    }

    pub(crate) fn check_watermark(self: &Arc<Inner>) {
        if self.is_inherited() {
            return;
        }
        self.with(|traffic| traffic.copy_ahead(self));
    }
}
