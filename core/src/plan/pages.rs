//! Plans between blocks of different page sizes.
//!
//! The tokens of a list of blocks are numbered consecutively: token `i` of blocks of 16 tokens is token
//! `i % 16` of block `i / 16` of the list. A slice of tokens is cut wherever either side's block ends.
//! The stretches with the same place in their blocks on both sides form one [`CopyPlan`]:
//!
//! ```text
//!   blocks of 16 → blocks of 64       source       │ 7      │ 2      │ 9      │ 4      │ 5      │ …
//!                                     destination  │ 3                                 │ 8        …
//!   parts   tokens 0..16 → 0..16    blocks 7 → 3, 5 → 8, …
//!           tokens 0..16 → 16..32   blocks 2 → 3, …
//!           tokens 0..16 → 32..48   blocks 9 → 3, …
//!           tokens 0..16 → 48..64   blocks 4 → 3, …
//! ```
//!
//! Consecutive blocks of the list that are also consecutive in the memory of a *pageless* layout
//! (`layout/repage.rs`) are not cut: there, tokens continue from block to block. If both layouts are
//! pageless, both are counted in the largest blocks that divide all of it, and one plan is enough.
//!
//! A block is complete once all of its tokens are there. So a prefix that was found on one side can be
//! used on the other as far as whole blocks of both reach: if one page size divides the other, by
//! whole blocks of the coarser side.
//!
//! Invariants, beside those of a plan:
//!
//! - **I1** Every byte of the selection is in exactly one piece of exactly one part.
//! - **I2** No part reads what another writes.

use super::{CopyPlan, Family, Piece, PlanError, Side, check, overlap, runs};
use crate::id::BlockId;
use crate::layout::{Dim, Layout};
use crate::layout::{Slice, Span};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A copy between blocks of different page sizes: a [`CopyPlan`] for each slice of tokens.
///
/// ```
/// use kvstrata_core::BlockId;
/// use kvstrata_core::layout::{Layout, LayoutConfig, Region};
/// use kvstrata_core::plan::{PagePlan, Slice};
/// // Blocks of 16 tokens of two layers become blocks of 64, in one piece each on both sides.
/// let config = LayoutConfig::new().num_layers(2).outer_dim(2).heads(8, 128);
/// let fine = Layout::fully_contiguous(config.num_blocks(8).page_size(16), Region::system(0, 8 * 65_536))?;
/// let region = Region::system(1 << 30, 2 * 262_144);
/// let coarse = Layout::fully_contiguous(config.num_blocks(2).page_size(64), region)?;
/// let blocks = [7, 2, 5, 4].map(BlockId);
/// let plan = PagePlan::new(&fine, &blocks, &coarse, &[BlockId(1)], .., .., ..)?;
/// // A piece for each layer, for keys and for values, of each block of 16.
/// assert_eq!((plan.bytes(), plan.pieces_count(), plan.parts().len()), (262_144, 4 * 4, 4));
/// // Three of the four blocks, as the first three quarters.
/// let part = PagePlan::new(&fine, &blocks[..3], &coarse, &[BlockId(1)], Slice::Same(0..48), .., ..)?;
/// assert_eq!(part.bytes(), 3 * 65_536);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PagePlan {
    parts: Vec<CopyPlan>,
}

/// Blocks of both sides that a part pairs.
type Pairs = (Vec<BlockId>, Vec<BlockId>);

