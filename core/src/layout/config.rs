//! The geometry of a set of blocks.

use super::{DType, Field, LayoutError};
use core::fmt;

/// The geometry of a set of blocks: `[num_blocks][num_layers][outer_dim][page_size][num_heads ×
/// head_size]` elements of one type.
///
/// [`new`](LayoutConfig::new) gives one block of one byte; setters do the rest; nothing is checked before
/// [`validate`](LayoutConfig::validate), which every layout calls.
///
/// ```
/// use kvstrata_core::layout::{DType, LayoutConfig};
/// // Llama-3-70B: 80 layers, 8 KV heads of 128, bf16; pages of 16 tokens.
/// let config = LayoutConfig::new().num_blocks(1024).num_layers(80).outer_dim(2).page_size(16).heads(8, 128);
/// let config = config.dtype(DType::BF16).alignment(4096);
/// // 80 layers × 2 × 16 tokens × 8 heads × 128 × 2 bytes
/// assert_eq!(config.block_bytes()?, 5_242_880);
/// # Ok::<(), kvstrata_core::layout::LayoutError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LayoutConfig {
    /// The number of blocks.
    pub num_blocks: u32,
    /// The number of the model's layers.
    pub num_layers: u32,
    /// 2 if keys and values are apart, 1 if one latent stands for both (MLA).
    pub outer_dim: u32,
    /// Tokens per block.
    pub page_size: u32,
    /// KV heads; 1 if the inner dimension is not divided into heads.
    pub num_heads: u32,
    /// Elements per head and token; the latent's size for MLA.
    pub head_size: u32,
    /// The elements' type.
    pub dtype: DType,
    /// Bytes; every block starts at a multiple. A power of two, not smaller than an element.
    pub alignment: u64,
    /// Whether tokens or heads come first.
    pub head_order: HeadOrder,
    /// The place of a block-scaled type's scales; no meaning for other types.
    pub scales: ScalePlace,
}

/// The most layers: a bound on the table of a layout whose layers lie anywhere.
const MAX_LAYERS: u32 = 65_536;

/// The order within a page: tokens or heads first. The names are FlashInfer's: N
/// tokens, H heads, D head size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum HeadOrder {
    /// `[page][heads][size]`: a token's heads side by side.
    #[default]
    Nhd = 0,
    /// `[heads][page][size]`: a head's tokens side by side.
    Hnd = 1,
}

/// The place of the scales of a block-scaled type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum ScalePlace {
    /// Behind the elements of each head and token: `[…][size / 2 + size / group]` bytes.
    #[default]
    Row = 0,
    /// Behind the elements of each page: `[page × heads × size / 2][page × heads × size /
    /// group]` bytes (FlashInfer's kernels).
    Page = 1,
}

impl fmt::Display for HeadOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HeadOrder::Nhd => "NHD",
            HeadOrder::Hnd => "HND",
        })
    }
}

impl fmt::Display for ScalePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScalePlace::Row => "row",
            ScalePlace::Page => "page",
        })
    }
}

macro_rules! setters {
    ($($field:ident: $type:ty),*) => {$(
        #[doc = concat!("Sets [`", stringify!($field), "`](LayoutConfig#structfield.", stringify!($field), ").")]
        #[must_use]
        pub const fn $field(mut self, $field: $type) -> LayoutConfig {
            self.$field = $field;
            self
        }
    )*};
}

impl LayoutConfig {
    /// One block of one layer, one page of one token, one head of one byte; alignment 1.
    #[must_use]
    pub const fn new() -> LayoutConfig {
        LayoutConfig {
            num_blocks: 1,
            num_layers: 1,
            outer_dim: 1,
            page_size: 1,
            num_heads: 1,
            head_size: 1,
            dtype: DType::U8,
            alignment: 1,
            head_order: HeadOrder::Nhd,
            scales: ScalePlace::Row,
        }
    }

    setters!(
        num_blocks: u32,
        num_layers: u32,
        outer_dim: u32,
        page_size: u32,
        num_heads: u32,
        head_size: u32,
        dtype: DType,
        alignment: u64,
        head_order: HeadOrder,
        scales: ScalePlace
    );

    /// Sets the inner dimension as heads.
    #[must_use]
    pub const fn heads(self, num_heads: u32, head_size: u32) -> LayoutConfig {
        self.num_heads(num_heads).head_size(head_size)
    }

