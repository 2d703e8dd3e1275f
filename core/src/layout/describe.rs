//! A layout as bytes, so that another process can rebuild it, or tell which field does not fit.
//!
//! ```text
//!   at   bytes
//!    0       8   "KVLAYOUT"
//!    8       4   version, 1
//!   12       4   num_blocks
//!   16       4   num_layers
//!   20       4   outer_dim
//!   24       4   page_size
//!   28       4   num_heads
//!   32       4   head_size
//!   36       1   dtype: 1 float32, 2 float16, 3 bfloat16, 4 float8_e4m3fn, 5 float8_e5m2, 6 int8, 7 uint8,
//!                8 nvfp4, 9 mxfp4
//!   37       1   head_order: 0 NHD, 1 HND
//!   38       1   scales: 0 row, 1 page
//!   39       1   arrangement: 0 tensors, 1 fully-contiguous, 2 cross-layer, 3 cross-layer-packed,
//!                4 outer-first, 5 block-first, 6 packed, 7 token-major
//!   40       8   alignment, in bytes
//!   48       4   regions
//!   52       4   planes: 1, or 2 if scales lie apart from elements
//!   56      24   each region:  0  8 address   8  8 size_bytes
//!                              16  4 kind: 0 device, 1 pinned, 2 system, 3 disk, 4 remote
//!                              20  4 number of the device, volume or peer; 0 for pinned and system
//!           72   each plane:   0  8 row_bytes   8  40 strides of block, layer, outer, token, head, in bytes,
//!                              0 if the dimension is 1 or the next index is in another region
//!                              48  8 offset of the first row in its region   56  4 the first row's region
//!                              60  4 regions from layer to layer   64  4 from outer to outer   68  4 zero
//!           16   fingerprint
//! ```
//!
//! All integers are little-endian; nothing follows. The planes repeat the arrangement's meaning, so that
//! a reader in another language needs no arrangements: `planes[0]` alone tells where each element is.
//!
//! I1. A decoded layout went through the checks of the constructors: its rows lie in its regions and do
//!     not overlap.
//! I2. A layout has one description: a decoded one encodes to the same bytes.
//! I3. Memory is allocated for regions that are in the input, and, if several layers or outer indices
//!     share a region, for a table of at most 65,536 × 2 addresses.

mod error;
#[cfg(test)]
mod tests;

pub use error::DescriptionError;

use super::arrangement::Spread;
use super::{
    Arrangement, DType, Dim, Field, Fingerprint, HeadOrder, Index, Layout, LayoutConfig, LayoutError, Place,
    Region, ScalePlace,
};
use crate::storage::StorageKind;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"KVLAYOUT";
const HEADER: usize = 56;
const REGION: usize = 24;
const PLANE: usize = 72;
const FINGERPRINT: usize = 16;

