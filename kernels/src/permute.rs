//! Plans that change the order of short rows, and the tiles of rows that CTAs take: `cuda/permute.cu`.

use crate::args::{LOOPS, Loop, Tile, Walk};
use crate::divide::Divisor;
use crate::walk::WIDTHS;
use core::ffi::CStr;
use kvstrata_core::plan::Nest;

/// Longer rows are copied one by one just as well: each is whole transactions on both sides.
const MOST_ROW_BYTES: u64 = 512;
/// `TILE_BYTES` and `ROOM_BYTES` of `cuda/permute.cu`.
const TILE_BYTES: u64 = 16_384;
const ROOM_BYTES: u64 = TILE_BYTES + TILE_BYTES / 8;
/// Shorter rows share the banks of shared memory with their neighbours.
const BANKS_BYTES: u64 = 128;

/// Returns the tiles of a nest whose rows follow each other along one loop at the destination, and along
/// another at the source.
pub(crate) fn tile(nest: &Nest, width: u64, mut walk: Walk) -> Option<Tile> {
    let row = nest.piece_bytes();
    let loops = nest.loops();
    let along_at = loops.iter().position(|l| l.dst_stride == row && l.src_stride != row)?;
    let across_at = loops.iter().position(|l| l.src_stride == row && l.dst_stride != row)?;
    if row > MOST_ROW_BYTES {
        return None;
    }
    let (along, across) = (&loops[along_at], &loops[across_at]);
    // As many rows as fit, equally many in both directions unless one direction has fewer.
    let bits = (TILE_BYTES / row).ilog2();
    let [needs_along, needs_across] = [along, across].map(|l| l.count.next_power_of_two().ilog2());
    let along_bits = needs_along.min((bits / 2).max(bits.saturating_sub(needs_across)));
    let across_bits = needs_across.min(bits - along_bits);
    let line = row << across_bits;
    let apart = if row < BANKS_BYTES { row } else { 0 };
    // Half a tile is better than lanes that wait for each other's banks.
    let along_bits = if (line + apart) << along_bits > ROOM_BYTES { along_bits - 1 } else { along_bits };

    walk.loops = [Loop::ONCE; LOOPS];
    for (at, (of, rows_bits)) in [(across, across_bits), (along, along_bits)].into_iter().enumerate() {
        let tiles = of.count.div_ceil(1 << rows_bits);
        walk.loops[at] = Loop::new(tiles, of.src_stride << rows_bits, of.dst_stride << rows_bits);
    }
    let others = loops.iter().enumerate().filter(|(at, _)| *at != along_at && *at != across_at);
    for (to, (_, of)) in walk.loops[2..].iter_mut().zip(others) {
        *to = of.into();
    }
    walk.depth = loops.len() as u32;
    Some(Tile {
        walk,
        src_along: along.src_stride,
        src_across: across.src_stride,
        dst_along: along.dst_stride,
        dst_across: across.dst_stride,
        row: Divisor::new((row / width) as u32),
        along: along.count,
        across: across.count,
        along_bits,
        across_bits,
        pitch: ((line + apart) / width) as u32,
    })
}

/// Returns the names of all permuting kernels.
pub(crate) fn all_names() -> impl Iterator<Item = &'static CStr> {
    WIDTHS.into_iter().flat_map(names)
}

/// Returns the kernels for vectors of `width` bytes.
pub(crate) fn names(width: u64) -> [&'static CStr; 2] {
    match width {
        16 => [c"permute16_small", c"permute16_large"],
        8 => [c"permute8_small", c"permute8_large"],
        4 => [c"permute4_small", c"permute4_large"],
        2 => [c"permute2_small", c"permute2_large"],
        _ => [c"permute1_small", c"permute1_large"],
    }
}
