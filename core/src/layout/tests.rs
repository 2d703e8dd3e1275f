use super::*;
use crate::storage::{ByoStorage, StorageKind};
use alloc::string::ToString;
use alloc::vec::Vec;
use proptest::prelude::*;

const SMALL: LayoutConfig = LayoutConfig::new()
    .num_blocks(3)
    .num_layers(2)
    .outer_dim(2)
    .page_size(4)
    .inner_dim(5)
    .dtype_width_bytes(2);

#[test]
fn strides_are_those_of_the_reference() {
    let layout = FullyContiguous::new(SMALL.alignment(64)).unwrap();
    assert_eq!((layout.outer_stride(), layout.layer_stride()), (40, 80));
    assert_eq!((layout.block_bytes(), layout.block_stride(), layout.total_bytes()), (160, 192, 576));
    assert_eq!(layout.block_range(2), Ok(384..544));
    assert_eq!(layout.layer_range(1, 1), Ok(272..352));
    assert_eq!(layout.range(1, 1, 1), Ok(312..352));
    assert_eq!(layout.config(), &SMALL.alignment(64));
}

#[test]
fn what_is_refused_names_field_value_and_rule() {
    let refused = |config: LayoutConfig| FullyContiguous::new(config).unwrap_err().to_string();
    assert_eq!(refused(SMALL.num_blocks(0)), "num_blocks = 0: must be at least 1");
    assert_eq!(refused(SMALL.num_layers(0)), "num_layers = 0: must be at least 1");
    assert_eq!(refused(SMALL.outer_dim(0)), "outer_dim = 0: must be at least 1");
    assert_eq!(refused(SMALL.page_size(0)), "page_size = 0: must be at least 1");
    assert_eq!(refused(SMALL.inner_dim(0)), "inner_dim = 0: must be at least 1");
    assert_eq!(refused(SMALL.dtype_width_bytes(0)), "dtype_width_bytes = 0: must be at least 1");
    assert_eq!(refused(SMALL.outer_dim(3)), "outer_dim = 3: must be 2 (keys and values) or 1 (MLA)");
    assert_eq!(refused(SMALL.dtype_width_bytes(3)), "dtype_width_bytes = 3: must be a power of two");
    assert_eq!(refused(SMALL.alignment(0)), "alignment = 0: must be a power of two");
    assert_eq!(refused(SMALL.alignment(96)), "alignment = 96: must be a power of two");
    assert_eq!(refused(SMALL.alignment(1)), "alignment = 1: must be at least dtype_width_bytes = 2");
}

#[test]
fn an_overflow_names_the_field_that_made_it() {
    let overflow = |config| match FullyContiguous::new(config) {
        Err(LayoutError::Overflow { field, value }) => (field, value),
        other => panic!("{other:?}"),
    };
    const M: u32 = u32::MAX;
    let page = SMALL.page_size(M).inner_dim(M).alignment(2);
    assert_eq!(overflow(page), (Field::InnerDim, u64::from(M)));
    assert_eq!(overflow(page.dtype_width_bytes(1).alignment(1)), (Field::OuterDim, 2));
    let one = page.dtype_width_bytes(1).outer_dim(1);
    assert_eq!(overflow(one.alignment(1)), (Field::NumLayers, 2));
    assert_eq!(overflow(one.num_layers(1).alignment(1)), (Field::NumBlocks, 3));
    assert_eq!(
        overflow(one.num_layers(1).num_blocks(1).alignment(1 << 63).inner_dim(M)),
        (Field::Alignment, 1 << 63)
    );
    assert!(FullyContiguous::new(one.num_layers(1).num_blocks(1).alignment(1)).is_ok());
}

#[test]
fn an_index_outside_prints_with_the_shape() {
    let layout = FullyContiguous::new(SMALL.alignment(64)).unwrap();
    assert_eq!(
        layout.range(1, 2, 0).unwrap_err().to_string(),
        "index [1, 2, 0] is outside [blocks, layers, outer] = [3, 2, 2]"
    );
    assert_eq!(
        layout.block_range(3).unwrap_err().to_string(),
        "index [3] is outside [blocks, layers, outer] = [3, 2, 2]"
    );
    assert!(layout.range(3, 0, 0).is_err() && layout.range(0, 0, 2).is_err());
    assert!(layout.layer_range(3, 0).is_err() && layout.layer_range(0, 2).is_err());
    assert!(layout.layer_range(u32::MAX, u32::MAX).is_err());
}

#[test]
fn a_storage_must_hold_it_aligned() {
    let layout = FullyContiguous::new(SMALL.alignment(64)).unwrap();
    let storage = |address, size| ByoStorage::new((), StorageKind::System, address, size, 1).unwrap();
    assert_eq!(layout.address(&storage(0x1000, 576), 1, 1, 1), Ok(0x1000 + 312));
    let small = layout.address(&storage(0x1000, 575), 0, 0, 0).unwrap_err();
    assert_eq!(small.to_string(), "size_bytes = 575: the layout takes 576 bytes");
    let askew = layout.check_storage(&storage(0x1020, 576)).unwrap_err();
    assert_eq!(askew.to_string(), "base_address = 0x1020: must be a multiple of alignment = 64");
    assert!(matches!(layout.address(&storage(64, 576), 9, 0, 0), Err(LayoutError::Bounds(_))));
}

fn small() -> impl Strategy<Value = LayoutConfig> {
    (1u32..5, 1u32..5, 1u32..3, 1u32..9, 1u32..9, 0u32..4, 0u32..8).prop_map(
        |(blocks, layers, outer, page, inner, width, align)| LayoutConfig {
            num_blocks: blocks,
            num_layers: layers,
            outer_dim: outer,
            page_size: page,
            inner_dim: inner,
            dtype_width_bytes: 1 << width,
            alignment: 1 << align.max(width),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// I2, I3: pieces tile each block, in order, and blocks stay apart and aligned.
    #[test]
    fn pieces_tile_blocks(config in small()) {
        let layout = FullyContiguous::new(config).unwrap();
        let mut covered = Vec::new();
        for block in 0..config.num_blocks {
            let whole = layout.block_range(block).unwrap();
            prop_assert!(whole.start.is_multiple_of(config.alignment));
            prop_assert!(covered.len() as u64 <= whole.start);
            covered.resize(whole.start as usize, false);
            for layer in 0..config.num_layers {
                prop_assert_eq!(layout.layer_range(block, layer).unwrap().start, covered.len() as u64);
                for outer in 0..config.outer_dim {
                    let piece = layout.range(block, layer, outer).unwrap();
                    prop_assert_eq!(piece.start, covered.len() as u64);
                    let elements = config.page_size * config.inner_dim;
                    prop_assert_eq!(piece.end - piece.start, u64::from(elements * config.dtype_width_bytes));
                    covered.resize(piece.end as usize, true);
                }
                prop_assert_eq!(layout.layer_range(block, layer).unwrap().end, covered.len() as u64);
            }
            prop_assert_eq!(whole.end, covered.len() as u64);
        }
        prop_assert!(layout.total_bytes() - (covered.len() as u64) < config.alignment);
        let data = covered.iter().filter(|&&carried| carried).count() as u64;
        prop_assert_eq!(data, u64::from(config.num_blocks) * layout.block_bytes());
    }
}
