//! The tiers, from the device down.
//!
//! | | tier | memory |
//! |---|---|---|
//! | G1 | [`Tier::Device`] | the accelerator's memory, where attention reads |
//! | G2 | [`Tier::Host`] | host memory, pinned where there is a GPU |
//! | G3, G4, … | [`Tier::Below`] | tiers below host memory, in order |
//!
//! Each tier below host memory is a [`TierPort`](crate::transfer::TierPort) with a name. Settings make one
//! such tier, the disk: [`Tier::DISK`]. Parts may have several, of any kind.

use std::fmt;

/// Maximum number of tiers below host memory.
pub const MOST_BELOW: usize = 4;

/// The tier where a block is, or was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// G1: device memory.
    Device,
    /// G2: host memory.
    Host,
    /// A tier below host memory: the first is 0.
    Below(u8),
}

impl Tier {
    /// The first tier below host memory: the disk, where settings make the tiers.
    pub const DISK: Tier = Tier::Below(0);

    /// The tiers that settings make, from the device down.
    pub const OF_SETTINGS: [Tier; 3] = [Tier::Device, Tier::Host, Tier::DISK];

    /// Returns all tiers, from the device down, with so many below host memory.
    pub fn all(below: usize) -> impl DoubleEndedIterator<Item = Tier> + Clone {
        (0..2 + below).map(Tier::at)
    }

    /// Returns the tier's place, from the device down: 0, 1, …
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Tier::Device => 0,
            Tier::Host => 1,
            Tier::Below(number) => 2 + number as usize,
        }
    }

    /// Returns the tier at a place.
    #[must_use]
    pub const fn at(index: usize) -> Tier {
        match index {
            0 => Tier::Device,
            1 => Tier::Host,
            index => Tier::Below((index - 2) as u8),
        }
    }

    /// Returns the name in settings and reports, for the tiers that settings make. Other tiers below have
    /// the names that their parts gave them ([`Tiers::tier_name`](crate::Tiers::tier_name)).
    #[must_use]
    pub const fn name(self) -> &'static str {
        const NAMES: [&str; 2 + MOST_BELOW] = ["device", "host", "disk", "below-2", "below-3", "below-4"];
        let index = self.index();
        if index < NAMES.len() { NAMES[index] } else { "below" }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl serde::Serialize for Tier {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}
