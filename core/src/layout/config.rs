//! The geometry of a set of blocks.

use super::{Field, LayoutError};

/// The geometry of a set of blocks: `[num_blocks][num_layers][outer_dim][page_size][inner_dim]` elements.
///
/// [`new`](LayoutConfig::new) gives one block of one element; setters do the rest; nothing is checked before
/// [`validate`](LayoutConfig::validate), which every layout calls.
///
/// ```
/// use kvstrata_core::layout::{FullyContiguous, LayoutConfig};
/// // Llama-3-70B: 80 layers, 8 KV heads of 128, bf16; pages of 16 tokens.
/// let config = LayoutConfig::new().num_blocks(1024).num_layers(80).outer_dim(2).page_size(16).inner_dim(8 * 128);
/// let layout = FullyContiguous::new(config.dtype_width_bytes(2).alignment(4096))?;
/// assert_eq!(layout.block_bytes(), 5_242_880);
/// # Ok::<(), kvstrata_core::layout::LayoutError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LayoutConfig {
    /// Blocks.
    pub num_blocks: u32,
    /// Layers of the model.
    pub num_layers: u32,
    /// 2 where keys and values are apart, 1 where one latent stands for both (MLA).
    pub outer_dim: u32,
    /// Tokens a block.
    pub page_size: u32,
    /// Elements a token, layer and outer index: KV heads × head size, or the latent's size.
    pub inner_dim: u32,
    /// Bytes an element.
    pub dtype_width_bytes: u32,
    /// Bytes; every block starts at a multiple. A power of two, not smaller than an element.
    pub alignment: u64,
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
    /// One block of one layer, one page of one token, one element of one byte; alignment 1.
    #[must_use]
    pub const fn new() -> LayoutConfig {
        LayoutConfig {
            num_blocks: 1,
            num_layers: 1,
            outer_dim: 1,
            page_size: 1,
            inner_dim: 1,
            dtype_width_bytes: 1,
            alignment: 1,
        }
    }

    setters!(
        num_blocks: u32,
        num_layers: u32,
        outer_dim: u32,
        page_size: u32,
        inner_dim: u32,
        dtype_width_bytes: u32,
        alignment: u64
    );

    /// Checks each field, then that a block's payload fits into 64 bits.
    ///
    /// # Errors
    ///
    /// The first rule that is broken, with the field and its value.
    pub const fn validate(&self) -> Result<(), LayoutError> {
        let nonzero = [
            (Field::NumBlocks, self.num_blocks),
            (Field::NumLayers, self.num_layers),
            (Field::OuterDim, self.outer_dim),
            (Field::PageSize, self.page_size),
            (Field::InnerDim, self.inner_dim),
            (Field::DtypeWidthBytes, self.dtype_width_bytes),
        ];
        let mut i = 0;
        while i < nonzero.len() {
            let (field, value) = nonzero[i];
            if value == 0 {
                return Err(LayoutError::Zero { field });
            }
            i += 1;
        }
        if self.outer_dim > 2 {
            return Err(LayoutError::OuterDim { value: self.outer_dim });
        }
        if !self.dtype_width_bytes.is_power_of_two() {
            let value = self.dtype_width_bytes as u64;
            return Err(LayoutError::NotPowerOfTwo { field: Field::DtypeWidthBytes, value });
        }
        if !self.alignment.is_power_of_two() {
            return Err(LayoutError::NotPowerOfTwo { field: Field::Alignment, value: self.alignment });
        }
        if self.alignment < self.dtype_width_bytes as u64 {
            let (value, width) = (self.alignment, self.dtype_width_bytes);
            return Err(LayoutError::AlignmentBelowElement { value, width });
        }
        match self.block_bytes() {
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Bytes of one (block, layer, outer) piece: page size × inner dim × element.
    pub(super) const fn outer_bytes(&self) -> Result<u64, LayoutError> {
        let page = self.page_size as u64 * self.inner_dim as u64; // 32 bit × 32 bit
        checked(page.checked_mul(self.dtype_width_bytes as u64), Field::InnerDim, self.inner_dim as u64)
    }

    /// Bytes of one (block, layer): outer dim × the above.
    pub(super) const fn layer_bytes(&self) -> Result<u64, LayoutError> {
        match self.outer_bytes() {
            Ok(bytes) => {
                checked(bytes.checked_mul(self.outer_dim as u64), Field::OuterDim, self.outer_dim as u64)
            }
            error => error,
        }
    }

    /// Bytes of one block, without padding: layers × the above.
    pub(super) const fn block_bytes(&self) -> Result<u64, LayoutError> {
        match self.layer_bytes() {
            Ok(bytes) => {
                checked(bytes.checked_mul(self.num_layers as u64), Field::NumLayers, self.num_layers as u64)
            }
            error => error,
        }
    }
}

/// What did not overflow, or the field whose value made it.
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
