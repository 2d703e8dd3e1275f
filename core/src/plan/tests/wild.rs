//! Plans between any two layouts: arrangements and tensors, other blocks, layers and heads on either side,
//! heads in one row, scales anywhere, parts of parts. Compared with a map from the layouts' own addresses.

use super::laid_out;
use crate::id::BlockId;
use crate::layout::fingerprint::tests::{Choice, choices, of_tensors};
use crate::layout::tests::geometries;
use crate::layout::{Arrangement, HeadOrder, Layout, LayoutConfig, ScalePlace};
use crate::plan::{CopyPlan, Piece, PlanError, Slice, naive};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::num::{NonZeroU32, NonZeroU64};
use proptest::prelude::*;

/// Destination bytes, and the source of each.
type Moves = BTreeMap<u64, u64>;

/// A slice: source, destination, count.
type Part = (u32, u32, u32);

fn moves(
    (src, src_blocks): (&Layout, &[BlockId]),
    (dst, dst_blocks): (&Layout, &[BlockId]),
    layers: Part,
    heads: Part,
) -> Moves {
    let (from, to) = (src.config(), dst.config());
    let size = from.head_size.min(to.head_size);
    let data = u64::from(size) * u64::from(from.dtype.bits()) / 8;
    let scales = from.dtype.scale().map_or(0, |scale| u64::from(size / scale.group));
    // Elements and scales of a head that may be one of several in a row.
    let row = |layout: &Layout, [block, layer, outer, token, head]: [u32; 5]| {
        let in_row = layout.config().head_size / size;
        let index = [block, layer, outer, token, head / in_row];
        let elements = layout.address(index).unwrap() + u64::from(head % in_row) * data;
        [elements, layout.scales_address(index).unwrap().unwrap_or(elements + data)]
    };
    let mut moves = Moves::new();
    for (src_block, dst_block) in src_blocks.iter().zip(dst_blocks) {
        for at in 0..layers.2 * from.outer_dim * from.page_size * heads.2 {
            let (head, rest) = (at % heads.2, at / heads.2);
            let (token, rest) = (rest % from.page_size, rest / from.page_size);
            let (outer, layer) = (rest % from.outer_dim, rest / from.outer_dim);
            let of_src = row(src, [src_block.0, layers.0 + layer, outer, token, heads.0 + head]);
            let of_dst = row(dst, [dst_block.0, layers.1 + layer, outer, token, heads.1 + head]);
            for (part, bytes) in [data, scales].into_iter().enumerate() {
                for i in 0..bytes {
                    assert_eq!(moves.insert(of_dst[part] + i, of_src[part] + i), None);
                }
            }
        }
    }
    moves
}

fn of_plan(plan: &CopyPlan) -> Moves {
    let mut moves = Moves::new();
    for piece in plan.pieces() {
        for i in 0..piece.bytes {
            assert_eq!(moves.insert(piece.dst + i, piece.src + i), None, "twice");
        }
    }
    moves
}

/// Turns the loops as a kernel does.
fn of_loops(plan: &CopyPlan) -> Moves {
    let mut moves = Moves::new();
    for plane in plan.planes() {
        let mut turns = vec![[0u64; 2]];
        for l in plane.nest().loops() {
            let step = |by: u64| [by.wrapping_mul(l.src_stride), by.wrapping_mul(l.dst_stride)];
            let turned = |at: [u64; 2]| {
                (0..u64::from(l.count))
                    .map(step)
                    .map(move |by| [0, 1].map(|side| at[side].wrapping_add(by[side])))
            };
            turns = turns.into_iter().flat_map(turned).collect();
        }
        let strides = plane.block_strides();
        for run in plan.runs() {
            for block in (0..run.len).map(|i| [run.src + i, run.dst + i]) {
                for (base, turn) in
                    plane.bases().iter().flat_map(|base| turns.iter().map(move |turn| (base, turn)))
                {
                    let at =
                        [0, 1].map(|side| base[side] + u64::from(block[side]) * strides[side] + turn[side]);
                    for i in 0..plane.nest().piece_bytes() {
                        assert_eq!(moves.insert(at[1] + i, at[0] + i), None, "twice");
                    }
                }
            }
        }
    }
    moves
}

