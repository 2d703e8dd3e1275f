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
    /// Since when, as the manager counts time.
    pub(crate) since: Duration,
}

/// A transfer down that waits for the next of its layers (`steps.rs`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct GatedTransfer {
    pub(crate) key: DownId,
    /// The transfer's: a key is used again.
    pub(crate) serial: u64,
    pub(crate) since: Duration,
}

/// What waits for a gate.
#[derive(Debug)]
pub(crate) enum Waiter {
    Copy(GatedCopy),
    Transfer(GatedTransfer),
    /// Blocks that are registered, until they are written.
    Marked(Marked),
}

impl Waiter {
    /// Since when it waits; what is to be written, since the engine last went on.
    pub(crate) fn since(&self, engine: (u64, Duration)) -> Duration {
        match self {
            Waiter::Copy(copy) => copy.since,
            Waiter::Transfer(transfer) => transfer.since,
            Waiter::Marked(marked) => marked.since(engine),
        }
    }

    /// How many blocks wait to be written.
    pub(crate) fn marked(&self) -> usize {
        if let Waiter::Marked(marked) = self { marked.len() } else { 0 }
    }

    /// Whether it is a copy that has not begun, of an offload that somebody has asked for.
    pub(crate) fn is_copy_for(&self, offload: OffloadingId) -> bool {
        matches!(self, Waiter::Copy(copy) if copy.asked == Some(offload))
    }
}
