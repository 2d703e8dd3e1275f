//! Copies that sum the bytes that they move, as the disk tier does, and sums alone: `cuda/sum.cu`.
//!
//! ```text
//!   block at the destination   ├ chunk 0, 64 KiB ┼ chunk 1 ┼ … ┼ chunk n, the rest ┤     in one piece
//!   sums                       ├ 8 bytes ┼ 8 bytes ┼ … ┤            their sum modulo 2⁶⁴ is the block's seal
//! ```

use crate::args::{LOOPS, Loop, Sum, Walk};
use crate::divide::Divisor;
use crate::launch::{Head, Launch, Parameters, Shape};
use crate::walk::{Bases, TooLarge, count, units, walk, width};
use core::ffi::CStr;
use kvstrata_core::plan::{CopyPlan, PlaneCopy, Run};
use zerocopy::IntoBytes;

/// Bytes per sum, as in the disk tier's seals.
pub const CHUNK_BYTES: u64 = 64 << 10;
/// XXH3 uses another algorithm for inputs up to this length.
const SHORT_BYTES: u64 = 240;
const WIDTH: u64 = 16;
/// The kernels: for few blocks, and for many.
pub(crate) const NAMES: [&CStr; 2] = [c"summed_small", c"summed_large"];

/// The reason why a plan's blocks cannot be summed on the way. Copy them first, and sum them at
/// the destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CannotSum {
    /// The destination's block is not a payload as it goes to disk.
    #[error("a block of the destination is not in one piece, in the order in which the plan writes it")]
    Scattered,
    /// The kernel moves whole vectors of 16 bytes.
    #[error("addresses or sizes are multiples of {0} bytes only, and the kernel that sums needs 16")]
    Unaligned(u64),
    /// The algorithm for so short a chunk is another one.
    #[error("the last chunk of a block has {0} bytes, and the kernel sums chunks of more than 240")]
    Short(u64),
    /// The plan has too many units of work, as for all kernels.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

/// Copies and sums, or only sums, the blocks of plans between two layouts.
#[derive(Clone, Debug)]
pub struct SumKernel {
    shape: Shape,
    bases: Bases,
}

impl SumKernel {
    /// Creates a kernel for a plan, and for every [`replan`](CopyPlan::replan) of it.
    ///
    /// # Errors
    ///
    /// [`CannotSum`].
    pub fn new(plan: &CopyPlan) -> Result<SumKernel, CannotSum> {
        let mut planes = plan.planes();
        let (Some(plane), None) = (planes.next(), planes.next()) else { return Err(CannotSum::Scattered) };
        let block_bytes = dense_bytes(plane).ok_or(CannotSum::Scattered)?;
        match width(plane) {
            WIDTH => {}
            width => return Err(CannotSum::Unaligned(width)),
        }
        let mut bases = Bases::default();
        let walk = walk(plane, WIDTH, &mut bases)?;
        Ok(SumKernel { shape: shape(walk, block_bytes, true)?, bases })
    }

    /// Creates a kernel that only sums `bytes` bytes from a device address on: one block, number 0.
    ///
    /// # Errors
    ///
    /// [`CannotSum`].
    pub fn of_payload(address: u64, bytes: u64) -> Result<SumKernel, CannotSum> {
        let bits = address | bytes | WIDTH;
        if !bits.is_multiple_of(WIDTH) {
            return Err(CannotSum::Unaligned(1 << bits.trailing_zeros()));
        }
        let vectors = count((bytes / WIDTH).into())?;
        let walk = Walk {
            bases: 0,
            src_base: address,
            dst_base: address,
            src_block_stride: 0,
            dst_block_stride: 0,
            loops: [Loop::ONCE; LOOPS],
            tiles: Divisor::ONE,
            base_count: Divisor::ONE,
            depth: 0,
            units: 0,
            vectors,
            lane_bits: 0,
            scale: 0,
            unused: 0,
        };
        Ok(SumKernel { shape: shape(walk, bytes, false)?, bases: Bases::default() })
    }

    /// As [`CopyKernel::bases`](crate::CopyKernel::bases).
    #[must_use]
    pub fn bases(&self) -> &[u8] {
        self.bases.0.as_bytes()
    }

    /// As [`CopyKernel::names`](crate::CopyKernel::names).
    pub fn names(&self) -> impl Iterator<Item = &'static CStr> {
        self.shape.names.into_iter()
    }

    /// Returns the sums per block.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.shape.units_a_block
    }

    /// Calls `launch` for each launch, as [`CopyKernel::launches`](crate::CopyKernel::launches) does. The
    /// sums go to `sums`, a multiple of 8 in device memory or mapped host memory:
    /// [`chunks`](SumKernel::chunks) × 8 bytes per block, in the order of the runs.
    ///
    /// # Errors
    ///
    /// The first error of `launch`.
    pub fn launches<E>(
        &self,
        runs: &[Run],
        bases: u64,
        sums: u64,
        most_ctas: u32,
        parameters: &mut Parameters,
        mut launch: impl FnMut(Launch<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut shape = self.shape;
        if let Head::Sum(sum) = &mut shape.head {
            sum.sums = sums;
        }
        shape.launches(runs, bases, most_ctas, parameters, &mut launch)
    }

    /// The only run of [`of_payload`](SumKernel::of_payload).
    pub const PAYLOAD: [Run; 1] = [Run { src: 0, dst: 0, len: 1 }];
}

/// Returns the bytes of a destination block, if its pieces follow each other without gaps in the order of
/// a walk.
fn dense_bytes(plane: &PlaneCopy) -> Option<u64> {
    let mut bytes = plane.nest().piece_bytes();
    for l in plane.nest().loops() {
        if l.dst_stride != bytes {
            return None;
        }
        bytes *= u64::from(l.count);
    }
    let first = plane.bases()[0][1];
    let dense = plane.bases().iter().zip(0_u64..).all(|([_, dst], n)| *dst == first + n * bytes);
    dense.then_some(bytes * plane.bases().len() as u64)
}

fn shape(walk: Walk, block_bytes: u64, copies: bool) -> Result<Shape, CannotSum> {
    match block_bytes % CHUNK_BYTES {
        rest @ 1..=SHORT_BYTES => return Err(CannotSum::Short(rest)),
        0 if block_bytes == 0 => return Err(CannotSum::Short(0)),
        _ => {}
    }
    let vectors = count((block_bytes / WIDTH).into())?;
    let chunks = count(block_bytes.div_ceil(CHUNK_BYTES).into())?;
    let sum = Sum {
        walk,
        sums: 0,
        piece: Divisor::new(walk.vectors),
        chunks: Divisor::new(chunks),
        pieces: units(&walk)?,
        vectors,
        copies: copies.into(),
        unused: 0,
    };
    Ok(Shape { head: Head::Sum(sum), names: NAMES, units_a_block: chunks, units_a_cta: 1 })
}
