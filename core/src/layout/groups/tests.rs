use super::*;
use crate::layout::{Arrangement, DType, DescriptionError, LayoutConfig, Region};
use alloc::string::ToString;

fn layout(config: LayoutConfig, arrangement: Arrangement, at: u64) -> Layout {
    let need = arrangement.needs(&config).unwrap();
    let regions: Vec<Region> = (0..u64::from(need.count))
        .map(|i| Region::system(at + i * need.bytes.next_multiple_of(4096), need.bytes))
        .collect();
    Layout::new(config, arrangement, &regions).unwrap()
}

/// gpt-oss-20b: 24 layers, 8 KV heads of 64, bf16; even layers have a sliding window of 128 tokens.
/// Larger pages, and more of them, for full attention.
fn gpt_oss() -> LayerGroups {
    let config = LayoutConfig::new().num_layers(12).outer_dim(2).heads(8, 64).dtype(DType::BF16).alignment(2);
    let sliding = config.num_blocks(8).page_size(16);
    let full = config.num_blocks(32).page_size(24);
    let group = |first: u32, layout: Layout| LayerGroup { layers: (first..24).step_by(2).collect(), layout };
    let groups = vec![
        group(1, layout(full, Arrangement::BlockFirst, 1 << 32)),
        group(0, layout(sliding, Arrangement::OuterFirst, 1 << 40)),
    ];
    LayerGroups::new(24, groups).unwrap()
}

/// DeepSeek-V3.2: 61 layers of a latent of 576, bf16, and in each an indexer's key of 128 bytes (fp8)
/// with a scale of 4, which count as layers 61 to 121.
fn deepseek() -> LayerGroups {
    let config = LayoutConfig::new().num_blocks(4).num_layers(61).page_size(64);
    let latent = config.inner_dim(576).dtype(DType::BF16).alignment(2);
    let groups = vec![
        LayerGroup { layers: (0..61).collect(), layout: layout(latent, Arrangement::BlockFirst, 1 << 32) },
        LayerGroup {
            layers: (61..122).collect(),
            layout: layout(config.inner_dim(132), Arrangement::BlockFirst, 1 << 40),
        },
    ];
    LayerGroups::new(122, groups).unwrap()
}

#[test]
fn groups_find_each_layer_and_its_index() {
    let model = gpt_oss();
    for layer in 0..24 {
        assert_eq!(model.find(layer), Some((1 - layer % 2, layer / 2)));
    }
    assert_eq!((model.find(24), model.num_layers(), model.groups().len()), (None, 24, 2));
    assert_eq!(model.tokens_per_block(), Some(48), "three pages of 16, two of 24");
    assert_eq!(model.bytes_per_token(), 24 * 2 * 8 * 64 * 2);
    let (group, index) = model.find(5).unwrap();
    let group = model.group(group).unwrap();
    assert_eq!((group.layers[index as usize], group.layout.config().page_size), (5, 24));
    assert!(model.group(2).is_none());

    let model = deepseek();
    assert_eq!((model.find(60), model.find(61)), (Some((0, 60)), Some((1, 0))));
    assert_eq!((model.tokens_per_block(), model.bytes_per_token()), (Some(64), 61 * (1152 + 132)));
    let dtypes = [0, 1].map(|group| model.group(group).unwrap().layout.config().dtype);
    assert_eq!(dtypes, [DType::BF16, DType::U8]);
}

