//! An offload: its options, its state, its outcome.

use crate::scheduler::Gate;
use crate::transfer::{Cause, Class};
use std::task::Waker;
use std::time::Duration;

/// How blocks are offloaded.
#[derive(Debug, Clone, Copy)]
pub struct OffloadOptions {
    /// Who goes first.
    pub class: Class,
    /// Whose it is: requests of one class take turns. 0: nobody's.
    pub request: u64,
    /// What must be over before: a layer or an iteration that still writes the blocks.
    ///
    /// Behind layer `k` a block goes down in steps of `k + 1` layers, each when its last layer is done, the last step being shorter if need be:
    /// what is left when the pass ends is one step, and not all of the block. What several steps have opened goes in one copy. The tier below
    /// has the block when all of its layers are there. Where a model has several groups of layers, a group's are not told apart by
    /// [`layer_done`](crate::Tiers::layer_done): there a block goes whole, when the last layer of the model is done.
    ///
    /// A block that is [registered ahead](crate::BlocksMut::register_ahead) of the pass that writes it goes down when that is over, whatever is said
    /// here, or by the layers of that pass: so does the copy that anybody else asks for.
    ///
    /// Until all of it is down a block is held, and cannot be evicted, also where its handles and the [`Offload`] have been dropped: what it
    /// will hold is not there yet. So an engine that awaits blocks in the midst of a pass may wait for those that only its own pass lets go. What has
    /// waited for a gate, or for the next of its layers, for the manager's `deadline.offload`, whatever `deadline` says here, is let go, and
    /// fails by [`Cause::Deadline`]: an engine that iterates no more keeps no blocks.
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
    /// Blocks that were not begun: no tier below, none that has room for them or wants them, a full queue, or a manager that is shut down
    /// ([`ManagerStats::refused`](crate::metrics::ManagerStats::refused) tells them apart).
    pub refused: usize,
    /// Blocks whose copy failed, or was late.
    pub failed: usize,
    /// Why the last of those did.
    pub cause: Option<Cause>,
}

/// An offload that somebody may wait for.
#[derive(Debug, Default)]
pub(crate) struct Offloading {
    pub(crate) left: usize,
    pub(crate) so_far: Offloaded,
    pub(crate) waker: Option<Waker>,
    /// Nobody does.
    pub(crate) alone: bool,
    pub(crate) due: Option<Duration>,
    /// That has passed.
    pub(crate) late: bool,
}
