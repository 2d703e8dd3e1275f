//! Any geometry is refused or makes a layout whose every piece lies where 128-bit arithmetic says: in bounds,
//! aligned, disjoint. Nothing panics, and nothing overflows.
#![no_main]

use arbitrary::Arbitrary;
use kvstrata_core::layout::{FullyContiguous, LayoutConfig};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Case {
    sizes: [u32; 4],
    /// Most values are refused at once, so a bit tells whether to take the nearest that is not.
    tame: bool,
    outer_dim: u32,
    dtype_width_bytes: u32,
    alignment: u64,
    /// Blocks, layers, outers to look up.
    indices: [[u32; 3]; 4],
}

impl Case {
    fn config(&self) -> LayoutConfig {
        let [num_blocks, num_layers, page_size, inner_dim] = self.sizes;
        let config = LayoutConfig { num_blocks, num_layers, page_size, inner_dim, ..LayoutConfig::new() };
        if !self.tame {
            let (outer_dim, width, alignment) = (self.outer_dim, self.dtype_width_bytes, self.alignment);
            return config.outer_dim(outer_dim).dtype_width_bytes(width).alignment(alignment);
        }
        let width = 1 << (self.dtype_width_bytes % 5);
        let alignment = u64::from(width) << (self.alignment % 40);
        config.outer_dim(1 + self.outer_dim % 2).dtype_width_bytes(width).alignment(alignment)
    }
}

fuzz_target!(|case: Case| {
    let config = case.config();
    let layout = match FullyContiguous::new(config) {
        Ok(layout) => layout,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert!(config.validate().is_ok(), "a layout has a valid geometry");

    let [blocks, layers, outers, page, inner, width] = [
        config.num_blocks,
        config.num_layers,
        config.outer_dim,
        config.page_size,
        config.inner_dim,
        config.dtype_width_bytes,
    ]
    .map(u128::from);
    let alignment = u128::from(config.alignment);
    let outer_stride = page * inner * width;
    let block_bytes = outer_stride * outers * layers;
    let block_stride = block_bytes.next_multiple_of(alignment);
    assert_eq!(u128::from(layout.block_bytes()), block_bytes);
    assert_eq!(u128::from(layout.block_stride()), block_stride);
    assert_eq!(u128::from(layout.total_bytes()), block_stride * blocks);

    let last = [config.num_blocks - 1, config.num_layers - 1, config.outer_dim - 1];
    let inside =
        case.indices.map(|[b, l, o]| [b % config.num_blocks, l % config.num_layers, o % config.outer_dim]);
    for index @ [block, layer, outer] in case.indices.into_iter().chain(inside).chain([last]) {
        let found = layout.range(block, layer, outer);
        let exists = index.into_iter().zip(last).all(|(index, last)| index <= last);
        assert_eq!(found.is_ok(), exists, "{index:?} of {config:?}");
        let Ok(range) = found else { continue };
        let start = u128::from(block) * block_stride
            + (u128::from(layer) * outers + u128::from(outer)) * outer_stride;
        assert_eq!(u128::from(range.start), start);
        assert_eq!(u128::from(range.end), start + outer_stride);
        assert!(range.end <= layout.total_bytes());

        let whole = layout.block_range(block).expect("the block exists");
        let of_layer = layout.layer_range(block, layer).expect("the layer exists");
        assert!(whole.start.is_multiple_of(config.alignment));
        assert!(whole.start <= of_layer.start && of_layer.end <= whole.end);
        assert!(of_layer.start <= range.start && range.end <= of_layer.end);
    }
});
