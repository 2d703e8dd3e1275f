//! The place of every byte of a block.
//!
//! A [`LayoutConfig`] is the geometry, checked as a whole; an [`Arrangement`] is the order of its
//! dimensions; a [`Layout`] puts both into [regions](Region). The unit is the *row*, the `head_size`
//! elements of one (block, layer, outer, token, head). Five strides and a base tell where each row is,
//! for every engine (see [`arrangement`] for all of them).
//!
//! ```text
//!   FullyContiguous, NHD                                              block_stride, a multiple of alignment
//!   ▼◀────────────────────────── block 0 ──────────────────────────▶▼◀─────────── block 1 …
//!   │ layer 0                   │ layer 1                   │ … │pad│ layer 0
//!   │ outer 0 (K) │ outer 1 (V) │ outer 0 (K) │ outer 1 (V) │   │   │
//!   ◀─────────────▶ page_size × num_heads rows
//!   ◀───────────────────────────▶ layer_stride
//! ```
//!
//! Sizes and offsets are bytes in `u64`, independent of the host's pointers: a region may be a file or
//! another machine's.
//!
//! Invariants:
//!
//! - **I1** Every row lies within one of the given regions, and ends within 64 bits.
//! - **I2** No two rows share a byte.
//! - **I3** Every block of an [`Arrangement`] starts at a multiple of `alignment`.
//! - **I4** All regions lie in one address space, so that an address is one byte (I2).

pub mod arrangement;
pub mod describe;
pub mod groups;
pub mod model;
pub mod tensors;
pub mod view;

mod block;
mod config;
mod dim;
mod dtype;
mod error;
pub(crate) mod fingerprint;
mod payload;
mod place;
mod plane;
mod region;
mod repage;
mod shard;
mod slice;
#[cfg(test)]
pub(crate) mod tests;

pub use arrangement::{Arrangement, UnknownArrangement};
pub use block::{BlockView, ByteRange, LayerView, Ranges};
pub use config::{HeadOrder, LayoutConfig, ScalePlace};
pub use describe::DescriptionError;
pub use dim::{Dim, Index};
pub use dtype::{DType, Scale, UnknownDType};
pub use error::{BoundsError, Field, LayoutError};
pub use fingerprint::Fingerprint;
pub use groups::{GroupsError, LayerGroup, LayerGroups};
pub use model::{Model, UnknownModel};
pub use region::Region;
pub use shard::{Shard, ShardError};
pub use slice::Slice;
pub(crate) use slice::Span;
pub use tensors::Tensor;
pub use view::TensorView;

use alloc::sync::Arc;
use arrangement::Spread;
use config::checked;
pub(crate) use place::Place;
pub(crate) use plane::{Bases, Plane};

