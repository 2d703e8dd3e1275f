//! Any geometry in any arrangement is refused, or makes a layout with every row where 128-bit arithmetic
//! puts it: in its region, blocks aligned. Nothing panics, and nothing overflows.
#![no_main]

use arbitrary::Arbitrary;
use kvstrata_core::layout::{Arrangement, DType, Dim, HeadOrder, Layout, LayoutConfig, Region, ScalePlace};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Case {
    sizes: [u32; 6],
    /// Most values are refused at once, so a bit decides whether to take the nearest valid ones.
    tame: bool,
    dtype: u8,
    alignment: u64,
    hnd: bool,
    page_scales: bool,
    arrangement: u8,
    /// The address of the first region, and the gap between regions beyond their size.
    address: u64,
    gap: u64,
    /// Rows to look up.
    indices: [[u32; 5]; 4],
}

/// More regions find nothing new, and are slower.
const MOST_REGIONS: u32 = 4096;

impl Case {
    fn config(&self) -> LayoutConfig {
        let [num_blocks, num_layers, outer_dim, page_size, num_heads, head_size] = self.sizes;
        let dtype = DType::ALL[usize::from(self.dtype) % DType::ALL.len()];
        let config = LayoutConfig {
            num_blocks,
            num_layers,
            outer_dim,
            page_size,
            num_heads,
            head_size,
            dtype,
            alignment: self.alignment,
            head_order: if self.hnd { HeadOrder::Hnd } else { HeadOrder::Nhd },
            scales: if self.page_scales { ScalePlace::Page } else { ScalePlace::Row },
        };
        if !self.tame {
            return config;
        }
        let group = dtype.scale().map_or(1, |scale| scale.group);
        let config = config.num_layers(1 + num_layers % 200).outer_dim(1 + outer_dim % 2);
        let config = config.heads(1 + num_heads % 129, (1 + head_size % 512) * group);
        config.num_blocks(num_blocks.max(1)).alignment(dtype.alignment() << (self.alignment % 40))
    }
}

/// Bytes from one index to the next within a region, from the order of the dimensions.
struct Naive {
    data: [u128; 5],
    scales: [u128; 5],
    /// From the first element to the first scale, where these lie apart.
    scales_offset: Option<u128>,
    region_bytes: u128,
}

fn naive(config: &LayoutConfig, arrangement: Arrangement) -> Naive {
    let (data_row, scale_row) = (u128::from(config.row_data_bytes()), u128::from(config.row_scale_bytes()));
    let apart = config.scales == ScalePlace::Page && scale_row > 0;
    let order = arrangement.order(config.head_order);
    let (mut data, mut scales) = ([0; 5], [0; 5]);
    let (mut bytes, mut scale_bytes) = (if apart { data_row } else { data_row + scale_row }, scale_row);
    let mut scales_offset = None;
    for (depth, dim) in order.iter().enumerate().rev() {
        let count = u128::from(config.shape()[*dim as usize]);
        if *dim == Dim::Block {
            bytes = bytes.next_multiple_of(config.alignment.into());
        }
        let in_page = depth + 2 >= order.len();
        data[*dim as usize] = bytes;
        scales[*dim as usize] = if in_page { scale_bytes } else { bytes };
        bytes *= count;
        scale_bytes *= count;
        if apart && depth + 2 == order.len() {
            scales_offset = Some(bytes);
            bytes += scale_bytes;
        }
    }
    Naive { data, scales, scales_offset, region_bytes: bytes }
}

fuzz_target!(|case: Case| {
    let config = case.config();
    let arrangement = Arrangement::ALL[usize::from(case.arrangement) % Arrangement::ALL.len()];
    let need = match arrangement.needs(&config) {
        Ok(need) => need,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert!(config.validate().is_ok(), "a layout has a valid geometry");
    if need.count > MOST_REGIONS {
        return;
    }
    let naive = naive(&config, arrangement);
    assert_eq!(u128::from(need.bytes), naive.region_bytes, "{config:?} {arrangement}");

    let step = u128::from(need.bytes) + u128::from(case.gap % (1 << 40));
    let step = step.next_multiple_of(config.alignment.into());
    let first = u128::from(case.address).next_multiple_of(config.alignment.into());
    let mut regions = Vec::new();
    for number in 0..u128::from(need.count) {
        let Ok(address) = u64::try_from(first + number * step) else { return };
        regions.push(Region::system(address, need.bytes));
    }
    let layout = match Layout::new(config, arrangement, &regions) {
        Ok(layout) => layout,
        Err(error) => {
            let last = regions[regions.len() - 1];
            let two = u128::from(last.address) + u128::from(last.size_bytes);
            let packed = config.dtype.bits() < 8 && need.bytes > u64::MAX / 2;
            assert!(two > u128::from(u64::MAX) || packed, "{error}: {config:?} {arrangement}");
            return;
        }
    };
    assert_eq!(Ok(layout.block_bytes()), config.block_bytes());

    let shape = config.shape();
    let last = shape.map(|count| count - 1);
    let inside = case.indices.map(|index| Dim::ALL.map(|dim| index[dim as usize] % shape[dim as usize]));
    for index in case.indices.into_iter().chain(inside).chain([last]) {
        let found = layout.address(index);
        let exists = index.iter().zip(shape).all(|(index, count)| *index < count);
        assert_eq!(found.is_ok(), exists, "{index:?} of {config:?}");
        let Ok(address) = found else { continue };
        let [block, layer, outer, token, head] = index;
        let region = match need.count {
            1 => 0,
            count if count == config.num_layers => layer,
            _ => layer * config.outer_dim + outer,
        };
        let region = regions[region as usize];
        let place = |strides: [u128; 5]| -> u128 {
            u128::from(region.address)
                + index.iter().zip(strides).map(|(index, stride)| u128::from(*index) * stride).sum::<u128>()
        };
        let end = u128::from(region.address) + u128::from(region.size_bytes);
        assert_eq!(u128::from(address), place(naive.data), "{index:?} of {config:?} {arrangement}");
        assert!(u128::from(address) + u128::from(layout.row_bytes()) <= end);
        let scales = layout.scales_address(index).expect("it is in bounds").map(u128::from);
        assert_eq!(scales, naive.scales_offset.map(|offset| place(naive.scales) + offset));
        assert!(scales.is_none_or(|scales| scales + u128::from(config.row_scale_bytes()) <= end));
        if [layer, outer, token, head] == [0; 4] {
            assert!(address.is_multiple_of(config.alignment));
        }

        let tensor =
            layout.layer(block, layer).and_then(|layer| layer.tensor(outer)).expect("it is in bounds");
        assert_eq!(tensor.address([token.into(), head.into(), 0]), Ok(address));
    }
    let again = Layout::from_bytes(&layout.to_bytes()).expect("it was described");
    assert_eq!(again.fingerprint(), layout.fingerprint());
});
