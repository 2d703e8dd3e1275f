mod pages;
mod wild;

use super::*;
use crate::layout::tests::geometries;
use crate::layout::{Arrangement, HeadOrder, LayoutConfig, Region, ScalePlace};
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec;
use core::num::{NonZeroU32, NonZeroU64};
use proptest::prelude::*;

/// The oracle's memory: a byte that was never written is a function of its address.
#[derive(Clone, Default, PartialEq, Debug)]
struct Memory(BTreeMap<u64, u8>);

impl Memory {
    fn read(&self, address: u64) -> u8 {
        self.0.get(&address).copied().unwrap_or((address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
    }

    fn run(&mut self, plan: &CopyPlan) {
        for piece in plan.pieces() {
            for i in 0..piece.bytes {
                let byte = self.read(piece.src + i);
                self.0.insert(piece.dst + i, byte);
            }
        }
    }
}

/// A layout whose regions lie far from another's, each some way from the last.
pub(super) fn laid_out(config: LayoutConfig, arrangement: Arrangement, base: u64, even: bool) -> Layout {
    let need = arrangement.needs(&config).unwrap();
    let step = (need.bytes + 64).next_multiple_of(config.alignment.max(64));
    let regions: Vec<Region> = (0..u64::from(need.count))
        // Unevenly, as allocators do, and keys may come after values.
        .map(|i| base + if even { i * step } else { (i ^ 1) * step * 2 + (i & 1) * config.alignment })
        .map(|address| Region::system(address, need.bytes))
        .collect();
    Layout::new(config, arrangement, &regions).unwrap()
}

/// Two layouts of one geometry, blocks of both, and a slice of layers and heads.
#[derive(Clone, Debug)]
struct Case {
    src: Layout,
    dst: Layout,
    src_blocks: Vec<BlockId>,
    dst_blocks: Vec<BlockId>,
    layers: Slice,
    heads: Slice,
}

impl Case {
    fn plan(&self) -> CopyPlan {
        let (layers, heads) = (self.layers.clone(), self.heads.clone());
        CopyPlan::new(&self.src, &self.src_blocks, &self.dst, &self.dst_blocks, layers, heads).unwrap()
    }

    fn oracle(&self) -> Memory {
        let (before, mut after) = (Memory::default(), Memory::default());
        naive::copy(
            (&self.src, &self.src_blocks),
            (&self.dst, &self.dst_blocks),
            self.layers.clone(),
            self.heads.clone(),
            |address| before.read(address),
            |address, byte| assert_eq!(after.0.insert(address, byte), None, "written twice"),
        );
        after
    }
}

fn slice(of: u32, pick: [u32; 3]) -> Slice {
    let count = 1 + pick[0] % of;
    match pick[0] % 3 {
        0 => Slice::Same(pick[1] % (of - count + 1)..pick[1] % (of - count + 1) + count),
        _ => Slice::Moved { src: pick[1] % (of - count + 1), dst: pick[2] % (of - count + 1), count },
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let other = (0usize..7, any::<[bool; 5]>(), 0u32..4, 1u32..6);
    let blocks = proptest::collection::vec((any::<u32>(), any::<u32>()), 0..6);
    (geometries(), other, blocks, any::<[[u32; 3]; 2]>(), any::<[bool; 3]>()).prop_filter_map(
        "an arrangement that cannot have it",
        |((config, arrangement), (to, flips, align, of), blocks, picks, all)| {
            let mut other = config.num_blocks(of).alignment(config.dtype.alignment() << align);
            if flips[0] {
                other.head_order =
                    if config.head_order == HeadOrder::Nhd { HeadOrder::Hnd } else { HeadOrder::Nhd };
            }
            if flips[1] {
                other.scales =
                    if config.scales == ScalePlace::Row { ScalePlace::Page } else { ScalePlace::Row };
            }
            let to = Arrangement::ALL[to];
            to.needs(&other).ok()?;
            let src = laid_out(config, arrangement, 1 << 20, flips[2]);
            let dst = laid_out(other, to, 1 << 40, flips[3]);
            // Neighbours are likely, in both directions.
            let mut dst_blocks: Vec<BlockId> = blocks.iter().map(|(_, dst)| BlockId(dst % of)).collect();
            let mut seen = vec![false; of as usize];
            dst_blocks.retain(|block| !core::mem::replace(&mut seen[block.index()], true));
            let mut src_blocks: Vec<BlockId> =
                blocks.iter().map(|(src, _)| BlockId(src % config.num_blocks)).collect();
            if flips[4] {
                src_blocks = dst_blocks.iter().map(|block| BlockId(block.0 % config.num_blocks)).collect();
            }
            src_blocks.truncate(dst_blocks.len());
            Some(Case {
                layers: if all[0] { Slice::All } else { slice(config.num_layers, picks[0]) },
                heads: if all[1] { Slice::All } else { slice(config.num_heads, picks[1]) },
                src,
                dst,
                src_blocks,
                dst_blocks,
            })
        },
    )
}

/// The stretches of bytes that are neighbours on both sides.
fn fewest(plan: &CopyPlan) -> u64 {
    let bytes = plan.pieces().flat_map(|piece| (0..piece.bytes).map(move |i| (piece.dst + i, piece.src + i)));
    let mut bytes: Vec<_> = bytes.collect();
    bytes.sort_unstable();
    let torn = |pair: &&[(u64, u64)]| pair[0].0 + 1 != pair[1].0 || pair[0].1 + 1 != pair[1].1;
    bytes.windows(2).filter(torn).count() as u64 + u64::from(!bytes.is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 1024 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// I1, I2: the bytes of the plan are the oracle's, and nothing else is written.
    #[test]
    fn plan_bytes_match_the_oracle(case in cases()) {
        let plan = case.plan();
        let mut memory = Memory::default();
        memory.run(&plan);
        prop_assert_eq!(&memory, &case.oracle());
        prop_assert_eq!(memory.0.len() as u64, plan.bytes(), "each byte once");
    }

    /// A plan's facts about its pieces before it runs.
    #[test]
    fn plan_facts_match_its_pieces(case in cases()) {
        let plan = case.plan();
        let pieces: Vec<Piece> = plan.pieces().collect();
        prop_assert_eq!(plan.pieces().size_hint(), (pieces.len(), Some(pieces.len())));
        prop_assert_eq!(plan.pieces().fold(0, |n, _| n + 1), pieces.len());
        prop_assert_eq!(plan.pieces_count(), pieces.len() as u64);
        prop_assert_eq!(plan.bytes(), pieces.iter().map(|piece| piece.bytes).sum::<u64>());
        prop_assert_eq!(plan.smallest_piece(), pieces.iter().map(|piece| piece.bytes).min().unwrap_or(0));
        prop_assert_eq!(plan.largest_piece(), pieces.iter().map(|piece| piece.bytes).max().unwrap_or(0));
        let aligned = |to: u64| pieces.iter().all(|p| (p.src | p.dst | p.bytes).is_multiple_of(to));
        prop_assert!(aligned(plan.alignment()));
        if plan.spans.iter().all(|span| span.count > 0) && !pieces.is_empty() {
            prop_assert!(plan.alignment() == 16 || !aligned(2 * plan.alignment()));
        }
        prop_assert_eq!(plan.block_bytes() * plan.blocks(), plan.bytes());
        prop_assert_eq!(plan.families_count(), plan.families().count() as u64);
        let in_families: Vec<Piece> = plan.families().flat_map(|family| (0..u64::from(family.count)).map(move |i| Piece {
            src: family.first.src.wrapping_add(i.wrapping_mul(family.src_stride)),
            dst: family.first.dst.wrapping_add(i.wrapping_mul(family.dst_stride)),
            bytes: family.first.bytes,
        })).collect();
        let sorted = |mut pieces: Vec<Piece>| { pieces.sort_unstable_by_key(|p| p.dst); pieces };
        prop_assert_eq!(sorted(in_families), sorted(pieces));
    }

    /// Neighbours in memory are merged, for any order of the lists. Two pieces may remain where they are
    /// one by accident: the end of one loop and the start of the next where dimensions change places,
    /// and pieces of blocks that are no neighbours.
    #[test]
    fn plan_pieces_are_the_fewest(case in cases()) {
        prop_assume!(case.src.scales_apart() == case.dst.scales_apart());
        let plan = case.plan();
        let upwards = |plane: &PlaneCopy| plane.single.loops().is_sorted_by_key(|l| l.src_stride);
        prop_assume!(plan.planes().all(upwards));
        for run in &plan.runs {
            let alone = CopyPlan::assemble(&plan.src, &plan.dst, plan.spans, vec![*run]);
            prop_assert_eq!(alone.pieces_count(), fewest(&alone));
        }
        let ends = |pair: &[Run]| pair[0].src + pair[0].len == pair[1].src && pair[0].dst + pair[0].len == pair[1].dst;
        prop_assert!(!plan.runs.windows(2).any(ends), "runs are joined");
    }

    /// A plan and its inverse restore the memory.
    #[test]
    fn plan_and_its_inverse_restore_the_memory(case in cases()) {
        let there = case.plan();
        let back = |slice: &Slice| match slice.clone() {
            Slice::Moved { src, dst, count } => Slice::Moved { src: dst, dst: src, count },
            same => same,
        };
        let mut seen = vec![];
        let twice = case.src_blocks.iter().any(|block| { let is = seen.contains(block); seen.push(*block); is });
        let (layers, heads) = (back(&case.layers), back(&case.heads));
        let home = CopyPlan::new(&case.dst, &case.dst_blocks, &case.src, &case.src_blocks, layers, heads);
        prop_assert_eq!(home.is_err(), twice, "a source twice cannot be a destination");
        if let Ok(home) = home {
            let mut memory = Memory::default();
            memory.run(&there);
            let written = memory.0.len();
            memory.run(&home);
            prop_assert_eq!(memory.0.len(), 2 * written);
            prop_assert!(memory.0.iter().filter(|(at, _)| **at < 1 << 40).all(|(at, byte)| Memory::default().read(*at) == *byte));
        }
    }

    /// I3: the parts of a plan are the plan.
    #[test]
    fn plan_parts_together_are_the_plan(case in cases(), blocks in 1u32..4, layers in 1u32..4, bytes in 1u64..3000) {
        let plan = case.plan();
        let whole = { let mut memory = Memory::default(); memory.run(&plan); memory };
        let most = |n| NonZeroU32::new(n).unwrap();
        let row = case.src.config().row_data_bytes() + case.src.config().row_scale_bytes();
        let parts: [Vec<CopyPlan>; 3] = [
            plan.split_blocks(most(blocks)).inspect(|part| assert!(part.blocks() <= u64::from(blocks))).collect(),
            plan.split_layers(most(layers)).inspect(|part| assert!(part.span(Dim::Layer).count <= layers)).collect(),
            plan.split_bytes(NonZeroU64::new(bytes).unwrap())
                .inspect(|part| assert!(part.bytes() <= bytes.max(row), "{} of {bytes}", part.bytes()))
                .collect(),
        ];
        for parts in parts {
            let mut memory = Memory::default();
            parts.iter().for_each(|part| memory.run(part));
            prop_assert_eq!(&memory, &whole);
            prop_assert_eq!(parts.iter().map(CopyPlan::bytes).sum::<u64>(), plan.bytes(), "each byte in one part");
        }
    }

    /// Within one layout a plan is refused exactly if a byte would be read and written.
    #[test]
    fn plan_with_overlap_is_refused_exactly(case in cases(), pairs in proptest::collection::vec((0u32..5, 0u32..5), 1..5)) {
        let layout = &case.src;
        let of = layout.config().num_blocks;
        let (mut src, mut dst) = (vec![], vec![]);
        for (a, b) in pairs {
            if !dst.contains(&BlockId(b % of)) {
                src.push(BlockId(a % of));
                dst.push(BlockId(b % of));
            }
        }
        let (mut read, mut written) = (Memory::default(), Memory::default());
        naive::copy((layout, &src), (layout, &dst), case.layers.clone(), case.heads.clone(), |at| { read.0.insert(at, 0); 0 }, |at, _| { written.0.insert(at, 0); });
        let meet = read.0.keys().any(|at| written.0.contains_key(at));
        let plan = CopyPlan::new(layout, &src, layout, &dst, case.layers.clone(), case.heads.clone());
        prop_assert_eq!(matches!(plan, Err(PlanError::Overlap { .. })), meet);
        prop_assert_eq!(plan.is_err(), meet);
    }
}

const CONFIG: LayoutConfig =
    LayoutConfig::new().num_blocks(8).num_layers(3).outer_dim(2).page_size(4).heads(4, 8);

/// TP 4 → TP 8 → TP 4 of 8 heads, and TP 2 → TP 3: every rank gets the whole model's bytes of its heads.
#[test]
fn plan_between_ranks_moves_each_head() {
    for (heads, from, to) in [(8, 4, 8), (8, 8, 4), (8, 2, 3), (8, 3, 2), (2, 4, 8), (2, 8, 1), (1, 2, 4)] {
        let shape = |shard: &Shard| CONFIG.num_heads(shard.heads().len() as u32);
        let rank_of = |degree, rank| Shard::new(heads, degree, rank).unwrap();
        let layout = |shard: &Shard, base: u64| laid_out(shape(shard), Arrangement::BlockFirst, base, true);
        // Every byte tells its (block, layer, outer, token, head of the model, element).
        let mut memory = Memory::default();
        let fill = |memory: &mut Memory, layout: &Layout, shard: &Shard| {
            for mut index in crate::layout::tests::rows(layout.config()) {
                let at = layout.address(index).unwrap();
                index[4] += shard.heads().start;
                for e in 0..8 {
                    let mixed = index.iter().fold(e, |sum, i| (sum * 31 + u64::from(*i)) % 251);
                    memory.0.insert(at + e, mixed as u8);
                }
            }
        };
        let sources: Vec<_> = (0..from)
            .map(|rank| rank_of(from, rank))
            .map(|s| (s, layout(&s, (1 + u64::from(s.heads().start)) << 32 | u64::from(1u32 << 30))))
            .collect();
        let sources: Vec<_> = sources
            .into_iter()
            .enumerate()
            .map(|(i, (s, _))| (s, layout(&s, (i as u64 + 1) << 32)))
            .collect();
        for (shard, layout) in &sources {
            fill(&mut memory, layout, shard);
        }
        for rank in 0..to {
            let shard = rank_of(to, rank);
            let dst = layout(&shard, 1 << 50);
            let blocks: Vec<BlockId> = (0..8).map(BlockId).collect();
            let mut got = memory.clone();
            for (source, heads) in shard.sources(from) {
                let src = &sources[source as usize].1;
                got.run(&CopyPlan::new(src, &blocks, &dst, &blocks, .., heads).unwrap());
            }
            let mut wanted = memory.clone();
            fill(&mut wanted, &dst, &shard);
            assert_eq!(got, wanted, "{heads} heads, TP {from} to rank {rank} of {to}");
        }
    }
}

/// A layout that does not separate heads, and one that does.
#[test]
fn plan_of_heads_within_a_row_splits_the_row() {
    let one = laid_out(CONFIG.inner_dim(4 * 8), Arrangement::FullyContiguous, 1 << 20, true);
    let many = laid_out(CONFIG.head_order(HeadOrder::Hnd), Arrangement::OuterFirst, 1 << 40, false);
    for heads in [Slice::All, Slice::Same(1..3)] {
        for (src, dst) in [(&one, &many), (&many, &one)] {
            let blocks = vec![BlockId(5), BlockId(2)];
            let case = Case {
                src: src.clone(),
                dst: dst.clone(),
                src_blocks: blocks.clone(),
                dst_blocks: blocks,
                layers: Slice::All,
                heads: heads.clone(),
            };
            let mut memory = Memory::default();
            memory.run(&case.plan());
            assert_eq!(memory, case.oracle());
        }
    }
}

#[test]
fn plan_refused_says_the_reason() {
    let src = laid_out(CONFIG, Arrangement::OuterFirst, 1 << 20, true);
    let blocks: Vec<BlockId> = [0, 1, 2].map(BlockId).to_vec();
    let refused = |dst: LayoutConfig, to: &[BlockId], layers: Slice, heads: Slice| {
        let dst = laid_out(dst, Arrangement::FullyContiguous, 1 << 40, true);
        CopyPlan::new(&src, &blocks, &dst, to, layers, heads).unwrap_err().to_string()
    };
    let all = || Slice::All;
    assert_eq!(
        refused(CONFIG, &blocks[..2], all(), all()),
        "src_blocks has 3 blocks and dst_blocks 2: list as many on each side"
    );
    assert_eq!(
        refused(CONFIG, &[0, 1, 8].map(BlockId), all(), all()),
        "destination block [2] = 8: the layout has 8 blocks, numbered from 0"
    );
    assert_eq!(
        refused(CONFIG, &[3, 1, 3].map(BlockId), all(), all()),
        "destination block 3 is in the list twice: list each destination once"
    );
    assert_eq!(
        refused(CONFIG.dtype(crate::layout::DType::I8), &blocks, all(), all()),
        "dtype: uint8 cannot become int8; a plan only moves bytes, so use layouts of one dtype"
    );
    assert_eq!(
        refused(CONFIG.page_size(8), &blocks, all(), all()),
        "page_size: the source has 4, the destination 8; use a PagePlan, which moves tokens between such blocks"
    );
    assert_eq!(
        refused(CONFIG.heads(2, 8), &blocks, all(), all()),
        "heads: the source has 4, the destination 2; select heads of each side with a Slice"
    );
    assert_eq!(
        refused(CONFIG.heads(4, 16), &blocks, all(), all()),
        "head_size: the source has 8, the destination 16; use layouts of one head_size"
    );
    assert_eq!(
        refused(CONFIG, &blocks, Slice::Same(1..4), all()),
        "layer slice 1 + 3: must not be empty, and must end within the 3 of the source"
    );
    assert_eq!(
        refused(CONFIG, &blocks, all(), Slice::Moved { src: 0, dst: 3, count: 2 }),
        "head slice 3 + 2: must not be empty, and must end within the 4 of the destination"
    );
    let same = CopyPlan::new(&src, &blocks, &src, &[1, 5, 6].map(BlockId), .., ..).unwrap_err();
    assert!(matches!(same, PlanError::Overlap { .. }), "{same}");
}

/// The pictures of the module `nest`.
#[test]
fn plan_merging_matches_the_drawing() {
    let plan = |from, src: LayoutConfig, to, dst: LayoutConfig, blocks: &[BlockId]| {
        let (src, dst) = (laid_out(src, from, 1 << 20, false), laid_out(dst, to, 1 << 40, false));
        let plan = CopyPlan::new(&src, blocks, &dst, blocks, .., ..).unwrap();
        (plan.pieces_count(), plan.smallest_piece(), plan.largest_piece())
    };
    use Arrangement::{BlockFirst, FullyContiguous, OuterFirst, TokenMajor};
    let (row, page) = (8, 4 * 4 * 8);
    let one = [BlockId(3)];
    assert_eq!(plan(FullyContiguous, CONFIG, FullyContiguous, CONFIG, &one), (1, 6 * page, 6 * page));
    assert_eq!(plan(OuterFirst, CONFIG, FullyContiguous, CONFIG, &one), (6, page, page));
    assert_eq!(plan(BlockFirst, CONFIG, FullyContiguous, CONFIG, &one), (3, 2 * page, 2 * page));
    assert_eq!(plan(TokenMajor, CONFIG, FullyContiguous, CONFIG, &one), (6, page, page));
    let hnd = CONFIG.head_order(HeadOrder::Hnd);
    assert_eq!(plan(OuterFirst, CONFIG, FullyContiguous, hnd, &one), (6 * 16, row, row));
    let (some, all) = ([2, 3, 6].map(BlockId), [0, 1, 2, 3, 4, 5, 6, 7].map(BlockId));
    assert_eq!(plan(BlockFirst, CONFIG, BlockFirst, CONFIG, &some), (6, 2 * page, 4 * page));
    assert_eq!(plan(OuterFirst, CONFIG, OuterFirst, CONFIG, &all), (3, 16 * page, 16 * page));
    assert_eq!(plan(FullyContiguous, CONFIG, FullyContiguous, CONFIG, &all), (1, 48 * page, 48 * page));
    let mut back = all;
    back.reverse();
    assert_eq!(plan(FullyContiguous, CONFIG, FullyContiguous, CONFIG, &back), (1, 48 * page, 48 * page));
}

/// A plan is made anew in the memory that it has.
#[test]
fn plan_made_anew_equals_a_fresh_plan() {
    let src = laid_out(CONFIG, Arrangement::OuterFirst, 1 << 20, false);
    let dst = laid_out(CONFIG, Arrangement::FullyContiguous, 1 << 40, true);
    let (a, b) = ([0, 1, 5].map(BlockId), [7, 2, 3].map(BlockId));
    let mut plan = CopyPlan::new(&src, &a, &dst, &b, .., ..).unwrap();
    plan.replan(&b, &a).unwrap();
    let fresh = CopyPlan::new(&src, &b, &dst, &a, .., ..).unwrap();
    assert!(plan.pieces().eq(fresh.pieces()));
    assert!(plan.replan(&b, &[BlockId(1), BlockId(1), BlockId(0)]).is_err());
    assert_eq!(
        (plan.pieces().count(), plan.bytes(), plan.pieces_count(), plan.smallest_piece()),
        (0, 0, 0, 0)
    );
    plan.replan(&[], &[]).unwrap();
    assert_eq!((plan.pieces().next(), plan.families().next(), plan.alignment()), (None, None, 16));
}

/// Neighbouring blocks are a loop like others: a whole pool's slice of heads is one family, and the
/// destination is written upwards.
#[test]
fn plan_runs_of_blocks_become_loops() {
    let all = [0, 1, 2, 3, 4, 5, 6, 7].map(BlockId);
    let tier = laid_out(CONFIG, Arrangement::FullyContiguous, 1 << 20, true);
    let rank = laid_out(CONFIG.num_heads(1), Arrangement::FullyContiguous, 1 << 40, true);
    let plan =
        CopyPlan::new(&tier, &all, &rank, &all, .., Slice::Moved { src: 2, dst: 0, count: 1 }).unwrap();
    let family = plan.families().next().unwrap();
    assert_eq!((plan.families().count(), family.count), (1, 8 * 3 * 2 * 4));
    let engine = laid_out(CONFIG, Arrangement::OuterFirst, 1 << 40, true);
    let plan = CopyPlan::new(&tier, &all[..3], &engine, &all[..3], .., ..).unwrap();
    assert!(plan.pieces().map(|piece| piece.dst).is_sorted());
}
