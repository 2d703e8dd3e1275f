//! The check whether a plan would read bytes that it writes.
//!
//! Separate layouts, the common case, are recognized once, when a plan is made. Within one memory, plans
//! of the same arrangement (a defragmenting engine, a copy on write) are decided by their blocks, layers
//! and heads. Any other plan needs a sweep over the stretches that each run occupies from each base, and
//! over the pieces of those that meet: it takes memory in proportion.

use super::{CopyPlan, Nest, PlanError, Run};
use crate::layout::Span;
use crate::layout::{Bases, Dim, Layout, Plane};
use alloc::vec::Vec;

/// A stretch of bytes, and whether it is written.
type Stretch = (u64, u64, bool);

/// Returns whether the rows of two layouts lie in stretches of one memory that meet.
pub(super) fn share_memory(src: &Layout, dst: &Layout) -> bool {
    let spaces = src.regions().first().zip(dst.regions().first());
    if spaces.is_some_and(|(src, dst)| !src.shares_space(dst)) {
        return false;
    }
    let mut all: Vec<Stretch> = Vec::new();
    for (layout, written) in [(src, false), (dst, true)] {
        let shape = layout.config().shape();
        for plane in layout.planes() {
            let span = span(plane, shape);
            all.extend(bases(plane).iter().map(|base| (*base, *base + span, written)));
        }
    }
    meet(&mut all).is_some()
}

fn bases(plane: &Plane) -> &[u64] {
    match &plane.bases {
        Bases::One(base) => core::slice::from_ref(base),
        Bases::Layers(bases) | Bases::Outers(bases) | Bases::Each(bases) => bases,
    }
}

/// Bytes from a base to the end of the last row that its strides reach.
fn span(plane: &Plane, shape: [u32; 5]) -> u64 {
    let reach = |dim: &Dim| u64::from(shape[*dim as usize] - 1) * plane.strides[*dim as usize];
    plane.row_bytes + Dim::ALL.iter().filter(|dim| !plane.bases.hold(**dim)).map(reach).sum::<u64>()
}

/// Returns an address that is both read and written.
fn meet(all: &mut [Stretch]) -> Option<u64> {
    all.sort_unstable();
    // The furthest end of the bytes read, and of those written, so far.
    let mut ends = [0u64; 2];
    all.iter().find_map(|(start, end, written)| {
        let met = ends[usize::from(!written)] > *start;
        let own = &mut ends[usize::from(*written)];
        *own = (*own).max(*end);
        met.then_some(*start)
    })
}

/// Refuses a plan that reads bytes that it writes.
pub(super) fn check(plan: &CopyPlan) -> Result<(), PlanError> {
    if !plan.shares_memory || plan.runs.is_empty() {
        return Ok(());
    }
    // Tokens that reach into other blocks have no place in the numbers of one block.
    let same = plan.src.data_plane() == plan.dst.data_plane()
        && plan.src.scales_plane() == plan.dst.scales_plane()
        && plan.src.config().page_size == plan.dst.config().page_size
        && plan.blocks_beyond() == [0; 2];
    let found = if same { common_row(plan) } else { sweep(core::slice::from_ref(plan)) };
    found.map_or(Ok(()), |address| Err(PlanError::Overlap { address }))
}

/// Refuses plans if one reads bytes that another, or itself, writes.
pub(super) fn check_together(plans: &[CopyPlan]) -> Result<(), PlanError> {
    if !plans.iter().any(|plan| plan.shares_memory) {
        return Ok(());
    }
    sweep(plans).map_or(Ok(()), |address| Err(PlanError::Overlap { address }))
}

/// Within one arrangement, the bytes read and the bytes written are products of blocks, layers and
/// heads: they meet if each does.
fn common_row(plan: &CopyPlan) -> Option<u64> {
    let first = |span: &Span| {
        let first = span.src.max(span.dst);
        (first < span.src.min(span.dst) + span.count).then_some(first)
    };
    let block = common_block(&plan.runs)?;
    let [layer, outer, token, head] = &plan.spans;
    plan.src.address([block, first(layer)?, first(outer)?, first(token)?, first(head)?]).ok()
}

/// Returns a block that is both read and written.
fn common_block(runs: &[Run]) -> Option<u32> {
    let end = |first: u32, run: &Run| u64::from(first) + u64::from(run.len);
    runs.iter().find_map(|read| {
        // Runs are sorted by destination: the first one that ends behind this source's start may begin
        // before its end.
        let next = runs.partition_point(|written| end(written.dst, written) <= u64::from(read.src));
        let written = runs.get(next).filter(|written| u64::from(written.dst) < end(read.src, read))?;
        Some(written.dst.max(read.src))
    })
}

/// The bytes that one run occupies from one base, on one side.
struct Occupied {
    stretch: Stretch,
    /// The first piece, and the loops around it.
    start: u64,
    nest: Nest,
}

fn sweep(plans: &[CopyPlan]) -> Option<u64> {
    let mut all: Vec<Occupied> = Vec::new();
    for (plan, plane) in plans.iter().flat_map(|plan| plan.planes().map(move |plane| (plan, plane))) {
        for run in &plan.runs {
            let nest = plane.nest_over(run.len);
            for base in plane.bases() {
                for (side, block) in [run.src, run.dst].into_iter().enumerate() {
                    let start = base[side] + u64::from(block) * plane.block_strides()[side];
                    let reach = |l: &super::Loop| u64::from(l.count - 1) * [l.src_stride, l.dst_stride][side];
                    let end = start + nest.piece_bytes() + nest.loops().iter().map(reach).sum::<u64>();
                    all.push(Occupied { stretch: (start, end, side == 1), start, nest });
                }
            }
        }
    }
    all.sort_unstable_by_key(|occupied| occupied.stretch);
    // Stretches that meet none of the other side need no look at their pieces.
    let mut meets: Vec<bool> = Vec::with_capacity(all.len());
    let mut ends = [0u64; 2];
    for Occupied { stretch: (start, end, written), .. } in &all {
        meets.push(ends[usize::from(!written)] > *start);
        let own = &mut ends[usize::from(*written)];
        *own = (*own).max(*end);
    }
    let mut starts = [u64::MAX; 2];
    let mut pieces: Vec<Stretch> = Vec::new();
    for (Occupied { stretch: (start, end, written), start: first, nest }, meets) in
        all.iter().zip(meets).rev()
    {
        if meets || starts[usize::from(!written)] < *end {
            each_piece(nest, nest.loops().len(), *first, *written, &mut pieces);
        }
        starts[usize::from(*written)] = *start;
    }
    meet(&mut pieces)
}

/// The pieces of the innermost `depth` loops, on one side.
fn each_piece(nest: &Nest, depth: usize, start: u64, written: bool, out: &mut Vec<Stretch>) {
    let Some(outer) = depth.checked_sub(1).map(|at| nest.loops()[at]) else {
        return out.push((start, start + nest.piece_bytes(), written));
    };
    let stride = if written { outer.dst_stride } else { outer.src_stride };
    for turn in 0..u64::from(outer.count) {
        each_piece(nest, depth - 1, start + turn * stride, written, out);
    }
}
