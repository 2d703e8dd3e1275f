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
    /// Who goes first.
    pub class: Class,
    /// Whose it is: requests of one class take turns. 0: nobody's.
    pub request: u64,
    /// What must be over before: a layer or an iteration that still writes the blocks.
    ///
    /// Behind layer `k` a block goes down in steps of `k + 1` layers, each when its last layer is done, the
    /// last step being shorter if need be: what is left when the pass ends is one step, and not all of the
    /// block. What several steps have opened goes in one copy. The tier below has the block when all of its
    /// layers are there. Where a model has several groups of layers, a group's are not told apart by
    /// [`layer_done`](crate::Iteration::layer_done): there a block goes whole, when the last layer of the model
    /// is done.
    ///
    /// A block that is [registered ahead](crate::BlocksMut::register_ahead) of the pass that writes it goes
    /// down when that is over, whatever is said here, or by the layers of that pass: so does the copy that
    /// anybody else asks for.
    ///
    /// Until all of it is down a block is held, and cannot be evicted, also where its handles and the
    /// [`Offload`](crate::Offload) have been dropped: what it will hold is not there yet. So an engine that
    /// awaits blocks in the midst of a pass may wait for those that only its own pass lets go. What has
    /// waited for a gate, or for the next of its layers, for the manager's `deadline.offload`, whatever
    /// `deadline` says here, is let go, and fails by [`Cause::Deadline`]: an engine that iterates no more
    /// keeps no blocks.
    pub gate: Gate,
    /// How long to wait at most; the manager's `deadline.offload` unless told. Copies go on.
    pub deadline: Option<Duration>,
}

impl Default for OffloadOptions {
    fn default() -> OffloadOptions {
        OffloadOptions { class: Class::Offload, request: 0, gate: Gate::Open, deadline: None }
    }
}

/// What came of an offload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offloaded {
    /// Blocks that were copied.
    pub copied: usize,
    /// Blocks that the tier below had, or that were on their way there.
    pub there: usize,
    /// Blocks that were not begun: no tier below, none that has room for them or wants them, a full queue, or
    /// a manager that is shut down ([`ManagerStats::refused`](crate::metrics::ManagerStats::refused) tells
    /// them apart).
    pub refused: usize,
    /// Blocks whose copy failed, or was late.
    pub failed: usize,
    /// Why the last of those did.
    pub cause: Option<Cause>,
}

/// An offload that a caller may wait for.
#[derive(Debug, Default)]
struct Offloading {
    /// Blocks that are not answered.
    left: usize,
    so_far: Offloaded,
    waker: Option<Waker>,
    /// The caller waits no more.
    alone: bool,
    due: Option<Duration>,
    /// That has passed.
    late: bool,
}

/// All of them, by key.
///
/// Invariants
/// - I1: one is kept until its caller has the outcome, or does not want it, and until each of its blocks is
///   answered.
#[derive(Debug, Default)]
pub(crate) struct Offloadings(Slab<Offloading>);

impl Offloadings {
    /// A new one, of no blocks yet.
    pub(crate) fn begin(&mut self) -> OffloadingId {
        OffloadingId::new(self.0.insert(Offloading::default()))
    }

    /// One more of its blocks is to be answered.
    pub(crate) fn wait_for_one(&mut self, key: OffloadingId) {
        self.0[key.index()].left += 1;
    }

    /// Notes blocks that need not be waited for.
    pub(crate) fn note(&mut self, key: OffloadingId, note: impl FnOnce(&mut Offloaded)) {
        note(&mut self.0[key.index()].so_far);
    }

    /// It is answered by then, if any of its blocks is not. Whether that is so.
    pub(crate) fn due(&mut self, key: OffloadingId, due: Option<Duration>) -> bool {
        let of = self.0.get_mut(key.index()).filter(|of| of.left > 0);
        of.map(|of| of.due = due).is_some()
    }

    /// Its deadline has passed. Who is to be told; none: it is no more.
    pub(crate) fn late(&mut self, key: OffloadingId) -> Option<Option<Waker>> {
        let of = self.0.get_mut(key.index())?;
        of.late = true;
        Some(of.waker.take())
    }

    /// Whether its deadline has passed.
    pub(crate) fn is_late(&self, key: OffloadingId) -> bool {
        self.0.get(key.index()).is_some_and(|of| of.late)
    }

    /// One of its blocks is answered. Who is to be told if that was the last, and its deadline.
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

    /// The caller asks for the outcome, and takes it if there is one; otherwise it is woken by the waker.
    /// With it a waker that is not needed any more: to be dropped outside the lock, as is the caller's own.
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

    /// The caller wants the outcome no more. Its deadline, and a waker that is to be dropped outside the
    /// lock.
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
