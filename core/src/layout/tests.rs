use super::tensors::{Axis, Tensor};
use super::*;
use crate::storage::StorageKind;
use alloc::string::ToString;
use alloc::vec::Vec;
use proptest::prelude::*;

pub(crate) const SMALL: LayoutConfig = LayoutConfig::new()
    .num_blocks(3)
    .num_layers(2)
    .outer_dim(2)
    .page_size(4)
    .heads(5, 8)
    .dtype(DType::BF16)
    .alignment(64);

/// The regions that a geometry needs, each at a page of its own.
pub(crate) fn regions(config: &LayoutConfig, arrangement: Arrangement) -> Vec<Region> {
    let need = arrangement.needs(config).unwrap();
    let step = (need.bytes + 4096).next_multiple_of(4096.max(config.alignment));
    (1..=u64::from(need.count)).map(|i| Region::system(i * step, need.bytes)).collect()
}

pub(crate) fn laid_out(config: LayoutConfig, arrangement: Arrangement) -> Layout {
    Layout::new(config, arrangement, &regions(&config, arrangement)).unwrap()
}

#[test]
fn layout_of_llama_70b_has_the_known_block_bytes() {
    // 80 layers × 2 (K, V) × 16 tokens × 8 heads × 128 × 2 bytes.
    let config = LayoutConfig::new()
        .num_layers(80)
        .outer_dim(2)
        .page_size(16)
        .heads(8, 128)
        .dtype(DType::BF16)
        .alignment(2);
    assert_eq!(config.block_bytes(), Ok(80 * 2 * 16 * 8 * 128 * 2));
    assert_eq!(config.block_bytes(), Ok(5_242_880));
    let quarter = config.heads(2, 128);
    assert_eq!(quarter.block_bytes(), Ok(5_242_880 / 4), "one rank of four");
}

#[test]
fn layout_strides_match_the_reference() {
    let layout = laid_out(SMALL, Arrangement::FullyContiguous);
    let strides = Dim::ALL.map(|dim| layout.stride(dim).unwrap());
    assert_eq!(strides, [1280, 640, 320, 80, 16], "1280 = align_up(2 × 640, 64)");
    assert_eq!((layout.row_bytes(), layout.block_bytes()), (16, 1280));
    let padded = laid_out(SMALL.alignment(4096), Arrangement::FullyContiguous);
    assert_eq!((padded.stride(Dim::Block), padded.block_bytes()), (Some(4096), 1280));
}

