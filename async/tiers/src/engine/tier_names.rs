//! The names of an engine's tiers and paths: each tier below host memory has the name that its parts give it.

use crate::engine::group_tiers::GroupTiers;
use crate::tier::Tier;
use crate::transfer::Path;

/// Names from the device down.
#[derive(Debug, Clone)]
pub(crate) struct TierNames(Box<[String]>);

impl Default for TierNames {
    /// The names of the tiers that settings make.
    fn default() -> TierNames {
        TierNames(Tier::OF_SETTINGS.iter().map(|tier| tier.name().to_owned()).collect())
    }
}

impl TierNames {
    /// The names of these groups: at each place, of the first group that has a tier there.
    pub(crate) fn of(groups: &[GroupTiers]) -> TierNames {
        let below = groups.iter().map(|group| group.lower.len()).max().unwrap_or(0);
        let name = |tier: Tier| match tier {
            Tier::Below(number) => {
                groups.iter().find_map(|group| group.lower(number)).map(|lower| lower.name.clone())
            }
            Tier::Device | Tier::Host => None,
        };
        TierNames(Tier::all(below).map(|tier| name(tier).unwrap_or_else(|| tier.name().to_owned())).collect())
    }

    /// Number of tiers below host memory, in the group that has most.
    pub(crate) fn below(&self) -> usize {
        self.0.len() - Tier::Below(0).index()
    }

    pub(crate) fn all(&self) -> &[String] {
        &self.0
    }

    /// The name of a tier.
    pub(crate) fn tier(&self, tier: Tier) -> &str {
        self.0.get(tier.index()).map_or(tier.name(), String::as_str)
    }

    /// Finds the tier with a name.
    pub(crate) fn find(&self, name: &str) -> Option<Tier> {
        self.0.iter().position(|of| of == name).map(Tier::at)
    }

    /// The name of a path, from the tiers at its ends.
    pub(crate) fn path(&self, path: Path) -> String {
        match path {
            Path::DeviceToHost | Path::HostToDevice => path.name().to_owned(),
            Path::ToBelow(number) => format!("host_to_{}", self.tier(Tier::Below(number))),
            Path::FromBelow(number) => format!("{}_to_device", self.tier(Tier::Below(number))),
        }
    }
}
