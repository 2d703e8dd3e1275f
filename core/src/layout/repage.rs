//! The same memory in blocks of another number of tokens.
//!
//! In some layouts the last token of a block is followed by the first token of the next block, at the
//! distance of any two tokens. Such a layout is *pageless*: its memory can be counted in blocks of any size.
//!
//! ```text
//!   OuterFirst, a layer's keys    │ block 0: t0 t1 t2 t3 │ block 1: t0 t1 t2 t3 │
//!                                 pageless: 8 tokens, one after the other
//!   FullyContiguous, 2 layers     │ block 0: layer 0, layer 1 │ block 1: layer 0, …
//!                                 not: another layer lies between two blocks' tokens
//! ```

use super::{Dim, Index, Layout, Place, Plane};

/// Bytes from one token to the next, over all blocks; none if blocks are further
/// apart than their tokens fill.
fn pitch(strides: [u64; 5], shape: Index) -> Option<u64> {
    let [block, _, _, token, _] = strides;
    let [blocks, _, _, tokens, _] = shape;
    match (blocks, tokens) {
        (1, _) => Some(token),
        (_, 1) => Some(block),
        _ => (block == u64::from(tokens) * token).then_some(token),
    }
}

impl Plane {
    /// Bytes from one token to the next, over all blocks, if the layout is pageless.
    pub(crate) fn pitch(&self, shape: Index) -> Option<u64> {
        pitch(self.strides, shape)
    }
}

impl Layout {
    /// Returns whether a block's last token is followed by the next block's first, in every plane.
    pub(crate) fn is_pageless(&self) -> bool {
        let shape = self.config.shape();
        self.planes().all(|plane| plane.pitch(shape).is_some())
    }

    /// The same memory in blocks of `tokens`, a divisor of the page size; none if the layout is not
    /// pageless, or would have too many blocks to count.
    pub(crate) fn repaged(&self, tokens: u32) -> Option<Layout> {
        let shape = self.config.shape();
        if tokens == 0 || !self.config.page_size.is_multiple_of(tokens) || !self.is_pageless() {
            return None;
        }
        let blocks = self.config.num_blocks.checked_mul(self.config.page_size / tokens)?;
        let counted = |strides: [u64; 5]| -> Option<[u64; 5]> {
            let pitch = pitch(strides, shape)?;
            let mut strides = strides;
            // One form for one meaning: a dimension of 1 has no stride.
            strides[Dim::Block as usize] = if blocks > 1 { u64::from(tokens) * pitch } else { 0 };
            strides[Dim::Token as usize] = if tokens > 1 { pitch } else { 0 };
            Some(strides)
        };
        let plane = |plane: &Plane| {
            let mut plane = plane.clone();
            plane.strides = counted(plane.strides)?;
            Some(plane)
        };
        let place = |place: Place| Some(Place { strides: counted(place.strides)?, ..place });
        let (data, data_place) = (plane(&self.data)?, place(self.data_place)?);
        let scales = match &self.scales {
            Some(scales) => Some(plane(scales)?),
            None => None,
        };
        let scales_place = match self.scales_place {
            Some(scales) => Some(place(scales)?),
            None => None,
        };
        let mut config = self.config.num_blocks(blocks).page_size(tokens);
        if let stride @ 1.. = data.strides[Dim::Block as usize] {
            // Smaller blocks may start at smaller multiples.
            config.alignment = config.alignment.min(1 << stride.trailing_zeros());
        }
        let (arrangement, regions) = (self.arrangement, self.regions.clone());
        Some(Layout { config, arrangement, regions, data, scales, data_place, scales_place })
    }
}

#[cfg(test)]
mod tests {
    use crate::layout::tests::{SMALL, laid_out};
    use crate::layout::{Arrangement, HeadOrder};

    /// Every row of a pageless layout is at its old address, under its new numbers.
    #[test]
    fn repaged_rows_keep_their_addresses() {
        let mut pageless = 0;
        for arrangement in Arrangement::ALL {
            for order in [HeadOrder::Nhd, HeadOrder::Hnd] {
                for tokens in [1, 2, 4] {
                    let layout = laid_out(SMALL.alignment(2).head_order(order), arrangement);
                    let Some(other) = layout.repaged(tokens) else { continue };
                    pageless += 1;
                    assert_eq!(other.config().shape(), [12 / tokens, 2, 2, tokens, 5]);
                    other.config().validate().unwrap();
                    for index in crate::layout::tests::rows(layout.config()) {
                        let [block, layer, outer, token, head] = index;
                        let at = block * 4 + token;
                        let counted = [at / tokens, layer, outer, at % tokens, head];
                        assert_eq!(other.address(counted), layout.address(index), "{arrangement} {order}");
                    }
                }
            }
        }
        // NHD of OuterFirst, Packed and TokenMajor.
        assert_eq!(pageless, 9);
        let contiguous = laid_out(SMALL, Arrangement::FullyContiguous);
        assert!(!contiguous.is_pageless());
        assert!(laid_out(SMALL.page_size(1), Arrangement::FullyContiguous).is_pageless(), "a token a block");
    }
}
