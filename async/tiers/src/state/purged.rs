//! Options and outcome of a purge.

use crate::tier::{MOST_BELOW, Tier};
use std::time::Duration;

/// How a tenant's blocks are purged.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Purge {
    /// Whether the bytes are overwritten with zeros before the blocks have another owner. This includes
    /// bytes that earlier purges of this process, without `zero`, have left in free slots of the disk.
    pub zero: bool,
    /// How long to wait at most for blocks that requests hold, or that are in flight.
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
    /// Those that are gone, including blocks that could not be overwritten, or forgotten for good
    /// ([`Purged::failed`]).
    pub purged: usize,
    /// Those that requests still held at the deadline, or that were still being overwritten. Lookups do
    /// not find them any more, and they are gone when that ends.
    pub busy: usize,
}

/// The outcome of a purge, and its proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Purged {
    /// Blocks of the device.
    pub device: PurgedTier,
    /// Blocks of the host.
    pub host: PurgedTier,
    /// Blocks of the tiers below host memory, in order.
    pub below: [PurgedTier; MOST_BELOW],
    /// Transfers of the tenant that were called back, or that the purge has waited for.
    pub in_flight: usize,
    /// Bytes that were overwritten, in all tiers.
    pub zeroed_bytes: u64,
    /// Blocks that may still have bytes of the tenant. They could not be overwritten, or a failed device
    /// keeps them: such blocks are never used again. Or a write of them to the disk has failed, and they
    /// were to be overwritten. Or their volume is out of service, or has failed to record that they are
    /// forgotten, so that the next opening may find them. One more if a volume has failed to record this
    /// for blocks that were given up before, and one more if not all bytes could be overwritten that
    /// earlier purges have left.
    pub failed: usize,
    /// Blocks that a lookup still finds under the hash of a purged block: blocks of another tenant, whose
    /// hashes are not salted.
    pub still_found: usize,
    /// Whether the purge was over at the answer; otherwise it goes on.
    pub complete: bool,
}

impl Purged {
    /// Returns the blocks of a tier.
    #[must_use]
    pub fn of(&self, tier: Tier) -> PurgedTier {
        match tier {
            Tier::Device => self.device,
            Tier::Host => self.host,
            Tier::Below(number) => self.below.get(usize::from(number)).copied().unwrap_or_default(),
        }
    }

    /// Returns the blocks of all tiers that there may be, from the device down.
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