/// The shapes that engines allocate, index by index.
#[test]
fn layout_addresses_match_engine_shapes() {
    let config = SMALL.alignment(2);
    let [b, l, o, t, h] = [2u64, 1, 1, 3, 4];
    let index = [2, 1, 1, 3, 4];
    let (blocks, layers, page, heads, row) = (3, 2, 4, 5, 16);
    let at = |arrangement, order| {
        let config = config.head_order(order);
        let layout = laid_out(config, arrangement);
        let region = match arrangement.needs(&config).unwrap().count {
            1 => 0,
            2 => 1,
            _ => 3,
        };
        layout.address(index).unwrap() - layout.regions()[region].address
    };
    use Arrangement::*;
    use HeadOrder::*;
    // vLLM FlashAttention: [2][blocks][page][heads][size].
    assert_eq!(at(OuterFirst, Nhd), (((o * blocks + b) * page + t) * heads + h) * row);
    assert_eq!(at(OuterFirst, Hnd), (((o * blocks + b) * heads + h) * page + t) * row);
    // vLLM FlashInfer: [blocks][2][page][heads][size].
    assert_eq!(at(BlockFirst, Nhd), (((b * 2 + o) * page + t) * heads + h) * row);
    assert_eq!(at(BlockFirst, Hnd), (((b * 2 + o) * heads + h) * page + t) * row);
    // vLLM since #44455: [blocks][page][heads][2 × size], HND [blocks][heads][page][2 × size].
    assert_eq!(at(Packed, Nhd), (((b * page + t) * heads + h) * 2 + o) * row);
    assert_eq!(at(Packed, Hnd), (((b * heads + h) * page + t) * 2 + o) * row);
    // SGLang: [blocks × page][heads][size], keys and values apart.
    assert_eq!(at(TokenMajor, Nhd), ((b * page + t) * heads + h) * row);
    // TensorRT-LLM: [blocks][layers][2][heads][page][size].
    assert_eq!(at(FullyContiguous, Hnd), ((((b * layers + l) * 2 + o) * heads + h) * page + t) * row);
    // vLLM 0.12 across layers, HND: [blocks][heads][layers][2][page][size].
    assert_eq!(at(CrossLayer, Hnd), ((((b * heads + h) * layers + l) * 2 + o) * page + t) * row);
    assert_eq!(at(CrossLayerPacked, Nhd), ((((b * layers + l) * page + t) * heads + h) * 2 + o) * row);
    assert_eq!(at(CrossLayerPacked, Hnd), ((((b * heads + h) * layers + l) * page + t) * 2 + o) * row);
    // MLA: [blocks][page][latent].
    let mla = LayoutConfig::new().num_blocks(3).num_layers(2).page_size(4).inner_dim(576).dtype(DType::BF16);
    let layout = laid_out(mla.alignment(2), BlockFirst);
    assert_eq!(layout.address([2, 1, 0, 3, 0]).unwrap() - layout.regions()[1].address, (2 * 4 + 3) * 576 * 2);
}

#[test]
fn packed_types_have_scales_beside_rows_or_pages() {
    let config = SMALL.heads(5, 32).alignment(1);
    let row = config.dtype(DType::NvFp4);
    assert_eq!((row.row_data_bytes(), row.row_scale_bytes()), (16, 2));
    let layout = laid_out(row, Arrangement::BlockFirst);
    assert_eq!((layout.row_bytes(), layout.scales_address([0; 5])), (18, Ok(None)));
    assert_eq!(layout.block_bytes(), 2 * 2 * 4 * 5 * 18);
    // FlashInfer: [data of a page][scales of a page].
    let page = laid_out(row.scales(ScalePlace::Page), Arrangement::BlockFirst);
    let base = page.regions()[1].address;
    let (piece, b, o, t, h) = (4 * 5 * 18, 2, 1, 3, 4);
    assert_eq!(page.address([2, 1, 1, 3, 4]), Ok(base + (b * 2 + o) * piece + (t * 5 + h) * 16));
    let scales = base + (b * 2 + o) * piece + 4 * 5 * 16 + (t * 5 + h) * 2;
    assert_eq!(page.scales_address([2, 1, 1, 3, 4]), Ok(Some(scales)));
    assert_eq!(page.block_bytes(), layout.block_bytes());
    let mx = config.dtype(DType::MxFp4);
    assert_eq!((mx.row_data_bytes(), mx.row_scale_bytes()), (16, 1));
}

