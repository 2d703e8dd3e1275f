use super::*;
use crate::layout::Region;
use crate::layout::fingerprint::tests::layouts;
use crate::layout::tests::rows;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

const PLENTY: Region = Region::system(0x1000, 1 << 20);

/// Every index of a shape, row-major.
fn indices<const D: usize>(shape: [u64; D]) -> Vec<[u64; D]> {
    let count: u64 = shape.iter().product();
    let index = |mut number: u64| {
        let mut index = [0; D];
        for (at, size) in index.iter_mut().zip(shape).rev() {
            (*at, number) = (number % size, number / size);
        }
        index
    };
    (0..count).map(index).collect()
}

/// The places of the elements, in row-major order.
fn places<S: Storage, const D: usize>(view: &TensorView<'_, S, D>) -> Vec<u128> {
    indices(view.shape()).into_iter().map(|index| view.bit_address(index).unwrap()).collect()
}

/// Returns whether any strides put the elements of a shape at these places: tried one by one, up to the
/// farthest element.
fn has_strides<const E: usize>(places: &[u128], bits: u128, shape: [u64; E]) -> bool {
    let Some(first) = places.first() else { return true };
    let offsets: Vec<u128> = places.iter().map(|place| (place.wrapping_sub(*first)) / bits).collect();
    let most = *offsets.iter().max().unwrap() + 1;
    let all = indices(shape);
    let tries = (0..E as u32).map(|dim| if shape[dim as usize] > 1 { most } else { 1 });
    indices(Vec::from_iter(tries).try_into().map(|tries: [u128; E]| tries.map(|most| most as u64)).unwrap())
        .into_iter()
        .any(|strides| {
            all.iter().zip(&offsets).all(|(index, offset)| {
                index.iter().zip(strides).map(|(index, stride)| u128::from(index * stride)).sum::<u128>()
                    == *offset
            })
        })
}

#[test]
fn view_shape_strides_and_addresses_agree() {
    let view = TensorView::new(&PLENTY, [2, 3, 4], DType::F32).unwrap();
    assert_eq!((view.shape(), view.strides(), view.num_elements()), ([2, 3, 4], [12, 4, 1], 24));
    assert_eq!((view.byte_strides(), view.bit_strides()), ([Some(48), Some(16), Some(4)], [384, 128, 32]));
    assert_eq!(view.address([1, 2, 3]), Ok(0x1000 + 4 * 23));
    assert_eq!((view.offset_bytes(), view.offset_bits()), (Some(0), 0));
    assert_eq!(
        view.address([1, 3, 0]).unwrap_err().to_string(),
        "index [1, 3, 0] is outside shape [2, 3, 4]"
    );
    assert_eq!(
        view.slice(1, 2, 4).unwrap_err().to_string(),
        "slice 2..4 of dimension 1 is outside shape [2, 3, 4]"
    );
    assert_eq!(
        view.slice(1, 2, 1).unwrap_err().to_string(),
        "slice 2..1 of dimension 1 is outside shape [2, 3, 4]"
    );
    assert_eq!(view.slice(3, 0, 0).unwrap_err().to_string(), "dimension 3 is outside shape [2, 3, 4]");
    let sliced = view.slice(2, 1, 3).unwrap().slice(0, 1, 2).unwrap();
    assert_eq!((sliced.shape(), sliced.strides(), sliced.offset_bytes()), ([1, 3, 2], [12, 4, 1], Some(52)));
    assert_eq!(
        sliced.reshape([6]).unwrap_err().to_string(),
        "shape [1, 3, 2] with strides [12, 4, 1] has no view of shape [6]; copy it first"
    );
    assert_eq!(
        sliced.reshape([7]).unwrap_err().to_string(),
        "shape [7] must have as many elements as [1, 3, 2]"
    );
    assert!(view.reshape([u64::MAX, u64::MAX]).is_err());
    let small = Region::system(0x1000, 95);
    assert_eq!(
        TensorView::new(&small, [2, 3, 4], DType::F32).unwrap_err().to_string(),
        "shape [2, 3, 4] with strides [12, 4, 1] ends after 96 bytes, the storage after 95"
    );
    assert!(TensorView::with_strides(&small, 1, [2, 3, 4], [12, 4, 1], DType::U8).is_ok());
    assert!(TensorView::with_strides(&small, 72, [2, 3, 4], [12, 4, 1], DType::U8).is_err());
}

