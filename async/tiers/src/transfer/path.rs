//! The paths between tiers, and the classes of urgency on them.

use crate::tier::{MOST_BELOW, Tier};

/// A path from one tier to another. Each has a queue.
///
/// ```text
///   device ── DeviceToHost ──► host memory ── ToBelow(n) ──► tier n below
///   device ◄── HostToDevice ── host memory ◄── FromBelow(n) ── tier n below
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// Offload.
    DeviceToHost,
    /// Offload, to a tier below host memory.
    ToBelow(u8),
    /// Onboard.
    HostToDevice,
    /// Onboard: a read into host memory, which [`HostToDevice`](Path::HostToDevice) then takes up.
    FromBelow(u8),
}

impl Path {
    /// To the first tier below host memory: the disk, if settings make the tiers.
    pub const HOST_TO_DISK: Path = Path::ToBelow(0);

    /// From the first tier below host memory.
    pub const DISK_TO_DEVICE: Path = Path::FromBelow(0);

    /// The paths between the tiers that settings make.
    pub const OF_SETTINGS: [Path; 4] =
        [Path::DeviceToHost, Path::HOST_TO_DISK, Path::HostToDevice, Path::DISK_TO_DEVICE];

    /// Returns the number of paths with so many tiers below host memory. There is always a path to the first.
    #[must_use]
    pub const fn count(below: usize) -> usize {
        2 + 2 * if below == 0 { 1 } else { below }
    }

    /// Returns the paths with so many tiers below host memory.
    pub fn all(below: usize) -> impl DoubleEndedIterator<Item = Path> + ExactSizeIterator + Clone {
        (0..Path::count(below)).map(Path::at)
    }

    /// Returns the path's place among all.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Path::DeviceToHost => 0,
            Path::ToBelow(0) => 1,
            Path::ToBelow(number) => 2 + 2 * number as usize,
            Path::HostToDevice => 2,
            Path::FromBelow(number) => 3 + 2 * number as usize,
        }
    }

    /// Returns the path at a place.
    #[must_use]
    pub const fn at(index: usize) -> Path {
        match index {
            0 => Path::DeviceToHost,
            1 => Path::HOST_TO_DISK,
            2 => Path::HostToDevice,
            3 => Path::DISK_TO_DEVICE,
            index if index.is_multiple_of(2) => Path::ToBelow(((index - 2) / 2) as u8),
            index => Path::FromBelow(((index - 3) / 2) as u8),
        }
    }

    /// Returns the path's kind, by which limits and settings are given: the place of the like
    /// path in [`OF_SETTINGS`](Path::OF_SETTINGS).
    #[must_use]
    pub const fn kind(self) -> usize {
        match self {
            Path::DeviceToHost => 0,
            Path::ToBelow(_) => 1,
            Path::HostToDevice => 2,
            Path::FromBelow(_) => 3,
        }
    }

    /// Returns the path's name in settings and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        const TO: [&str; MOST_BELOW] =
            ["host_to_disk", "host_to_below-2", "host_to_below-3", "host_to_below-4"];
        const FROM: [&str; MOST_BELOW] =
            ["disk_to_device", "below-2_to_device", "below-3_to_device", "below-4_to_device"];
        match self {
            Path::DeviceToHost => "device_to_host",
            Path::HostToDevice => "host_to_device",
            Path::ToBelow(number) if (number as usize) < MOST_BELOW => TO[number as usize],
            Path::FromBelow(number) if (number as usize) < MOST_BELOW => FROM[number as usize],
            Path::ToBelow(_) => "host_to_below",
            Path::FromBelow(_) => "below_to_device",
        }
    }

    /// Returns the tier that bytes come from.
    #[must_use]
    pub const fn from(self) -> Tier {
        match self {
            Path::DeviceToHost => Tier::Device,
            Path::ToBelow(_) | Path::HostToDevice => Tier::Host,
            Path::FromBelow(number) => Tier::Below(number),
        }
    }

    /// Returns the tier below host memory at one end.
    #[must_use]
    pub const fn below(self) -> Option<u8> {
        match self {
            Path::ToBelow(number) | Path::FromBelow(number) => Some(number),
            Path::DeviceToHost | Path::HostToDevice => None,
        }
    }

    /// Returns whether the path leads towards the device.
    #[must_use]
    pub const fn is_up(self) -> bool {
        matches!(self, Path::HostToDevice | Path::FromBelow(_))
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl serde::Serialize for Path {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

/// The urgency of a transfer: all of a class go before those of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A request waits for it: an onboard, or an offload that makes room.
    Urgent,
    /// A request will wait for it soon: watermarks, preempted requests.
    Offload,
    /// No request waits for it: idle blocks, write-through.
    Background,
    /// A guess, and the first to be dropped.
    Prefetch,
}

impl Class {
    /// All classes, the most urgent one first.
    pub const ALL: [Class; 4] = [Class::Urgent, Class::Offload, Class::Background, Class::Prefetch];

    /// Returns the class's name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Class::Urgent => "urgent",
            Class::Offload => "offload",
            Class::Background => "background",
            Class::Prefetch => "prefetch",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_places_of_their_own() {
        for below in 0..=MOST_BELOW {
            assert_eq!(Path::all(below).len(), Path::count(below));
            for (index, path) in Path::all(below).enumerate() {
                assert_eq!((path.index(), Path::at(index)), (index, path));
            }
        }
        assert_eq!(Path::OF_SETTINGS.map(Path::index), [0, 1, 2, 3]);
        assert_eq!(Tier::OF_SETTINGS.map(Tier::index), [0, 1, 2]);
        assert_eq!(Tier::all(MOST_BELOW).map(Tier::index).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    }
}