#[test]
fn config_refused_names_field_value_and_rule() {
    let refused = |config: LayoutConfig| config.validate().unwrap_err().to_string();
    assert_eq!(refused(SMALL.num_blocks(0)), "num_blocks = 0: must be at least 1");
    assert_eq!(refused(SMALL.num_heads(0)), "num_heads = 0: must be at least 1");
    assert_eq!(refused(SMALL.head_size(0)), "head_size = 0: must be at least 1");
    assert_eq!(refused(SMALL.outer_dim(3)), "outer_dim = 3: must be 2 (keys and values) or 1 (MLA)");
    assert_eq!(refused(SMALL.num_layers(65_537)), "num_layers = 65537: must be at most 65536");
    assert_eq!(refused(SMALL.alignment(0)), "alignment = 0: must be a power of two");
    assert_eq!(refused(SMALL.alignment(96)), "alignment = 96: must be a power of two");
    assert_eq!(
        refused(SMALL.alignment(1)),
        "alignment = 1: must be at least the 2 bytes of a bfloat16 element"
    );
    assert_eq!(
        refused(SMALL.heads(5, 24).dtype(DType::NvFp4)),
        "head_size = 24: must be a multiple of 16 for nvfp4"
    );
    let most = SMALL.page_size(u32::MAX).heads(u32::MAX, u32::MAX);
    assert_eq!(
        refused(most),
        "num_heads = 4294967295: with it the layout does not fit into 64 bits; use a smaller one"
    );
    let regions =
        |regions: &[Region]| Layout::new(SMALL, Arrangement::OuterFirst, regions).unwrap_err().to_string();
    assert_eq!(regions(&[Region::system(64, 1 << 20)]), "regions: 1 given, this layout needs 2");
    let one = Region::system(0x1_0000, 1920);
    let small = regions(&[one, Region::system(0x2_0000, 1919)]);
    assert_eq!(small, "regions[1].size_bytes = 1919: must be at least 1920");
    let askew = regions(&[one, Region::system(0x2_0020, 1920)]);
    assert_eq!(askew, "regions[1].address = 0x20020: must be a multiple of alignment = 64");
    let over = regions(&[one, Region::system(0x1_0000 + 1856, 1920)]);
    assert!(
        over.starts_with("strides: one layer follows another after 1856 bytes, but spans 1920"),
        "{over}"
    );
    let beyond = regions(&[one, Region::system(u64::MAX - 63, 1920)]);
    assert_eq!(beyond, "size_bytes = 1920: with it the layout does not fit into 64 bits; use a smaller one");
    assert_eq!(
        laid_out(SMALL, Arrangement::Packed).address([3, 0, 0, 0, 0]).unwrap_err().to_string(),
        "index [3, 0, 0, 0, 0] is outside [blocks, layers, outer, tokens, heads] = [3, 2, 2, 4, 5]"
    );
}

#[test]
fn layer_separated_refuses_layers_that_lie_together() {
    for arrangement in Arrangement::ALL {
        let regions = regions(&SMALL.alignment(2), arrangement);
        let layout = Layout::layer_separated(SMALL.alignment(2), arrangement, &regions);
        use Arrangement::{CrossLayer, CrossLayerPacked, FullyContiguous};
        let together = matches!(arrangement, FullyContiguous | CrossLayer | CrossLayerPacked);
        assert_eq!(layout.is_err(), together, "{arrangement}");
    }
    let error = Layout::layer_separated(SMALL, Arrangement::CrossLayer, &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "arrangement = cross-layer: all layers are in one region; apart they are in outer-first, block-first, packed, token-major"
    );
}

#[test]
fn layout_regions_of_two_spaces_are_refused() {
    let need = Arrangement::BlockFirst.needs(&SMALL).unwrap();
    let at = |address, kind| Region { address, size_bytes: need.bytes, kind };
    let of = |kinds: [StorageKind; 2], second| {
        let regions = [at(4096, kinds[0]), at(second, kinds[1])];
        Layout::new(SMALL, Arrangement::BlockFirst, &regions).map(drop)
    };
    let (disk, remote) = (|volume| StorageKind::Disk { volume }, |peer| StorageKind::Remote { peer });
    let device = |ordinal| StorageKind::Device { ordinal };
    let (system, pinned) = (StorageKind::System, StorageKind::Pinned);
    for second in [4096, 1 << 20] {
        assert_eq!(
            of([disk(0), disk(1)], second).unwrap_err().to_string(),
            "regions[1].kind = disk:1: a layout lies in one address space, and regions[0].kind = disk:0; make a layout for each"
        );
        for kinds in
            [[device(0), device(1)], [system, device(0)], [disk(0), remote(0)], [remote(1), remote(2)]]
        {
            let [first, kind] = kinds;
            assert_eq!(of(kinds, second), Err(LayoutError::Spaces { region: 1, kind, first }));
        }
    }
    assert_eq!(of([system, pinned], 1 << 20), Ok(()));
    assert!(matches!(of([system, pinned], 4096), Err(LayoutError::Interleaved { .. })));
    // Scales elsewhere than their elements.
    let config = LayoutConfig::new().inner_dim(32).dtype(DType::NvFp4);
    let tensor = |kind, shape, strides| Tensor {
        region: at(4096, kind),
        dims: &[Axis::Block, Axis::Token, Axis::Element],
        shape,
        strides,
    };
    let (data, scales) = ([1, 1, 16], [1, 1, 2]);
    let data = tensor(device(0), &data, &[16, 16, 1]);
    let scales = tensor(device(1), &scales, &[2, 2, 1]);
    assert_eq!(
        Layout::from_tensors(config, &[data], &[scales]).unwrap_err(),
        LayoutError::Spaces { region: 1, kind: device(1), first: device(0) }
    );
}

