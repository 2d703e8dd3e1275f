//! A launch: its grid, and its parameters with the numbers of a plan's blocks.
//!
//! ```text
//!   parameters   ├ head: loops, divisors, strides ┼ pair 0 ┼ pair 1 ┼ … ┤
//!                4 KiB for some 480 blocks, 32 KiB for some 4,060
//! ```
//!
//! Invariants
//! - I1: every number that a kernel divides stays below 2³¹ in one launch, so that its divisions are
//!   exact and its sums do not wrap.

use crate::args::{LARGE_BYTES, Pair, SMALL_BYTES, Sum, Tile, Walk};
use core::ffi::CStr;
use kvstrata_core::plan::Run;
use zerocopy::IntoBytes;

/// Threads per CTA.
pub const THREADS: u32 = 256;
/// Loads of a thread in flight together: `UNROLL` in `cuda/walk.cuh`.
pub(crate) const UNROLL: u32 = 4;
/// Maximum units of a launch: below 2³¹, by enough that a thread's steps past the end do not wrap.
pub(crate) const MOST_UNITS: u64 = (1 << 31) - (1 << 28);
/// Maximum CTAs of a launch, more than any device runs at once: with them a step of all threads is below 2²⁸.
const MOST_CTAS: u32 = (1 << 28) / (THREADS * UNROLL);

/// One launch: a kernel by its name in the image, and its parameters. Each CTA has [`THREADS`] threads.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The kernel's name.
    pub kernel: &'static CStr,
    /// CTAs, in one dimension.
    pub grid: u32,
    /// The one parameter, a structure of this size.
    pub parameters: &'a [u8],
}

/// Room for the parameters of a launch. Drivers copy them at the launch, so one of these per stream
/// is enough.
#[derive(Debug)]
pub struct Parameters(Box<[u64; LARGE_BYTES / 8]>);

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters(Box::new([0; LARGE_BYTES / 8]))
    }
}

/// The fixed part of the parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Head {
    Walk(Walk),
    Tile(Tile),
    Sum(Sum),
}

impl Head {
    pub(crate) fn walk(&mut self) -> &mut Walk {
        match self {
            Head::Walk(walk) => walk,
            Head::Tile(tile) => &mut tile.walk,
            Head::Sum(sum) => &mut sum.walk,
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Head::Walk(walk) => walk.as_bytes(),
            Head::Tile(tile) => tile.as_bytes(),
            Head::Sum(sum) => sum.as_bytes(),
        }
    }
}

/// The common part of the launches of one plane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub head: Head,
    /// The kernels: for few blocks, and for many.
    pub names: [&'static CStr; 2],
    /// At most [`MOST_UNITS`].
    pub units_a_block: u32,
    /// Units that one CTA works on at a time.
    pub units_a_cta: u32,
}

impl Shape {
    /// Calls `launch` for each launch over these runs.
    pub(crate) fn launches<E>(
        mut self,
        runs: &[Run],
        bases: u64,
        most_ctas: u32,
        Parameters(parameters): &mut Parameters,
        launch: &mut impl FnMut(Launch<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        // See `walk::walk`.
        let place = &mut self.head.walk().bases;
        *place = place.checked_sub(1).map_or(0, |place| bases + place);
        let head_bytes = self.head.as_bytes().len();
        let capacity = |bytes: usize| ((bytes - head_bytes) / size_of::<Pair>()) as u64;
        let mut left: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
        let (kernel, bytes) = match left <= capacity(SMALL_BYTES) {
            true => (self.names[0], SMALL_BYTES),
            false => (self.names[1], LARGE_BYTES),
        };
        // The numbers that a kernel divides: its units, and, if a CTA sums a chunk, also the chunk's pieces.
        let dividends = match &self.head {
            Head::Sum(sum) => self.units_a_block.max(sum.pieces),
            Head::Walk(_) | Head::Tile(_) => self.units_a_block,
        };
        let most = (MOST_UNITS / u64::from(dividends.max(1))).clamp(1, capacity(bytes));
        let mut pairs = runs
            .iter()
            .flat_map(|run| (0..run.len).map(|block| Pair { src: run.src + block, dst: run.dst + block }));
        while left > 0 {
            let blocks = left.min(most);
            let units = blocks as u32 * self.units_a_block;
            self.head.walk().units = units;
            let room = &mut parameters.as_mut_bytes()[..bytes];
            let (fixed, list) = room.split_at_mut(head_bytes);
            fixed.copy_from_slice(self.head.as_bytes());
            for (room, pair) in
                list.chunks_exact_mut(size_of::<Pair>()).zip(pairs.by_ref().take(blocks as usize))
            {
                room.copy_from_slice(pair.as_bytes());
            }
            let grid = units.div_ceil(self.units_a_cta).clamp(1, most_ctas.clamp(1, MOST_CTAS));
            launch(Launch { kernel, grid, parameters: room })?;
            left -= blocks;
            if let Head::Sum(sum) = &mut self.head {
                sum.sums += u64::from(units) * 8;
            }
        }
        Ok(())
    }
}
