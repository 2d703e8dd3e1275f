//! Plans between page sizes: any two layouts, lists, slices of tokens, layers and heads, compared with a
//! map from the layouts' own addresses; how far pieces are merged; which plans are refused.

use super::{CONFIG, laid_out};
use crate::id::BlockId;
use crate::layout::tests::geometries;
use crate::layout::{Arrangement, HeadOrder, Layout, LayoutConfig, ScalePlace};
use crate::plan::{CopyPlan, PagePlan, PlanError, Shard, Slice, naive};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::num::{NonZeroU32, NonZeroU64};
use proptest::prelude::*;

/// Destination bytes, and the source of each.
type Moves = BTreeMap<u64, u64>;

/// A slice: source, destination, count.
type Part = (u32, u32, u32);

#[derive(Clone, Debug)]
struct Case {
    src: Layout,
    dst: Layout,
    src_blocks: Vec<BlockId>,
    dst_blocks: Vec<BlockId>,
    tokens: Part,
    layers: Part,
    heads: Part,
}

fn moved((src, dst, count): Part) -> Slice {
    Slice::Moved { src, dst, count }
}

impl Case {
    fn plan(&self) -> Result<PagePlan, PlanError> {
        let (tokens, layers, heads) = (moved(self.tokens), moved(self.layers), moved(self.heads));
        PagePlan::new(&self.src, &self.src_blocks, &self.dst, &self.dst_blocks, tokens, layers, heads)
    }

    /// The row of a token of a list, and of its scales if these are apart.
    fn row(layout: &Layout, blocks: &[BlockId], token: u32, [layer, outer, head]: [u32; 3]) -> [u64; 2] {
        let page = layout.config().page_size;
        let index = [blocks[(token / page) as usize].0, layer, outer, token % page, head];
        let elements = layout.address(index).unwrap();
        let behind = elements + layout.config().row_data_bytes();
        [elements, layout.scales_address(index).unwrap().unwrap_or(behind)]
    }

    fn wanted(&self) -> Moves {
        let config = self.src.config();
        let bytes = [config.row_data_bytes(), config.row_scale_bytes()];
        let mut moves = Moves::new();
        for at in 0..self.tokens.2 * self.layers.2 * config.outer_dim * self.heads.2 {
            let (token, rest) = (at % self.tokens.2, at / self.tokens.2);
            let (layer, rest) = (rest % self.layers.2, rest / self.layers.2);
            let (outer, head) = (rest % config.outer_dim, rest / config.outer_dim);
            let from = [self.layers.0 + layer, outer, self.heads.0 + head];
            let to = [self.layers.1 + layer, outer, self.heads.1 + head];
            let from = Case::row(&self.src, &self.src_blocks, self.tokens.0 + token, from);
            let to = Case::row(&self.dst, &self.dst_blocks, self.tokens.1 + token, to);
            for (plane, bytes) in bytes.into_iter().enumerate() {
                for i in 0..bytes {
                    assert_eq!(moves.insert(to[plane] + i, from[plane] + i), None);
                }
            }
        }
        moves
    }

    /// Stretches of tokens at one distance on both sides, whichever blocks they are in.
    fn stretches(&self) -> u64 {
        let distance = |layout: &Layout| {
            let next = if layout.config().page_size > 1 { [0, 0, 0, 1, 0] } else { [1, 0, 0, 0, 0] };
            layout.address(next).ok().map(|next| next - layout.address([0; 5]).unwrap())
        };
        let distances = [distance(&self.src), distance(&self.dst)];
        let row = |token: u32| {
            let src = Case::row(&self.src, &self.src_blocks, self.tokens.0 + token, [0; 3])[0];
            [src, Case::row(&self.dst, &self.dst_blocks, self.tokens.1 + token, [0; 3])[0]]
        };
        let follows = |token: &u32| {
            let (one, next) = (row(*token), row(token + 1));
            (0..2).all(|side| Some(next[side].wrapping_sub(one[side])) == distances[side])
        };
        u64::from(self.tokens.2) - (0..self.tokens.2 - 1).filter(follows).count() as u64
    }
}