/// The place of every byte of a set of blocks. Cheap to clone.
///
/// # Example
///
/// ```
/// use kvstrata_core::layout::tensors::{Axis, Tensor};
/// use kvstrata_core::layout::{Dim, Region};
/// use kvstrata_core::{Arrangement, DType, Layout, LayoutConfig};
/// let config = LayoutConfig::new().num_blocks(4).num_layers(2).outer_dim(2).page_size(16).heads(8, 128);
/// let config = config.dtype(DType::BF16).alignment(4096);
///
/// // A host tier: each block in one piece.
/// let need = Arrangement::FullyContiguous.needs(&config)?;
/// let host = Layout::fully_contiguous(config, Region::system(0x10_0000, need.bytes))?;
/// assert_eq!((host.block_bytes(), host.row_bytes()), (131_072, 256));
/// assert_eq!(host.stride(Dim::Block), Some(131_072));
/// assert_eq!((host.arrangement(), host.config().num_blocks), (Some(Arrangement::FullyContiguous), 4));
/// assert_eq!(host.address([1, 0, 0, 0, 0])?, 0x10_0000 + 131_072); // block, layer, outer, token, head
/// assert_eq!(host.scales_address([1, 0, 0, 0, 0])?, None); // BF16 has no scales
/// assert_eq!(host.block(1)?.ranges().count(), 1);
///
/// // An engine: one region per layer, `[2][blocks][page][heads][size]`.
/// let need = Arrangement::OuterFirst.needs(&config)?;
/// let layers = [1u64, 2].map(|layer| Region::system(layer << 32, need.bytes));
/// let engine = Layout::layer_separated(config, Arrangement::OuterFirst, &layers)?;
/// assert_eq!(engine.regions(), layers);
/// assert_eq!(engine.layer(3, 1)?.tensor(0)?.shape(), [16, 8, 128]);
/// assert_eq!(engine.block_fingerprint(), host.block_fingerprint()); // blocks can be exchanged
/// assert_ne!(engine.fingerprint(), host.fingerprint());
///
/// // The same memory as another process has mapped it; the description travels as bytes.
/// let theirs = Layout::from_bytes(&host.to_bytes())?.relocated(&[0x7000_0000])?;
/// assert_eq!(theirs.address([0; 5])?, 0x7000_0000);
///
/// // A tensor of another allocator, with its own strides.
/// let one = LayoutConfig::new().num_blocks(4).inner_dim(8).alignment(1);
/// let dims = &[Axis::Block, Axis::Token, Axis::Element];
/// let tensor = Tensor { region: Region::system(64, 64), dims, shape: &[4, 1, 8], strides: &[16, 8, 1] };
/// assert_eq!(Layout::from_tensors(one, &[tensor], &[])?.address([3, 0, 0, 0, 0])?, 64 + 3 * 16);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Layout {
    config: LayoutConfig,
    arrangement: Option<Arrangement>,
    regions: Arc<[Region]>,
    /// Rows of elements, and of scales if these lie apart.
    data: Plane,
    scales: Option<Plane>,
    /// The same, within regions.
    data_place: Place,
    scales_place: Option<Place>,
}

/// The regions that an arrangement needs: their number and size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionNeed {
    /// Regions.
    pub count: u32,
    /// Bytes of each, the last block's padding included.
    pub bytes: u64,
    /// Bytes from one block to the next within a region.
    pub block_stride: u64,
}

/// The strides of an arrangement, within a region: of elements, and of scales that lie apart.
struct Strides {
    data: [u64; 5],
    scales: Option<[u64; 5]>,
    /// Bytes from an element's base to its scales' base.
    scales_offset: u64,
    region_bytes: u64,
}

impl Arrangement {
    /// Returns the regions that a geometry needs.
    ///
    /// # Errors
    ///
    /// As [`Layout::new`], except those about regions.
    pub fn needs(self, config: &LayoutConfig) -> Result<RegionNeed, LayoutError> {
        let strides = self.strides(config)?;
        Ok(RegionNeed {
            count: match self.spread() {
                Spread::One => 1,
                Spread::Layer => config.num_layers,
                Spread::Outer => config.outer_dim,
                Spread::LayerOuter => config.num_layers * config.outer_dim, // 65,536 × 2 at most
            },
            bytes: strides.region_bytes,
            block_stride: strides.data[Dim::Block as usize],
        })
    }

    /// The places of rows of elements within regions, and of rows of scales that lie apart.
    fn places(self, config: &LayoutConfig) -> Result<(Place, Option<Place>), LayoutError> {
        let strides = self.strides(config)?;
        let place = |row, of, offset| Place::new(row, of, offset, 0, self.spread(), config.shape());
        let (data_row, scale_row) = (config.row_data_bytes(), config.row_scale_bytes());
        Ok(match strides.scales {
            Some(of) => (place(data_row, strides.data, 0), Some(place(scale_row, of, strides.scales_offset))),
            None => (place(data_row + scale_row, strides.data, 0), None),
        })
    }

