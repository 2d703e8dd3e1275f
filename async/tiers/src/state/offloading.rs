//! An offload: its options, its state, its outcome.

use crate::scheduler::Gate;
use crate::state::{Key, OffloadingId};
use crate::transfer::{Cause, Class};
use slab::Slab;
use std::task::{Poll, Waker};
use std::time::Duration;

/// How blocks are offloaded.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct OffloadOptions {
    /// The urgency.
    pub class: Class,
    /// The number of the request: requests of one class take turns. 0: no request.
    pub request: u64,
    /// The layer or the iteration that must be over first, since it still writes the blocks.
    ///
    /// Behind layer `k` a block goes down in steps of `k + 1` layers, each when its last layer is done;
    /// the last step may be shorter. So when the pass ends, one step is left, and not the whole block.
    /// Several steps that have opened go in one copy. The tier below has the block when all of its layers
    /// are there. If a model has several groups of layers, [`layer_done`](crate::Iteration::layer_done)
    /// does not tell them apart: then a block goes whole, when the last layer of the model is done.
    ///
    /// A block that is [registered ahead](crate::BlocksMut::register_ahead) of the pass that writes it
    /// goes down when that pass is over, or by the layers of that pass, whatever gate is given here. So
    /// does a copy that another caller asks for.
    ///
    /// Until all of a block is down, it is held and cannot be evicted, even after its handles and the
    /// [`Offload`](crate::Offload) have been dropped: its content is not there yet. So an engine that
    /// awaits blocks amid a pass may wait for blocks that only its own pass releases. A block that has
    /// waited for its gate, or for the next of its layers, for the manager's `deadline.offload` (not for
    /// `deadline`) is released, and fails by [`Cause::Deadline`]: an engine that stops iterating keeps
    /// no blocks.
    pub gate: Gate,
    /// How long to wait at most; none: the manager's `deadline.offload`. Copies go on.
    pub deadline: Option<Duration>,
}

impl Default for OffloadOptions {
    fn default() -> OffloadOptions {
        OffloadOptions { class: Class::Offload, request: 0, gate: Gate::Open, deadline: None }
    }
}

/// The outcome of an offload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offloaded {
    /// Blocks that were copied.
    pub copied: usize,
    /// Blocks that the tier below already had, or that were on their way there.
    pub there: usize,
    /// Blocks that were not begun: there is no tier below, none has room for the block or wants it,
    /// a queue is full, or the manager is shut down
    /// ([`ManagerStats::refused`](crate::metrics::ManagerStats::refused) tells these apart).
    pub refused: usize,
    /// Blocks that failed, or were late.
    pub failed: usize,
    /// Why the last of these failed.
    pub cause: Option<Cause>,
}

/// An offload that a caller may wait for.
#[derive(Debug, Default)]
struct Offloading {
    /// Blocks without an answer.
    left: usize,
    so_far: Offloaded,
    waker: Option<Waker>,
    /// The caller waits no more.
    alone: bool,
    due: Option<Duration>,
    /// The deadline has passed.
    late: bool,
}

/// All offloads, by key.
///
/// Invariants
/// - I1: an offload is kept until its caller has the outcome, or gives it up, and until each of its
///   blocks is answered.
#[derive(Debug, Default)]
pub(crate) struct Offloadings(Slab<Offloading>);

impl Offloadings {
    /// Begins an offload without blocks.
    pub(crate) fn begin(&mut self) -> OffloadingId {
        OffloadingId::new(self.0.insert(Offloading::default()))
    }

    /// Adds a block that is to be answered.
    pub(crate) fn wait_for_one(&mut self, key: OffloadingId) {
        self.0[key.index()].left += 1;
    }

    /// Notes blocks that need no wait.
    pub(crate) fn note(&mut self, key: OffloadingId, note: impl FnOnce(&mut Offloaded)) {
        note(&mut self.0[key.index()].so_far);
    }

    /// Sets the deadline, if any block is still to be answered. Returns whether that is so.
    pub(crate) fn due(&mut self, key: OffloadingId, due: Option<Duration>) -> bool {
        let of = self.0.get_mut(key.index()).filter(|of| of.left > 0);
        of.map(|of| of.due = due).is_some()
    }

    /// Notes that the deadline has passed. Returns the waker of its caller; none if the offload
    /// has ended.
    pub(crate) fn late(&mut self, key: OffloadingId) -> Option<Option<Waker>> {
        let of = self.0.get_mut(key.index())?;
        of.late = true;
        Some(of.waker.take())
    }

    /// Whether its deadline has passed.
    pub(crate) fn is_late(&self, key: OffloadingId) -> bool {
        self.0.get(key.index()).is_some_and(|of| of.late)
    }

    /// Notes the answer for a block. If it was the last, returns the caller's waker and the deadline.
    pub(crate) fn answered(
        &mut self,
        key: OffloadingId,
        note: impl FnOnce(&mut Offloaded),
    ) -> Option<(Option<Waker>, Option<Duration>)> {
        let of = self.0.get_mut(key.index())?;
        of.left -= 1;
        note(&mut of.so_far);
        if of.left > 0 {
            return None;
        }
        let (waker, due, alone) = (of.waker.take(), of.due.take(), of.alone);
        if alone {
            self.0.remove(key.index());
        }
        Some((waker, due))
    }

    /// Returns the outcome, if there is one; otherwise the waker is kept for the caller. Also returns a
    /// waker that is no longer needed: it is to be dropped outside the lock, as is the caller's own.
    pub(crate) fn poll(
        &mut self,
        key: OffloadingId,
        waker: &mut Option<Waker>,
    ) -> (Poll<Offloaded>, Option<Waker>) {
        match self.0.get_mut(key.index()) {
            Some(of) if of.left > 0 && of.late => {
                of.alone = true;
                let (so_far, cause) = (of.so_far, Some(Cause::Deadline));
                (Poll::Ready(Offloaded { failed: so_far.failed + of.left, cause, ..so_far }), None)
            }
            Some(of) if of.left > 0 => (Poll::Pending, std::mem::replace(&mut of.waker, waker.take())),
            _ => {
                let of = self.0.try_remove(key.index()).unwrap_or_default();
                (Poll::Ready(of.so_far), of.waker)
            }
        }
    }

    /// Ends the caller's interest in the outcome. Returns the deadline, and a waker that is to be dropped
    /// outside the lock.
    pub(crate) fn abandon(&mut self, key: OffloadingId) -> (Option<Duration>, Option<Waker>) {
        match self.0.get_mut(key.index()) {
            Some(of) if of.left > 0 => {
                of.alone = true;
                (of.due.take(), of.waker.take())
            }
            Some(_) => (None, self.0.remove(key.index()).waker),
            None => (None, None),
        }
    }
}
