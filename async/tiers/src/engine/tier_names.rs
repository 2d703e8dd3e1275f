//! The names of an engine's tiers and paths: each tier below host memory has the name that its parts give it.

use crate::engine::group_tiers::GroupTiers;
use crate::tier::Tier;
use crate::transfer::Path;

/// Names from the device down.
#[derive(Debug, Clone)]
pub(crate) struct TierNames(Box<[String]>);

impl Default for TierNames {
    /// Those of settings.
    fn default() -> TierNames {
        TierNames(Tier::OF_SETTINGS.iter().map(|tier| tier.name().to_owned()).collect())
    }
}

impl TierNames {
    /// Of these groups: at each place that of the first group that has a tier there.
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

    /// How many tiers there are below host memory: of the group that has most.
    pub(crate) fn below(&self) -> usize {
        self.0.len() - Tier::Below(0).index()
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[String] {
        &self.0
    }

    /// A tier's.
    pub(crate) fn tier(&self, tier: Tier) -> &str {
        self.0.get(tier.index()).map_or(tier.name(), String::as_str)
    }

    /// The tier with a name.
    pub(crate) fn find(&self, name: &str) -> Option<Tier> {
        self.0.iter().position(|of| of == name).map(Tier::at)
    }

    /// A path's: that of the tiers at its ends.
    pub(crate) fn path(&self, path: Path) -> String {
        match path {
            Path::DeviceToHost | Path::HostToDevice => path.name().to_owned(),
            Path::ToBelow(number) => format!("host_to_{}", self.tier(Tier::Below(number))),
            Path::FromBelow(number) => format!("{}_to_device", self.tier(Tier::Below(number))),
        }
    }
}