    /// Sets the inner dimension as one number, if it will never be sliced by heads: an MLA
    /// latent, or data of another system.
    #[must_use]
    pub const fn inner_dim(self, elements: u32) -> LayoutConfig {
        self.heads(1, elements)
    }

    /// Checks each field, then that a block's payload fits into 64 bits.
    ///
    /// # Errors
    ///
    /// Returns the first broken rule, with the field and its value.
    pub const fn validate(&self) -> Result<(), LayoutError> {
        let nonzero = [
            (Field::NumBlocks, self.num_blocks),
            (Field::NumLayers, self.num_layers),
            (Field::OuterDim, self.outer_dim),
            (Field::PageSize, self.page_size),
            (Field::NumHeads, self.num_heads),
            (Field::HeadSize, self.head_size),
        ];
        let mut i = 0;
        while i < nonzero.len() {
            let (field, value) = nonzero[i];
            if value == 0 {
                return Err(LayoutError::Zero { field });
            }
            i += 1;
        }
        if self.num_layers > MAX_LAYERS {
            return Err(LayoutError::TooMany {
                field: Field::NumLayers,
                value: self.num_layers,
                most: MAX_LAYERS,
            });
        }
        if self.outer_dim > 2 {
            return Err(LayoutError::OuterDim { value: self.outer_dim });
        }
        if !self.alignment.is_power_of_two() {
            return Err(LayoutError::NotPowerOfTwo { field: Field::Alignment, value: self.alignment });
        }
        if self.alignment < self.dtype.alignment() {
            return Err(LayoutError::AlignmentBelowElement { value: self.alignment, dtype: self.dtype });
        }
        let group = match self.dtype.scale() {
            Some(scale) => scale.group,
            None => 8u32.div_ceil(self.dtype.bits()),
        };
        if !self.head_size.is_multiple_of(group) {
            return Err(LayoutError::HeadSize { value: self.head_size, dtype: self.dtype, group });
        }
        match self.block_bytes() {
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Bytes of the elements of one (block, layer, outer, token, head), without scales.
    #[must_use]
    pub const fn row_data_bytes(&self) -> u64 {
        self.head_size as u64 * self.dtype.bits() as u64 / 8
    }

    /// Bytes of the scales of one (block, layer, outer, token, head).
    #[must_use]
    pub const fn row_scale_bytes(&self) -> u64 {
        match self.dtype.scale() {
            Some(scale) => self.head_size as u64 / scale.group as u64 * scale.bits as u64 / 8,
            None => 0,
        }
    }

    /// Bytes of one (block, layer, outer): page size × heads × (elements and scales of a row).
    ///
    /// # Errors
    ///
    /// They exceed 64 bits.
    pub const fn outer_bytes(&self) -> Result<u64, LayoutError> {
        let row = self.row_data_bytes() + self.row_scale_bytes(); // 32 bit × 32 bit / 8, twice
        let token = checked(row.checked_mul(self.num_heads as u64), Field::NumHeads, self.num_heads as u64);
        times(token, Field::PageSize, self.page_size)
    }

    /// Bytes of one (block, layer).
    ///
    /// # Errors
    ///
    /// They exceed 64 bits.
    pub const fn layer_bytes(&self) -> Result<u64, LayoutError> {
        times(self.outer_bytes(), Field::OuterDim, self.outer_dim)
    }

    /// Bytes of one block, without padding.
    ///
    /// # Errors
    ///
    /// They exceed 64 bits.
    pub const fn block_bytes(&self) -> Result<u64, LayoutError> {
        times(self.layer_bytes(), Field::NumLayers, self.num_layers)
    }
}

const fn times(bytes: Result<u64, LayoutError>, field: Field, value: u32) -> Result<u64, LayoutError> {
    match bytes {
        Ok(bytes) => checked(bytes.checked_mul(value as u64), field, value as u64),
        Err(error) => Err(error),
    }
}

/// The bytes, or the field whose value made them overflow.
pub(super) const fn checked(bytes: Option<u64>, field: Field, value: u64) -> Result<u64, LayoutError> {
    match bytes {
        Some(bytes) => Ok(bytes),
        None => Err(LayoutError::Overflow { field, value }),
    }
}

impl Default for LayoutConfig {
    fn default() -> LayoutConfig {
        LayoutConfig::new()
    }
}
