//! The parameters of a launch, as `cuda/args.cuh` reads them. A test compares sizes, and `cuda/args.cuh`
//! asserts the same.

use crate::divide::Divisor;
use kvstrata_core::plan;
use zerocopy::{Immutable, IntoBytes};

/// A loop around a piece.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
pub struct Loop {
    pub count: Divisor,
    pub unused: u32,
    pub src_stride: u64,
    pub dst_stride: u64,
}

impl Loop {
    pub const ONCE: Loop = Loop { count: Divisor::ONE, unused: 0, src_stride: 0, dst_stride: 0 };

    pub const fn new(count: u32, src_stride: u64, dst_stride: u64) -> Loop {
        Loop { count: Divisor::new(count), unused: 0, src_stride, dst_stride }
    }
}

impl From<&plan::Loop> for Loop {
    fn from(of: &plan::Loop) -> Loop {
        Loop::new(of.count, of.src_stride, of.dst_stride)
    }
}

/// Loops within a block: layer, outer index, token, head.
pub const LOOPS: usize = 4;

/// Maps the number of a unit of work to its addresses: mixed radix, with the units of a piece first, then
/// the loops from the innermost, the bases, the blocks.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
pub struct Walk {
    /// The device address of the pairs of addresses; 0 if the next two are the only pair.
    pub bases: u64,
    pub src_base: u64,
    pub dst_base: u64,
    pub src_block_stride: u64,
    pub dst_block_stride: u64,
    pub loops: [Loop; LOOPS],
    /// Units per piece.
    pub tiles: Divisor,
    pub base_count: Divisor,
    pub depth: u32,
    pub units: u32,
    /// Vectors per piece.
    pub vectors: u32,
    pub lane_bits: u32,
    /// A binary32, by which converted elements are multiplied.
    pub scale: u32,
    pub unused: u32,
}

/// Rows that change places.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
pub struct Tile {
    pub walk: Walk,
    pub src_along: u64,
    pub src_across: u64,
    pub dst_along: u64,
    pub dst_across: u64,
    /// Vectors per row.
    pub row: Divisor,
    pub along: u32,
    pub across: u32,
    pub along_bits: u32,
    pub across_bits: u32,
    /// Vectors from one line of a tile to the next.
    pub pitch: u32,
}

/// Blocks that are in one piece at the destination, and are summed on the way.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
pub struct Sum {
    /// A piece is a unit; `units` counts the chunks of all blocks.
    pub walk: Walk,
    /// The address for 8 bytes per chunk.
    pub sums: u64,
    /// Vectors per piece.
    pub piece: Divisor,
    /// Chunks per block.
    pub chunks: Divisor,
    /// Pieces per block.
    pub pieces: u32,
    /// Vectors per block.
    pub vectors: u32,
    /// 0 for sums without a copy.
    pub copies: u32,
    pub unused: u32,
}

/// A block at the source and at the destination.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
pub struct Pair {
    pub src: u32,
    pub dst: u32,
}

/// Parameters that any device takes.
pub const SMALL_BYTES: usize = 4096;
/// Parameters from CUDA 12.1 and compute capability 7.0 on: 32,764 bytes, whole pairs.
pub const LARGE_BYTES: usize = 32_760;

const _: () = {
    assert!(
        size_of::<Loop>() == 32
            && size_of::<Walk>() == 216
            && size_of::<Tile>() == 280
            && size_of::<Sum>() == 264
    );
    assert!(size_of::<Pair>() == 8);
};
