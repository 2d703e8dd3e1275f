//! The places of rows within regions: the part of a layout that stays the same when the regions move.
//!
//! ```text
//!   row (block, layer, outer, token, head) lies in region first + layer × per_layer + outer × per_outer,
//!   at offset + block × strides[0] + layer × strides[1] + outer × strides[2]
//!             + token × strides[3] + head × strides[4] bytes from its start
//! ```
//!
//! A [`Plane`] has the same in addresses; it is made of a place and regions.
//!
//! I1. One form for one meaning: a stride is 0 if the dimension is 1, or if the next index is in another
//!     region; `per_layer` and `per_outer` are 0 if the dimension is 1.

use super::arrangement::Spread;
use super::{Dim, Field, Index, LayoutError, Plane, Region};
use alloc::vec::Vec;

/// The places of rows within regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) row_bytes: u64,
    /// Bytes from one index to the next, in the order of [`Dim::ALL`].
    pub(crate) strides: [u64; 5],
    /// Bytes from a region's start to its first row.
    pub(crate) offset: u64,
    /// The region of layer 0, outer index 0; regions from one layer to the next; from one
    /// outer index to the next.
    pub(crate) first: u32,
    pub(crate) per_layer: u32,
    pub(crate) per_outer: u32,
}

impl Place {
    /// A place in regions from number `first` on.
    pub(super) fn new(
        row_bytes: u64,
        mut strides: [u64; 5],
        offset: u64,
        first: u32,
        spread: Spread,
        shape: Index,
    ) -> Place {
        let [_, layers, outers, ..] = shape;
        let (per_layer, per_outer) = match spread {
            Spread::One => (0, 0),
            Spread::Layer => (1, 0),
            Spread::Outer => (0, 1),
            Spread::LayerOuter => (outers, 1),
        };
        let per_layer = if layers == 1 { 0 } else { per_layer };
        let per_outer = if outers == 1 { 0 } else { per_outer };
        for (dim, apart) in Dim::ALL.into_iter().zip([false, per_layer > 0, per_outer > 0, false, false]) {
            if shape[dim as usize] == 1 || apart {
                strides[dim as usize] = 0;
            }
        }
        Place { row_bytes, strides, offset, first, per_layer, per_outer }
    }

    /// Its spread; of equivalent spreads the first.
    pub(super) fn spread(&self) -> Spread {
        match (self.per_layer, self.per_outer) {
            (0, 0) => Spread::One,
            (_, 0) => Spread::Layer,
            (0, _) => Spread::Outer,
            _ => Spread::LayerOuter,
        }
    }

    /// The region with the rows of a (layer, outer).
    pub(crate) fn region(&self, layer: u32, outer: u32) -> u32 {
        self.first + layer * self.per_layer + outer * self.per_outer // 65,536 × 2 at most
    }

    /// Number of regions in which it has rows.
    pub(super) fn num_regions(&self, shape: Index) -> u32 {
        let [_, layers, outers, ..] = shape;
        self.region(layers - 1, outers - 1) - self.first + 1
    }

    /// Bytes from a region's start to the end of its last row.
    ///
    /// # Errors
    ///
    /// They exceed 64 bits.
    pub(super) fn needed(&self, shape: Index) -> Result<u64, LayoutError> {
        let mut end = self.offset.checked_add(self.row_bytes);
        for (stride, count) in self.strides.into_iter().zip(shape) {
            let reach = stride.checked_mul(u64::from(count - 1));
            end = end.and_then(|end| end.checked_add(reach?));
        }
        end.ok_or(LayoutError::Overflow { field: Field::Strides, value: self.strides[Dim::Block as usize] })
    }

    /// The same in addresses. Checks that every row is within its region.
    ///
    /// # Errors
    ///
    /// A region is too small or ends beyond 64 bits; rows overlap.
    pub(super) fn plane(&self, regions: &[Region], shape: Index) -> Result<Plane, LayoutError> {
        let [_, layers, outers, ..] = shape;
        let needed = self.needed(shape)?;
        for number in self.first..self.first + self.num_regions(shape) {
            let region = &regions[number as usize];
            region.end()?;
            if region.size_bytes < needed {
                let size_bytes = region.size_bytes;
                return Err(LayoutError::RegionTooSmall { region: number, size_bytes, needed });
            }
        }
        let at = |layer: u32, outer: u32| {
            let [_, of_layer, of_outer, ..] = self.strides;
            // Within a region, which ends within 64 bits.
            regions[self.region(layer, outer) as usize].address
                + self.offset
                + u64::from(layer) * of_layer
                + u64::from(outer) * of_outer
        };
        if self.spread() == Spread::One {
            return Plane::even(self.row_bytes, self.strides, at(0, 0), shape);
        }
        let pairs = (0..layers).flat_map(|layer| (0..outers).map(move |outer| (layer, outer)));
        let starts: Vec<u64> = pairs.map(|(layer, outer)| at(layer, outer)).collect();
        Plane::new(self.row_bytes, self.strides, starts, shape)
    }
}
