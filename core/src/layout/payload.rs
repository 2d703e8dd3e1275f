//! The order of a block's bytes in one piece: for a disk, a wire, another layout.
//!
//! It is the order in the block's own memory, region by region, address by address, without the gaps. So a
//! block that is in one piece already is its own payload, and `num_blocks` and padding have no part in it.
//!
//! ```text
//!   OuterFirst, 2 layers    region 0: K of block 0 │ K of block 1 │ V of block 0 │ V of block 1
//!                           region 1: the same of layer 1
//!   payload of block 1      layer 0 K │ layer 0 V │ layer 1 K │ layer 1 V
//! ```
//!
//! I1. Elements and scales either lie in different regions, elements first, or repeat together. Then the
//!     dimensions with common strides are outside the others, and within these all elements come before
//!     all scales. Constructors make no other layouts.

use super::{Dim, Index, Place};

/// The order of a block's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload {
    /// The dimensions that elements and scales repeat together.
    common: Nest,
    data: Rows,
    scales: Option<Rows>,
    /// The shape of one block.
    shape: Index,
}

/// Rows, and the dimensions that they fill alone.
#[derive(Clone, Copy, Debug)]
struct Rows {
    place: Place,
    nest: Nest,
}

/// Dimensions with more than one index, innermost first.
#[derive(Clone, Copy, Debug)]
struct Nest {
    dims: [Dim; 4],
    len: usize,
}

impl Nest {
    fn of(place: &Place, shape: Index, has: impl Fn(Dim) -> bool) -> Nest {
        let mut nest = Nest { dims: [Dim::Layer, Dim::Outer, Dim::Token, Dim::Head], len: 0 };
        for dim in nest.dims {
            if shape[dim as usize] > 1 && has(dim) {
                nest.dims[nest.len] = dim;
                nest.len += 1;
            }
        }
        nest.dims[..nest.len].sort_unstable_by_key(|dim| place.step(*dim));
        nest
    }

    fn dims(&self) -> &[Dim] {
        &self.dims[..self.len]
    }

    fn count(&self, shape: Index) -> u64 {
        self.dims().iter().map(|dim| u64::from(shape[*dim as usize])).product()
    }
}

impl Place {
    /// Regions and bytes from one index to the next.
    fn step(&self, dim: Dim) -> (u32, u64) {
        let regions = match dim {
            Dim::Layer => self.per_layer,
            Dim::Outer => self.per_outer,
            _ => 0,
        };
        (regions, self.strides[dim as usize])
    }
}

impl Payload {
    /// The payload of one block of `shape`.
    pub(super) fn new(data: Place, scales: Option<Place>, mut shape: Index) -> Payload {
        shape[Dim::Block as usize] = 1;
        let together = |dim: Dim| {
            scales.is_some_and(|scales| scales.first == data.first && scales.step(dim) == data.step(dim))
        };
        let rows = |place| Rows { place, nest: Nest::of(&place, shape, |dim| !together(dim)) };
        Payload {
            common: Nest::of(&data, shape, together),
            data: rows(data),
            scales: scales.map(rows),
            shape,
        }
    }

    /// The places of the rows in the payload, as if it were a region. Its size is that of a block's
    /// data, which fits into 64 bits.
    pub(super) fn dense(&self) -> (Place, Option<Place>) {
        let none = |rows: &Rows, offset| Place {
            strides: [0; 5],
            offset,
            first: 0,
            per_layer: 0,
            per_outer: 0,
            ..rows.place
        };
        let fill = |place: &mut Place, nest: &Nest, mut bytes: u64| {
            for dim in nest.dims() {
                place.strides[*dim as usize] = bytes;
                bytes *= u64::from(self.shape[*dim as usize]);
            }
            bytes
        };
        let mut data = none(&self.data, 0);
        let mut bytes = fill(&mut data, &self.data.nest, self.data.place.row_bytes);
        let mut scales = self.scales.as_ref().map(|rows| (none(rows, bytes), rows));
        if let Some((scales, rows)) = &mut scales {
            bytes += fill(scales, &rows.nest, rows.place.row_bytes);
            fill(scales, &self.common, bytes);
        }
        fill(&mut data, &self.common, bytes);
        (data, scales.map(|(place, _)| place))
    }

    /// Number of pieces of [`piece`](Payload::piece).
    pub(super) fn num_pieces(&self) -> u64 {
        self.common.count(self.shape) * self.pieces_a_turn()
    }

    fn pieces_a_turn(&self) -> u64 {
        let pieces = |rows: &Rows| rows.nest.count(self.shape);
        pieces(&self.data) + self.scales.as_ref().map_or(0, pieces)
    }

    /// The region of a piece in the order of the payload, the offset there in block 0, and the bytes.
    pub(super) fn piece(&self, number: u64) -> (u32, u64, u64) {
        let mut index = [0; 5];
        let mut take = |nest: &Nest, mut number: u64| {
            for dim in nest.dims() {
                let count = u64::from(self.shape[*dim as usize]);
                index[*dim as usize] = (number % count) as u32;
                number /= count;
            }
        };
        let turn = self.pieces_a_turn();
        take(&self.common, number / turn);
        let (within, of_data) = (number % turn, self.data.nest.count(self.shape));
        let rows = match &self.scales {
            Some(scales) if within >= of_data => {
                take(&scales.nest, within - of_data);
                scales
            }
            _ => {
                take(&self.data.nest, within);
                &self.data
            }
        };
        let place = &rows.place;
        let bytes = index.iter().zip(place.strides).map(|(index, stride)| u64::from(*index) * stride);
        let [_, layer, outer, ..] = index;
        (place.region(layer, outer), place.offset + bytes.sum::<u64>(), place.row_bytes)
    }

    /// The same bytes in fewer and larger pieces: inner rows without a gap become one row.
    pub(super) fn merged(mut self) -> Payload {
        let merge = |rows: &mut Rows| {
            while let [dim, ..] = *rows.nest.dims() {
                if rows.place.step(dim) != (0, rows.place.row_bytes) {
                    break;
                }
                rows.place.row_bytes *= u64::from(self.shape[dim as usize]);
                rows.nest.dims.rotate_left(1);
                rows.nest.len -= 1;
            }
        };
        merge(&mut self.data);
        self.scales.iter_mut().for_each(merge);
        self
    }
}
