//! The refusals of an executor, given before it copies anything.

use super::Path;
use kvstrata_core::StorageKind;
use kvstrata_core::plan::Side;

/// The reason why a plan was not executed. None is transient: the same call fails again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The CPU cannot read and write a region.
    #[error("{side} region {region} is {kind} memory; the CPU copies between system and pinned memory only")]
    NotHost {
        /// The side of the region.
        side: Side,
        /// Its number in its layout.
        region: usize,
        /// Its kind of memory.
        kind: StorageKind,
    },
    /// The CPU does not have these instructions.
    #[error("this CPU has no {path}; use HostCopy::new(), which picks a path that it has")]
    Path {
        /// The path that needs them.
        path: Path,
    },
    /// The number of slices is not the number of regions.
    #[error(
        "the number of {side} slices is {slices}; it must be {regions}, one for each region of the layout"
    )]
    Slices {
        /// The side of the slices.
        side: Side,
        /// Slices given.
        slices: usize,
        /// Regions of the layout.
        regions: usize,
    },
    /// The source and the destination have different lengths.
    #[error("the source has {src} bytes and the destination {dst}; give slices of equal length")]
    Lengths {
        /// Bytes of the source.
        src: usize,
        /// Bytes of the destination.
        dst: usize,
    },
    /// A slice does not coincide with its region.
    #[error(
        "{side} slice {region} has {bytes} bytes at {address:#x}; the \
         layout needs {size_bytes} bytes at {needs:#x}"
    )]
    Slice {
        /// The side of the slice.
        side: Side,
        /// Its number.
        region: usize,
        /// The slice's address.
        address: u64,
        /// The slice's bytes.
        bytes: u64,
        /// The region's address.
        needs: u64,
        /// The region's bytes.
        size_bytes: u64,
    },
}