/// Every row of a geometry.
pub(crate) fn rows(config: &LayoutConfig) -> impl Iterator<Item = Index> {
    let [blocks, layers, outers, tokens, heads] = config.shape();
    let outer = (0..blocks).flat_map(move |b| (0..layers).map(move |l| (b, l)));
    let outer = outer.flat_map(move |(b, l)| (0..outers).map(move |o| [b, l, o]));
    outer.flat_map(move |[b, l, o]| (0..tokens).flat_map(move |t| (0..heads).map(move |h| [b, l, o, t, h])))
}

/// Any small geometry, and an arrangement that accepts it.
pub(crate) fn geometries() -> impl Strategy<Value = (LayoutConfig, Arrangement)> {
    let sizes = (1u32..5, 1u32..4, 1u32..3, 1u32..5, 1u32..4, 1u32..3);
    (sizes, 0usize..9, 0u32..8, any::<bool>(), any::<bool>(), 0usize..7).prop_filter_map(
        "an arrangement that cannot have it",
        |((blocks, layers, outers, page, heads, size), dtype, align, hnd, scales, arrangement)| {
            let dtype = DType::ALL[dtype];
            let group = dtype.scale().map_or(1, |scale| scale.group);
            let config = LayoutConfig {
                num_blocks: blocks,
                num_layers: layers,
                outer_dim: outers,
                page_size: page,
                num_heads: heads,
                head_size: size * group,
                dtype,
                alignment: dtype.alignment() << align,
                head_order: if hnd { HeadOrder::Hnd } else { HeadOrder::Nhd },
                scales: if scales { ScalePlace::Page } else { ScalePlace::Row },
            };
            let arrangement = Arrangement::ALL[arrangement];
            arrangement.needs(&config).ok().map(|_| (config, arrangement))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 512 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// I1 to I3: rows lie in regions and share no byte; blocks are aligned.
    #[test]
    fn layout_rows_lie_in_regions_and_share_no_byte((config, arrangement) in geometries()) {
        let layout = laid_out(config, arrangement);
        let mut taken = Vec::new();
        for index in rows(&config) {
            let at = layout.address(index).unwrap();
            taken.push((at, at + layout.row_bytes()));
            if let Some(at) = layout.scales_address(index).unwrap() {
                taken.push((at, at + config.row_scale_bytes()));
            }
            if index[1..] == [0; 4] {
                prop_assert!(at.is_multiple_of(config.alignment));
            }
        }
        taken.sort_unstable();
        prop_assert!(taken.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        let inside = |span: &(u64, u64)| layout.regions().iter().any(|region| {
            region.address <= span.0 && span.1 <= region.address + region.size_bytes
        });
        prop_assert!(taken.iter().all(inside));
        let bytes: u64 = taken.iter().map(|(start, end)| end - start).sum();
        prop_assert_eq!(bytes, layout.block_bytes() * u64::from(config.num_blocks));
        prop_assert_eq!(layout.block_bytes(), config.block_bytes().unwrap());
    }
}

#[test]
fn dtype_names_and_codes_match_the_frameworks() {
    for dtype in DType::ALL {
        assert_eq!(dtype.to_string().parse(), Ok(dtype));
        assert_eq!(DType::from_code(dtype as u8), Some(dtype));
    }
    for (name, dtype) in
        [("torch.bfloat16", DType::BF16), ("fp8_e4m3", DType::F8E4M3), ("F8_E5M2", DType::F8E5M2)]
    {
        assert_eq!(name.parse(), Ok(dtype));
    }
    assert!("int5".parse::<DType>().unwrap_err().to_string().ends_with("nvfp4, mxfp4"));
    for arrangement in Arrangement::ALL {
        assert_eq!(arrangement.to_string().parse(), Ok(arrangement));
    }
    let region = |kind| Region { address: 0, size_bytes: 1, kind };
    let device = |ordinal| region(StorageKind::Device { ordinal });
    assert!(device(1).shares_space(&device(1)) && !device(1).shares_space(&device(2)));
    assert!(region(StorageKind::Pinned).shares_space(&region(StorageKind::System)));
    let disk = |volume| region(StorageKind::Disk { volume });
    let remote = |peer| region(StorageKind::Remote { peer });
    assert!(disk(0).shares_space(&disk(0)) && !disk(0).shares_space(&disk(1)));
    assert!(remote(0).shares_space(&remote(0)) && !remote(0).shares_space(&remote(1)));
    assert!(!disk(0).shares_space(&region(StorageKind::System)) && !disk(0).shares_space(&remote(0)));
    assert!(!disk(0).shares_space(&device(0)) && !device(0).shares_space(&remote(0)));
}

/// All keys, then all values, the layers not evenly spaced; values before keys. No stride
/// covers that, but a table does.
#[test]
fn layout_regions_in_any_order_are_addressed() {
    let config = SMALL.num_layers(3).alignment(2);
    let need = Arrangement::TokenMajor.needs(&config).unwrap().bytes;
    for places in [[0, 4096, 4 * 4096], [4 * 4096, 4096, 0], [0, 4096, 2 * 4096]] {
        for values in [1 << 20, 32 * 4096 + 2] {
            let at = |keys: u64, values: u64| places.map(|at| [keys + at, values + at]).into_iter().flatten();
            for addresses in [at(1 << 16, values).collect::<Vec<_>>(), at(values, 1 << 16).collect()] {
                let regions: Vec<_> = addresses.iter().map(|at| Region::system(*at, need)).collect();
                let layout = Layout::new(config, Arrangement::TokenMajor, &regions).unwrap();
                for index @ [block, layer, outer, token, head] in rows(&config) {
                    let row = (u64::from(block) * 4 + u64::from(token)) * 5 + u64::from(head);
                    let base = addresses[layer as usize * 2 + outer as usize];
                    assert_eq!(layout.address(index), Ok(base + row * 16));
                }
            }
        }
    }
    // One stride within the other's reach: layers 300 apart and values 400 behind keys, 100 bytes each.
    let config = LayoutConfig::new().num_layers(3).outer_dim(2).inner_dim(100);
    let regions = [0, 400, 300, 700, 600, 1000].map(|at| Region::system(at, 100));
    assert!(Layout::new(config, Arrangement::TokenMajor, &regions).is_ok());
}

/// Elements of four bits are counted in 64 bits too.
#[test]
fn layout_of_four_bit_elements_is_limited_to_64_bits() {
    let config = LayoutConfig::new().num_blocks(3).inner_dim(16).alignment(1 << 62);
    let whole = Region::system(0, u64::MAX);
    assert!(Layout::fully_contiguous(config, whole).is_ok());
    let error = Layout::fully_contiguous(config.dtype(DType::NvFp4), whole).unwrap_err();
    assert_eq!(
        error.to_string(),
        "num_blocks = 3: with it the layout does not fit into 64 bits; use a smaller one"
    );
}
