use super::*;
use crate::layout::tensors::{Axis, Tensor};
use crate::layout::tests::{geometries, regions, rows};
use crate::layout::{Arrangement, DType, HeadOrder, LayoutConfig, Region, ScalePlace};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

fn laid_out(config: LayoutConfig, arrangement: Arrangement) -> Option<Layout> {
    arrangement.needs(&config).ok()?;
    Layout::new(config, arrangement, &regions(&config, arrangement)).ok()
}

/// A choice of tensors: which tensors there are, the order of their dimensions, gaps behind each dimension.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    layers_apart: bool,
    outers_apart: bool,
    order: Vec<Axis>,
    gaps: [u64; 5],
}

pub(crate) fn choices() -> impl Strategy<Value = Choice> {
    let axes = vec![Axis::Block, Axis::Layer, Axis::Outer, Axis::Token, Axis::Head];
    let parts = (any::<bool>(), any::<bool>(), Just(axes).prop_shuffle(), [0u64..3, 0..2, 0..2, 0..2, 0..2]);
    parts.prop_map(|(layers_apart, outers_apart, order, gaps)| Choice {
        layers_apart,
        outers_apart,
        order,
        gaps,
    })
}

/// Tensors by the choices, each in a region of its own; scales in tensors of their own if there is a
/// second choice.
pub(crate) fn of_tensors(config: LayoutConfig, data: &Choice, scales: Option<&Choice>) -> Layout {
    let scales = scales.filter(|_| config.row_scale_bytes() > 0);
    let in_row = if scales.is_none() { config.row_scale_bytes() } else { 0 };
    let element = if config.dtype.bits() < 8 { 1 } else { config.dtype.alignment() };
    let mut parts = Vec::new();
    for (choice, row, element) in [(data, config.row_data_bytes() + in_row, element)]
        .into_iter()
        .chain(scales.map(|choice| (choice, config.row_scale_bytes(), 1)))
    {
        let (mut dims, mut shape, mut strides) = (vec![Axis::Element], vec![row / element], vec![1]);
        let mut stride = row / element;
        for (axis, gap) in choice.order.iter().zip(choice.gaps) {
            let count = match axis {
                Axis::Layer if choice.layers_apart => continue,
                Axis::Outer if choice.outers_apart => continue,
                Axis::Block => config.num_blocks,
                Axis::Layer => config.num_layers,
                Axis::Outer => config.outer_dim,
                Axis::Token => config.page_size,
                _ => config.num_heads,
            };
            dims.push(*axis);
            shape.push(u64::from(count));
            strides.push(stride);
            stride = stride * u64::from(count) + gap;
        }
        let tensors = (if choice.layers_apart { config.num_layers } else { 1 })
            * (if choice.outers_apart { config.outer_dim } else { 1 });
        parts.push((dims, shape, strides, stride * element, tensors));
    }
    let mut at = 0;
    let mut tensors = Vec::new();
    for (dims, shape, strides, bytes, count) in &parts {
        for _ in 0..*count {
            at += 4096;
            tensors.push(Tensor { region: Region::system(at, *bytes), dims, shape, strides });
            at = (at + bytes).next_multiple_of(4096);
        }
    }
    let (data, scales) = tensors.split_at(parts[0].4 as usize);
    Layout::from_tensors(config, data, scales).unwrap()
}

/// A layout of either kind.
pub(crate) fn layouts() -> impl Strategy<Value = Layout> {
    let tensors = (geometries(), choices(), prop::option::of(choices()));
    prop_oneof![
        geometries().prop_filter_map("overlaps", |(config, arrangement)| laid_out(config, arrangement)),
        tensors.prop_map(|((config, _), data, scales)| of_tensors(config, &data, scales.as_ref())),
    ]
}

