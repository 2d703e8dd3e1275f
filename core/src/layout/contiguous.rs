//! All layers of all blocks in one region.

use super::config::checked;
use super::{BoundsError, Field, LayoutConfig, LayoutError};
use crate::storage::Storage;
use core::ops::Range;

/// All layers of a block side by side, and blocks one after the other, `block_stride` bytes apart.
///
/// `block_stride = align_up(num_layers × layer_stride, alignment)`; see the [module](super) for the picture. What a
/// tier outside the engine uses: a block is one piece, one DMA descriptor, one disk request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FullyContiguous {
    config: LayoutConfig,
    outer_stride: u64,
    layer_stride: u64,
    block_bytes: u64,
    block_stride: u64,
    total_bytes: u64,
}

impl FullyContiguous {
    /// Checks the geometry and computes the strides (I1).
    ///
    /// # Errors
    ///
    /// As [`LayoutConfig::validate`], and [`LayoutError::Overflow`] if all blocks do not fit into 64 bits.
    pub const fn new(config: LayoutConfig) -> Result<FullyContiguous, LayoutError> {
        match config.validate() {
            Ok(()) => Self::arrange(config),
            Err(error) => Err(error),
        }
    }

    const fn arrange(config: LayoutConfig) -> Result<FullyContiguous, LayoutError> {
        let (outer_stride, layer_stride, block_bytes) =
            match (config.outer_bytes(), config.layer_bytes(), config.block_bytes()) {
                (Ok(outer), Ok(layer), Ok(block)) => (outer, layer, block),
                (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => return Err(error),
            };
        let stride = block_bytes.checked_next_multiple_of(config.alignment);
        let block_stride = match checked(stride, Field::Alignment, config.alignment) {
            Ok(stride) => stride,
            Err(error) => return Err(error),
        };
        let blocks = config.num_blocks as u64;
        let total_bytes = match checked(block_stride.checked_mul(blocks), Field::NumBlocks, blocks) {
            Ok(total) => total,
            Err(error) => return Err(error),
        };
        Ok(FullyContiguous { config, outer_stride, layer_stride, block_bytes, block_stride, total_bytes })
    }

    /// The geometry.
    pub const fn config(&self) -> &LayoutConfig {
        &self.config
    }

    /// Bytes from one outer index to the next, which is the size of a piece.
    pub const fn outer_stride(&self) -> u64 {
        self.outer_stride
    }

    /// Bytes from one layer to the next.
    pub const fn layer_stride(&self) -> u64 {
        self.layer_stride
    }

    /// Bytes of a block that carry data.
    pub const fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Bytes from one block to the next: data and padding.
    pub const fn block_stride(&self) -> u64 {
        self.block_stride
    }

    /// Bytes of the whole region, the last block's padding included.
    pub const fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Offsets of a block's data from the region's start, padding left out.
    ///
    /// # Errors
    ///
    /// [`BoundsError`], with the index and the shape.
    #[inline]
    pub const fn block_range(&self, block: u32) -> Result<Range<u64>, BoundsError> {
        if block >= self.config.num_blocks {
            return Err(self.outside([Some(block), None, None]));
        }
        let start = block as u64 * self.block_stride; // in bounds: cannot overflow (I1)
        Ok(start..start + self.block_bytes)
    }

    /// Offsets of one layer of a block, all outer indices, from the region's start.
    ///
    /// # Errors
    ///
    /// [`BoundsError`], with the indices and the shape.
    #[inline]
    pub const fn layer_range(&self, block: u32, layer: u32) -> Result<Range<u64>, BoundsError> {
        if block >= self.config.num_blocks || layer >= self.config.num_layers {
            return Err(self.outside([Some(block), Some(layer), None]));
        }
        let start = block as u64 * self.block_stride + layer as u64 * self.layer_stride; // I1
        Ok(start..start + self.layer_stride)
    }

    /// Offsets of the piece (block, layer, outer) from the region's start: `page_size × inner_dim` elements.
    ///
    /// # Errors
    ///
    /// [`BoundsError`], with the indices and the shape.
    #[inline]
    pub const fn range(&self, block: u32, layer: u32, outer: u32) -> Result<Range<u64>, BoundsError> {
        let LayoutConfig { num_blocks, num_layers, outer_dim, .. } = self.config;
        if block >= num_blocks || layer >= num_layers || outer >= outer_dim {
            return Err(self.outside([Some(block), Some(layer), Some(outer)]));
        }
        let start = block as u64 * self.block_stride
            + layer as u64 * self.layer_stride
            + outer as u64 * self.outer_stride; // I1
        Ok(start..start + self.outer_stride)
    }

    /// Address of the piece (block, layer, outer) in `storage`'s own address space.
    ///
    /// # Errors
    ///
    /// [`LayoutError::Bounds`], or as [`check_storage`](FullyContiguous::check_storage).
    pub fn address<S: Storage + ?Sized>(
        &self,
        storage: &S,
        block: u32,
        layer: u32,
        outer: u32,
    ) -> Result<u64, LayoutError> {
        self.check_storage(storage)?;
        let range = self.range(block, layer, outer)?;
        Ok(storage.base_address() + range.start) // inside the storage, which ends within 64 bits (storage I1)
    }

    /// Whether the region fits into `storage`, from its first byte on, with every block aligned (I3).
    ///
    /// # Errors
    ///
    /// [`LayoutError::StorageTooSmall`], [`LayoutError::StorageMisaligned`].
    pub fn check_storage<S: Storage + ?Sized>(&self, storage: &S) -> Result<(), LayoutError> {
        let (address, size_bytes) = (storage.base_address(), storage.size_bytes());
        if size_bytes < self.total_bytes {
            return Err(LayoutError::StorageTooSmall { size_bytes, needed: self.total_bytes });
        }
        if address & (self.config.alignment - 1) != 0 {
            return Err(LayoutError::StorageMisaligned { address, alignment: self.config.alignment });
        }
        Ok(())
    }

    #[cold]
    const fn outside(&self, index: [Option<u32>; 3]) -> BoundsError {
        let LayoutConfig { num_blocks, num_layers, outer_dim, .. } = self.config;
        BoundsError { index, shape: [num_blocks, num_layers, outer_dim] }
    }
}
