//! What a copy of one block to another layout takes, with the keys that JSON has.

use super::facts::{RankFacts, SHOWN};
use super::side::Side;
use kvstrata_core::BlockId;
use kvstrata_core::plan::{PagePlan, Slice};
use serde::Serialize;

/// A plan's facts.
#[derive(Debug, Serialize)]
pub(super) struct CopyFacts {
    pub(super) arrangement: &'static str,
    pub(super) head_order: String,
    pub(super) tensor_parallel: RankFacts,
    pub(super) heads: Heads,
    /// Where blocks have as many tokens on both sides, nothing is said of them.
    pub(super) pages: Option<Pages>,
    pub(super) bytes: u64,
    pub(super) pieces: u64,
    pub(super) smallest_piece_bytes: u64,
    pub(super) largest_piece_bytes: u64,
    pub(super) alignment_bytes: u64,
    /// Strided copies, those that are alike counted together; complete unless there are very many.
    pub(super) families: Vec<Families>,
    pub(super) families_complete: bool,
    pub(super) first: Vec<Piece>,
}

/// Which heads, in the numbers of either side.
#[derive(Debug, Serialize)]
pub(super) struct Heads {
    pub(super) src: u32,
    pub(super) dst: u32,
    pub(super) count: u32,
}

/// The fewest blocks of either page size that have as many tokens.
#[derive(Debug, Serialize)]
pub(super) struct Pages {
    pub(super) src_page: u32,
    pub(super) dst_page: u32,
    pub(super) src_blocks: u32,
    pub(super) dst_blocks: u32,
    /// Tokens after which both sides are at the end of a block.
    pub(super) prefix_tokens: u64,
}

/// So many 2-D copies that are alike.
#[derive(Debug, Serialize)]
pub(super) struct Families {
    pub(super) families: u64,
    pub(super) pieces: u32,
    pub(super) piece_bytes: u64,
    pub(super) src_stride_bytes: u64,
    pub(super) dst_stride_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Piece {
    pub(super) bytes: u64,
    pub(super) src_region: u32,
    pub(super) src_offset: u64,
    pub(super) dst_region: u32,
    pub(super) dst_offset: u64,
}

/// How many families are looked at, and how many kinds are told.
const FAMILIES: usize = 1 << 20;
const KINDS: usize = 8;

impl CopyFacts {
    pub(super) fn new(src: &Side, dst: &Side, block: u32) -> Result<CopyFacts, String> {
        let slice = src.rank.shard.slice_for(&dst.rank.shard);
        let Some(Slice::Moved { src: first, dst: to, count }) = slice else {
            return Err(no_head(src, dst));
        };
        let heads = Heads { src: first, dst: to, count };
        // Layouts of one process would share addresses; these two stand for two memories.
        let there = elsewhere(dst)?;
        let slice = Slice::Moved { src: first, dst: to, count };
        let (pages, src_blocks, dst_blocks) = blocks(src, dst, block)?;
        let plan = PagePlan::new(&src.layout, &src_blocks, &there, &dst_blocks, .., .., slice)
            .map_err(|error| format!("--to {}: {error}", dst.geometry.arrangement))?;
        let mut seen = 0;
        let mut kinds: Vec<Families> = Vec::new();
        for family in plan.families().take(FAMILIES) {
            seen += u64::from(family.count);
            // One piece has no distance to the next.
            let strides = if family.count > 1 { [family.src_stride, family.dst_stride] } else { [0; 2] };
            let alike = |kind: &Families| {
                (kind.pieces, kind.piece_bytes) == (family.count, family.first.bytes)
                    && [kind.src_stride_bytes, kind.dst_stride_bytes] == strides
            };
            match kinds.iter().position(alike) {
                Some(known) => kinds[known].families += 1,
                None if kinds.len() < KINDS => kinds.push(Families {
                    families: 1,
                    pieces: family.count,
                    piece_bytes: family.first.bytes,
                    src_stride_bytes: strides[0],
                    dst_stride_bytes: strides[1],
                }),
                None => break,
            }
        }
        let first = plan.pieces().take(SHOWN).map(|piece| {
            let ((src_region, src_offset), (dst_region, dst_offset)) =
                (src.locate(piece.src), dst.locate(piece.dst));
            Piece { bytes: piece.bytes, src_region, src_offset, dst_region, dst_offset }
        });
        Ok(CopyFacts {
            arrangement: dst.geometry.arrangement.name(),
            head_order: dst.geometry.head_order.to_string().to_lowercase(),
            tensor_parallel: RankFacts::new(dst),
            heads,
            pages,
            bytes: plan.bytes(),
            pieces: plan.pieces_count(),
            smallest_piece_bytes: plan.smallest_piece(),
            largest_piece_bytes: plan.largest_piece(),
            alignment_bytes: plan.alignment(),
            families_complete: seen == plan.pieces_count(),
            families: kinds,
            first: first.collect(),
        })
    }
}

/// What `--to-page` does, if it was given, and the blocks of both sides.
type Blocks = (Option<Pages>, Vec<BlockId>, Vec<BlockId>);

/// Which blocks become which: the one asked for, or as few as have as many tokens on both sides.
fn blocks(src: &Side, dst: &Side, block: u32) -> Result<Blocks, String> {
    let (here, there) = (src.geometry.page, dst.geometry.page);
    if here == there {
        return Ok((None, vec![BlockId(block)], vec![BlockId(block)]));
    }
    let (mut divisor, mut rest) = (here, there);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    let (src_blocks, dst_blocks) = (there / divisor, here / divisor);
    let of = src.geometry.blocks;
    if u64::from(block) + u64::from(src_blocks) > u64::from(of) || dst_blocks > of {
        return Err(format!(
            "--to-page {there}: {src_blocks} blocks of {here} tokens become {dst_blocks} of {there}, and --blocks {of} has not as \
             many from --block {block} on"
        ));
    }
    let prefix_tokens = u64::from(src_blocks) * u64::from(here);
    let pages = Pages { src_page: here, dst_page: there, src_blocks, dst_blocks, prefix_tokens };
    let list = |first: u32, count: u32| (first..first + count).map(BlockId).collect();
    Ok((Some(pages), list(block, src_blocks), list(0, dst_blocks)))
}

/// The same layout in another address space.
fn elsewhere(side: &Side) -> Result<kvstrata_core::Layout, String> {
    use kvstrata_core::StorageKind;
    use kvstrata_core::layout::{Layout, Region};
    let kind = StorageKind::Device { ordinal: 0 };
    let regions: Vec<Region> =
        side.layout.regions().iter().map(|region| Region { kind, ..*region }).collect();
    Layout::new(*side.layout.config(), side.geometry.arrangement, &regions).map_err(|error| error.to_string())
}

fn no_head(src: &Side, dst: &Side) -> String {
    let heads = |side: &Side| {
        let heads = side.rank.shard.heads();
        format!(
            "rank {} of {} has heads {} to {}",
            side.rank.rank,
            side.rank.degree,
            heads.start,
            heads.end - 1
        )
    };
    let first = super::side::first_with(src, dst.rank.degree);
    let rank = dst.rank.rank;
    format!("--to-rank {rank}: {}, but {}: nothing to copy; rank {first} has some", heads(src), heads(dst))
}