/// Region and offset of each element's first bit, and of its scale, element by element; by addresses alone.
fn map(layout: &Layout) -> Vec<[(usize, u64); 2]> {
    let config = layout.config();
    let find = |address: u64| {
        let inside =
            |region: &Region| region.address <= address && address < region.address + region.size_bytes;
        let number = layout.regions().iter().position(inside).unwrap();
        (number, (address - layout.regions()[number].address) * 8)
    };
    let group = config.dtype.scale().map_or(u32::MAX, |scale| scale.group);
    let mut map = Vec::new();
    for index in rows(config) {
        let (region, bits) = find(layout.address(index).unwrap());
        let scales = match layout.scales_address(index).unwrap() {
            Some(address) => Some(find(address)),
            None if config.row_scale_bytes() > 0 => Some((region, bits + config.row_data_bytes() * 8)),
            None => None,
        };
        for element in 0..config.head_size {
            let at = bits + u64::from(element * config.dtype.bits());
            let scale =
                scales.map_or((0, 0), |(region, bits)| (region, bits + u64::from(element / group) * 8));
            map.push([(region, at), scale]);
        }
    }
    map
}

/// The meaning of a layout's bytes: the type, the shape of the index, the map.
fn meaning(layout: &Layout) -> impl PartialEq + core::fmt::Debug {
    let config = layout.config();
    let [blocks, layers, outers, tokens, heads] = config.shape();
    (config.dtype, [blocks, layers, outers, tokens, heads * config.head_size], map(layout))
}

/// The meaning of the last block, with its bytes in one piece: for each element, the
/// number of bits before it.
fn block_meaning(layout: &Layout) -> impl PartialEq + core::fmt::Debug {
    let config = layout.config();
    let [blocks, layers, outers, tokens, heads] = config.shape();
    let mut map = map(layout);
    let of_block = map.len() / blocks as usize;
    let map = map.split_off(map.len() - of_block);
    let bits = |part: usize| if part == 0 { u64::from(config.dtype.bits()) } else { 8 };
    let parts = if config.row_scale_bytes() > 0 { 2 } else { 1 };
    let mut all: Vec<_> = map.iter().flat_map(|at| (0..parts).map(|part| (at[part], bits(part)))).collect();
    all.sort_unstable();
    all.dedup(); // elements share scales
    let mut before = 0;
    let mut dense = Vec::new();
    for (at, bits) in all {
        dense.push((at, before));
        before += bits;
    }
    let place = |at| dense[dense.binary_search_by_key(&at, |(at, _)| *at).unwrap()].1;
    let map: Vec<_> =
        map.iter().map(|at| [place(at[0]), if parts == 2 { place(at[1]) } else { 0 }]).collect();
    (config.dtype, [layers, outers, tokens, heads * config.head_size], map)
}

