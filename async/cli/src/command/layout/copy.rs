//! The copy of a block to another layout: the facts of its plan, with the keys of the JSON.

use super::facts::{RankFacts, SHOWN};
use super::side::Side;
use super::units::plural;
use kvstrata_core::BlockId;
use kvstrata_core::plan::{PagePlan, Slice};
use serde::Serialize;

/// The facts of a copy plan.
#[derive(Debug, Serialize)]
pub(super) struct CopyFacts {
    pub(super) arrangement: &'static str,
    pub(super) head_order: String,
    pub(super) tensor_parallel: RankFacts,
    pub(super) heads: Heads,
    /// `None` if blocks have the same number of tokens on both sides.
    pub(super) pages: Option<Pages>,
    pub(super) bytes: u64,
    pub(super) pieces: u64,
    pub(super) smallest_piece_bytes: u64,
    pub(super) largest_piece_bytes: u64,
    pub(super) alignment_bytes: u64,
    /// Strided copies; equal ones are counted together. Complete unless there are very many.
    pub(super) families: Vec<Families>,
    pub(super) families_complete: bool,
    pub(super) first: Vec<Piece>,
}

/// The heads of the copy, numbered as on each side.
#[derive(Debug, Serialize)]
pub(super) struct Heads {
    pub(super) src: u32,
    pub(super) dst: u32,
    pub(super) count: u32,
}

/// The fewest blocks that have the same number of tokens on both sides.
#[derive(Debug, Serialize)]
pub(super) struct Pages {
    pub(super) src_page: u32,
    pub(super) dst_page: u32,
    pub(super) src_blocks: u32,
    pub(super) dst_blocks: u32,
    /// The period in tokens at which blocks of both sides end together.
    pub(super) prefix_tokens: u64,
}

/// A number of equal 2-D copies.
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

/// The most families examined.
const FAMILIES: usize = 1 << 20;
/// The most kinds of families listed.
const KINDS: usize = 8;

impl CopyFacts {
    pub(super) fn new(src: &Side, dst: &Side, block: u32) -> Result<CopyFacts, String> {
        let slice = src.rank.shard.slice_for(&dst.rank.shard);
        let Some(Slice::Moved { src: first, dst: to, count }) = slice else {
            return Err(no_head(src, dst));
        };
        let heads = Heads { src: first, dst: to, count };
        // Both sides are laid out from address 0, so the destination is moved to another memory.
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

/// The pages, if they differ, and the blocks of both sides.
type Blocks = (Option<Pages>, Vec<BlockId>, Vec<BlockId>);

/// The blocks of the copy: `block`, or the fewest from it on that have the same
/// number of tokens on both sides.
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
            "--to-page {there}: {} of {here} tokens become {dst_blocks} of {there}, and --blocks {of} is too few from --block \
             {block} on; raise --blocks or lower --block",
            plural(src_blocks.into(), "block")
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
        let (start, last) = (heads.start, heads.end - 1);
        let heads = if start == last { format!("head {start}") } else { format!("heads {start} to {last}") };
        format!("rank {} of {} has {heads}", side.rank.rank, side.rank.degree)
    };
    let first = super::side::first_with(src, dst.rank.degree);
    let rank = dst.rank.rank;
    format!("--to-rank {rank}: {}, but {}: nothing to copy; use --to-rank {first}", heads(src), heads(dst))
}