/// Checks the plan's bytes and all its facts, from any place of its iteration.
fn check(plan: &CopyPlan, wanted: &Moves, seed: u64) {
    assert_eq!(&of_plan(plan), wanted);
    assert_eq!(&of_loops(plan), wanted);
    let pieces: Vec<Piece> = plan.pieces().collect();
    assert_eq!((plan.pieces_count(), plan.bytes()), (pieces.len() as u64, wanted.len() as u64));
    for taken in [0, 1, 2, seed as usize % (pieces.len() + 1), pieces.len()] {
        let mut rest = plan.pieces();
        let taken = rest.by_ref().take(taken).count();
        assert_eq!(rest.size_hint(), (pieces.len() - taken, Some(pieces.len() - taken)));
        assert!(rest.clone().eq(pieces[taken..].iter().copied()));
        let folded = rest.fold(Vec::new(), |mut folded, piece| {
            folded.push(piece);
            folded
        });
        assert_eq!(folded, pieces[taken..]);
    }
}

/// A recipe for a layout of a geometry: tensors or an arrangement, orders, blocks, layers,
/// heads, heads in one row, alignment.
#[derive(Clone, Debug)]
struct Recipe {
    tensors: Option<(Choice, Option<Choice>)>,
    arrangement: usize,
    flips: [bool; 3],
    blocks: u32,
    layers: u32,
    heads: u32,
    alignment: u32,
}

fn recipes() -> impl Strategy<Value = Recipe> {
    let tensors = proptest::option::of((choices(), proptest::option::of(choices())));
    (tensors, 0usize..7, any::<[bool; 3]>(), 1u32..5, 1u32..4, 1u32..6, 0u32..6).prop_map(
        |(tensors, arrangement, flips, blocks, layers, heads, alignment)| Recipe {
            tensors,
            arrangement,
            flips,
            blocks,
            layers,
            heads,
            alignment,
        },
    )
}

impl Recipe {
    /// A layout of the geometry's rows, pages and outer dimension.
    fn layout(&self, config: &LayoutConfig) -> Option<Layout> {
        let [hnd, page_scales, in_row] = self.flips;
        let mut config = config.num_blocks(self.blocks).num_layers(self.layers).num_heads(self.heads);
        if in_row && config.dtype.scale().is_none() {
            config = config.inner_dim(config.head_size * self.heads);
        }
        config.alignment = config.dtype.alignment() << self.alignment;
        config.head_order = if hnd { HeadOrder::Hnd } else { HeadOrder::Nhd };
        config.scales = if page_scales { ScalePlace::Page } else { ScalePlace::Row };
        match &self.tensors {
            Some((data, scales)) => Some(of_tensors(config, data, scales.as_ref())),
            None => {
                let arrangement = Arrangement::ALL[self.arrangement];
                arrangement.needs(&config).ok()?;
                Some(laid_out(config, arrangement, 1 << 20, hnd ^ page_scales))
            }
        }
    }
}

/// Two layouts between which a plan is possible, and the number of heads of each.
fn two(config: &LayoutConfig, recipes: [&Recipe; 2]) -> Option<([Layout; 2], [u32; 2])> {
    let [src, dst] = [recipes[0].layout(config)?, recipes[1].layout(config)?];
    let (from, to) = (*src.config(), *dst.config());
    if from.dtype != to.dtype || from.outer_dim != to.outer_dim || from.page_size != to.page_size {
        return None;
    }
    let size = from.head_size.min(to.head_size);
    let heads = [from, to].map(|config| config.num_heads * (config.head_size / size));
    let whole = [from, to].iter().all(|config| config.head_size == size || config.num_heads == 1);
    let divides = from.head_size.is_multiple_of(size) && to.head_size.is_multiple_of(size);
    (whole && divides).then_some(([src, dst], heads))
}

fn part(of_src: u32, of_dst: u32, pick: &[u32]) -> Part {
    let count = 1 + pick[0] % of_src.min(of_dst);
    (pick[1] % (of_src - count + 1), pick[2] % (of_dst - count + 1), count)
}

fn slice((src, dst, count): Part) -> Slice {
    Slice::Moved { src, dst, count }
}

/// Blocks of both sides, each destination once.
fn lists(blocks: &[(u32, u32)], layouts: [&Layout; 2]) -> [Vec<BlockId>; 2] {
    let [of_src, of_dst] = layouts.map(|layout| layout.config().num_blocks);
    let mut taken = BTreeSet::new();
    let pairs = blocks.iter().filter(|(_, dst)| taken.insert(dst % of_dst));
    pairs
        .map(|(src, dst)| (BlockId(src % of_src), BlockId(dst % of_dst)))
        .unzip::<_, _, Vec<_>, Vec<_>>()
        .into()
}