#[test]
fn view_of_four_bit_elements_has_an_address_for_every_other() {
    let view = TensorView::new(&PLENTY, [3, 5], DType::NvFp4).unwrap();
    assert_eq!((view.bit_strides(), view.byte_strides()), ([20, 4], [None, None]));
    assert_eq!(view.address([2, 0]), Ok(0x1005));
    assert_eq!(view.bit_address([1, 0]), Ok(0x1002 * 8 + 4));
    assert_eq!(
        view.address([1, 0]).unwrap_err().to_string(),
        "index [1, 0]: this nvfp4 element starts at bit 4 of its byte and has no address"
    );
    let odd = view.slice(1, 1, 5).unwrap();
    assert_eq!((odd.offset_bits(), odd.offset_bytes()), (4, None));
    assert_eq!(odd.address([0, 1]), Ok(0x1001));
    let tight = Region::system(0, 7);
    let error = TensorView::new(&tight, [3, 5], DType::NvFp4).unwrap_err().to_string();
    assert_eq!(error, "shape [3, 5] with strides [5, 1] ends after 8 bytes, the storage after 7");
    // The last element of the last existing address.
    let high = Region { address: u64::MAX - 8, size_bytes: 8, kind: crate::StorageKind::Remote { peer: 0 } };
    let view = TensorView::new(&high, [16], DType::MxFp4).unwrap();
    assert_eq!(view.bit_address([15]), Ok(u128::from(u64::MAX) * 8 - 4));
    assert_eq!(view.address([14]), Ok(u64::MAX - 1));
}

#[test]
fn view_of_no_or_one_element_is_accepted() {
    // None: no addresses, any slice, any shape.
    let nowhere = Region::system(0, 0);
    let empty = TensorView::new(&nowhere, [2, 0, 3], DType::BF16).unwrap();
    assert_eq!((empty.num_elements(), empty.strides(), empty.is_contiguous()), (0, [3, 3, 1], true));
    assert!(empty.address([0, 0, 0]).is_err());
    assert_eq!(empty.reshape([0, 7]).unwrap().strides(), [7, 1]);
    assert_eq!(empty.reshape([0, u64::MAX, u64::MAX]).unwrap().num_elements(), 0);
    assert!(matches!(empty.reshape([1]), Err(ReshapeError::Elements { .. })));
    assert!(empty.slice(0, 2, 2).unwrap().slice(2, 0, 3).is_ok());
    let view = TensorView::with_strides(&PLENTY, 0, [2, 2], [2, 1 << 17], DType::F32).unwrap();
    let end = view.slice(1, 2, 2).unwrap();
    assert_eq!(
        (end.shape(), end.num_elements(), end.offset_bits()),
        ([2, 0], 0, 0),
        "not beyond the storage"
    );
    // One: its stride is never used.
    let one = TensorView::with_strides(&PLENTY, 0, [1, 4, 1], [u64::MAX, 1, u64::MAX], DType::U8).unwrap();
    assert!(one.is_contiguous());
    assert_eq!(one.address([0, 3, 0]), Ok(0x1003));
    assert_eq!(one.reshape([2, 1, 2]).unwrap().address([1, 0, 1]), Ok(0x1003));
    assert_eq!(one.reshape([1, 1, 4, 1]).unwrap().address([0, 0, 2, 0]), Ok(0x1002));
    // No dimensions: one element.
    let scalar = TensorView::new(&PLENTY, [], DType::F32).unwrap();
    assert_eq!((scalar.num_elements(), scalar.address([])), (1, Ok(0x1000)));
    assert_eq!(scalar.reshape([1, 1]).unwrap().reshape([]).unwrap().address([]), Ok(0x1000));
    // A stride of 0 repeats.
    let repeated = TensorView::with_strides(&nowhere, 0, [0, 9], [0, 0], DType::U8).unwrap();
    assert_eq!(repeated.num_elements(), 0);
    let repeated = TensorView::with_strides(&PLENTY, 8, [4, 2], [0, 1], DType::U8).unwrap();
    assert_eq!(repeated.address([3, 1]), Ok(0x1009));
    assert!(!repeated.is_contiguous());
}

