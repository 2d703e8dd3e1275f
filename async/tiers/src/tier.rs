//! The tiers, by name.
//!
//! | | tier | what it is |
//! |---|---|---|
//! | G1 | [`Tier::Device`] | the accelerator's memory, where attention reads |
//! | G2 | [`Tier::Host`] | host memory, pinned where there is a GPU |
//! | G3 | [`Tier::Disk`] | local NVMe volumes |
//! | G4 | none yet | remote memory and object stores: no such tier can be configured |

/// Where a block is, or was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// G1: device memory.
    Device,
    /// G2: host memory.
    Host,
    /// G3: local disks.
    Disk,
}

impl Tier {
    /// All of them, from the device down.
    pub const ALL: [Tier; 3] = [Tier::Device, Tier::Host, Tier::Disk];

    /// As settings and reports spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Tier::Device => "device",
            Tier::Host => "host",
            Tier::Disk => "disk",
        }
    }
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