impl PagePlan {
    /// Plans to copy the tokens of `src_blocks` over the tokens of `dst_blocks`, for some layers and heads.
    ///
    /// `tokens` counts from the first token of each list: `..` for all, if both lists have as many; a
    /// range that is the same on both sides; or a [`Slice`]. Layers and heads are as in [`CopyPlan::new`].
    ///
    /// # Errors
    ///
    /// The lists differ in tokens, and all are meant; a slice leaves them; else as [`CopyPlan::new`].
    pub fn new(
        src: &Layout,
        src_blocks: &[BlockId],
        dst: &Layout,
        dst_blocks: &[BlockId],
        tokens: impl Into<Slice>,
        layers: impl Into<Slice>,
        heads: impl Into<Slice>,
    ) -> Result<PagePlan, PlanError> {
        let spans = check::spans_but_tokens(src.config(), dst.config(), layers.into(), heads.into())?;
        let lists = Lists::new((src, src_blocks), (dst, dst_blocks))?;
        let Some(tokens) = lists.span(tokens.into())? else { return Ok(PagePlan { parts: Vec::new() }) };
        let parts = match lists.in_common_units(spans, tokens)? {
            Some(plan) => Vec::from([plan]),
            None => lists.in_parts(spans, tokens)?,
        };
        overlap::check_together(&parts)?;
        Ok(PagePlan { parts })
    }

    /// The plan's parts, in any order; each byte is in one of them.
    #[must_use]
    pub fn parts(&self) -> &[CopyPlan] {
        &self.parts
    }

    /// All pieces, part by part.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> + '_ {
        self.parts.iter().flat_map(CopyPlan::pieces)
    }

    /// All pieces as families, part by part.
    pub fn families(&self) -> impl Iterator<Item = Family> + '_ {
        self.parts.iter().flat_map(CopyPlan::families)
    }

    /// The number of bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(CopyPlan::bytes).sum()
    }

    /// The number of pieces.
    #[must_use]
    pub fn pieces_count(&self) -> u64 {
        self.parts.iter().map(CopyPlan::pieces_count).sum()
    }

    /// Bytes of the smallest piece; 0 if there is none.
    #[must_use]
    pub fn smallest_piece(&self) -> u64 {
        self.parts.iter().map(CopyPlan::smallest_piece).min().unwrap_or(0)
    }

    /// Bytes of the largest piece; 0 if there is none.
    #[must_use]
    pub fn largest_piece(&self) -> u64 {
        self.parts.iter().map(CopyPlan::largest_piece).max().unwrap_or(0)
    }

    /// The common alignment of all addresses and sizes of all pieces: 16, 8, 4, 2 or 1 bytes.
    #[must_use]
    pub fn alignment(&self) -> u64 {
        self.parts.iter().map(CopyPlan::alignment).min().unwrap_or(16)
    }
}

/// The two lists, checked: all blocks exist, and no destination block is named twice.
struct Lists<'l> {
    src: (&'l Layout, &'l [BlockId]),
    dst: (&'l Layout, &'l [BlockId]),
}