fn of_plan<'p>(parts: impl IntoIterator<Item = &'p CopyPlan>) -> Moves {
    let mut moves = Moves::new();
    for piece in parts.into_iter().flat_map(CopyPlan::pieces) {
        for i in 0..piece.bytes {
            assert_eq!(moves.insert(piece.dst + i, piece.src + i), None, "twice");
        }
    }
    moves
}

fn part(of_src: u32, of_dst: u32, pick: &[u32]) -> Part {
    let count = 1 + pick[0] % of_src.min(of_dst);
    (pick[1] % (of_src - count + 1), pick[2] % (of_dst - count + 1), count)
}

/// Blocks of a list of at least `tokens`, often neighbours; a destination's are unique.
fn list(config: &LayoutConfig, tokens: u32, picks: &[u32], unique: bool) -> Option<Vec<BlockId>> {
    let count = tokens.div_ceil(config.page_size);
    let mut taken = BTreeSet::new();
    let mut blocks = Vec::new();
    let mut next = 0;
    for i in 0..count {
        let pick = picks[i as usize % picks.len()];
        // Two of three follow the one before.
        next = if pick.is_multiple_of(3) { pick } else { next + 1 } % config.num_blocks;
        while unique && !taken.insert(next) {
            next = (next + 1) % config.num_blocks;
            if taken.len() as u32 == config.num_blocks {
                return None;
            }
        }
        blocks.push(BlockId(next));
    }
    Some(blocks)
}

