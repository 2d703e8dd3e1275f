//! Any bytes as the description of a layout or of a set of layer groups: they are refused, or make a
//! layout or set with its rows in its regions and with the same bytes as its description.
#![no_main]

use kvstrata_core::layout::{
    Arrangement, DType, DescriptionError, LayerGroup, LayerGroups, Layout, LayoutConfig, Region,
};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|bytes: &[u8]| {
    match LayerGroups::from_bytes(bytes) {
        Ok(groups) => assert_eq!(groups.to_bytes(), bytes),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let (layout, bytes) = match Layout::from_bytes(bytes) {
        Ok(layout) => (layout, bytes.to_vec()),
        // No fuzzer guesses 128 bits: take the fields with the fingerprint computed from them.
        Err(DescriptionError::Fingerprint { made, .. }) => {
            let mut bytes = bytes.to_vec();
            let at = bytes.len() - 16;
            bytes[at..].copy_from_slice(&made.to_bytes());
            (Layout::from_bytes(&bytes).expect("the rest has been checked"), bytes)
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert_eq!(layout.to_bytes(), bytes);
    let config = *layout.config();
    let last = config.shape().map(|count| count - 1);
    let corners =
        (0..32u32).map(|corner| [0, 1, 2, 3, 4].map(|dim| if corner >> dim & 1 > 0 { last[dim] } else { 0 }));
    let inside = |address: u64, row: u64| {
        let end = u128::from(address) + u128::from(row);
        let holds = |region: &Region| {
            region.address <= address && end <= u128::from(region.address) + u128::from(region.size_bytes)
        };
        layout.regions().iter().any(holds)
    };
    for index in corners {
        let address = layout.address(index).expect("it is in bounds");
        assert!(inside(address, layout.row_bytes()), "{index:?} at {address:#x} of {layout:?}");
        if let Some(address) = layout.scales_address(index).expect("it is in bounds") {
            assert!(
                inside(address, config.row_scale_bytes()),
                "scales of {index:?} at {address:#x} of {layout:?}"
            );
        }
        let [block, layer, outer, token, head] = index;
        let view = layout.layer(block, layer).expect("it is in bounds");
        let tensor = view.tensor(outer).expect("it is in bounds");
        assert_eq!(tensor.address([token.into(), head.into(), 0]), Ok(address));
        let ranges = layout.block(block).expect("it is in bounds").ranges().take(64);
        ranges.for_each(|range| assert!(inside(range.address, range.size_bytes)));
    }

    let addresses: Vec<u64> = layout.regions().iter().map(|region| region.address).collect();
    let again = layout.relocated(&addresses).expect("they are where they were");
    assert_eq!(again.to_bytes(), bytes);
    assert_eq!(again.block_fingerprint(), layout.block_fingerprint());
});

// Half of the mutations start from a description, so that the fuzzer gets beyond the magic.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let config = LayoutConfig::new().num_blocks(3).num_layers(2).outer_dim(2).page_size(4).heads(2, 32);
    let (arrangement, dtype) = (seed as usize / 2 % 7, seed as usize / 14 % DType::ALL.len());
    let dtype = DType::ALL[dtype];
    let (config, arrangement) =
        (config.dtype(dtype).alignment(dtype.alignment()), Arrangement::ALL[arrangement]);
    let started = data.get(..8) == Some(b"KVLAYOUT") || data.get(..8) == Some(b"KVGROUPS");
    let size = match arrangement.needs(&config) {
        Ok(need) if !started && seed.is_multiple_of(2) => {
            let regions: Vec<_> =
                (1..=u64::from(need.count)).map(|number| Region::system(number << 20, need.bytes)).collect();
            let layout = Layout::new(config, arrangement, &regions).expect("they are apart");
            let mut bytes = layout.to_bytes();
            match seed / 2 % 4 {
                // As tensors, which may have any strides; as the only group of a set.
                0 => bytes[39] = 0,
                1 => {
                    let group = LayerGroup { layers: vec![1, 0], layout };
                    bytes = LayerGroups::new(2, vec![group]).expect("it is complete").to_bytes();
                }
                _ => {}
            }
            match data.get_mut(..bytes.len()) {
                Some(start) if bytes.len() <= max_size => {
                    start.copy_from_slice(&bytes);
                    bytes.len()
                }
                _ => size,
            }
        }
        _ => size,
    };
    fuzzer_mutate(data, size, max_size)
});