impl<'l> Lists<'l> {
    fn new(
        src: (&'l Layout, &'l [BlockId]),
        dst: (&'l Layout, &'l [BlockId]),
    ) -> Result<Lists<'l>, PlanError> {
        for (side, (layout, blocks)) in [(Side::Source, src), (Side::Destination, dst)] {
            runs::check_blocks(side, blocks, layout.config().num_blocks)?;
        }
        let mut written: Vec<BlockId> = dst.1.to_vec();
        written.sort_unstable();
        match written.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(PlanError::Twice { block: pair[0].0 }),
            None => Ok(Lists { src, dst }),
        }
    }

    /// The slice of tokens, within both lists; none if it is all of no tokens.
    fn span(&self, tokens: Slice) -> Result<Option<Span>, PlanError> {
        let of = |(layout, blocks): (&Layout, &[BlockId])| {
            blocks.len() as u64 * u64::from(layout.config().page_size)
        };
        let (of_src, of_dst) = (of(self.src), of(self.dst));
        if tokens == Slice::All && of_src != of_dst {
            return Err(PlanError::Tokens { src: of_src, dst: of_dst });
        }
        let counted = |tokens: u64| u32::try_from(tokens).map_err(|_| PlanError::TooManyTokens { tokens });
        match (tokens, counted(of_src)?, counted(of_dst)?) {
            (Slice::All, 0, _) => Ok(None),
            (tokens, of_src, of_dst) => check::span(Dim::Token, tokens, of_src, of_dst).map(Some),
        }
    }

    /// One plan in units that divide both sides' blocks, if both are pageless.
    fn in_common_units(&self, mut spans: [Span; 4], tokens: Span) -> Result<Option<CopyPlan>, PlanError> {
        let ((src, src_blocks), (dst, dst_blocks)) = (self.src, self.dst);
        let (of_src, of_dst) = (src.config().page_size, dst.config().page_size);
        let unit = [of_dst, tokens.src, tokens.dst, tokens.count].into_iter().fold(of_src, greatest_divisor);
        let (Some(from), Some(to)) = (src.repaged(unit), dst.repaged(unit)) else { return Ok(None) };
        let units = |blocks: &[BlockId], page: u32, first: u32| -> Vec<BlockId> {
            let per_block = page / unit;
            let all = (first / unit..).take((tokens.count / unit) as usize);
            all.map(|at| BlockId(blocks[(at / per_block) as usize].0 * per_block + at % per_block)).collect()
        };
        let (src_units, dst_units) =
            (units(src_blocks, of_src, tokens.src), units(dst_blocks, of_dst, tokens.dst));
        spans[Dim::Token as usize - 1] = Span { src: 0, dst: 0, count: unit };
        let mut plan = CopyPlan::assemble(&from, &to, spans, Vec::new());
        plan.shares_memory = overlap::share_memory(src, dst);
        plan.replan(&src_units, &dst_units)?;
        Ok(Some(plan))
    }

    /// A plan for each slice of a block that becomes a slice of another.
    fn in_parts(&self, mut spans: [Span; 4], tokens: Span) -> Result<Vec<CopyPlan>, PlanError> {
        let ((src, _), (dst, _)) = (self.src, self.dst);
        // The longest stretch that each side leaves to the other: a block, if its blocks are cut.
        let longest =
            |layout: &Layout| if layout.is_pageless() { u32::MAX } else { layout.config().page_size };
        let (of_src, of_dst) = (longest(src), longest(dst));
        let mut parts: BTreeMap<(u32, u32, u32), Pairs> = BTreeMap::new();
        let mut done = 0;
        while done < tokens.count {
            let left = tokens.count - done;
            let (from, src_room) = at(self.src, tokens.src + done, left.min(of_dst), of_src);
            let (to, dst_room) = at(self.dst, tokens.dst + done, left.min(of_src), of_dst);
            let count = left.min(src_room).min(dst_room);
            let (src_blocks, dst_blocks) = parts.entry((from.1, to.1, count)).or_default();
            src_blocks.push(from.0);
            dst_blocks.push(to.0);
            done += count;
        }
        let shares_memory = overlap::share_memory(src, dst);
        let plan = |((src_token, dst_token, count), (src_blocks, dst_blocks)): ((u32, u32, u32), Pairs)| {
            spans[Dim::Token as usize - 1] = Span { src: src_token, dst: dst_token, count };
            let mut plan = CopyPlan::assemble(src, dst, spans, Vec::new());
            plan.shares_memory = shares_memory;
            plan.replan(&src_blocks, &dst_blocks)?;
            Ok(plan)
        };
        parts.into_iter().map(plan).collect()
    }
}

/// The block of a token of the list, the token's number in it, and the number of tokens that follow it
/// evenly, itself included: as many as `wanted`, or fewer.
fn at(
    (layout, blocks): (&Layout, &[BlockId]),
    token: u32,
    wanted: u32,
    longest: u32,
) -> ((BlockId, u32), u32) {
    let page = layout.config().page_size;
    let (mut block, within) = ((token / page) as usize, token % page);
    let first = (blocks[block], within);
    let mut room = page - within;
    let follows = |block: usize| {
        blocks.get(block + 1).is_some_and(|next| u64::from(next.0) == u64::from(blocks[block].0) + 1)
    };
    while longest == u32::MAX && room < wanted && follows(block) {
        block += 1;
        room += page; // no more than all tokens of the list
    }
    (first, room)
}

fn greatest_divisor(a: u32, b: u32) -> u32 {
    let (mut a, mut b) = (a, b);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
