//! The choice of a kernel for a copy plan, and its launches.
//!
//! ```text
//!   pieces of 128 vectors and more        `tiled`     one warp per tile of 4 × 32 vectors
//!   shorter pieces                        `strewn`    one lane per vector, 4 pieces per lane at a time
//!   short rows that change places         `permute`   one CTA per tile of rows, through shared memory
//! ```
//!
//! The part that depends only on the layouts is made once; a launch adds the blocks' numbers.
//!
//! Invariants
//! - I1: a kernel's vector width divides all addresses, strides and sizes of its plan, for any blocks.

use crate::divide::Divisor;
use crate::launch::{Head, Launch, Parameters, Shape, THREADS, UNROLL};
use crate::permute;
use crate::walk::{Bases, TooLarge, WIDTHS, units, walk, width};
use core::ffi::CStr;
use kvstrata_core::plan::{CopyPlan, PlaneCopy, Run};
use zerocopy::IntoBytes;

/// Vectors per tile; one warp moves a tile.
const TILE_VECTORS: u32 = 32 * UNROLL;

/// The launches of plans between two layouts, for any blocks.
#[derive(Clone, Debug)]
pub struct CopyKernel {
    planes: Vec<Shape>,
    bases: Bases,
    width: u64,
}

impl CopyKernel {
    /// Creates a kernel for a plan, and for every [`replan`](CopyPlan::replan) of it.
    ///
    /// # Errors
    ///
    /// [`TooLarge`]: a block has more units of work than a kernel counts.
    pub fn new(plan: &CopyPlan) -> Result<CopyKernel, TooLarge> {
        let width = plan.planes().map(width).min().unwrap_or(1);
        CopyKernel::of(plan, width, shape)
    }

    /// Creates it with a shape for each plane.
    pub(crate) fn of<E>(
        plan: &CopyPlan,
        width: u64,
        shape: impl Fn(&PlaneCopy, &mut Bases) -> Result<Shape, E>,
    ) -> Result<CopyKernel, E> {
        let mut bases = Bases::default();
        let planes = plan.planes().map(|plane| shape(plane, &mut bases)).collect::<Result<_, _>>()?;
        Ok(CopyKernel { planes, bases, width })
    }

    /// Returns the width of the kernel's vectors in bytes, 16, 8, 4, 2 or 1: the least of its planes.
    #[must_use]
    pub fn width(&self) -> u64 {
        self.width
    }

    /// Returns the table that each launch needs in device memory, at an address that is a multiple of 16.
    /// Empty if launches need none.
    #[must_use]
    pub fn bases(&self) -> &[u8] {
        self.bases.0.as_bytes()
    }

    /// Returns the names of the kernels that a plan may launch.
    pub fn names(&self) -> impl Iterator<Item = &'static CStr> {
        self.planes.iter().flat_map(|plane| plane.names)
    }

    /// Calls `launch` for each launch of a plan's [runs](CopyPlan::runs): one, or two if scales lie apart
    /// from elements, unless there are more than some 4,000 blocks. `bases` is the device address of the
    /// [table](CopyKernel::bases). No launch has more than `most_ctas`, the multiprocessors that copies
    /// may use. Allocates nothing.
    ///
    /// # Errors
    ///
    /// The first error of `launch`.
    pub fn launches<E>(
        &self,
        runs: &[Run],
        bases: u64,
        most_ctas: u32,
        parameters: &mut Parameters,
        mut launch: impl FnMut(Launch<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut planes = self.planes.iter();
        planes.try_for_each(|plane| plane.launches(runs, bases, most_ctas, parameters, &mut launch))
    }
}

/// Returns the launch of one plane.
fn shape(plane: &PlaneCopy, bases: &mut Bases) -> Result<Shape, TooLarge> {
    let width = width(plane);
    let mut walk = walk(plane, width, bases)?;
    let (mut head, names, units_a_cta) = if let Some(tile) = permute::tile(plane.nest(), width, walk) {
        (Head::Tile(tile), permute::names(width), 1)
    } else if walk.vectors >= TILE_VECTORS {
        walk.tiles = Divisor::new(walk.vectors.div_ceil(TILE_VECTORS));
        (Head::Walk(walk), names(width, true), THREADS / 32)
    } else {
        walk.lane_bits = walk.vectors.min(32).next_power_of_two().ilog2();
        walk.tiles = Divisor::new(walk.vectors.div_ceil(32));
        (Head::Walk(walk), names(width, false), (THREADS >> walk.lane_bits) * UNROLL)
    };
    let units_a_block = units(head.walk())?;
    Ok(Shape { head, names, units_a_block, units_a_cta })
}

/// Returns the names of all copy kernels.
pub(crate) fn all_names() -> impl Iterator<Item = &'static CStr> {
    WIDTHS.into_iter().flat_map(|width| [true, false].into_iter().flat_map(move |tiled| names(width, tiled)))
}

/// Returns the kernels for vectors of `width` bytes.
fn names(width: u64, tiled: bool) -> [&'static CStr; 2] {
    match (width, tiled) {
        (16, true) => [c"copy16_tiled_small", c"copy16_tiled_large"],
        (16, false) => [c"copy16_strewn_small", c"copy16_strewn_large"],
        (8, true) => [c"copy8_tiled_small", c"copy8_tiled_large"],
        (8, false) => [c"copy8_strewn_small", c"copy8_strewn_large"],
        (4, true) => [c"copy4_tiled_small", c"copy4_tiled_large"],
        (4, false) => [c"copy4_strewn_small", c"copy4_strewn_large"],
        (2, true) => [c"copy2_tiled_small", c"copy2_tiled_large"],
        (2, false) => [c"copy2_strewn_small", c"copy2_strewn_large"],
        (_, true) => [c"copy1_tiled_small", c"copy1_tiled_large"],
        (_, false) => [c"copy1_strewn_small", c"copy1_strewn_large"],
    }
}
