//! One number for the meaning of a layout's bytes.
//!
//! [`Layout::fingerprint`] is a function of the element type and of the map
//!
//! ```text
//!   (block, layer, outer, token, i) → (number of the region, offset in it)
//!                                     i = head × head_size + e; elements and their scales
//! ```
//!
//! and of nothing else: not of addresses, kinds, sizes or alignment, nor of the arrangement's name.
//! [`Layout::block_fingerprint`] is the same for one block's bytes in one piece (see `payload.rs`). A
//! disk's superblock and a peer compare it: they have other numbers of blocks in other places.
//!
//! It is XXH3-128 of these bytes, integers little-endian, 8 bytes each except the tag:
//!
//! ```text
//!   tag (12) "kvlayout" or "kv_block", version as 4 bytes │ dtype │
//!   blocks layers outer tokens heads head_size │
//!   elements and, for a block-scaled type, scales: first region, regions from layer to layer,
//!                                                  from outer to outer, offset,
//!                                                  strides of block layer outer token head in bytes
//! ```
//!
//! I1. One byte string for one map: strides of dimensions of 1 are 0; consecutive heads without a gap,
//!     in elements and scales, are one head; scales in the row are rows of their own. Byte strings then
//!     differ only if the place of some element does.

#[cfg(test)]
pub(crate) mod tests;

use super::payload::Payload;
use super::{Dim, Index, Layout, Place};
use crate::hash::{BlockHasher, Xxh3};
use core::fmt;

/// The version of the byte strings.
const VERSION: u32 = 1;

/// The meaning of a layout's or a block's bytes. Equal exactly if every element has the same type and place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// The fingerprint with this number.
    #[must_use]
    pub const fn from_u128(value: u128) -> Fingerprint {
        Fingerprint(value)
    }

    /// Its number.
    #[must_use]
    pub const fn to_u128(self) -> u128 {
        self.0
    }

    /// The fingerprint of 16 bytes, least significant first.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Fingerprint {
        Fingerprint(u128::from_le_bytes(bytes))
    }

    /// Its 16 bytes, least significant first.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Layout {
    /// The meaning of the layout's bytes: equal for two layouts exactly if every element and scale has
    /// the same type and lies in the region of the same number at the same offset.
    ///
    /// See the [example](Layout#example).
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let (data, scales) = self.rows_apart();
        self.hashed(b"kvlayout", self.config().shape(), data, scales)
    }

    /// The meaning of one block's bytes, put into one piece in the order of
    /// [`BlockView::ranges`](super::BlockView::ranges): equal for two layouts exactly if such pieces can
    /// be exchanged, independent of the number of blocks, the padding and the regions.
    ///
    /// See the [example](Layout#example).
    #[must_use]
    pub fn block_fingerprint(&self) -> Fingerprint {
        let (data, scales) = self.rows_apart();
        let (data, scales) = Payload::new(data, scales, self.config().shape()).dense();
        let [_, layers, outers, tokens, heads] = self.config().shape();
        self.hashed(b"kv_block", [1, layers, outers, tokens, heads], data, scales)
    }

    /// Elements and scales as rows of their own, wherever they lie.
    fn rows_apart(&self) -> (Place, Option<Place>) {
        let (data_row, scale_row) = (self.config().row_data_bytes(), self.config().row_scale_bytes());
        let data = Place { row_bytes: data_row, ..self.data_place };
        let in_row = Place { row_bytes: scale_row, offset: data.offset + data_row, ..data };
        (data, (scale_row > 0).then(|| self.scales_place.unwrap_or(in_row)))
    }

    fn hashed(&self, tag: &[u8; 8], shape: Index, mut data: Place, mut scales: Option<Place>) -> Fingerprint {
        let [blocks, layers, outers, tokens, heads] = shape.map(u64::from);
        let (mut heads, mut head_size) = (heads, u64::from(self.config().head_size));
        let gapless = |place: &Place| place.strides[Dim::Head as usize] == place.row_bytes;
        if heads > 1 && gapless(&data) && scales.as_ref().is_none_or(gapless) {
            head_size *= heads; // 32 bit × 32 bit
            heads = 1;
            for place in [Some(&mut data), scales.as_mut()].into_iter().flatten() {
                place.strides[Dim::Head as usize] = 0;
            }
        }
        let mut bytes = [0; 12 + 8 * (7 + 2 * 9)];
        let (start, numbers) = bytes.split_at_mut(12);
        start[..8].copy_from_slice(tag);
        start[8..].copy_from_slice(&VERSION.to_le_bytes());
        let mut numbers = numbers.as_chunks_mut::<8>().0.iter_mut();
        let mut written = 12;
        let mut put = |of: &[u64]| {
            for (number, to) in of.iter().zip(numbers.by_ref()) {
                *to = number.to_le_bytes();
                written += 8;
            }
        };
        put(&[self.config().dtype as u64]);
        put(&[blocks, layers, outers, tokens, heads, head_size]);
        for place in [Some(data), scales].into_iter().flatten() {
            put(&[place.first, place.per_layer, place.per_outer].map(u64::from));
            put(&[place.offset]);
            put(&place.strides);
        }
        Fingerprint(Xxh3.bytes(&bytes[..written]))
    }
}
