//! The oracle: the copy, byte by byte, by index arithmetic of its own.
//!
//! It shares nothing with plans except the layouts' geometry, and, if tensors lie anywhere, the layout's
//! own address of a row: no merging, no loops, no checks. Slow, and right by reading. Every executor's
//! bytes are compared with the oracle's.

use super::Slice;
use crate::id::BlockId;
use crate::layout::{Arrangement, Dim, Index, Layout, ScalePlace};

/// Copies `src_blocks[i]` over `dst_blocks[i]`, as the plan of the same arguments would: reads through
/// `read`, writes through `write`.
///
/// # Panics
///
/// If the plan would have been refused.
pub fn copy(
    (src, src_blocks): (&Layout, &[BlockId]),
    (dst, dst_blocks): (&Layout, &[BlockId]),
    layers: impl Into<Slice>,
    heads: impl Into<Slice>,
    read: impl FnMut(u64) -> u8,
    write: impl FnMut(u64, u8),
) {
    assert_eq!(src_blocks.len(), dst_blocks.len(), "each block needs its counterpart");
    copy_tokens((src, src_blocks), (dst, dst_blocks), .., layers, heads, read, write);
}

/// Copies the tokens of `src_blocks` over those of `dst_blocks`, as the
/// [`PagePlan`](super::PagePlan) of the same arguments would.
///
/// # Panics
///
/// If the plan would have been refused.
pub fn copy_tokens(
    (src, src_blocks): (&Layout, &[BlockId]),
    (dst, dst_blocks): (&Layout, &[BlockId]),
    tokens: impl Into<Slice>,
    layers: impl Into<Slice>,
    heads: impl Into<Slice>,
    mut read: impl FnMut(u64) -> u8,
    mut write: impl FnMut(u64, u8),
) {
    let (from, to) = (src.config(), dst.config());
    // The smaller heads of the two: the other side may have them in one row.
    let head_size = from.head_size.min(to.head_size);
    let heads_of = |layout: &Layout| layout.config().num_heads * (layout.config().head_size / head_size);
    let layers = indices(layers.into(), from.num_layers);
    let heads = indices(heads.into(), heads_of(src));
    let tokens = indices(tokens.into(), src_blocks.len() as u32 * from.page_size);
    for (src_token, dst_token) in tokens {
        let src_block = src_blocks[(src_token / from.page_size) as usize];
        let dst_block = dst_blocks[(dst_token / to.page_size) as usize];
        let (src_token, dst_token) = (src_token % from.page_size, dst_token % to.page_size);
        for (src_layer, dst_layer) in layers.clone() {
            for outer in 0..from.outer_dim {
                for (src_head, dst_head) in heads.clone() {
                    let rows = (
                        [src_block.0, src_layer, outer, src_token, src_head],
                        [dst_block.0, dst_layer, outer, dst_token, dst_head],
                    );
                    for byte in 0..bytes(src, head_size) {
                        write(
                            address(dst, rows.1, byte, head_size),
                            read(address(src, rows.0, byte, head_size)),
                        );
                    }
                }
            }
        }
    }
}

/// The pairs of indices of a dimension.
fn indices(slice: Slice, all: u32) -> impl Iterator<Item = (u32, u32)> + Clone {
    let (src, dst, count) = match slice {
        Slice::All => (0, 0, all),
        Slice::Same(range) => (range.start, range.start, range.end - range.start),
        Slice::Moved { src, dst, count } => (src, dst, count),
    };
    (0..count).map(move |i| (src + i, dst + i))
}

/// Bytes of a row of `head_size` elements: first its elements, then its scales.
fn bytes(layout: &Layout, head_size: u32) -> u64 {
    let scales = layout.config().dtype.scale().map_or(0, |scale| head_size / scale.group * scale.bits / 8);
    data_bytes(layout, head_size) + u64::from(scales)
}

fn data_bytes(layout: &Layout, head_size: u32) -> u64 {
    u64::from(head_size) * u64::from(layout.config().dtype.bits()) / 8
}

/// The address of a byte of a row: by the shape in the arrangement's documentation, or, for tensors, by
/// the layout's own address of that row.
fn address(layout: &Layout, index: Index, byte: u64, head_size: u32) -> u64 {
    let config = layout.config();
    let data = data_bytes(layout, head_size);
    // The head's place in a row that has several.
    let in_row = config.head_size / head_size;
    let [block, layer, outer, token, head] = index;
    let index = [block, layer, outer, token, head / in_row];
    let byte = byte + u64::from(head % in_row) * data;
    let is_scale = byte >= config.row_data_bytes();
    match layout.arrangement() {
        Some(arrangement) => shaped(layout, arrangement, index, byte, is_scale),
        None => {
            let row = |address: Result<u64, _>| address.expect("an index in bounds");
            match layout.scales_address(index).expect("an index in bounds") {
                Some(scales) if is_scale => scales + byte - config.row_data_bytes(),
                _ => row(layout.address(index)) + byte,
            }
        }
    }
}

/// The byte's offset in the arrangement's array, written as nested indices.
fn shaped(layout: &Layout, arrangement: Arrangement, index: Index, byte: u64, is_scale: bool) -> u64 {
    let config = layout.config();
    let order = arrangement.order(config.head_order);
    let (data, scales) = (config.row_data_bytes(), config.row_scale_bytes());
    let apart = scales > 0 && config.scales == ScalePlace::Page;
    let count = |dim: Dim| u64::from(config.shape()[dim as usize]);
    // Bytes of everything below a place in the order, padding included.
    let below = |place: usize| {
        let mut bytes = data + scales;
        for dim in order[place..].iter().rev() {
            bytes *= count(*dim);
            // A block ends where the next may begin.
            if order[..place].last() == Some(&Dim::Block) && *dim == order[place] {
                bytes = bytes.next_multiple_of(config.alignment);
            }
        }
        if order[place..].is_empty() && order[..place].last() == Some(&Dim::Block) {
            bytes = bytes.next_multiple_of(config.alignment);
        }
        bytes
    };
    let stacked = |place: usize| -> u64 {
        // If blocks are not outermost, their padding is below the dimensions outside them.
        match order.iter().position(|dim| *dim == Dim::Block) {
            Some(block) if block + 1 > place => {
                let mut bytes = below(block + 1);
                for dim in &order[place..=block] {
                    bytes *= count(*dim);
                }
                bytes
            }
            _ => below(place),
        }
    };
    let mut offset = 0;
    let mut page = 0;
    for (place, dim) in order.iter().enumerate() {
        let at = u64::from(index[*dim as usize]);
        if apart && place + 2 >= order.len() {
            // Within a page, elements and scales count for themselves.
            page = page * count(*dim) + at;
        } else {
            offset += at * stacked(place + 1);
        }
    }
    let inside = match (apart, is_scale) {
        (false, _) => byte,
        (true, false) => page * data + byte,
        (true, true) => count(Dim::Token) * count(Dim::Head) * data + page * scales + byte - data,
    };
    let region = match layout.regions().len() as u64 {
        1 => 0,
        regions
            if regions == count(Dim::Layer)
                && !order.contains(&Dim::Layer)
                && order.contains(&Dim::Outer) =>
        {
            u64::from(index[1])
        }
        _ => u64::from(index[1]) * count(Dim::Outer) + u64::from(index[2]),
    };
    layout.regions()[region as usize].address + offset + inside
}