#[test]
fn groups_with_a_missing_or_repeated_layer_are_refused() {
    let of = |num_layers: u32, sets: &[&[u32]]| {
        let group = |layers: &&[u32]| {
            let config = LayoutConfig::new().num_layers(layers.len() as u32);
            LayerGroup { layers: layers.to_vec(), layout: layout(config, Arrangement::FullyContiguous, 64) }
        };
        LayerGroups::new(num_layers, sets.iter().map(group).collect())
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let refused = |num_layers, sets: &[&[u32]]| of(num_layers, sets).unwrap_err();
    assert_eq!(of(3, &[&[0, 2], &[1]]), Ok(()));
    assert_eq!(refused(3, &[&[0], &[2]]), "layer 1 is in no group");
    assert_eq!(refused(3, &[&[0, 1]]), "layer 2 is in no group");
    assert_eq!(refused(u32::MAX, &[&[0, 1]]), "layer 2 is in no group");
    assert_eq!(refused(u32::MAX, &[&[0, 1 << 31]]), "layer 1 is in no group");
    assert_eq!(refused(3, &[&[0, 1], &[2, 1]]), "layer 1 is in groups[0] and in groups[1]");
    assert_eq!(refused(2, &[&[0, 1, 1]]), "layer 1 is in groups[0] twice");
    assert_eq!(refused(3, &[&[0, 1, 2], &[3]]), "groups[1] has layer 3: the model has 3");
    assert_eq!(refused(0, &[]), "num_layers = 0: must be at least 1");
    assert_eq!(refused(1, &[]), "layer 0 is in no group");
    let group = LayerGroup {
        layers: vec![0, 1],
        layout: layout(LayoutConfig::new(), Arrangement::FullyContiguous, 64),
    };
    let error = LayerGroups::new(2, vec![group]).unwrap_err();
    assert_eq!(error.to_string(), "groups[0] has 2 layers: its layout has 1");
}

#[test]
fn groups_common_tokens_beyond_64_bits_are_none() {
    let page = |layer: u32, page_size: u32| LayerGroup {
        layers: vec![layer],
        layout: layout(LayoutConfig::new().page_size(page_size), Arrangement::FullyContiguous, 64),
    };
    let pages = |sizes: &[u32]| {
        LayerGroups::new(sizes.len() as u32, (0..).zip(sizes).map(|(i, s)| page(i, *s)).collect())
    };
    assert_eq!(pages(&[12, 18, 8]).unwrap().tokens_per_block(), Some(72));
    let primes = [4_294_967_291, 4_294_967_279, 4_294_967_231];
    assert_eq!(pages(&primes[..2]).unwrap().tokens_per_block(), Some(4_294_967_291 * 4_294_967_279));
    assert_eq!(pages(&primes).unwrap().tokens_per_block(), None);
}

#[test]
fn group_set_round_trip_keeps_its_layouts() {
    for model in [gpt_oss(), deepseek()] {
        let bytes = model.to_bytes();
        let again = LayerGroups::from_bytes(&bytes).unwrap();
        assert_eq!(again.to_bytes(), bytes);
        assert!((0..=model.num_layers()).all(|layer| again.find(layer) == model.find(layer)));
        for (a, b) in again.groups().iter().zip(model.groups()) {
            assert_eq!((&a.layers, a.layout.fingerprint()), (&b.layers, b.layout.fingerprint()));
            assert_eq!(a.layout.regions(), b.layout.regions());
        }
        for length in 0..bytes.len() {
            let error = LayerGroups::from_bytes(&bytes[..length]).unwrap_err();
            assert!(matches!(
                error,
                GroupsError::Description(DescriptionError::Length { .. })
                    | GroupsError::Group { error: DescriptionError::Length { .. }, .. }
            ));
        }
    }
}

/// The start of a set, byte by byte, and the name of each refused field.
#[test]
fn group_set_bytes_are_fixed_and_refused_fields_named() {
    let model = gpt_oss();
    let bytes = model.to_bytes();
    assert_eq!(&bytes[..20], b"KVGROUPS\x01\0\0\0\x18\0\0\0\x02\0\0\0");
    assert_eq!(&bytes[20..32], b"\x0c\0\0\0\x01\0\0\0\x03\0\0\0");
    assert_eq!(&bytes[20 + 4 + 48 + 4..][..8], b"KVLAYOUT");
    let with = |at: usize, new: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        LayerGroups::from_bytes(&bytes).unwrap_err().to_string()
    };
    assert!(with(0, b"KVLAYOUT").starts_with("magic = \"KVLAYOUT\""));
    assert_eq!(with(8, &[7]), "version = 7: this library reads version 1");
    assert_eq!(with(12, &[25]), "layer 24 is in no group");
    assert_eq!(with(24, &[0]), "layer 0 is in groups[0] and in groups[1]");
    assert_eq!(with(20 + 52 + 4 + 8, &[9]), "groups[0].version = 9: this library reads version 1");
    assert_eq!(with(16, &[1]).split(':').next(), Some("bytes behind the last group = 488"));
    assert_eq!(with(20, &[0xff; 4]).split(':').next(), Some("layers"));
}
