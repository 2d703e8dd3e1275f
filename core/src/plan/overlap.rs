//! Whether a plan would read what it writes.
//!
//! Layouts in regions apart, the common case, are told by their bounds. Within one memory, the same arrangement (a defragmenting
//! engine, a copy on write) is told by its blocks, layers and heads; anything else by a sweep over all pieces.

use super::slice::Span;
use super::{CopyPlan, PlanError, Run};
use crate::layout::Layout;
use alloc::vec::Vec;

pub(super) fn check(plan: &CopyPlan) -> Result<(), PlanError> {
    if plan.runs.is_empty() || !share_memory(&plan.src, &plan.dst) {
        return Ok(());
    }
    let apart = |span: &Span| span.src.abs_diff(span.dst) >= span.count;
    let same =
        plan.src.data_plane() == plan.dst.data_plane() && plan.src.scales_plane() == plan.dst.scales_plane();
    if same && (plan.spans.iter().any(apart) || blocks_apart(&plan.runs)) {
        return Ok(());
    }
    sweep(plan)
}

/// Whether any two of their regions have an address in common.
fn share_memory(src: &Layout, dst: &Layout) -> bool {
    src.regions().iter().any(|a| {
        dst.regions().iter().any(|b| {
            // Ends fit into 64 bits, checked by the layouts.
            a.shares_space(b) && a.address < b.address + b.size_bytes && b.address < a.address + a.size_bytes
        })
    })
}

/// Whether no block is both read and written.
fn blocks_apart(runs: &[Run]) -> bool {
    let end = |first: u32, run: &Run| u64::from(first) + u64::from(run.len);
    runs.iter().all(|read| {
        // Runs are sorted by destination: the first that ends behind this source's start may begin before its end.
        let next = runs.partition_point(|written| end(written.dst, written) <= u64::from(read.src));
        runs.get(next).is_none_or(|written| u64::from(written.dst) >= end(read.src, read))
    })
}

/// Sorts all that is read and all that is written by address, and looks for the first that meet. Tensor by tensor addresses of one
/// space, so it may find bytes of two spaces that are none of each other's: such layouts do not share memory.
fn sweep(plan: &CopyPlan) -> Result<(), PlanError> {
    let mut spans: Vec<(u64, u64, bool)> = Vec::new();
    for piece in plan.pieces() {
        spans.push((piece.src, piece.src + piece.bytes, false));
        spans.push((piece.dst, piece.dst + piece.bytes, true));
    }
    spans.sort_unstable();
    // The furthest end of what was read, and of what was written, so far.
    let mut ends = [0u64; 2];
    for (start, end, written) in spans {
        if ends[usize::from(!written)] > start {
            return Err(PlanError::Overlap { address: start });
        }
        let own = &mut ends[usize::from(written)];
        *own = end.max(*own);
    }
    Ok(())
}
