use super::*;
use crate::layout::tests::{SMALL, laid_out, rows};
use crate::layout::{Arrangement, DType, HeadOrder, ScalePlace};
use alloc::string::{String, ToString};

#[test]
fn tensor_with_a_wrong_field_is_refused_by_name() {
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
        "regions[0].size_bytes = 1919: must be at least 1920"
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
    assert_eq!(
        Layout::from_tensors(config, &[twice], &[]).unwrap_err(),
        LayoutError::Dims { list: Field::Tensors, tensor: 0 }
    );
}

/// Views of one buffer, as vLLM makes them for elements and scales of a page, and for layers of a
/// cross-layer tensor.
#[test]
fn tensors_within_gaps_of_others_are_accepted() {
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

/// A message names the list of the wrong tensor and the number there.
#[test]
fn scale_tensor_with_an_error_is_named() {
    let config = LayoutConfig::new().num_blocks(2).num_layers(2).inner_dim(32).dtype(DType::NvFp4);
    let dims = &[Axis::Block, Axis::Token, Axis::Element];
    let at = |address| Region::system(address, 64);
    let data = [0, 64].map(|address| Tensor {
        region: at(address),
        dims,
        shape: &[2, 1, 16],
        strides: &[16, 16, 1],
    });
    let good = [128, 192].map(|address| Tensor {
        region: at(address),
        dims,
        shape: &[2, 1, 2],
        strides: &[2, 2, 1],
    });
    let of = |scales: &[Tensor<'_>]| match Layout::from_tensors(config, &data, scales) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    assert_eq!(of(&good), "");
    assert_eq!(of(&good[..1]), "scales: 1 given, this layout needs 2");
    let [a, b] = good;
    assert_eq!(of(&[Tensor { shape: &[2, 1, 3], ..a }, b]), "scales[0].shape[2] = 3: the geometry has 2");
    assert_eq!(
        of(&[a, Tensor { strides: &[4, 2, 1], ..b }]),
        "scales[1].strides: must be those of scales[0]"
    );
    assert_eq!(
        of(&[a, Tensor { strides: &[4, 2, 2], ..b }]),
        "scales[1].strides: elements are 2 apart; must be 1"
    );
    assert!(of(&[a, Tensor { dims: &[Axis::Block], ..b }]).starts_with("scales[1].dims: needs block"));
    assert_eq!(
        of(&[a, Tensor { region: Region::system(192, 3), ..b }]),
        "regions[3].size_bytes = 3: must be at least 4",
        "regions are counted through"
    );
    let plain = config.dtype(DType::U8).heads(1, 16);
    let error = Layout::from_tensors(plain, &data, &good).unwrap_err();
    assert_eq!(error.to_string(), "scales: 2 given, this layout needs 0");
    let few = Layout::from_tensors(config, &data[..1], &good).unwrap_err();
    assert_eq!(few.to_string(), "tensors: 1 given, this layout needs 2");
}

/// A tensor needs its element's alignment, not the geometry's.
#[test]
fn tensors_need_only_the_alignment_of_their_elements() {
    let config = LayoutConfig::new().num_blocks(2).inner_dim(8).dtype(DType::BF16).alignment(4096);
    let of = |address| {
        let dims = &[Axis::Block, Axis::Token, Axis::Element];
        let tensor =
            Tensor { region: Region::system(address, 32), dims, shape: &[2, 1, 8], strides: &[8, 8, 1] };
        Layout::from_tensors(config, &[tensor], &[]).map(|layout| layout.to_bytes())
    };
    let bytes = of(66).unwrap();
    assert!(Layout::from_bytes(&bytes).is_ok());
    assert_eq!(
        of(65).unwrap_err().to_string(),
        "regions[0].address = 0x41: must be a multiple of the 2 bytes of a bfloat16 element"
    );
}

#[test]
fn tensors_with_unlike_strides_are_refused() {
    let config = LayoutConfig::new().num_blocks(2).num_layers(2).inner_dim(8);
    let dims = &[Axis::Block, Axis::Token, Axis::Element];
    let layer =
        |address, strides| Tensor { region: Region::system(address, 64), dims, shape: &[2, 1, 8], strides };
    let of = |strides| Layout::from_tensors(config, &[layer(0, &[8, 8, 1]), layer(64, strides)], &[]);
    assert!(of(&[8, 8, 1]).is_ok() && of(&[8, 7, 1]).is_ok(), "one token has no stride");
    let error = of(&[16, 8, 1]).unwrap_err();
    assert_eq!(error.to_string(), "tensors[1].strides: must be those of tensors[0]");
}
