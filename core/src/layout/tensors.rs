//! Bring your own tensors: shape, strides and address in, checked; a layout out.
//!
//! ```
//! use kvstrata_core::layout::tensors::{Axis, Tensor};
//! use kvstrata_core::layout::{DType, Layout, LayoutConfig, Region};
//! // One layer as vLLM's FlashAttention has it: [2][blocks][page][heads][size], bf16.
//! let config = LayoutConfig::new().num_blocks(100).outer_dim(2).page_size(16).heads(8, 128);
//! let tensor = Tensor {
//!     region: Region::system(0x7000_0000, 2 * 100 * 16 * 8 * 128 * 2),
//!     dims: &[Axis::Outer, Axis::Block, Axis::Token, Axis::Head, Axis::Element],
//!     shape: &[2, 100, 16, 8, 128],
//!     strides: &[100 * 16 * 8 * 128, 16 * 8 * 128, 8 * 128, 128, 1],
//! };
//! let layout = Layout::from_tensors(config.dtype(DType::BF16).alignment(2), &[tensor], &[])?;
//! assert_eq!(layout.address([7, 0, 1, 3, 5])?, 0x7000_0000 + 2 * (((100 + 7) * 16 + 3) * 8 + 5) * 128);
//! # Ok::<(), kvstrata_core::layout::LayoutError>(())
//! ```

#[cfg(test)]
mod tests;

use super::arrangement::Spread;
use super::{Dim, Field, Layout, LayoutConfig, LayoutError, Place, Plane, Region};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The meaning of a tensor's dimension.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Axis {
    /// Blocks.
    Block,
    /// Layers; absent if a tensor is one layer.
    Layer,
    /// Keys and values; absent if a tensor is one of them.
    Outer,
    /// Tokens of a page.
    Token,
    /// Tokens of all blocks: block × page_size + token (SGLang's pools).
    Slot,
    /// Heads.
    Head,
    /// Elements of a row. For a packed type with scales in the row: bytes, scales included.
    Element,
}

/// A tensor as its framework describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tensor<'a> {
    /// The place of its first element, and the number of bytes from there that belong to it.
    pub region: Region,
    /// The meaning of its dimensions, in its own order.
    pub dims: &'a [Axis],
    /// The number of indices of each.
    pub shape: &'a [u64],
    /// Elements from one index of a dimension to the next. Elements of packed types are bytes.
    pub strides: &'a [u64],
}

/// One kind of row in one list of tensors.
struct Rows {
    /// `tensors` or `scales`, and the number of its first region among the layout's.
    list: Field,
    first: u32,
    /// Bytes per row, and per element of the tensor.
    row: u64,
    element: u64,
}