impl Layout {
    /// Returns the layout's description, version [`VERSION`].
    ///
    /// See the [example](Layout#example).
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let config = &self.config;
        let planes = self.places().count();
        let size = HEADER + REGION * self.regions.len() + PLANE * planes + FINGERPRINT;
        let mut out = Vec::with_capacity(size);
        out.extend(MAGIC);
        let [blocks, layers, outers, tokens, heads] = config.shape();
        for number in [VERSION, blocks, layers, outers, tokens, heads, config.head_size] {
            out.extend(number.to_le_bytes());
        }
        let arrangement = self.arrangement.map_or(0, |arrangement| arrangement as u8 + 1);
        out.extend([config.dtype as u8, config.head_order as u8, config.scales as u8, arrangement]);
        out.extend(config.alignment.to_le_bytes());
        out.extend((self.regions.len() as u32).to_le_bytes());
        out.extend((planes as u32).to_le_bytes());
        for region in self.regions.iter() {
            let (kind, number) = match region.kind {
                StorageKind::Device { ordinal } => (0, ordinal),
                StorageKind::Pinned => (1, 0),
                StorageKind::System => (2, 0),
                StorageKind::Disk { volume } => (3, volume),
                StorageKind::Remote { peer } => (4, peer),
            };
            out.extend(region.address.to_le_bytes());
            out.extend(region.size_bytes.to_le_bytes());
            out.extend(u32::to_le_bytes(kind));
            out.extend(number.to_le_bytes());
        }
        for place in self.places() {
            out.extend(place.row_bytes.to_le_bytes());
            out.extend(place.strides.iter().flat_map(|stride| stride.to_le_bytes()));
            out.extend(place.offset.to_le_bytes());
            for number in [place.first, place.per_layer, place.per_outer, 0] {
                out.extend(number.to_le_bytes());
            }
        }
        out.extend(self.fingerprint().to_bytes());
        debug_assert_eq!(out.len(), size);
        out
    }

    /// Returns the layout of a description.
    ///
    /// See the [example](Layout#example).
    ///
    /// # Errors
    ///
    /// [`DescriptionError`], which names the field that does not fit.
    pub fn from_bytes(bytes: &[u8]) -> Result<Layout, DescriptionError> {
        let mut input = Input { bytes };
        input.start(MAGIC)?;
        let (config, arrangement) = input.config()?;
        let (num_regions, planes) = (input.u32("regions")?, input.u32("planes")?);
        let of = |dim| config.shape()[dim as usize];
        // Twice: elements and scales. At most 65,536 × 2 × 2.
        let most = of(Dim::Layer) * of(Dim::Outer) * 2;
        if num_regions == 0 || num_regions > most {
            return Err(value("regions", num_regions, "at least 1, at most 2 × num_layers × outer_dim"));
        }
        if planes == 0 || planes > 2 {
            return Err(value("planes", planes, "1, or 2 with scales apart"));
        }
        let needed = REGION * num_regions as usize + PLANE * planes as usize + FINGERPRINT;
        if input.bytes.len() != needed {
            let (found, needed) = (input.bytes.len() as u64, needed as u64);
            return Err(DescriptionError::Length { field: "regions", found, needed });
        }
        let regions: Vec<Region> =
            (0..num_regions).map(|number| input.region(number)).collect::<Result<_, _>>()?;
        let data = input.place(0)?;
        let scales = (planes == 2).then(|| input.place(1)).transpose()?;
        let found = Fingerprint::from_bytes(input.take("fingerprint")?);

        let layout = match arrangement {
            Some(arrangement) => {
                let layout = Layout::new(config, arrangement, &regions)?;
                same(0, Some(data), Some(layout.data_place))?;
                same(1, scales, layout.scales_place)?;
                layout
            }
            None => tensors(config, regions.into(), data, scales)?,
        };
        match layout.fingerprint() {
            made if made == found => Ok(layout),
            made => Err(DescriptionError::Fingerprint { found, made }),
        }
    }

    /// The same layout with its regions at other addresses: where another process has mapped them,
    /// or for another set of buffers.
    ///
    /// See the [example](Layout#example).
    ///
    /// # Errors
    ///
    /// There are more or fewer addresses than regions; one is misaligned, or exceeds 64
    /// bits; or regions overlap.
    pub fn relocated(&self, addresses: &[u64]) -> Result<Layout, LayoutError> {
        if addresses.len() != self.regions.len() {
            let (value, needed) = (addresses.len() as u64, self.regions.len() as u64);
            return Err(LayoutError::Count { field: Field::Address, value, needed });
        }
        let regions = self.regions.iter().zip(addresses);
        let regions: Arc<[Region]> =
            regions.map(|(region, address)| Region { address: *address, ..*region }).collect();
        match self.arrangement {
            Some(arrangement) => Layout::new(self.config, arrangement, &regions),
            None => Layout::of_places(self.config, regions, self.data_place, self.scales_place),
        }
    }
}

pub(super) fn value(field: &'static str, value: impl Into<u64>, rule: &'static str) -> DescriptionError {
    DescriptionError::Value { part: None, field, value: value.into(), rule }
}

