//! One block of a layout, one layer of a block: as bytes and as tensors.

use super::payload::Payload;
use super::view::TensorView;
use super::{BoundsError, DType, Dim, Layout, Place, Region};

/// One block of a layout.
#[derive(Clone, Copy, Debug)]
pub struct BlockView<'l> {
    layout: &'l Layout,
    block: u32,
}

/// One layer of a block.
#[derive(Clone, Copy, Debug)]
pub struct LayerView<'l> {
    layout: &'l Layout,
    block: u32,
    layer: u32,
}

/// Consecutive bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ByteRange {
    /// Number of their region.
    pub region: u32,
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub size_bytes: u64,
}

impl Layout {
    /// A block.
    ///
    /// See the [example](Layout#example).
    ///
    /// # Errors
    ///
    /// The layout has no such block.
    pub fn block(&self, block: u32) -> Result<BlockView<'_>, BoundsError> {
        self.config.check_index([block, 0, 0, 0, 0])?;
        Ok(BlockView { layout: self, block })
    }

    /// A layer of a block.
    ///
    /// See the [example](Layout#example).
    ///
    /// # Errors
    ///
    /// The layout has no such block or layer.
    pub fn layer(&self, block: u32, layer: u32) -> Result<LayerView<'_>, BoundsError> {
        self.config.check_index([block, layer, 0, 0, 0])?;
        Ok(LayerView { layout: self, block, layer })
    }
}

impl<'l> BlockView<'l> {
    /// The block's number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.block
    }

    /// Bytes of data, padding not counted.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.layout.block_bytes()
    }

    /// A layer of the block.
    ///
    /// # Errors
    ///
    /// The layout has no such layer.
    pub fn layer(&self, layer: u32) -> Result<LayerView<'l>, BoundsError> {
        self.layout.layer(self.block, layer)
    }

    /// The block's bytes in as few ranges as possible: region by region, address by address. Put into
    /// one piece in this order, they are the bytes of [`Layout::block_fingerprint`].
    #[must_use]
    pub fn ranges(&self) -> Ranges<'l> {
        let (layout, shape) = (self.layout, self.layout.config.shape());
        let payload = Payload::new(layout.data_place, layout.scales_place, shape).merged();
        Ranges { layout, block: self.block, payload, next: 0, pieces: payload.num_pieces(), held: None }
    }
}

/// The bytes of a block: see [`BlockView::ranges`].
#[derive(Clone, Debug)]
pub struct Ranges<'l> {
    layout: &'l Layout,
    block: u32,
    payload: Payload,
    next: u64,
    pieces: u64,
    /// The range that the next piece may continue.
    held: Option<ByteRange>,
}

impl Iterator for Ranges<'_> {
    type Item = ByteRange;

    fn next(&mut self) -> Option<ByteRange> {
        let layout = self.layout;
        while self.next < self.pieces {
            let (region, offset, size_bytes) = self.payload.piece(self.next);
            self.next += 1;
            // The same for elements and for scales if they share a region; otherwise the region tells which.
            let place = match &layout.scales_place {
                Some(scales) if region >= scales.first => scales,
                _ => &layout.data_place,
            };
            let in_region = offset + u64::from(self.block) * place.strides[Dim::Block as usize];
            let address = layout.regions[region as usize].address + in_region;
            match &mut self.held {
                Some(held) if held.region == region && held.address + held.size_bytes == address => {
                    held.size_bytes += size_bytes;
                }
                held => {
                    if let Some(whole) = held.replace(ByteRange { region, address, size_bytes }) {
                        return Some(whole);
                    }
                }
            }
        }
        self.held.take()
    }
}

impl core::iter::FusedIterator for Ranges<'_> {}

impl<'l> LayerView<'l> {
    /// Block and layer.
    #[must_use]
    pub fn numbers(&self) -> (u32, u32) {
        (self.block, self.layer)
    }

    /// Bytes of data.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.layout.block_bytes() / u64::from(self.layout.config.num_layers)
    }

    /// The keys, the values, or the other content of the outer index: `[token][head][element]`.
    ///
    /// # Errors
    ///
    /// The layout has no such outer index.
    pub fn tensor(&self, outer: u32) -> Result<TensorView<'l, Region, 3>, BoundsError> {
        self.check(outer)?;
        let config = &self.layout.config;
        Ok(self.view(&self.layout.data_place, outer, config.head_size.into(), config.dtype))
    }

    /// The scales of an outer index, as bytes, if they lie apart from the elements: `[token][head][group]`.
    ///
    /// # Errors
    ///
    /// The layout has no such outer index.
    pub fn scales(&self, outer: u32) -> Result<Option<TensorView<'l, Region, 3>>, BoundsError> {
        self.check(outer)?;
        let bytes = self.layout.config.row_scale_bytes();
        Ok(self.layout.scales_place.as_ref().map(|place| self.view(place, outer, bytes, DType::U8)))
    }

    /// The whole layer as one tensor, `[outer][token][head][element]`, if one region has it.
    #[must_use]
    pub fn tensors(&self) -> Option<TensorView<'l, Region, 4>> {
        let place = &self.layout.data_place;
        if place.per_outer > 0 {
            return None;
        }
        let config = &self.layout.config;
        let first = self.view(place, 0, config.head_size.into(), config.dtype);
        let ([tokens, heads, size], [token, head, element]) = (first.shape(), first.strides());
        let outer = elements(place.strides[Dim::Outer as usize], config.dtype);
        let offset = first.offset_bytes()?; // rows start at bytes
        let (shape, strides) =
            ([config.outer_dim.into(), tokens, heads, size], [outer, token, head, element]);
        TensorView::with_strides(first.storage(), offset, shape, strides, config.dtype).ok()
    }

    fn check(&self, outer: u32) -> Result<(), BoundsError> {
        self.layout.config.check_index([self.block, self.layer, outer, 0, 0])
    }

    fn view(&self, place: &Place, outer: u32, size: u64, dtype: DType) -> TensorView<'l, Region, 3> {
        let layout: &'l Layout = self.layout;
        let [block, layer, of_outer, token, head] = place.strides;
        let offset = place.offset
            + u64::from(self.block) * block
            + u64::from(self.layer) * layer
            + u64::from(outer) * of_outer;
        let region = &layout.regions[place.region(self.layer, outer) as usize];
        let [.., tokens, heads] = layout.config.shape();
        let shape = [tokens.into(), heads.into(), size];
        let strides = [elements(token, dtype), elements(head, dtype), 1];
        TensorView::with_strides(region, offset, shape, strides, dtype)
            .unwrap_or_else(|error| unreachable!("rows lie within their regions: {error}"))
    }
}

/// Strides are whole elements: in arrangements since alignment and rows are, in tensors since theirs are.
fn elements(bytes: u64, dtype: DType) -> u64 {
    (u128::from(bytes) * 8 / u128::from(dtype.bits())) as u64
}