    fn strides(self, config: &LayoutConfig) -> Result<Strides, LayoutError> {
        config.validate()?;
        let order = self.order(config.head_order);
        let (data_row, scale_row) = (config.row_data_bytes(), config.row_scale_bytes());
        let apart = scale_row > 0 && config.scales == ScalePlace::Page;
        let page = match order {
            [outside @ .., Dim::Token, Dim::Head] | [outside @ .., Dim::Head, Dim::Token] => Some(outside),
            _ => None,
        };
        if apart && page.is_none() {
            return Err(LayoutError::ScalesApart { arrangement: self });
        }
        let row = if apart { data_row } else { data_row + scale_row };
        let mut strides = Strides { data: [0; 5], scales: None, scales_offset: 0, region_bytes: row };
        let mut bytes = row;
        let mut scales = [0; 5];
        let mut scale_bytes = scale_row;
        for (depth, dim) in order.iter().enumerate().rev() {
            let at = *dim as usize;
            if *dim == Dim::Block {
                let padded = bytes.checked_next_multiple_of(config.alignment);
                let padded = checked(padded, Field::Alignment, config.alignment)?;
                if padded != bytes && self == Arrangement::TokenMajor {
                    return Err(LayoutError::Padded { bytes, alignment: config.alignment });
                }
                bytes = padded;
            }
            strides.data[at] = bytes;
            let outside = !matches!(dim, Dim::Token | Dim::Head);
            scales[at] = if outside { bytes } else { scale_bytes };
            let count = u64::from(config.shape()[at]);
            bytes = checked(bytes.checked_mul(count), field_of(*dim), count)?;
            scale_bytes = checked(scale_bytes.checked_mul(count), field_of(*dim), count)?;
            if apart && page.is_some_and(|outside| outside.len() == depth) {
                // The page is complete: its scales follow.
                strides.scales_offset = bytes;
                bytes =
                    checked(bytes.checked_add(scale_bytes), Field::HeadSize, u64::from(config.head_size))?;
            }
        }
        strides.region_bytes = bytes;
        strides.scales = apart.then_some(scales);
        Ok(strides)
    }
}

const fn field_of(dim: Dim) -> Field {
    match dim {
        Dim::Block => Field::NumBlocks,
        Dim::Layer => Field::NumLayers,
        Dim::Outer => Field::OuterDim,
        Dim::Token => Field::PageSize,
        Dim::Head => Field::NumHeads,
    }
}

impl Layout {
    /// Lays the geometry out in the regions, in an engine's or a tier's order.
    ///
    /// Regions go layer by layer and, if keys and values are apart, keys first.
    /// [`Arrangement::needs`] returns their number.
    ///
    /// See the [example](Layout#example).
    ///
    /// # Errors
    ///
    /// The geometry is refused or exceeds 64 bits; there are too few regions or too many; one is too
    /// small or misaligned; two overlap; or there are several address spaces.
    pub fn new(
        config: LayoutConfig,
        arrangement: Arrangement,
        regions: &[Region],
    ) -> Result<Layout, LayoutError> {
        let need = arrangement.needs(&config)?;
        if regions.len() != need.count as usize {
            let (value, needed) = (regions.len() as u64, u64::from(need.count));
            return Err(LayoutError::Count { field: Field::Regions, value, needed });
        }
        for (region, number) in regions.iter().zip(0..) {
            region.end()?;
            if region.size_bytes < need.bytes {
                let (size_bytes, needed) = (region.size_bytes, need.bytes);
                return Err(LayoutError::RegionTooSmall { region: number, size_bytes, needed });
            }
            if !region.address.is_multiple_of(config.alignment) {
                let (address, alignment) = (region.address, config.alignment);
                return Err(LayoutError::Misaligned { region: number, address, alignment });
            }
        }
        let (data_place, scales_place) = arrangement.places(&config)?;
        Layout::placed(config, Some(arrangement), regions.into(), data_place, scales_place)
    }

    /// A layout of places in existing regions.
    fn placed(
        config: LayoutConfig,
        arrangement: Option<Arrangement>,
        regions: Arc<[Region]>,
        data_place: Place,
        scales_place: Option<Place>,
    ) -> Result<Layout, LayoutError> {
        let first = &regions[0]; // no constructor takes none
        if let Some((region, other)) = (0..).zip(&*regions).find(|(_, other)| !other.shares_space(first)) {
            return Err(LayoutError::Spaces { region, kind: other.kind, first: first.kind });
        }
        if config.dtype.bits() < 8 {
            // So that 64 bits count elements too, not only bytes.
            let needed = data_place.needed(config.shape())?;
            checked(needed.checked_mul(2), Field::NumBlocks, config.num_blocks.into())?;
        }
        let data = data_place.plane(&regions, config.shape())?;
        let scales = match scales_place {
            Some(place) => Some(place.plane(&regions, config.shape())?),
            None => None,
        };
        Ok(Layout { config, arrangement, regions, data, scales, data_place, scales_place })
    }

