//! What an executor refuses before it copies anything.

use super::Path;
use kvstrata_core::StorageKind;
use kvstrata_core::plan::Side;

/// Why a plan was not executed. None of these passes by itself: the same call fails again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// A region is no memory that the CPU reads and writes.
    #[error("{side} region {region} is {kind} memory; the CPU copies between system and pinned memory only")]
    NotHost {
        /// Whose.
        side: Side,
        /// Its number in its layout.
        region: usize,
        /// What it is.
        kind: StorageKind,
    },
    /// The CPU has not these instructions.
    #[error("this CPU has no {path}; use HostCopy::new(), which picks a path that it has")]
    Path {
        /// Which.
        path: Path,
    },
    /// Not a slice for each region.
    #[error(
        "the number of {side} slices is {slices}; it must be {regions}, one for each region of the layout"
    )]
    Slices {
        /// Whose.
        side: Side,
        /// Slices given.
        slices: usize,
        /// Regions of the layout.
        regions: usize,
    },
    /// Bytes to copy, and another number of bytes to copy them to.
    #[error("the source has {src} bytes and the destination {dst}; give slices of equal length")]
    Lengths {
        /// Bytes of the source.
        src: usize,
        /// Bytes of the destination.
        dst: usize,
    },
    /// A slice is not its region.
    #[error(
        "{side} slice {region} has {bytes} bytes at {address:#x}; the \
         layout needs {size_bytes} bytes at {needs:#x}"
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