impl Layout {
    /// Makes a layout of tensors from another allocator.
    ///
    /// There is one tensor for all layers, one per layer, one for all keys and one for all values, or
    /// one for each (layer, outer), layer by layer; their strides are equal. `scales` has them likewise
    /// if a block-scaled type keeps its scales in tensors of their own, and is empty otherwise. The
    /// layout's regions are those of `tensors`, then those of `scales`.
    ///
    /// A tensor starts at a multiple of its elements' bytes. `config.alignment` does not apply to
    /// tensors: their strides determine where blocks start.
    ///
    /// See the [example](Layout#example).
    ///
    /// # Errors
    ///
    /// The geometry is refused; or tensors do not have its shape, leave their regions, overlap, lie in
    /// several address spaces, or have rows in pieces.
    pub fn from_tensors(
        config: LayoutConfig,
        tensors: &[Tensor<'_>],
        scales: &[Tensor<'_>],
    ) -> Result<Layout, LayoutError> {
        config.validate()?;
        let packed = config.dtype.bits() < 8;
        let element = if packed { 1 } else { config.dtype.alignment() };
        let apart = !scales.is_empty();
        if apart && config.row_scale_bytes() == 0 {
            return Err(LayoutError::Count { field: Field::Scales, value: scales.len() as u64, needed: 0 });
        }
        let row = config.row_data_bytes() + if apart { 0 } else { config.row_scale_bytes() };
        let data_place = place(&config, tensors, &Rows { list: Field::Tensors, first: 0, row, element })?;
        let scales_place = match apart {
            true => {
                let first = tensors.len() as u32; // as many as the geometry has, see `place`
                let rows = Rows { list: Field::Scales, first, row: config.row_scale_bytes(), element: 1 };
                Some(place(&config, scales, &rows)?)
            }
            false => None,
        };
        let regions = tensors.iter().chain(scales).map(|tensor| tensor.region).collect();
        Layout::of_places(config, regions, data_place, scales_place)
    }

    /// A layout of tensors, from the places of their rows; `regions` has as many as the places need.
    pub(super) fn of_places(
        config: LayoutConfig,
        regions: Arc<[Region]>,
        data_place: Place,
        scales_place: Option<Place>,
    ) -> Result<Layout, LayoutError> {
        let dtype = config.dtype;
        for (region, number) in regions.iter().zip(0..data_place.num_regions(config.shape())) {
            if !region.address.is_multiple_of(dtype.alignment()) {
                return Err(LayoutError::ElementMisaligned {
                    region: number,
                    address: region.address,
                    dtype,
                });
            }
        }
        let layout = Layout::placed(config, None, regions, data_place, scales_place)?;
        if let Some(scales) = &layout.scales {
            check_apart(&layout.data, scales, &config)?;
        }
        Ok(layout)
    }
}

/// The places of the rows of a list of tensors.
fn place(config: &LayoutConfig, tensors: &[Tensor<'_>], rows: &Rows) -> Result<Place, LayoutError> {
    let has = |axis| tensors.first().is_some_and(|one| one.dims.contains(&axis));
    let spread = match (has(Axis::Layer), has(Axis::Outer)) {
        (true, true) => Spread::One,
        (false, true) => Spread::Layer,
        (true, false) => Spread::Outer,
        (false, false) => Spread::LayerOuter,
    };
    let place = |strides| Place::new(rows.row, strides, 0, rows.first, spread, config.shape());
    let needed = u64::from(place([0; 5]).num_regions(config.shape()));
    if tensors.len() as u64 != needed {
        return Err(LayoutError::Count { field: rows.list, value: tensors.len() as u64, needed });
    }
    let strides = tensors[0].byte_strides(config, 0, rows)?;
    for (tensor, number) in tensors.iter().zip(0..).skip(1) {
        let same =
            [Axis::Layer, Axis::Outer].into_iter().all(|axis| tensor.dims.contains(&axis) == has(axis));
        if !same || tensor.byte_strides(config, number, rows)? != strides {
            return Err(LayoutError::StridesDiffer { list: rows.list, tensor: number, other: 0 });
        }
    }
    Ok(place(strides))
}

impl Tensor<'_> {
    /// The tensor's strides in bytes, in the order of [`Dim::ALL`]; 0 for absent dimensions. Checks
    /// shape and bounds.
    fn byte_strides(&self, config: &LayoutConfig, tensor: u32, rows: &Rows) -> Result<[u64; 5], LayoutError> {
        let dims = LayoutError::Dims { list: rows.list, tensor };
        if self.dims.len() != self.shape.len() || self.dims.len() != self.strides.len() {
            return Err(dims);
        }
        let has = |axis| self.dims.contains(&axis);
        let twice = (1..self.dims.len()).any(|i| self.dims[..i].contains(&self.dims[i]));
        let slots = has(Axis::Slot);
        let paged =
            if slots { !has(Axis::Block) && !has(Axis::Token) } else { has(Axis::Block) && has(Axis::Token) };
        let heads = has(Axis::Head) || config.num_heads == 1;
        if twice || !paged || !heads || !has(Axis::Element) {
            return Err(dims);
        }
        let (blocks, page) = (u64::from(config.num_blocks), u64::from(config.page_size));
        let mut strides = [0u64; 5];
        let mut last = 0u64;
        for (position, axis) in self.dims.iter().enumerate() {
            let (dim, needed) = match axis {
                Axis::Block => (Some(Dim::Block), blocks),
                Axis::Layer => (Some(Dim::Layer), u64::from(config.num_layers)),
                Axis::Outer => (Some(Dim::Outer), u64::from(config.outer_dim)),
                Axis::Token => (Some(Dim::Token), page),
                Axis::Slot => (Some(Dim::Token), blocks * page), // 32 bit × 32 bit
                Axis::Head => (Some(Dim::Head), u64::from(config.num_heads)),
                Axis::Element => (None, rows.row / rows.element),
            };
            let (value, stride) = (self.shape[position], self.strides[position]);
            if value != needed {
                return Err(LayoutError::Shape {
                    list: rows.list,
                    tensor,
                    position: position as u32,
                    value,
                    needed,
                });
            }
            let Some(dim) = dim else {
                if stride != 1 && needed > 1 {
                    return Err(LayoutError::RowStride { list: rows.list, tensor, value: stride });
                }
                continue;
            };
            let overflow = LayoutError::Overflow { field: Field::Strides, value: stride };
            // A dimension of one may have any stride from its framework.
            let bytes = if value == 1 { 0 } else { stride.checked_mul(rows.element).ok_or(overflow)? };
            last =
                (value - 1).checked_mul(bytes).and_then(|reach| last.checked_add(reach)).ok_or(overflow)?;
            strides[dim as usize] = bytes;
            if *axis == Axis::Slot {
                strides[Dim::Block as usize] = bytes.checked_mul(page).ok_or(overflow)?;
            }
        }
        self.region.end()?;
        let overflow = LayoutError::Overflow { field: Field::Strides, value: last };
        let needed = last.checked_add(rows.row).ok_or(overflow)?;
        if needed > self.region.size_bytes {
            return Err(LayoutError::RegionTooSmall {
                region: rows.first + tensor,
                size_bytes: self.region.size_bytes,
                needed,
            });
        }
        Ok(strides)
    }
}

/// Checks that no row of scales shares a byte with a row of elements: they are in separate tensors, or
/// in gaps that both repeat at the same distances.
fn check_apart(data: &Plane, scales: &Plane, config: &LayoutConfig) -> Result<(), LayoutError> {
    let shape = config.shape();
    let (of_data, of_scales) = (data.starts(shape), scales.starts(shape));
    let spans = |starts: &[u64], span: u64, kind: usize| -> Vec<(u64, u64, usize)> {
        starts.iter().map(|at| (*at, at + span, kind)).collect()
    };
    let mut all = spans(&of_data, data.span_of_base(shape), 0);
    all.extend(spans(&of_scales, scales.span_of_base(shape), 1));
    all.sort_unstable();
    // The end of each kind's spans so far. Spans of one kind may overlap, since their rows do not
    // (`Plane`'s I1).
    let mut ends = [0, 0];
    let apart = all.iter().all(|(start, end, kind)| {
        ends[*kind] = (*end).max(ends[*kind]);
        *start >= ends[1 - kind]
    });
    if apart {
        return Ok(());
    }
    // Treat the bytes between the common distances of both as one row: such rows must not overlap.
    let common = |dim: Dim| data.strides[dim as usize] == scales.strides[dim as usize];
    let inner = |plane: &Plane| {
        let reach = |dim: Dim| u64::from(shape[dim as usize] - 1) * plane.strides[dim as usize];
        plane.row_bytes + Dim::ALL.into_iter().filter(|dim| !common(*dim)).map(reach).sum::<u64>()
    };
    let (d, s) = (of_data[0], of_scales[0]);
    let (data_end, scales_end) = (d + inner(data), s + inner(scales));
    let same_gap = of_data.iter().zip(&of_scales).all(|(a, b)| a.wrapping_sub(*b) == d.wrapping_sub(s));
    if !same_gap || (data_end > s && scales_end > d) {
        return Err(LayoutError::ScalesOverlap);
    }
    let strides = Dim::ALL.map(|dim| if common(dim) { data.strides[dim as usize] } else { 0 });
    let shape = Dim::ALL.map(|dim| if common(dim) { shape[dim as usize] } else { 1 });
    let starts = if d < s { of_data } else { of_scales };
    let union = data_end.max(scales_end) - d.min(s);
    Plane::new(union, strides, starts, shape).map(drop).map_err(|_| LayoutError::ScalesOverlap)
}
