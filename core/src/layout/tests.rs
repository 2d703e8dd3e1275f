use super::tensors::{Axis, Tensor};
use super::*;
use crate::storage::StorageKind;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use proptest::prelude::*;

const SMALL: LayoutConfig = LayoutConfig::new()
    .num_blocks(3)
    .num_layers(2)
    .outer_dim(2)
    .page_size(4)
    .heads(5, 8)
    .dtype(DType::BF16)
    .alignment(64);

/// As many regions as it takes, each at a page of its own.
pub(crate) fn regions(config: &LayoutConfig, arrangement: Arrangement) -> Vec<Region> {
    let need = arrangement.needs(config).unwrap();
    let step = (need.bytes + 4096).next_multiple_of(4096.max(config.alignment));
    (1..=u64::from(need.count)).map(|i| Region::system(i * step, need.bytes)).collect()
}

fn laid_out(config: LayoutConfig, arrangement: Arrangement) -> Layout {
    Layout::new(config, arrangement, &regions(&config, arrangement)).unwrap()
}

#[test]
fn the_block_of_llama_70b() {
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
fn strides_are_those_of_the_reference() {
    let layout = laid_out(SMALL, Arrangement::FullyContiguous);
    let strides = Dim::ALL.map(|dim| layout.stride(dim).unwrap());
    assert_eq!(strides, [1280, 640, 320, 80, 16], "1280 = align_up(2 × 640, 64)");
    assert_eq!((layout.row_bytes(), layout.block_bytes()), (16, 1280));
    let padded = laid_out(SMALL.alignment(4096), Arrangement::FullyContiguous);
    assert_eq!((padded.stride(Dim::Block), padded.block_bytes()), (Some(4096), 1280));
}

/// The shapes that engines allocate, index by index.
#[test]
fn engines_find_their_own() {
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
fn packed_types_carry_their_scales() {
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
fn what_is_refused_names_field_value_and_rule() {
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
    assert_eq!(refused(most), "num_heads = 4294967295: with it the layout does not fit into 64 bits");
    let regions =
        |regions: &[Region]| Layout::new(SMALL, Arrangement::OuterFirst, regions).unwrap_err().to_string();
    assert_eq!(regions(&[Region::system(64, 1 << 20)]), "regions: there are 1, and this layout has 2");
    let one = Region::system(0x1_0000, 1920);
    let small = regions(&[one, Region::system(0x2_0000, 1919)]);
    assert_eq!(small, "regions[1].size_bytes = 1919: the layout takes 1920 bytes");
    let askew = regions(&[one, Region::system(0x2_0020, 1920)]);
    assert_eq!(askew, "regions[1].address = 0x20020: must be a multiple of alignment = 64");
    let over = regions(&[one, Region::system(0x1_0000 + 1856, 1920)]);
    assert!(
        over.starts_with("strides: one layer follows another after 1856 bytes, but spans 1920"),
        "{over}"
    );
    let beyond = regions(&[one, Region::system(u64::MAX - 63, 1920)]);
    assert_eq!(beyond, "size_bytes = 1920: with it the layout does not fit into 64 bits");
    assert_eq!(
        laid_out(SMALL, Arrangement::Packed).address([3, 0, 0, 0, 0]).unwrap_err().to_string(),
        "index [3, 0, 0, 0, 0] is outside [blocks, layers, outer, tokens, heads] = [3, 2, 2, 4, 5]"
    );
}

#[test]
fn tensors_are_checked() {
    let config = SMALL.num_layers(1).alignment(2);
    let dims = [Axis::Block, Axis::Outer, Axis::Token, Axis::Head, Axis::Element];
    let tensor = |shape: &[u64], strides: &[u64], bytes: u64| -> Result<Layout, String> {
        let tensor = Tensor { region: Region::system(4096, bytes), dims: &dims, shape, strides };
        Layout::from_tensors(config, &[tensor], &[]).map_err(|error| error.to_string())
    };
    let (shape, strides) = ([3, 2, 4, 5, 8], [320, 160, 40, 8, 1]);
    let layout = tensor(&shape, &strides, 1920).unwrap();
    assert_eq!(layout.address([2, 0, 1, 3, 4]), Ok(4096 + 2 * (2 * 320 + 160 + 3 * 40 + 4 * 8)));
    assert_eq!(
        tensor(&[4, 2, 4, 5, 8], &strides, 1 << 20).unwrap_err(),
        "tensors[0].shape[0] = 4: the geometry has 3"
    );
    assert_eq!(
        tensor(&shape, &strides, 1919).unwrap_err(),
        "regions[0].size_bytes = 1919: the layout takes 1920 bytes"
    );
    assert_eq!(
        tensor(&shape, &[320, 160, 40, 8, 2], 1 << 20).unwrap_err(),
        "tensors[0].strides: elements are 2 apart; must be 1"
    );
    // An expanded tensor: two indices, one byte.
    let expanded = tensor(&shape, &[320, 0, 40, 8, 1], 1 << 20).unwrap_err();
    assert_eq!(expanded, "strides: one outer follows another after 0 bytes, but spans 16 (a row)");
    let twice = Tensor {
        region: Region::system(4096, 1920),
        dims: &[Axis::Block, Axis::Outer, Axis::Outer, Axis::Head, Axis::Element],
        shape: &shape,
        strides: &strides,
    };
    assert_eq!(Layout::from_tensors(config, &[twice], &[]).unwrap_err(), LayoutError::Dims { tensor: 0 });
}

/// Views of one buffer, as vLLM makes them for elements and scales of a page, and for layers of a cross-layer tensor.
#[test]
fn tensors_may_lie_in_each_others_gaps() {
    let config = SMALL.heads(5, 32).dtype(DType::NvFp4).alignment(1);
    let page = config.scales(ScalePlace::Page);
    let whole = laid_out(page, Arrangement::BlockFirst);
    let piece = 4 * 5 * 18;
    let (data_shape, scale_shape) = ([3, 2, 4, 5, 16], [3, 2, 4, 5, 2]);
    let (data_strides, scale_strides) = ([2 * piece, piece, 5 * 16, 16, 1], [2 * piece, piece, 5 * 2, 2, 1]);
    let dims = &[Axis::Block, Axis::Outer, Axis::Token, Axis::Head, Axis::Element];
    let view = |layer: usize, offset: u64, shape, strides| {
        let region = whole.regions()[layer];
        let region = Region::system(region.address + offset, region.size_bytes - offset);
        Tensor { region, dims, shape, strides }
    };
    let data = [0, 1].map(|layer| view(layer, 0, &data_shape, &data_strides));
    let scales = |by: u64| [0, 1].map(|layer| view(layer, 4 * 5 * 16 - by, &scale_shape, &scale_strides));
    let layout = Layout::from_tensors(config, &data, &scales(0)).unwrap();
    for index in rows(&page) {
        assert_eq!(layout.address(index), whole.address(index));
        assert_eq!(layout.scales_address(index), whole.scales_address(index));
    }
    let over = Layout::from_tensors(config, &data, &scales(1)).unwrap_err();
    assert_eq!(over, LayoutError::ScalesOverlap);

    let across = laid_out(SMALL.head_order(HeadOrder::Hnd).alignment(2), Arrangement::CrossLayer);
    let (base, size) = (across.regions()[0].address, across.regions()[0].size_bytes);
    let layer = |layer: u64| Tensor {
        region: Region::system(base + layer * 128, size - layer * 128),
        dims: &[Axis::Block, Axis::Head, Axis::Outer, Axis::Token, Axis::Element],
        shape: &[3, 5, 2, 4, 8],
        strides: &[640, 128, 32, 8, 1],
    };
    let views = Layout::from_tensors(*across.config(), &[layer(0), layer(1)], &[]).unwrap();
    assert!(rows(across.config()).all(|index| views.address(index) == across.address(index)));
}

/// Every row of a geometry.
pub(crate) fn rows(config: &LayoutConfig) -> impl Iterator<Item = Index> {
    let [blocks, layers, outers, tokens, heads] = config.shape();
    let outer = (0..blocks).flat_map(move |b| (0..layers).map(move |l| (b, l)));
    let outer = outer.flat_map(move |(b, l)| (0..outers).map(move |o| [b, l, o]));
    outer.flat_map(move |[b, l, o]| (0..tokens).flat_map(move |t| (0..heads).map(move |h| [b, l, o, t, h])))
}

/// Any small geometry, and an arrangement that takes it.
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
    fn rows_are_apart((config, arrangement) in geometries()) {
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
fn names_are_those_of_frameworks() {
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
    assert!(!region(StorageKind::Disk).shares_space(&region(StorageKind::System)));
}

/// All keys, then all values, the layers not evenly spaced; values before keys. No stride says that, a table does.
#[test]
fn regions_lie_anywhere() {
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

#[test]
fn tensors_are_alike() {
    let config = LayoutConfig::new().num_blocks(2).num_layers(2).inner_dim(8);
    let dims = &[Axis::Block, Axis::Token, Axis::Element];
    let layer =
        |address, strides| Tensor { region: Region::system(address, 64), dims, shape: &[2, 1, 8], strides };
    let of = |strides| Layout::from_tensors(config, &[layer(0, &[8, 8, 1]), layer(64, strides)], &[]);
    assert!(of(&[8, 8, 1]).is_ok() && of(&[8, 7, 1]).is_ok(), "one token has no stride");
    let error = of(&[16, 8, 1]).unwrap_err();
    assert_eq!(error.to_string(), "tensors[1].strides: must be those of tensors[0]");
}

/// Elements of four bits are counted in 64 bits too.
#[test]
fn half_bytes_fit() {
    let config = LayoutConfig::new().num_blocks(3).inner_dim(16).alignment(1 << 62);
    let whole = Region::system(0, u64::MAX);
    assert!(Layout::fully_contiguous(config, whole).is_ok());
    let error = Layout::fully_contiguous(config.dtype(DType::NvFp4), whole).unwrap_err();
    assert_eq!(error.to_string(), "num_blocks = 3: with it the layout does not fit into 64 bits");
}