/// A geometry one change away.
fn near(
    (config, arrangement): (LayoutConfig, Arrangement),
    change: u32,
    other: u32,
) -> (LayoutConfig, Arrangement) {
    let mut config = config;
    let mut arrangement = arrangement;
    match change {
        0 => config.num_blocks = other % 4 + 1,
        1 => config.num_layers = other % 3 + 1,
        2 => config.outer_dim = other % 2 + 1,
        3 => config.page_size = other % 4 + 1,
        4 => config = config.heads(config.head_size, config.num_heads),
        5 => config = config.heads(1, config.num_heads * config.head_size),
        6 if config.head_size % 2 == 0 => config = config.heads(config.num_heads * 2, config.head_size / 2),
        7 => config.dtype = DType::ALL[other as usize % 9],
        8 => config.alignment = config.dtype.alignment() << (other % 8),
        9 => config.head_order = if other.is_multiple_of(2) { HeadOrder::Nhd } else { HeadOrder::Hnd },
        10 => config.scales = if other.is_multiple_of(2) { ScalePlace::Row } else { ScalePlace::Page },
        11 => arrangement = Arrangement::ALL[other as usize % 7],
        _ => {}
    }
    (config, arrangement)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 768 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Fingerprints are equal exactly if bytes mean the same.
    #[test]
    fn fingerprint_changes_exactly_when_bytes_would(geometry in geometries(), changes in [(0u32..12, any::<u32>()), (0u32..13, any::<u32>())]) {
        let other = changes.into_iter().fold(geometry, |geometry, (change, other)| near(geometry, change, other));
        let (Some(a), Some(b)) = (laid_out(geometry.0, geometry.1), laid_out(other.0, other.1)) else { return Ok(()) };
        prop_assert_eq!(a.fingerprint() == b.fingerprint(), meaning(&a) == meaning(&b));
        prop_assert_eq!(a.block_fingerprint() == b.block_fingerprint(), block_meaning(&a) == block_meaning(&b));
    }

    /// The same between arrangements and tensors, and between tensors.
    #[test]
    fn fingerprint_changes_exactly_when_tensors_do(
        geometry in geometries(),
        first in (choices(), prop::option::of(choices())),
        second in prop::option::of((choices(), prop::option::of(choices()))),
        change in (0u32..13, any::<u32>()),
    ) {
        let a = of_tensors(geometry.0, &first.0, first.1.as_ref());
        let other = near(geometry, change.0, change.1);
        if other.0.validate().is_err() {
            return Ok(());
        }
        let of_other = |data: &Choice, scales: Option<&Choice>| Some(of_tensors(other.0, data, scales));
        let (mut data, mut scales) = first;
        let gaps = if change.1 & 4 == 0 { &mut data.gaps } else { &mut scales.get_or_insert(data.clone()).gaps };
        gaps[change.1 as usize / 8 % 5] += u64::from(change.1 & 2);
        let first = (data, scales);
        let b = match (&second, change.1 % 2) {
            (Some((data, scales)), _) => of_other(data, scales.as_ref()),
            (None, 0) => of_other(&first.0, first.1.as_ref()),
            (None, _) => laid_out(other.0, other.1),
        };
        let Some(b) = b else { return Ok(()) };
        prop_assert_eq!(a.fingerprint() == b.fingerprint(), meaning(&a) == meaning(&b));
        prop_assert_eq!(a.block_fingerprint() == b.block_fingerprint(), block_meaning(&a) == block_meaning(&b));
    }

    /// The ranges of a block are all of its bytes, in order, and no two of them could be one.
    #[test]
    fn ranges_of_a_block_cover_its_bytes_in_order(layout in layouts()) {
        let config = layout.config();
        for block in 0..config.num_blocks {
            let mut bytes = Vec::new();
            for index in rows(config).filter(|index| index[0] == block) {
                let mut put = |address: u64, count: u64| {
                    let inside = |region: &Region| region.address <= address && address < region.address + region.size_bytes;
                    let region = layout.regions().iter().position(inside).unwrap() as u32;
                    bytes.extend((address..address + count).map(|address| (region, address)));
                };
                put(layout.address(index).unwrap(), layout.row_bytes());
                if let Some(address) = layout.scales_address(index).unwrap() {
                    put(address, config.row_scale_bytes());
                }
            }
            bytes.sort_unstable();
            let ranges: Vec<_> = layout.block(block).unwrap().ranges().collect();
            let listed: Vec<_> = ranges
                .iter()
                .flat_map(|range| (range.address..range.address + range.size_bytes).map(|address| (range.region, address)))
                .collect();
            prop_assert_eq!(&listed, &bytes);
            let apart = |pair: &[crate::layout::ByteRange]| {
                pair[0].region != pair[1].region || pair[0].address + pair[0].size_bytes < pair[1].address
            };
            prop_assert!(ranges.windows(2).all(apart));
            prop_assert_eq!(listed.len() as u64, layout.block(block).unwrap().bytes());
        }
    }
}

/// Llama-3-70B's, as the tier has it.
const LLAMA: LayoutConfig = LayoutConfig::new()
    .num_blocks(4)
    .num_layers(80)
    .outer_dim(2)
    .page_size(16)
    .heads(8, 128)
    .dtype(DType::BF16)
    .alignment(4096);

