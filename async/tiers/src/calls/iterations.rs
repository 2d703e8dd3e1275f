//! The calls by which an engine tells how far its model is: each pass has a guard.

use crate::calls::tiers::Tiers;
use crate::engine::inner::Inner;
use crate::scheduler::{Call, Clock, Misuse, Reason};
use crate::state::Waiter;
use crate::transfer::Cause;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A running iteration: one pass of the model over a batch. It owns its manager, and may be sent to the
/// thread where layers end.
///
/// Dropping it without [`end`](Iteration::end) means that the pass has failed, and ends the iteration.
/// Blocks that were [registered ahead](crate::BlocksMut::register_ahead) of it and are not written yet
/// are withdrawn, as by [`Ahead::withdraw`](crate::Ahead::withdraw). Other copies that wait for the
/// iteration go on as at its end. So the pass's queued work must have ended before the guard is dropped.
#[must_use = "dropping it fails the pass; call end()"]
pub struct Iteration {
    inner: Arc<Inner>,
    number: u64,
    is_over: bool,
}

impl Tiers {
    /// Begins an iteration of the model. Its byte budget ([`iteration.bytes`](crate)) starts anew.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/layerwise.rs)
    ///
    /// # Errors
    /// [`Misuse`], if an iteration is running.
    pub fn begin_iteration(&self) -> Result<Iteration, Misuse> {
        let number = self.inner().begin_iteration()?;
        Ok(Iteration { inner: Arc::clone(self.inner()), number, is_over: false })
    }

    /// Counts a whole iteration, for engines that do not tell when theirs begin and end. Returns its number.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    ///
    /// # Errors
    /// [`Misuse`], if an iteration is running.
    pub fn step(&self) -> Result<u64, Misuse> {
        self.inner().step()
    }

    /// Checks the watermarks now, and begins the copies that they call for. The end of each iteration
    /// does so too.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub fn check_watermark(&self) {
        self.inner().check_watermark();
    }
}

impl Iteration {
    /// Returns the iteration's number, for [gates](crate::scheduler::Gate). Numbers begin at 1.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Tells that this layer and those before it no longer use their parts of blocks. Transfers that
    /// wait for the layer go on.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/layerwise.rs)
    ///
    /// # Errors
    /// [`Misuse`], if the layer is done already, or the model has no layer of that number.
    pub fn layer_done(&self, layer: u32) -> Result<(), Misuse> {
        self.inner.layer_done(layer)
    }

    /// Ends the pass: transfers that wait for it go on. Blocks that will have to leave soon, or have
    /// been idle for long, are copied to the tier below.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/layerwise.rs)
    ///
    /// # Errors
    /// [`Misuse`], if this process was forked from the one that began the iteration.
    pub fn end(mut self) -> Result<(), Misuse> {
        self.is_over = true;
        self.inner.end_iteration()
    }
}

impl Drop for Iteration {
    fn drop(&mut self) {
        if self.inner.is_inherited() {
            return self.inner.keep();
        }
        if !self.is_over {
            self.inner.fail_iteration(self.number);
        }
    }
}

impl fmt::Debug for Iteration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Iteration({})", self.number)
    }
}

impl Inner {
    fn may(&self, call: Call) -> Result<(), Misuse> {
        if self.is_inherited() { Err(Misuse { call, reason: Reason::Inherited }) } else { Ok(()) }
    }

    fn begin_iteration(self: &Arc<Inner>) -> Result<u64, Misuse> {
        self.may(Call::Begin)?;
        self.with(|traffic| {
            let iteration = traffic.iterations.tell(self.elapsed(), Clock::begin)?;
            self.iteration.store(iteration, Relaxed);
            traffic.queues.iteration_begins();
            Ok(iteration)
        })
    }

    fn layer_done(self: &Arc<Inner>, layer: u32) -> Result<(), Misuse> {
        self.may(Call::LayerDone(layer))?;
        self.with(|traffic| {
            traffic.iterations.tell(self.elapsed(), |clock| clock.layer_done(layer))?;
            traffic.open_gates(self);
            Ok(())
        })
    }

    fn end_iteration(self: &Arc<Inner>) -> Result<(), Misuse> {
        self.may(Call::End)?;
        self.with(|traffic| {
            traffic.iterations.tell(self.elapsed(), Clock::end)?;
            traffic.open_gates(self);
            traffic.copy_ahead(self);
            Ok(())
        })
    }

    /// Ends the running iteration, which has not written the blocks registered ahead of it.
    fn fail_iteration(self: &Arc<Inner>, iteration: u64) {
        self.with(|traffic| {
            let of_it =
                |waiter: &Waiter| matches!(waiter, Waiter::Marked(list) if list.iteration <= iteration);
            let mut unwritten = traffic.iterations.take_if(of_it);
            for waiter in unwritten.drain(..) {
                if let Waiter::Marked(list) = waiter {
                    traffic.never_written(self, list, Cause::Cancelled);
                }
            }
            traffic.iterations.give_back(unwritten);
            // The iteration runs until its guard is dropped.
            let ended = traffic.iterations.tell(self.elapsed(), Clock::end);
            debug_assert_eq!(ended, Ok(iteration));
            traffic.open_gates(self);
            traffic.copy_ahead(self);
        });
    }

    fn step(self: &Arc<Inner>) -> Result<u64, Misuse> {
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

    fn check_watermark(self: &Arc<Inner>) {
        if self.is_inherited() {
            return;
        }
        self.with(|traffic| traffic.copy_ahead(self));
    }
}
