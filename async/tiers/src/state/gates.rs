//! Copies, transfers and blocks that wait for a gate.

use crate::state::{DownId, GroupId, Marked, OffloadingId, Steps};
use crate::transfer::Class;
use kvstrata_core::BlockRef;
use kvstrata_ffi::disk::Name;
use std::time::Duration;

/// A copy that waits for its gate.
#[derive(Debug)]
pub(crate) struct GatedCopy {
    pub(crate) group: GroupId,
    pub(crate) block: BlockRef,
    pub(crate) name: Name,
    pub(crate) class: Class,
    pub(crate) request: u64,
    pub(crate) steps: Option<Steps>,
    pub(crate) asked: Option<OffloadingId>,
    /// Since when it waits, by the manager's clock.
    pub(crate) since: Duration,
}

/// A transfer down that waits for the next of its layers (`steps.rs`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct GatedTransfer {
    pub(crate) key: DownId,
    /// The transfer's number: keys are reused.
    pub(crate) serial: u64,
    pub(crate) since: Duration,
}

/// Waits for a gate.
#[derive(Debug)]
pub(crate) enum Waiter {
    Copy(GatedCopy),
    Transfer(GatedTransfer),
    /// Registered blocks that are not written yet.
    Marked(Marked),
}

impl Waiter {
    /// Returns since when it waits; for unwritten blocks, the engine's progress counts.
    pub(crate) fn since(&self, engine: (u64, Duration)) -> Duration {
        match self {
            Waiter::Copy(copy) => copy.since,
            Waiter::Transfer(transfer) => transfer.since,
            Waiter::Marked(marked) => marked.since(engine),
        }
    }

    /// Returns the number of blocks that wait to be written.
    pub(crate) fn marked(&self) -> usize {
        if let Waiter::Marked(marked) = self { marked.len() } else { 0 }
    }

    /// Whether it is a copy that has not begun, of this offload.
    pub(crate) fn is_copy_for(&self, offload: OffloadingId) -> bool {
        matches!(self, Waiter::Copy(copy) if copy.asked == Some(offload))
    }
}
