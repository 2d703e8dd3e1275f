//! The walk over a plane's pieces: vectors, loops, bases.

use crate::args::{LOOPS, Loop, Walk};
use crate::divide::Divisor;
use crate::launch::MOST_UNITS;
use kvstrata_core::plan::{Nest, PlaneCopy};

/// A block of a plan has more units of work than the kernels count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a block of this plan has {units} units of work, and the kernels count to {MOST_UNITS}: copy it by the copy engine"
)]
pub struct TooLarge {
    units: u128,
}

/// Pairs of addresses, of all planes, that device memory must contain.
#[derive(Clone, Default, Debug)]
pub(crate) struct Bases(pub Vec<[u64; 2]>);

/// The vector widths, in bytes.
pub(crate) const WIDTHS: [u64; 5] = [16, 8, 4, 2, 1];

/// Returns the bytes of the widest vector that divides all parts of a plane's addresses.
pub(crate) fn width(plane: &PlaneCopy) -> u64 {
    let nest = plane.nest();
    let [src, dst] = plane.block_strides();
    let of_loops = nest.loops().iter().fold(0, |bits, l| bits | l.src_stride | l.dst_stride);
    let of_bases = plane.bases().iter().fold(0, |bits, [src, dst]| bits | src | dst);
    1 << (nest.piece_bytes() | src | dst | of_loops | of_bases | 16).trailing_zeros()
}

/// Returns a plane's walk in vectors of `width` bytes, with one piece per unit. Until a launch knows the
/// address, `bases` holds the position of its pairs in `all`, in bytes; a single pair needs no position.
pub(crate) fn walk(plane: &PlaneCopy, width: u64, all: &mut Bases) -> Result<Walk, TooLarge> {
    let nest = plane.nest();
    let [src_block_stride, dst_block_stride] = plane.block_strides();
    let vectors = nest.piece_bytes() / width;
    let [src_base, dst_base] = plane.bases()[0];
    let mut walk = Walk {
        bases: 0,
        src_base,
        dst_base,
        src_block_stride,
        dst_block_stride,
        loops: loops(nest),
        tiles: Divisor::ONE,
        base_count: Divisor::new(count(plane.bases().len() as u128)?),
        depth: nest.loops().len() as u32,
        units: 0,
        vectors: count(vectors.into())?,
        lane_bits: 0,
        scale: 0,
        unused: 0,
    };
    if plane.bases().len() > 1 {
        // One more than the position: zero means that there is none.
        walk.bases = (all.0.len() * size_of::<[u64; 2]>()) as u64 + 1;
        all.0.extend_from_slice(plane.bases());
    }
    Ok(walk)
}

/// Returns the units of one block.
pub(crate) fn units(walk: &Walk) -> Result<u32, TooLarge> {
    let turns = walk.loops.iter().map(|l| u128::from(l.count.get())).product::<u128>();
    count(turns * u128::from(walk.tiles.get()) * u128::from(walk.base_count.get()))
}

/// Checks a number that a kernel divides, or divides by.
pub(crate) fn count(units: u128) -> Result<u32, TooLarge> {
    match u32::try_from(units) {
        Ok(fits) if u64::from(fits) <= MOST_UNITS => Ok(fits),
        _ => Err(TooLarge { units }),
    }
}

fn loops(nest: &Nest) -> [Loop; LOOPS] {
    let mut loops = [Loop::ONCE; LOOPS];
    for (to, of) in loops.iter_mut().zip(nest.loops()) {
        *to = of.into();
    }
    loops
}
