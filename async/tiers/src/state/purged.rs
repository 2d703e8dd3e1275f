//! Options and outcome of a purge.

use crate::tier::{MOST_BELOW, Tier};
use std::time::Duration;

/// How a tenant's blocks are purged.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Purge {
    /// Whether their bytes are overwritten with zeros before anybody else has the blocks; and what earlier
    /// purges of this process, without that, have left in free slots of the disk.
    pub zero: bool,
    /// How long to wait at most for what requests hold, or what is in flight.
    pub deadline: Duration,
}

impl Default for Purge {
    fn default() -> Purge {
        Purge::new()
    }
}

/// Blocks of one tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PurgedTier {
    /// Blocks of the tenant that were found in this tier: registered, or withdrawn before and still held.
    pub found: usize,
    /// Those that are gone; what could not be overwritten, or forgotten for good, too ([`Purged::failed`]).
    pub purged: usize,
    /// Those that requests still held at the deadline, or that were still being overwritten: found by nobody
    /// any more, and gone when that ends.
    pub busy: usize,
}

/// What a purge has done; the proof of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Purged {
    /// Of the device.
    pub device: PurgedTier,
    /// Of the host.
    pub host: PurgedTier,
    /// Of the tiers below host memory, in order.
    pub below: [PurgedTier; MOST_BELOW],
    /// Transfers of the tenant's that were called back, or that it has waited for.
    pub in_flight: usize,
    /// Bytes that were overwritten, in all tiers.
    pub zeroed_bytes: u64,
    /// Blocks that may have bytes of the tenant's still: they could not be overwritten, or a device that
    /// has failed keeps them, and are never used again; a write of them to the disk has failed, and they
    /// were to be overwritten; or their volume is out of service, or has failed to write down that they are
    /// forgotten, so that the next opening may find them. One more for a volume that has failed to do that
    /// for what was given up before, and one more where not all could be overwritten that earlier purges
    /// have left.
    pub failed: usize,
    /// Blocks that some lookup still finds under the hash of one that was purged: another tenant's, whose
    /// hashes are not salted.
    pub still_found: usize,
    /// Whether it was over at the answer; it goes on otherwise.
    pub complete: bool,
}

impl Purged {
    /// Of a tier.
    #[must_use]
    pub fn of(&self, tier: Tier) -> PurgedTier {
        match tier {
            Tier::Device => self.device,
            Tier::Host => self.host,
            Tier::Below(number) => self.below.get(usize::from(number)).copied().unwrap_or_default(),
        }
    }

    /// Of all tiers that there may be, from the device down.
    #[must_use]
    pub fn tiers(&self) -> [PurgedTier; 2 + MOST_BELOW] {
        std::array::from_fn(|index| self.of(Tier::at(index)))
    }

    pub(crate) fn tier(&mut self, tier: Tier) -> &mut PurgedTier {
        match tier {
            Tier::Device => &mut self.device,
            Tier::Host => &mut self.host,
            Tier::Below(number) => &mut self.below[usize::from(number)],
        }
    }
}