/// The layout, `by` bytes further.
fn moved(layout: &Layout, by: u64) -> Option<Layout> {
    let addresses: Vec<u64> = layout.regions().iter().map(|region| region.address + by).collect();
    layout.relocated(&addresses).ok()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 512 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Between any two layouts, and in parts of parts.
    #[test]
    fn plan_between_any_layouts_matches_the_oracle(
        (config, _) in geometries(),
        recipes in [recipes(), recipes()],
        blocks in proptest::collection::vec(any::<(u32, u32)>(), 0..6),
        picks in any::<[u32; 6]>(),
        seed in any::<u64>(),
    ) {
        let Some(([src, dst], heads)) = two(&config, [&recipes[0], &recipes[1]]) else { return Ok(()) };
        let dst = moved(&dst, 1 << 40).expect("there is room");
        let layers = part(src.config().num_layers, dst.config().num_layers, &picks[..3]);
        let heads = part(heads[0], heads[1], &picks[3..]);
        let [of_src, of_dst] = lists(&blocks, [&src, &dst]);
        let plan = CopyPlan::new(&src, &of_src, &dst, &of_dst, slice(layers), slice(heads)).unwrap();
        let wanted = moves((&src, &of_src), (&dst, &of_dst), layers, heads);
        check(&plan, &wanted, seed);

        let (mut naively, last) = (Moves::new(), Cell::new(0));
        naive::copy((&src, &of_src), (&dst, &of_dst), slice(layers), slice(heads), |at| { last.set(at); 0 }, |at, _| {
            naively.insert(at, last.get());
        });
        prop_assert_eq!(&naively, &wanted);

        let up_to = |n: u32| NonZeroU32::new(n).unwrap();
        let bytes = |n: u64| NonZeroU64::new(n).unwrap();
        let mut together = Moves::new();
        for plan in plan.split_bytes(bytes(1 + seed % 700)) {
            for plan in plan.split_layers(up_to(1 + picks[0] % 2)) {
                for plan in plan.split_blocks(up_to(1 + picks[1] % 2)) {
                    for plan in plan.split_bytes(bytes(1 + seed % 37)) {
                        for (to, from) in of_plan(&plan) {
                            prop_assert_eq!(together.insert(to, from), None, "in two parts");
                        }
                    }
                }
            }
        }
        prop_assert_eq!(together, wanted);
    }

    /// Two layouts over one memory: refused exactly if a byte would be read and written.
    #[test]
    fn plan_over_one_memory_refuses_exactly_the_overlaps(
        (config, _) in geometries(),
        recipes in [recipes(), recipes()],
        blocks in proptest::collection::vec(any::<(u32, u32)>(), 1..4),
        picks in any::<[u32; 6]>(),
        by in 0u64..3000,
    ) {
        let Some(([src, dst], heads)) = two(&config, [&recipes[0], &recipes[1]]) else { return Ok(()) };
        let aligned = src.config().alignment.max(dst.config().alignment);
        let distance = src.regions()[0].address.wrapping_sub(dst.regions()[0].address);
        let by = distance.wrapping_add(by / aligned * aligned) / aligned * aligned;
        let addresses: Vec<u64> = dst.regions().iter().map(|region| region.address.wrapping_add(by)).collect();
        let Ok(dst) = dst.relocated(&addresses) else { return Ok(()) };
        let layers = part(src.config().num_layers, dst.config().num_layers, &picks[..3]);
        let heads = part(heads[0], heads[1], &picks[3..]);
        let [of_src, of_dst] = lists(&blocks, [&src, &dst]);
        let wanted = moves((&src, &of_src), (&dst, &of_dst), layers, heads);
        let read: BTreeSet<u64> = wanted.values().copied().collect();
        let meet = wanted.keys().any(|at| read.contains(at));
        match CopyPlan::new(&src, &of_src, &dst, &of_dst, slice(layers), slice(heads)) {
            Ok(_) => prop_assert!(!meet),
            Err(PlanError::Overlap { address }) => {
                prop_assert!(read.contains(&address) && wanted.contains_key(&address));
            }
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}