#[test]
fn view_beyond_64_bits_is_refused() {
    // A storage that ends beyond them, however little of it is viewed.
    let beyond = Region::system(u64::MAX - 3, 8);
    let error = "the storage's 8 bytes from 0xfffffffffffffffc on do not fit into 64 bits";
    assert_eq!(TensorView::new(&beyond, [8], DType::U8).unwrap_err().to_string(), error);
    assert_eq!(TensorView::with_strides(&beyond, 4, [4], [0], DType::U8).unwrap_err().to_string(), error);
    let last = Region::system(u64::MAX - 8, 8);
    assert_eq!(TensorView::new(&last, [8], DType::U8).unwrap().address([7]), Ok(u64::MAX - 1));
    let all = Region { address: 0, size_bytes: u64::MAX, kind: crate::StorageKind::Disk { volume: 0 } };
    let overflow = "shape [4611686018427387904, 8] with strides [8, 1] does not fit into 64 bits";
    assert_eq!(TensorView::new(&all, [1 << 62, 8], DType::U8).unwrap_err().to_string(), overflow);
    assert!(matches!(
        TensorView::new(&all, [1 << 40, 1 << 40], DType::NvFp4),
        Err(ViewError::Overflow { .. })
    ));
    assert!(TensorView::with_strides(&all, 0, [1 << 40, 1 << 40], [0, 0], DType::U8).is_err());
    assert!(TensorView::with_strides(&all, 0, [u64::MAX, u64::MAX, 2], [u64::MAX; 3], DType::F32).is_err());
    assert!(TensorView::with_strides(&all, u64::MAX, [1], [1], DType::U8).is_err());
    assert!(TensorView::with_strides(&all, u64::MAX - 1, [1], [1], DType::U8).is_ok());
    let bytes = TensorView::with_strides(&all, 0, [2], [u64::MAX - 1], DType::U8).unwrap();
    assert_eq!(bytes.address([1]), Ok(u64::MAX - 1));
}

