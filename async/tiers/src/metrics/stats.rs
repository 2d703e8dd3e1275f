//! What a manager has counted, as one struct.

use super::histogram::SizeHistogram;
use crate::tier::Tier;
use crate::transfer::{Cause, Path};
use std::time::Duration;

/// Why a copy down that a caller has asked for was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// The manager has no tier below.
    Tier,
    /// As many transfers wait as may (`transfer.queue`), for their turn or for host memory.
    Queue,
    /// As many copies wait for a layer or an iteration as may.
    Gates,
    /// The tier below has no room for the block, or does not want it; or the block is gone.
    Room,
    /// The manager was shut down.
    Closed,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Refusal; 5] =
        [Refusal::Tier, Refusal::Queue, Refusal::Gates, Refusal::Room, Refusal::Closed];

    /// As metrics spell it.
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

/// What a path has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct PathStats {
    /// Transfers that have ended, well or not.
    pub transfers: u64,
    /// Bytes of those that have ended well.
    pub bytes: u64,
    /// How large each of these was.
    pub sizes: SizeHistogram,
    /// How long something of it was under way, what is so now included.
    pub busy: Duration,
    /// Failures by cause, in the order of [`Cause::ALL`]: of transfers; of those that were called off before they moved; by
    /// [`Cause::Deadline`] alone, of blocks that were not there in time for somebody who waited.
    pub failed: [u64; Cause::ALL.len()],
}

impl PathStats {
    /// Failures of a cause.
    #[must_use]
    pub fn failed_by(&self, cause: Cause) -> u64 {
        self.failed[cause as usize]
    }
}

/// What a manager has done.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct ManagerStats {
    /// By path, in the order of [`Path::all`].
    pub paths: Vec<PathStats>,
    /// Blocks that left a tier for good, since the tier below had no room or its write failed: of the device, of the host.
    pub dropped: [u64; 2],
    /// Blocks that came up: from the host, from each tier below it.
    pub onboarded: Vec<u64>,
    /// Blocks that went down: from the device, from the host.
    pub offloaded: [u64; 2],
    /// Flights whose blocks a failed device keeps.
    pub parked: u64,
    /// Onboardings that ended short of the run that was found, by the cause of the first block that is missing, in the order of
    /// [`Cause::ALL`]. One that is dropped before it has ended is [`Cause::Cancelled`].
    pub missed: [u64; Cause::ALL.len()],
    /// Allocations that were not served in time.
    pub late: u64,
    /// Blocks that were registered ahead of a pass and withdrawn: it did not write them, or somebody had computed them before.
    pub unwritten: u64,
    /// Blocks of hints that were forgotten at once, being more than the device has.
    pub hints_cut: u64,
    /// Blocks that a caller wanted copied down, and that were refused, by why, in the order of [`Refusal::ALL`].
    pub refused: [u64; Refusal::ALL.len()],
}

impl ManagerStats {
    /// Onboardings that ended short for a cause.
    #[must_use]
    pub fn missed_by(&self, cause: Cause) -> u64 {
        self.missed[cause as usize]
    }

    /// Copies on request that were refused for a reason.
    #[must_use]
    pub fn refused_by(&self, why: Refusal) -> u64 {
        self.refused[why as usize]
    }

    /// What a path has moved; nothing, of one that there is not.
    #[must_use]
    pub fn path(&self, path: Path) -> PathStats {
        self.paths.get(path.index()).copied().unwrap_or_default()
    }

    /// Blocks that came up from a tier.
    #[must_use]
    pub fn onboarded_from(&self, tier: Tier) -> u64 {
        let place = tier.index().checked_sub(Tier::Host.index());
        place.and_then(|place| self.onboarded.get(place)).copied().unwrap_or_default()
    }
}