/// Checks that a plane is the one that the geometry makes.
fn same(plane: u32, found: Option<Place>, made: Option<Place>) -> Result<(), DescriptionError> {
    let (found, made) = match (found, made) {
        (Some(found), Some(made)) => (fields(&found), fields(&made)),
        (None, None) => return Ok(()),
        (Some(_), None) => return Err(value("planes", 2u32, "1: here scales do not lie apart")),
        (None, Some(_)) => return Err(value("planes", 1u32, "2: here scales lie apart")),
    };
    match found.into_iter().zip(made).find(|(found, made)| found != made) {
        None => Ok(()),
        Some(((field, value), (_, needed))) => Err(DescriptionError::Differs { plane, field, value, needed }),
    }
}

/// A place's fields, by name.
fn fields(place: &Place) -> [(&'static str, u64); 10] {
    let [block, layer, outer, token, head] = place.strides;
    [
        ("row_bytes", place.row_bytes),
        ("strides.block", block),
        ("strides.layer", layer),
        ("strides.outer", outer),
        ("strides.token", token),
        ("strides.head", head),
        ("offset", place.offset),
        ("first", place.first.into()),
        ("per_layer", place.per_layer.into()),
        ("per_outer", place.per_outer.into()),
    ]
}

/// Makes the layout of a list of tensors: planes are checked one by one, then put over their regions.
fn tensors(
    config: LayoutConfig,
    regions: Arc<[Region]>,
    data: Place,
    scales: Option<Place>,
) -> Result<Layout, DescriptionError> {
    let (shape, scale_row) = (config.shape(), config.row_scale_bytes());
    if scales.is_some() && scale_row == 0 {
        return Err(value("planes", 2u32, "1: the dtype has no scales"));
    }
    let row = config.row_data_bytes() + if scales.is_none() { scale_row } else { 0 };
    let data = checked_place(0, data, row, 0, config.dtype.alignment(), shape)?;
    let of_data = data.num_regions(shape);
    let mut needed = of_data;
    let scales = match scales {
        Some(scales) => {
            let scales = checked_place(1, scales, scale_row, of_data, 1, shape)?;
            needed += scales.num_regions(shape);
            Some(scales)
        }
        None => None,
    };
    if regions.len() as u64 != u64::from(needed) {
        let (value, needed) = (regions.len() as u64, u64::from(needed));
        return Err(LayoutError::Count { field: Field::Regions, value, needed }.into());
    }
    for region in regions.iter() {
        region.end()?;
    }
    Ok(Layout::of_places(config, regions, data, scales)?)
}

/// Checks that a tensor's place has its one form.
fn checked_place(
    plane: u32,
    found: Place,
    row_bytes: u64,
    first: u32,
    element: u64,
    shape: Index,
) -> Result<Place, DescriptionError> {
    let spreads = [Spread::One, Spread::Layer, Spread::Outer, Spread::LayerOuter];
    let places =
        spreads.map(|spread| Place::new(row_bytes, found.strides, found.offset, first, spread, shape));
    let per = |place: &Place| (place.per_layer, place.per_outer);
    // The place of an existing spread, or of the nearest one for the error.
    let made = places.into_iter().find(|place| per(place) == per(&found)).unwrap_or(places[0]);
    same(plane, Some(found), Some(made))?;
    let all = fields(&made);
    match all[1..7].iter().find(|(_, value)| !value.is_multiple_of(element)) {
        None => Ok(made),
        Some((field, value)) => Err(DescriptionError::Value {
            part: Some(("planes", plane)),
            field,
            value: *value,
            rule: "a multiple of an element's bytes",
        }),
    }
}

/// The unread bytes.
pub(super) struct Input<'a> {
    pub(super) bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// Reads magic and version.
    pub(super) fn start(&mut self, magic: [u8; 8]) -> Result<(), DescriptionError> {
        let found = self.take("magic")?;
        if found != magic {
            return Err(DescriptionError::Magic { found });
        }
        match self.u32("version")? {
            VERSION => Ok(()),
            found => Err(DescriptionError::Version { found, known: VERSION }),
        }
    }

    pub(super) fn slice(&mut self, field: &'static str, needed: u64) -> Result<&'a [u8], DescriptionError> {
        let split = usize::try_from(needed).ok().and_then(|count| self.bytes.split_at_checked(count));
        let found = self.bytes.len() as u64;
        let (taken, rest) = split.ok_or(DescriptionError::Length { field, found, needed })?;
        self.bytes = rest;
        Ok(taken)
    }

    fn take<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DescriptionError> {
        match self.bytes.split_first_chunk() {
            Some((taken, rest)) => {
                self.bytes = rest;
                Ok(*taken)
            }
            None => Err(DescriptionError::Length { field, found: self.bytes.len() as u64, needed: N as u64 }),
        }
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, DescriptionError> {
        self.take(field).map(u32::from_le_bytes)
    }

    fn u64(&mut self, field: &'static str) -> Result<u64, DescriptionError> {
        self.take(field).map(u64::from_le_bytes)
    }

    fn config(&mut self) -> Result<(LayoutConfig, Option<Arrangement>), DescriptionError> {
        let config = LayoutConfig::new()
            .num_blocks(self.u32("num_blocks")?)
            .num_layers(self.u32("num_layers")?)
            .outer_dim(self.u32("outer_dim")?)
            .page_size(self.u32("page_size")?)
            .num_heads(self.u32("num_heads")?)
            .head_size(self.u32("head_size")?);
        let [dtype, order, scales, arrangement] = self.take("dtype")?;
        let Some(dtype) = DType::from_code(dtype) else {
            return Err(value("dtype", dtype, "one of 1 to 9"));
        };
        let order = match order {
            0 => HeadOrder::Nhd,
            1 => HeadOrder::Hnd,
            _ => return Err(value("head_order", order, "0 (NHD) or 1 (HND)")),
        };
        let scales = match scales {
            0 => ScalePlace::Row,
            1 => ScalePlace::Page,
            _ => return Err(value("scales", scales, "0 (row) or 1 (page)")),
        };
        let arrangement = match arrangement {
            0 => None,
            code => match Arrangement::ALL.get(usize::from(code) - 1) {
                Some(arrangement) => Some(*arrangement),
                None => return Err(value("arrangement", code, "0 (tensors) to 7")),
            },
        };
        let config = config.dtype(dtype).head_order(order).scales(scales).alignment(self.u64("alignment")?);
        config.validate()?;
        Ok((config, arrangement))
    }

    fn region(&mut self, region: u32) -> Result<Region, DescriptionError> {
        let (address, size_bytes) = (self.u64("address")?, self.u64("size_bytes")?);
        let (kind, number) = (self.u32("kind")?, self.u32("number")?);
        let wrong = |field, value: u32, rule| DescriptionError::Value {
            part: Some(("regions", region)),
            field,
            value: value.into(),
            rule,
        };
        let kind = match kind {
            0 => StorageKind::Device { ordinal: number },
            1 => StorageKind::Pinned,
            2 => StorageKind::System,
            3 => StorageKind::Disk { volume: number },
            4 => StorageKind::Remote { peer: number },
            _ => return Err(wrong("kind", kind, "one of 0 to 4")),
        };
        if number != 0 && kind.is_host() {
            return Err(wrong("number", number, "0 for pinned and system"));
        }
        Ok(Region { address, size_bytes, kind })
    }

    fn place(&mut self, plane: u32) -> Result<Place, DescriptionError> {
        let row_bytes = self.u64("row_bytes")?;
        let mut strides = [0; 5];
        for stride in &mut strides {
            *stride = self.u64("strides")?;
        }
        let offset = self.u64("offset")?;
        let [first, per_layer, per_outer] =
            [self.u32("first")?, self.u32("per_layer")?, self.u32("per_outer")?];
        let zero = self.u32("zero")?;
        if zero != 0 {
            let part = Some(("planes", plane));
            return Err(DescriptionError::Value { part, field: "zero", value: zero.into(), rule: "0" });
        }
        Ok(Place { row_bytes, strides, offset, first, per_layer, per_outer })
    }
}