    /// One region, blocks one after the other, `block_stride = align_up(num_layers ×
    /// layer_stride, alignment)` apart. Tiers outside the engine use it, since a block is one
    /// piece, one DMA descriptor, one disk request.
    ///
    /// See the [example](Layout#example).
    ///
    /// # Errors
    ///
    /// As [`Layout::new`].
    pub fn fully_contiguous(config: LayoutConfig, region: Region) -> Result<Layout, LayoutError> {
        Layout::new(config, Arrangement::FullyContiguous, &[region])
    }

    /// One region per layer: [`Layout::new`] for arrangements with this property,
    /// [`Arrangement::OuterFirst`], [`Arrangement::BlockFirst`], [`Arrangement::Packed`], or, with keys
    /// and values apart, [`Arrangement::TokenMajor`].
    ///
    /// See the [example](Layout#example).
    ///
    /// # Errors
    ///
    /// The arrangement has all layers in one region; else as [`Layout::new`].
    pub fn layer_separated(
        config: LayoutConfig,
        arrangement: Arrangement,
        regions: &[Region],
    ) -> Result<Layout, LayoutError> {
        match arrangement.spread() {
            Spread::Layer | Spread::LayerOuter => Layout::new(config, arrangement, regions),
            Spread::One | Spread::Outer => Err(LayoutError::LayersTogether { arrangement }),
        }
    }

    /// The geometry.
    ///
    /// See the [example](Layout#example).
    #[must_use]
    pub fn config(&self) -> &LayoutConfig {
        &self.config
    }

    /// The order of its dimensions; none for a list of tensors.
    ///
    /// See the [example](Layout#example).
    #[must_use]
    pub fn arrangement(&self) -> Option<Arrangement> {
        self.arrangement
    }

    /// The regions of its bytes.
    ///
    /// See the [example](Layout#example).
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Bytes of a block that carry data.
    ///
    /// See the [example](Layout#example).
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        let [_, layers, outers, tokens, heads] = self.config.shape().map(u64::from);
        let rows = layers * outers * tokens * heads;
        self.planes().map(|plane| rows * plane.row_bytes).sum()
    }

    /// Bytes from one index of a dimension to the next, of elements; none if layers (or outer indices)
    /// are not evenly spaced. 0 if there is only one.
    ///
    /// See the [example](Layout#example).
    #[must_use]
    pub fn stride(&self, dim: Dim) -> Option<u64> {
        (!self.data.bases.hold(dim)).then_some(self.data.strides[dim as usize])
    }

    /// Bytes of a row of elements, including scales if they follow each row.
    ///
    /// See the [example](Layout#example).
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        self.data.row_bytes
    }

    /// Address of a row's elements.
    ///
    /// See the [example](Layout#example).
    ///
    /// # Errors
    ///
    /// [`BoundsError`], with the index and the shape.
    #[inline]
    pub fn address(&self, index: Index) -> Result<u64, BoundsError> {
        self.config.check_index(index)?;
        Ok(self.data.address(index))
    }

    /// Address of a row's scales, if they lie apart from the elements.
    ///
    /// See the [example](Layout#example).
    ///
    /// # Errors
    ///
    /// [`BoundsError`], with the index and the shape.
    pub fn scales_address(&self, index: Index) -> Result<Option<u64>, BoundsError> {
        self.config.check_index(index)?;
        Ok(self.scales.as_ref().map(|plane| plane.address(index)))
    }

    pub(crate) fn data_plane(&self) -> &Plane {
        &self.data
    }

    pub(crate) fn scales_plane(&self) -> Option<&Plane> {
        self.scales.as_ref()
    }

    pub(crate) fn scales_apart(&self) -> bool {
        self.scales.is_some()
    }

    /// The places of rows within regions: elements, then scales that lie apart.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        core::iter::once(&self.data_place).chain(&self.scales_place)
    }

    /// Elements, then scales.
    pub(crate) fn planes(&self) -> impl Iterator<Item = &Plane> {
        core::iter::once(&self.data).chain(&self.scales)
    }
}