fn dtypes() -> impl Strategy<Value = DType> {
    prop::sample::select(DType::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 512 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// An address is the result of index arithmetic; a slice's is that of its first index
    /// onwards; a slice of a slice too.
    #[test]
    fn view_addresses_are_sums_of_index_times_stride(
        dtype in dtypes(),
        shape in [0u64..4, 0..4, 0..4],
        strides in [0u64..40, 0..40, 0..40],
        offset in 0u64..9,
        slices in prop::collection::vec((0usize..3, 0u64..5, 0u64..5), 0..4),
    ) {
        let whole = TensorView::with_strides(&PLENTY, offset, shape, strides, dtype).unwrap();
        let (mut view, mut starts) = (whole, [0; 3]);
        for (dim, start, end) in slices {
            let size = view.shape()[dim];
            match view.slice(dim, start, end) {
                Ok(slice) => {
                    prop_assert!(start <= end && end <= size);
                    prop_assert_eq!(slice.shape()[dim], end - start);
                    starts[dim] += start;
                    view = slice;
                }
                Err(_) => prop_assert!(start > end || end > size),
            }
        }
        for index in indices([4, 4, 4]) {
            let inside = index.iter().zip(view.shape()).all(|(index, size)| *index < size);
            prop_assert_eq!(view.bit_address(index).is_ok(), inside);
            if !inside {
                continue;
            }
            let steps: u64 = (0..3).map(|dim| (starts[dim] + index[dim]) * strides[dim]).sum();
            let bits = u128::from((0x1000 + offset) * 8 + steps * u64::from(dtype.bits()));
            prop_assert_eq!(view.bit_address(index), Ok(bits));
            prop_assert_eq!(view.address(index).ok().map(|byte| u128::from(byte) * 8), (bits % 8 == 0).then_some(bits));
        }
    }

    /// A reshape has the same elements in the same order, and is refused exactly if no strides have.
    #[test]
    fn view_reshape_succeeds_exactly_if_strides_exist(
        dtype in dtypes(),
        shape in prop::sample::select(vec![[1u64, 2, 6], [2, 3, 2], [3, 4, 1], [2, 2, 3], [12, 1, 1], [4, 1, 3], [2, 0, 6]]),
        wanted in prop::sample::select(vec![[12u64, 1, 1], [1, 12, 1], [2, 6, 1], [6, 1, 2], [3, 4, 1], [4, 3, 1], [2, 2, 3], [3, 2, 2], [0, 5, 1], [1, 1, 13]]),
        contiguous in any::<bool>(),
        order in Just([0usize, 1, 2]).prop_shuffle(),
        gaps in [0u64..2, 0..2, 0..2],
        zero in 0usize..8,
    ) {
        let mut strides = [0; 3];
        let mut next = 1;
        let order = if contiguous { [2, 1, 0] } else { order };
        for (dim, gap) in order.into_iter().zip(gaps) {
            strides[dim] = if dim == zero { 0 } else { next };
            next = next * shape[dim].max(1) + gap;
        }
        let view = TensorView::with_strides(&PLENTY, 0, shape, strides, dtype).unwrap();
        let elements: u64 = wanted.iter().product();
        let before = places(&view);
        match view.reshape(wanted) {
            Ok(reshaped) => {
                prop_assert_eq!(reshaped.shape(), wanted);
                prop_assert_eq!(&places(&reshaped), &before);
            }
            Err(ReshapeError::Elements { .. }) => prop_assert!(elements != view.num_elements()),
            Err(_) => {
                prop_assert_eq!(elements, view.num_elements());
                prop_assert!(!view.is_contiguous());
                prop_assert!(!has_strides(&before, dtype.bits().into(), wanted));
            }
        }
        let row_major: Vec<u128> = (0..view.num_elements()).map(|i| 0x8000 + u128::from(i) * u128::from(dtype.bits())).collect();
        prop_assert_eq!(view.is_contiguous(), before == row_major);
    }

    /// A layer's tensors are its rows.
    #[test]
    fn view_of_a_layer_matches_its_rows(layout in layouts()) {
        let config = *layout.config();
        for [block, layer, outer, token, head] in rows(&config) {
            let of = layout.block(block).unwrap().layer(layer).unwrap();
            let row = [u64::from(token), u64::from(head)];
            let [t, h] = row;
            let address = layout.address([block, layer, outer, token, head]).unwrap();
            let tensor = of.tensor(outer).unwrap();
            prop_assert_eq!(tensor.shape(), [config.page_size.into(), config.num_heads.into(), u64::from(config.head_size)]);
            prop_assert_eq!(tensor.address([t, h, 0]), Ok(address));
            let last = u128::from(config.head_size - 1);
            prop_assert_eq!(
                tensor.bit_address([t, h, last as u64]),
                Ok(u128::from(address) * 8 + last * u128::from(config.dtype.bits()))
            );
            if let Some(tensors) = of.tensors() {
                prop_assert_eq!(tensors.address([outer.into(), t, h, 0]), Ok(address));
            } else {
                let regions = layout.block(block).unwrap().layer(layer).unwrap();
                let other = regions.tensor(1 - outer).unwrap();
                prop_assert!(!core::ptr::eq(other.storage(), tensor.storage()));
            }
            let scales = layout.scales_address([block, layer, outer, token, head]).unwrap();
            let view = of.scales(outer).unwrap();
            prop_assert_eq!(view.map(|view| view.address([t, h, 0]).unwrap()), scales);
        }
        let [blocks, layers, outers, ..] = config.shape();
        prop_assert!(layout.block(blocks).is_err());
        prop_assert!(layout.layer(0, layers).is_err());
        prop_assert!(layout.layer(0, 0).unwrap().tensor(outers).is_err());
        prop_assert_eq!(layout.layer(0, 0).unwrap().bytes(), config.layer_bytes().unwrap());
    }
}
