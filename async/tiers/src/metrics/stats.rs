//! The counters of a manager, as one struct.

use super::histogram::SizeHistogram;
use crate::tier::Tier;
use crate::transfer::{Cause, Path};
use std::time::Duration;

/// Why an explicit offload was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// The manager has no tier below.
    Tier,
    /// The limit of transfers that wait for their turn or for host memory is reached (`transfer.queue`).
    Queue,
    /// The limit of copies that wait for a layer or an iteration is reached (`transfer.queue`).
    Gates,
    /// The tier below has no room for the block or does not want it, or the block is gone.
    Room,
    /// The manager was shut down.
    Closed,
}

impl Refusal {
    /// All reasons.
    pub const ALL: [Refusal; 5] =
        [Refusal::Tier, Refusal::Queue, Refusal::Gates, Refusal::Room, Refusal::Closed];

    /// Returns the name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Refusal::Tier => "tier",
            Refusal::Queue => "queue",
            Refusal::Gates => "gates",
            Refusal::Room => "room",
            Refusal::Closed => "closed",
        }
    }
}

/// The counters of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct PathStats {
    /// Transfers that ended, successful or not.
    pub transfers: u64,
    /// Bytes of successful transfers.
    pub bytes: u64,
    /// Sizes of successful transfers.
    pub sizes: SizeHistogram,
    /// Time with a transfer in flight, including the current one.
    pub busy: Duration,
    /// Failures by cause, in the order of [`Cause::ALL`]: transfers that failed, or were called off before
    /// they moved. [`Cause::Deadline`] also counts blocks that were not there in time for a waiting caller;
    /// [`Cause::Slow`] counts dropped blocks.
    pub failed: [u64; Cause::ALL.len()],
}

impl PathStats {
    /// Returns the failures of one cause.
    #[must_use]
    pub fn failed_by(&self, cause: Cause) -> u64 {
        self.failed[cause as usize]
    }
}

/// The counters of a manager.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct ManagerStats {
    /// Counters by path, in the order of [`Path::all`].
    pub paths: Vec<PathStats>,
    /// Evicted blocks that were lost, since the tier below had no room or did not keep up, or the write
    /// failed: from the device, from the host.
    pub dropped: [u64; 2],
    /// Blocks brought up to the device: from the host, from each tier below it.
    pub onboarded: Vec<u64>,
    /// Blocks copied down: from the device, from the host.
    pub offloaded: [u64; 2],
    /// Transfers that a failed device never finished: their blocks are never used again.
    pub parked: u64,
    /// Onboards that ended short of the run that was found, by the cause of the first missing block, in the
    /// order of [`Cause::ALL`]. An onboard that was dropped before its end counts as [`Cause::Cancelled`].
    pub missed: [u64; Cause::ALL.len()],
    /// Allocations that were not served by their deadline.
    pub late: u64,
    /// Blocks registered ahead of a pass and withdrawn: the pass did not write them, or they had been
    /// computed before.
    pub unwritten: u64,
    /// Blocks of prefetch hints that were dropped at once, since the hint had more blocks than the device.
    pub hints_cut: u64,
    /// Blocks of explicit offloads that were refused, in the order of [`Refusal::ALL`].
    pub refused: [u64; Refusal::ALL.len()],
}

impl ManagerStats {
    /// Returns the onboards that ended short for a cause.
    #[must_use]
    pub fn missed_by(&self, cause: Cause) -> u64 {
        self.missed[cause as usize]
    }

    /// Returns the blocks of explicit offloads that were refused for a reason.
    #[must_use]
    pub fn refused_by(&self, why: Refusal) -> u64 {
        self.refused[why as usize]
    }

    /// Returns the counters of a path; zeros if there is no such path.
    #[must_use]
    pub fn path(&self, path: Path) -> PathStats {
        self.paths.get(path.index()).copied().unwrap_or_default()
    }

    /// Returns the blocks brought up from a tier.
    #[must_use]
    pub fn onboarded_from(&self, tier: Tier) -> u64 {
        let place = tier.index().checked_sub(Tier::Host.index());
        place.and_then(|place| self.onboarded.get(place)).copied().unwrap_or_default()
    }
}