#[test]
fn fingerprint_ignores_settings_that_move_no_byte() {
    let layout = laid_out(LLAMA, Arrangement::FullyContiguous).unwrap();
    let same = [
        laid_out(LLAMA.alignment(2), Arrangement::FullyContiguous),
        laid_out(LLAMA, Arrangement::CrossLayer),
        laid_out(LLAMA.heads(1, 1024), Arrangement::FullyContiguous),
        laid_out(LLAMA.scales(ScalePlace::Page), Arrangement::FullyContiguous),
    ];
    for other in same.into_iter().flatten() {
        assert_eq!(other.fingerprint(), layout.fingerprint());
    }
    let region =
        Region { address: 1 << 40, size_bytes: u64::MAX >> 2, kind: crate::StorageKind::Disk { volume: 1 } };
    let elsewhere = Layout::fully_contiguous(LLAMA, region).unwrap();
    assert_eq!(elsewhere.fingerprint(), layout.fingerprint());
    let other = [
        laid_out(LLAMA.dtype(DType::F16), Arrangement::FullyContiguous),
        laid_out(LLAMA.num_blocks(5), Arrangement::FullyContiguous),
        laid_out(LLAMA, Arrangement::BlockFirst),
        laid_out(LLAMA.head_order(HeadOrder::Hnd), Arrangement::FullyContiguous),
    ];
    for other in other.into_iter().flatten() {
        assert_ne!(other.fingerprint(), layout.fingerprint());
    }
    let engine = laid_out(LLAMA.alignment(2).num_blocks(9), Arrangement::OuterFirst).unwrap();
    assert_eq!(engine.block_fingerprint(), layout.block_fingerprint(), "layer by layer, K then V");
    let packed = laid_out(LLAMA, Arrangement::Packed).unwrap();
    assert_ne!(packed.block_fingerprint(), layout.block_fingerprint());
}

/// Made by the reference implementation of XXH3 from the byte strings of the module's header.
#[test]
fn fingerprint_matches_the_fixed_vectors() {
    let nvfp4 = LLAMA.dtype(DType::NvFp4).scales(ScalePlace::Page).alignment(16);
    let mla =
        LayoutConfig::new().num_blocks(3).num_layers(61).page_size(64).inner_dim(576).dtype(DType::BF16);
    for (config, arrangement, whole, block) in [
        (
            LLAMA,
            Arrangement::FullyContiguous,
            "c924a56a9a800c36611f498d945008f6",
            "c4cddb23546956b05420f9aa5f449341",
        ),
        (
            LLAMA.head_order(HeadOrder::Hnd),
            Arrangement::CrossLayer,
            "8f519a90dc5cbafb29bb044c9afa29e8",
            "055af443d6b099593d691ac31002bc62",
        ),
        (
            LLAMA,
            Arrangement::OuterFirst,
            "e833c531a545d3f5f9ed1521fc853f1e",
            "c4cddb23546956b05420f9aa5f449341",
        ),
        (
            nvfp4,
            Arrangement::BlockFirst,
            "13dc642831b02762a5d774fb10780cd7",
            "7d236be13afb254edd4ea0e5f8f29d4d",
        ),
        (
            mla.alignment(2),
            Arrangement::BlockFirst,
            "420a7ac3c5e80402cba657ed40a073de",
            "3286ff11616e0a5bc1459446b77488fa",
        ),
    ] {
        let layout = laid_out(config, arrangement).unwrap();
        assert_eq!(
            [layout.fingerprint(), layout.block_fingerprint()].map(|it| it.to_string()),
            [whole, block]
        );
        let again = Fingerprint::from_bytes(layout.fingerprint().to_bytes());
        assert_eq!(Fingerprint::from_u128(again.to_u128()), layout.fingerprint());
    }
}

/// Regions that touch are two regions.
#[test]
fn ranges_of_touching_regions_stay_apart() {
    let config = LayoutConfig::new().num_layers(3).page_size(4);
    let layout =
        Layout::new(config, Arrangement::BlockFirst, &[64, 68, 72].map(|at| Region::system(at, 4))).unwrap();
    let ranges: Vec<_> = layout
        .block(0)
        .unwrap()
        .ranges()
        .map(|range| (range.region, range.address, range.size_bytes))
        .collect();
    assert_eq!(ranges, [(0, 64, 4), (1, 68, 4), (2, 72, 4)]);
    let one = Layout::fully_contiguous(config, Region::system(64, 12)).unwrap();
    assert_eq!(one.block(0).unwrap().ranges().count(), 1);
}
