//! Splits a plan into smaller ones that together are the plan.

use super::facts::Facts;
use super::{CopyPlan, runs};
use crate::layout::Dim;
use crate::layout::Span;
use alloc::vec::Vec;
use core::num::{NonZeroU32, NonZeroU64};

impl CopyPlan {
    /// Plans of up to `blocks` blocks each, in the order of the destination.
    ///
    /// See the [example](CopyPlan#example).
    pub fn split_blocks(&self, blocks: NonZeroU32) -> impl Iterator<Item = CopyPlan> + '_ {
        runs::parts(&self.runs, blocks.get()).map(|runs| {
            let mut part = CopyPlan { runs, spare: Vec::new(), ..self.unpaired() };
            part.facts = Facts::of(&part);
            part
        })
    }

    /// The plan without its blocks.
    fn unpaired(&self) -> CopyPlan {
        CopyPlan {
            src: self.src.clone(),
            dst: self.dst.clone(),
            planes: self.planes.clone(),
            runs: Vec::new(),
            spare: Vec::new(),
            ..*self
        }
    }

    /// Plans of up to `layers` layers each, the first layers first: so a model may start with its first
    /// layer while the others are on their way.
    ///
    /// See the [example](CopyPlan#example).
    pub fn split_layers(&self, layers: NonZeroU32) -> impl Iterator<Item = CopyPlan> {
        self.clone().into_parts(Dim::Layer, layers.get())
    }

    /// Plans of up to `bytes` bytes each: of whole blocks if these fit, else of layers, outer indices,
    /// tokens, and at last of rows, which are never split, even if they have more bytes.
    ///
    /// See the [example](CopyPlan#example).
    pub fn split_bytes(&self, bytes: NonZeroU64) -> impl Iterator<Item = CopyPlan> + '_ {
        let most = bytes.get();
        let per_block = self.block_bytes();
        let blocks = most.checked_div(per_block).unwrap_or(1).clamp(1, u64::from(u32::MAX));
        // The bytes of each step of a dimension, if a block is too large.
        let mut step = per_block;
        let mut cuts = [0u32; 4];
        for (cut, span) in cuts.iter_mut().zip(self.spans) {
            let count = u64::from(span.count);
            *cut = span.count;
            if step > most {
                step /= count;
                *cut = most.checked_div(step).unwrap_or(1).clamp(1, count) as u32;
                step *= u64::from(*cut);
            }
        }
        let by = NonZeroU32::new(blocks as u32).unwrap_or(NonZeroU32::MIN);
        let [layer, outer, token, head] = cuts;
        self.split_blocks(by)
            .flat_map(move |plan| plan.into_parts(Dim::Layer, layer))
            .flat_map(move |plan| plan.into_parts(Dim::Outer, outer))
            .flat_map(move |plan| plan.into_parts(Dim::Token, token))
            .flat_map(move |plan| plan.into_parts(Dim::Head, head))
    }

    /// Plans of up to `count` indices of a dimension.
    fn into_parts(self, dim: Dim, count: u32) -> impl Iterator<Item = CopyPlan> {
        let whole: Span = self.span(dim);
        (0..whole.count.div_ceil(count)).map(move |part| {
            let first = part * count;
            let mut spans = self.spans;
            spans[dim as usize - 1] = whole.part(first, count.min(whole.count - first));
            let part = CopyPlan::assemble(&self.src, &self.dst, spans, self.runs.clone());
            CopyPlan { shares_memory: self.shares_memory, ..part }
        })
    }
}