fn cases() -> impl Strategy<Value = Case> {
    let sides = (0usize..7, any::<[bool; 4]>(), 0u32..3, 1u32..9);
    let picks = (
        proptest::collection::vec(any::<u32>(), 12),
        proptest::collection::vec(any::<u32>(), 12),
        any::<[u32; 9]>(),
    );
    (geometries(), sides, picks).prop_filter_map(
        "an arrangement that cannot have it",
        |((config, arrangement), (to, flips, alignment, page), (from, at, picks))| {
            let heads = 1 + picks[0] % 4;
            let src = config.num_blocks(6);
            let mut dst = config.num_blocks(7).page_size(page).num_heads(heads);
            dst.alignment = config.dtype.alignment() << alignment;
            if flips[0] {
                dst.head_order =
                    if config.head_order == HeadOrder::Nhd { HeadOrder::Hnd } else { HeadOrder::Nhd };
            }
            dst.scales = if flips[1] { ScalePlace::Row } else { ScalePlace::Page };
            let to = Arrangement::ALL[to];
            to.needs(&dst).ok()?;
            arrangement.needs(&src).ok()?;
            let tokens = 1 + picks[1] % (6 * src.page_size).min(7 * page).min(40);
            let src_blocks = list(&src, tokens, &from, false)?;
            let dst_blocks = list(&dst, tokens, &at, true)?;
            let of = |blocks: &[BlockId], config: &LayoutConfig| blocks.len() as u32 * config.page_size;
            Some(Case {
                tokens: part(of(&src_blocks, &src), of(&dst_blocks, &dst), &[tokens - 1, picks[2], picks[3]]),
                layers: part(src.num_layers, dst.num_layers, &picks[4..7]),
                heads: part(src.num_heads, dst.num_heads, &[picks[7], picks[8], picks[7] / 5]),
                src: laid_out(src, arrangement, 1 << 20, flips[2]),
                dst: laid_out(dst, to, 1 << 40, flips[3]),
                src_blocks,
                dst_blocks,
            })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 1024 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// The bytes of the plan and of its oracle are those of the layouts; the plan's facts are true; its
    /// parts can be split.
    #[test]
    fn page_plan_between_any_pages_matches_the_oracle(case in cases(), bytes in 1u64..700, few in 1u32..3) {
        let (plan, wanted) = (case.plan().unwrap(), case.wanted());
        prop_assert_eq!(&of_plan(plan.parts()), &wanted);
        let (mut naively, last) = (Moves::new(), Cell::new(0));
        naive::copy_tokens(
            (&case.src, &case.src_blocks),
            (&case.dst, &case.dst_blocks),
            moved(case.tokens),
            moved(case.layers),
            moved(case.heads),
            |at| { last.set(at); 0 },
            |at, _| { naively.insert(at, last.get()); },
        );
        prop_assert_eq!(&naively, &wanted);

        let sizes: Vec<u64> = plan.pieces().map(|piece| piece.bytes).collect();
        prop_assert_eq!((plan.bytes(), plan.pieces_count()), (wanted.len() as u64, sizes.len() as u64));
        prop_assert_eq!(Some(plan.smallest_piece()), sizes.iter().min().copied());
        prop_assert_eq!(Some(plan.largest_piece()), sizes.iter().max().copied());
        let aligned = |piece: crate::plan::Piece| {
            (piece.src | piece.dst | piece.bytes).is_multiple_of(plan.alignment())
        };
        prop_assert!(plan.pieces().all(aligned));
        prop_assert_eq!(plan.families().map(|family| u64::from(family.count)).sum::<u64>(), plan.pieces_count());

        let up_to = NonZeroU32::new(few).unwrap();
        let split: Vec<CopyPlan> = plan.parts().iter()
            .flat_map(|part| part.split_bytes(NonZeroU64::new(bytes).unwrap()).collect::<Vec<_>>())
            .flat_map(|part| part.split_layers(up_to).collect::<Vec<_>>())
            .flat_map(|part| part.split_blocks(up_to).collect::<Vec<_>>())
            .collect();
        prop_assert_eq!(&of_plan(&split), &wanted);
    }

    /// A stretch of tokens that neither side interrupts is one block of one part, and its
    /// pieces are merged as any plan's.
    #[test]
    fn page_plan_keeps_each_stretch_of_tokens_whole(case in cases()) {
        let plan = case.plan().unwrap();
        let (pageless, stretches) = (case.src.is_pageless() && case.dst.is_pageless(), case.stretches());
        if pageless {
            // Counted in small blocks, whose neighbours are runs.
            prop_assert_eq!(plan.parts().len(), 1);
            prop_assert!(plan.parts()[0].runs().len() as u64 <= stretches);
        } else {
            prop_assert_eq!(plan.parts().iter().map(CopyPlan::blocks).sum::<u64>(), stretches);
        }
        for part in plan.parts() {
            let upwards = |plane: &crate::plan::PlaneCopy| plane.single.loops().is_sorted_by_key(|l| l.src_stride);
            if case.src.scales_apart() != case.dst.scales_apart() || !part.planes().all(upwards) {
                continue;
            }
            for run in part.runs() {
                let alone = CopyPlan::assemble(part.src(), part.dst(), part.spans, vec![*run]);
                prop_assert_eq!(alone.pieces_count(), super::fewest(&alone));
            }
        }
    }

    /// A part that is replanned stays within its layouts, for any blocks, and writes nothing twice.
    #[test]
    fn page_plan_parts_made_anew_stay_inside(case in cases(), pairs in proptest::collection::vec((0u32..8, 0u32..8), 1..4)) {
        let inside = |layout: &Layout, at: u64, bytes: u64| {
            layout.regions().iter().any(|region| {
                at >= region.address && at + bytes <= region.address + region.size_bytes
            })
        };
        let (src, dst): (Vec<_>, Vec<_>) = pairs.into_iter().map(|(src, dst)| (BlockId(src), BlockId(dst))).unzip();
        for part in case.plan().unwrap().parts() {
            let mut again = part.clone();
            if again.replan(&src, &dst).is_ok() {
                of_plan([&again]);
                let within = |piece: crate::plan::Piece| {
                    inside(&case.src, piece.src, piece.bytes) && inside(&case.dst, piece.dst, piece.bytes)
                };
                prop_assert!(again.pieces().all(within));
            }
        }
    }

    /// Within one memory a plan is refused exactly if a byte would be read and written.
    #[test]
    fn page_plan_with_overlap_is_refused_exactly(case in cases(), by in 0u64..2000) {
        let aligned = case.src.config().alignment.max(case.dst.config().alignment);
        let distance = case.src.regions()[0].address.wrapping_sub(case.dst.regions()[0].address);
        let by = distance.wrapping_add(by / aligned * aligned) / aligned * aligned;
        let moved: Vec<u64> = case.dst.regions().iter().map(|region| region.address.wrapping_add(by)).collect();
        let Ok(dst) = case.dst.relocated(&moved) else { return Ok(()) };
        let case = Case { dst, ..case };
        let wanted = case.wanted();
        let read: BTreeSet<u64> = wanted.values().copied().collect();
        let meet = wanted.keys().any(|at| read.contains(at));
        match case.plan() {
            Ok(_) => prop_assert!(!meet),
            Err(PlanError::Overlap { address }) => {
                prop_assert!(read.contains(&address) && wanted.contains_key(&address));
            }
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}

fn plan_of(
    (from, src): (Arrangement, LayoutConfig),
    src_blocks: &[u32],
    (to, dst): (Arrangement, LayoutConfig),
    dst_blocks: &[u32],
) -> Result<PagePlan, PlanError> {
    let (src, dst) = (laid_out(src, from, 1 << 20, false), laid_out(dst, to, 1 << 40, false));
    let ids = |blocks: &[u32]| blocks.iter().copied().map(BlockId).collect::<Vec<_>>();
    PagePlan::new(&src, &ids(src_blocks), &dst, &ids(dst_blocks), .., .., ..)
}

/// Pieces counted by hand: 3 layers of keys and values, rows of 4 × 8 bytes a token, pages of 4 and 16.
#[test]
fn page_plan_merging_matches_counts_by_hand() {
    use Arrangement::{FullyContiguous, OuterFirst, TokenMajor};
    let (fine, coarse) = (CONFIG, CONFIG.page_size(16));
    let facts = |plan: PagePlan| {
        (plan.parts().len(), plan.pieces_count(), plan.smallest_piece(), plan.largest_piece())
    };
    let (page, token) = (4 * 32, 32);
    let contiguous = |from, to| {
        let plan = plan_of((from, fine), &[2, 3, 4, 5], (to, coarse), &[6]).unwrap();
        facts(plan)
    };
    // A block's layers lie between the tokens of two blocks.
    assert_eq!(contiguous(FullyContiguous, FullyContiguous), (4, 4 * 6, page, page));
    // Consecutive blocks in an engine's tensor are one piece of each layer, and of keys and values.
    assert_eq!(contiguous(OuterFirst, FullyContiguous), (1, 6, 4 * page, 4 * page));
    assert_eq!(contiguous(TokenMajor, OuterFirst), (1, 6, 4 * page, 4 * page));
    let apart = plan_of((OuterFirst, fine), &[2, 3, 5, 7], (FullyContiguous, coarse), &[6]).unwrap();
    assert_eq!(facts(apart), (3, 3 * 6, page, 2 * page));
    // There and back; blocks of the coarser side that follow each other are one run.
    let back = plan_of((FullyContiguous, coarse), &[6], (OuterFirst, fine), &[2, 3, 4, 5]).unwrap();
    assert_eq!(facts(back), (1, 6, 4 * page, 4 * page));
    let all = plan_of((TokenMajor, fine), &[0, 1, 2, 3, 4, 5, 6, 7], (OuterFirst, coarse), &[3, 4]).unwrap();
    assert_eq!(facts(all), (1, 6, 8 * page, 8 * page));
    // Pages where neither size divides the other.
    let odd = plan_of((FullyContiguous, CONFIG.page_size(6)), &[1, 0], (FullyContiguous, fine), &[0, 1, 2]);
    assert_eq!(facts(odd.unwrap()), (4, 4 * 6, 2 * token, 4 * token));
    // A token a block.
    let single = plan_of((TokenMajor, CONFIG.page_size(1)), &[4, 5, 6, 7], (FullyContiguous, fine), &[1]);
    assert_eq!(facts(single.unwrap()), (1, 6, page, page));
}

/// TP 2 in pages of 4 → TP 4 in pages of 16: each rank gets its heads of each token,
/// from a rank that has them.
#[test]
fn page_plan_between_ranks_moves_each_head() {
    let rank_of = |degree, rank| Shard::new(8, degree, rank).unwrap();
    let layout = |shard: &Shard, page: u32, base: u64| {
        let config = CONFIG.num_heads(shard.heads().len() as u32).page_size(page);
        laid_out(config, Arrangement::FullyContiguous, base, true)
    };
    let (src_blocks, dst_blocks) = ([3, 0, 7, 2].map(BlockId), [BlockId(5)]);
    for rank in 0..4 {
        let shard = rank_of(4, rank);
        let dst = layout(&shard, 16, 1 << 50);
        let mut seen = 0;
        for (source, heads) in shard.sources(2) {
            let has = rank_of(2, source);
            let src = layout(&has, 4, u64::from(source + 1) << 40);
            let plan = PagePlan::new(&src, &src_blocks, &dst, &dst_blocks, .., .., heads).unwrap();
            let moves = of_plan(plan.parts());
            seen += moves.len();
            for token in 0..16u32 {
                for head in shard.heads() {
                    let to = dst.address([5, 1, 1, token, head - shard.heads().start]).unwrap();
                    let block = src_blocks[(token / 4) as usize].0;
                    let from = src.address([block, 1, 1, token % 4, head - has.heads().start]).unwrap();
                    assert_eq!(moves.get(&to), Some(&from), "rank {rank}, token {token}, head {head}");
                }
            }
        }
        assert_eq!(seen as u64, dst.block_bytes(), "all of the block, once");
    }
}

#[test]
fn page_plan_refused_names_the_field() {
    use Arrangement::FullyContiguous;
    let (fine, coarse) = (CONFIG, CONFIG.page_size(16));
    let refused = |src_blocks: &[u32], dst_blocks: &[u32]| {
        plan_of((FullyContiguous, fine), src_blocks, (FullyContiguous, coarse), dst_blocks)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused(&[0, 1, 2], &[0]),
        "src_blocks have 12 tokens and dst_blocks 16: list blocks with as many, or select tokens of each side with a Slice"
    );
    assert_eq!(
        refused(&[0, 1, 2, 8], &[0]),
        "source block [3] = 8: the layout has 8 blocks, numbered from 0"
    );
    assert_eq!(
        refused(&[0; 8], &[1, 1]),
        "destination block 1 is in the list twice: list each destination once"
    );
    let (src, dst) = (
        laid_out(fine, FullyContiguous, 1 << 20, true),
        laid_out(coarse.dtype(crate::layout::DType::I8), FullyContiguous, 1 << 40, true),
    );
    let four = [0, 1, 2, 3].map(BlockId);
    let error = PagePlan::new(&src, &four, &dst, &[BlockId(0)], .., .., ..).unwrap_err();
    assert_eq!(
        error.to_string(),
        "dtype: uint8 cannot become int8; a plan only moves bytes, so use layouts of one dtype"
    );
    let dst = laid_out(coarse, FullyContiguous, 1 << 40, true);
    let slice = Slice::Moved { src: 1, dst: 2, count: 15 };
    let error = PagePlan::new(&src, &four, &dst, &[BlockId(0)], slice, .., ..).unwrap_err();
    assert_eq!(
        error.to_string(),
        "token slice 2 + 15: must not be empty, and must end within the 16 of the destination"
    );
    let none = PagePlan::new(&src, &[], &dst, &[], .., .., ..).unwrap();
    assert_eq!((none.bytes(), none.pieces().count(), none.smallest_piece(), none.alignment()), (0, 0, 0, 16));
}

/// Blocks of one size are one plan, the one that a `CopyPlan` is.
#[test]
fn page_plan_of_equal_pages_is_one_part() {
    let (src, dst) = (
        laid_out(CONFIG, Arrangement::BlockFirst, 1 << 20, true),
        laid_out(CONFIG, Arrangement::FullyContiguous, 1 << 40, true),
    );
    let (from, to) = ([4, 5, 1].map(BlockId), [0, 1, 7].map(BlockId));
    let plan = PagePlan::new(&src, &from, &dst, &to, .., .., ..).unwrap();
    let alone = CopyPlan::new(&src, &from, &dst, &to, .., ..).unwrap();
    assert_eq!(plan.parts().len(), 1);
    assert!(plan.pieces().eq(alone.pieces()));
}
