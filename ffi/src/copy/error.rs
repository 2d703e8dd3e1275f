//! What an executor refuses before it copies anything.

use super::Path;
use kvstrata_core::StorageKind;
use kvstrata_core::plan::Side;

/// Why a plan was not executed. None of these passes by itself: the same call fails again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// A region is no memory that the CPU reads and writes.
    #[error("{side} region {region} is {kind}: the CPU copies between system and pinned memory only")]
    NotHost {
        /// Whose.
        side: Side,
        /// Its number in its layout.
        region: usize,
        /// What it is.
        kind: StorageKind,
    },
    /// The CPU has not these instructions.
    #[error("this CPU has no {path}; HostCopy::new() takes what it has")]
    Path {
        /// Which.
        path: Path,
    },
    /// Not a slice for each region.
    #[error("{slices} {side} slices for a layout of {regions} regions")]
    Slices {
        /// Whose.
        side: Side,
        /// Slices given.
        slices: usize,
        /// Regions of the layout.
        regions: usize,
    },
    /// Bytes to copy, and another number of bytes to copy them to.
    #[error("{src} source bytes and {dst} destination bytes; give slices of one length")]
    Lengths {
        /// Bytes of the source.
        src: usize,
        /// Bytes of the destination.
        dst: usize,
    },
    /// A slice is not its region.
    #[error(
        "{side} slice {region} is {bytes} bytes at {address:#x}: the layout has {size_bytes} bytes at {needs:#x}"
    )]
    Slice {
        /// Whose.
        side: Side,
        /// Its number.
        region: usize,
        /// Where the slice is.
        address: u64,
        /// How long it is.
        bytes: u64,
        /// Where the region is.
        needs: u64,
        /// How long that is.
        size_bytes: u64,
    },
}
