//! The pairs of blocks, as runs of neighbours.
//!
//! They are sorted by destination: so a block that is written twice is found, neighbours in memory meet
//! for any order of the lists, and the destination is written from its low end to its high one.

use super::{PlanError, Side};
use crate::id::BlockId;
use alloc::vec::Vec;

/// `len` blocks from `src` on become those from `dst` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first block of the source.
    pub src: u32,
    /// The first block of the destination.
    pub dst: u32,
    /// The number of blocks.
    pub len: u32,
}

impl Run {
    #[inline]
    fn goes_on_with(&self, next: &Run) -> bool {
        // 64 bits: a run may end at the last number.
        let [src, dst, len] = [self.src, self.dst, self.len].map(u64::from);
        src + len == u64::from(next.src) && dst + len == u64::from(next.dst)
    }
}

/// Checks that a layout of `of` blocks has all of these.
pub(super) fn check_blocks(side: Side, blocks: &[BlockId], of: u32) -> Result<(), PlanError> {
    // The greatest first: a maximum is vector code, a search is not.
    if blocks.iter().map(|block| block.0).max().is_some_and(|most| most >= of) {
        let position = blocks.iter().position(|block| block.0 >= of).unwrap_or_default();
        return Err(PlanError::Block { side, position, block: blocks[position].0, of });
    }
    Ok(())
}

/// Pairs the lists into `runs`, which is overwritten and keeps its memory, as `spare` does. Data for one
/// destination block fills `fills` blocks: one, except if tokens continue from block to block.
pub(super) fn pair(
    runs: &mut Vec<Run>,
    spare: &mut Vec<Run>,
    (src, of_src): (&[BlockId], u32),
    (dst, of_dst): (&[BlockId], u32),
    fills: u32,
) -> Result<(), PlanError> {
    runs.clear();
    if src.len() != dst.len() {
        return Err(PlanError::Lengths { src: src.len(), dst: dst.len() });
    }
    if src.len() > u32::MAX as usize {
        return Err(PlanError::TooMany { blocks: src.len() });
    }
    check_blocks(Side::Source, src, of_src)?;
    check_blocks(Side::Destination, dst, of_dst)?;
    runs.reserve(src.len());
    let mut sorted = true;
    let mut pairs = src.iter().zip(dst).map(|(src, dst)| Run { src: src.0, dst: dst.0, len: 1 });
    let Some(mut run) = pairs.next() else { return Ok(()) };
    for next in pairs {
        if run.goes_on_with(&next) {
            run.len += 1;
        } else {
            sorted &= next.dst > run.dst;
            runs.push(run);
            run = next;
        }
    }
    runs.push(run);
    if !sorted {
        sort(runs, spare, of_dst);
        join(runs);
    }
    let within = if fills > 1 { runs.iter().find(|run| run.len > 1) } else { None };
    let end = |run: &Run| u64::from(run.dst) + u64::from(run.len - 1) + u64::from(fills);
    let between = || runs.windows(2).find(|pair| end(&pair[0]) > u64::from(pair[1].dst));
    match within.map(|run| run.dst + 1).or_else(|| between().map(|pair| pair[1].dst)) {
        Some(block) => Err(PlanError::Twice { block }),
        None => Ok(()),
    }
}

/// Sorts by destination; all are below `of`. Long lists are sorted by digits of eight bits: block
/// numbers are small, and an unpredictable comparison costs more than a move.
fn sort(runs: &mut Vec<Run>, spare: &mut Vec<Run>, of: u32) {
    if runs.len() < 64 {
        return runs.sort_unstable_by_key(|run| run.dst);
    }
    let mut shift = 0;
    while shift < 32 && (of - 1) >> shift > 0 {
        let digit = |run: &Run| (run.dst >> shift) as usize & 0xff;
        let mut starts = [0u32; 257];
        runs.iter().for_each(|run| starts[digit(run) + 1] += 1);
        for i in 1..257 {
            starts[i] += starts[i - 1];
        }
        spare.clear();
        spare.resize(runs.len(), Run { src: 0, dst: 0, len: 0 });
        for run in runs.iter() {
            let start = &mut starts[digit(run)];
            spare[*start as usize] = *run;
            *start += 1;
        }
        core::mem::swap(runs, spare);
        shift += 8;
    }
    // Kept for its memory alone: a clone of the plan need not have it.
    spare.clear();
}

/// Joins runs that have become neighbours.
fn join(runs: &mut Vec<Run>) {
    runs.dedup_by(|next, run| {
        let joins = run.goes_on_with(next);
        if joins {
            run.len += next.len;
        }
        joins
    });
}

/// The runs in parts of up to `blocks` blocks each.
pub(super) fn parts(runs: &[Run], blocks: u32) -> impl Iterator<Item = Vec<Run>> + '_ {
    // The run in which the next part begins, and how many of its blocks are used.
    let (mut next, mut gone) = (0, 0);
    core::iter::from_fn(move || {
        let (mut part, mut room) = (Vec::new(), blocks);
        while room > 0
            && let Some(run) = runs.get(next)
        {
            let len = room.min(run.len - gone);
            part.push(Run { src: run.src + gone, dst: run.dst + gone, len });
            room -= len;
            gone += len;
            if gone == run.len {
                (next, gone) = (next + 1, 0);
            }
        }
        (!part.is_empty()).then_some(part)
    })
}
