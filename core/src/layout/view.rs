//! A tensor's shape over a storage: the place of each element, without a copy.
//!
//! ```text
//!   bit of element (i0, i1, …) = storage's first + offset
//!                                + (i0 × strides[0] + i1 × strides[1] + …) × bits of an element
//! ```
//!
//! Strides count elements, as in torch. The unit underneath is the bit, so that elements of four bits
//! have places too, though not all of them have addresses.
//!
//! I1. Every element lies in the storage, and every index in bounds is one; checked once, when the view
//!     is made.
//! I2. A view with a dimension of 0 has no elements, and so no addresses; it can be sliced
//!     and reshaped as in torch.

mod error;
mod reshape;
#[cfg(test)]
mod tests;

pub use error::{ReshapeError, ViewError};

use super::DType;
use crate::storage::Storage;

/// A view of D dimensions over a storage. Copying it copies no elements.
///
/// ```
/// use kvstrata_core::layout::view::TensorView;
/// use kvstrata_core::layout::{DType, Region};
/// let storage = Region::system(0x1000, 4 * 6 * 2);
/// let view = TensorView::new(&storage, [4, 6], DType::BF16)?;
/// assert_eq!(view.address([3, 5])?, 0x1000 + (3 * 6 + 5) * 2);
/// let columns = view.slice(1, 2, 4)?;
/// assert_eq!((columns.shape(), columns.strides(), columns.is_contiguous()), ([4, 2], [6, 1], false));
/// assert_eq!(columns.address([4, 0]).unwrap_err().to_string(), "index [4, 0] is outside shape [4, 2]");
/// assert_eq!(view.reshape([2, 12])?.strides(), [12, 1]);
/// assert!(columns.reshape([8]).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TensorView<'s, S: Storage + ?Sized, const D: usize> {
    storage: &'s S,
    shape: [u64; D],
    strides: [u64; D],
    offset_bits: u128,
    dtype: DType,
}

impl<S: Storage + ?Sized, const D: usize> Clone for TensorView<'_, S, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Storage + ?Sized, const D: usize> Copy for TensorView<'_, S, D> {}

impl<'s, S: Storage + ?Sized, const D: usize> TensorView<'s, S, D> {
    /// A row-major view from the storage's first byte on: the last dimension is contiguous. `shape`
    /// counts elements, without the scales of block-scaled types.
    ///
    /// # Errors
    ///
    /// The view or the storage exceeds 64 bits, or the view leaves the storage.
    pub fn new(storage: &'s S, shape: [u64; D], dtype: DType) -> Result<Self, ViewError<D>> {
        let strides = reshape::row_major(shape);
        TensorView::with_strides(storage, 0, shape, strides, dtype)
    }

    /// A view with strides of its own, in elements, from `offset_bytes` behind the storage's first
    /// byte on. A stride of 0 repeats.
    ///
    /// # Errors
    ///
    /// The view or the storage exceeds 64 bits, or the view leaves the storage.
    pub fn with_strides(
        storage: &'s S,
        offset_bytes: u64,
        shape: [u64; D],
        strides: [u64; D],
        dtype: DType,
    ) -> Result<Self, ViewError<D>> {
        let overflow = ViewError::Overflow { shape, strides };
        let (bits, offset_bits) = (u128::from(dtype.bits()), u128::from(offset_bytes) * 8);
        let mut end = offset_bits;
        if !shape.contains(&0) {
            shape.iter().try_fold(1u64, |elements, size| elements.checked_mul(*size)).ok_or(overflow)?;
            end += bits;
            for (size, stride) in shape.iter().zip(strides) {
                let reach = (u128::from(*size) - 1) * u128::from(stride);
                let reach = reach.checked_mul(bits);
                end = reach.and_then(|reach| end.checked_add(reach)).ok_or(overflow)?;
            }
        }
        let (address, size_bytes) = (storage.base_address(), storage.size_bytes());
        if address.checked_add(size_bytes).is_none() {
            return Err(ViewError::Storage { address, size_bytes });
        }
        if end > u128::from(size_bytes) * 8 {
            return Err(ViewError::Outside { shape, strides, end_bytes: end.div_ceil(8), size_bytes });
        }
        Ok(TensorView { storage, shape, strides, offset_bits, dtype })
    }

    /// The storage of the elements.
    #[must_use]
    pub fn storage(&self) -> &'s S {
        self.storage
    }

    /// The elements' type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The size of each dimension.
    #[must_use]
    pub fn shape(&self) -> [u64; D] {
        self.shape
    }

    /// Elements from one index of a dimension to the next. For a dimension of one it is the stride given
    /// at construction.
    #[must_use]
    pub fn strides(&self) -> [u64; D] {
        self.strides
    }

    /// Bits from one index of a dimension to the next.
    #[must_use]
    pub fn bit_strides(&self) -> [u128; D] {
        self.strides.map(|stride| u128::from(stride) * u128::from(self.dtype.bits()))
    }

    /// Bytes from one index of a dimension to the next; none if that is no whole number.
    #[must_use]
    pub fn byte_strides(&self) -> [Option<u64>; D] {
        self.bit_strides().map(whole_bytes)
    }

    /// Bits from the storage's start to the first element.
    #[must_use]
    pub fn offset_bits(&self) -> u128 {
        self.offset_bits
    }

    /// Bytes from the storage's start to the first element; none if it does not start at a byte.
    #[must_use]
    pub fn offset_bytes(&self) -> Option<u64> {
        whole_bytes(self.offset_bits)
    }

    /// The number of elements.
    #[must_use]
    pub fn num_elements(&self) -> u64 {
        // Fits, or one of them is 0 (`with_strides`).
        self.shape.iter().fold(1, |elements: u64, size| elements.wrapping_mul(*size))
    }

    /// Returns whether elements are consecutive in row-major order without gaps. Dimensions of one do
    /// not matter; a view without elements has no gaps.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        let mut follows = 1;
        self.shape.contains(&0)
            || self.shape.iter().zip(self.strides).rev().filter(|(size, _)| **size > 1).all(
                |(size, stride)| {
                    let contiguous = stride == follows;
                    follows *= size; // num_elements at most
                    contiguous
                },
            )
    }

    /// Address of an element, in the storage's address space.
    ///
    /// # Errors
    ///
    /// The index is outside the shape, or the element does not start at a byte.
    pub fn address(&self, index: [u64; D]) -> Result<u64, ViewError<D>> {
        let bits = self.bit(index)?;
        match (bits % 8) as u32 {
            // The storage ends within 64 bits, as `with_strides` saw.
            0 => Ok(self.storage.base_address() + (bits / 8) as u64),
            bit => Err(ViewError::MidByte { index, bit, dtype: self.dtype }),
        }
    }

    /// Address of an element in bits: 8 × the address of its byte + the number of its first bit,
    /// the least significant being 0.
    ///
    /// # Errors
    ///
    /// The index is outside the shape.
    pub fn bit_address(&self, index: [u64; D]) -> Result<u128, ViewError<D>> {
        Ok(u128::from(self.storage.base_address()) * 8 + self.bit(index)?)
    }

    /// Bits from the storage's start to an element.
    fn bit(&self, index: [u64; D]) -> Result<u128, ViewError<D>> {
        if !index.iter().zip(self.shape).all(|(index, size)| *index < size) {
            return Err(ViewError::Bounds { index, shape: self.shape });
        }
        let strides = self.bit_strides();
        let steps = index.iter().zip(strides).map(|(index, stride)| u128::from(*index) * stride);
        Ok(self.offset_bits + steps.sum::<u128>()) // I1
    }

    /// The indices `start..end` of a dimension.
    ///
    /// # Errors
    ///
    /// The view has no such dimension or indices.
    pub fn slice(&self, dim: usize, start: u64, end: u64) -> Result<Self, ViewError<D>> {
        let mut slice = *self;
        let Some(size) = slice.shape.get_mut(dim) else {
            return Err(ViewError::Dim { dim, shape: self.shape });
        };
        if start > end || end > *size {
            return Err(ViewError::Slice { dim, start, end, shape: self.shape });
        }
        *size = end - start;
        // An empty slice has no place, and keeps its offset, within the storage (I1).
        if !slice.shape.contains(&0) {
            slice.offset_bits += u128::from(start) * self.bit_strides()[dim];
        }
        Ok(slice)
    }

    /// The same elements in the same order in another shape.
    ///
    /// # Errors
    ///
    /// The number of elements differs, or no strides reach them.
    pub fn reshape<const E: usize>(
        &self,
        wanted: [u64; E],
    ) -> Result<TensorView<'s, S, E>, ReshapeError<D, E>> {
        let TensorView { storage, shape, strides, offset_bits, dtype } = *self;
        let elements = match wanted.contains(&0) {
            true => Some(0),
            false => wanted.iter().try_fold(1u64, |elements, size| elements.checked_mul(*size)),
        };
        if elements != Some(self.num_elements()) {
            return Err(ReshapeError::Elements { shape, wanted });
        }
        let Some(strides) = reshape::strides(&shape, &strides, wanted) else {
            return Err(ReshapeError::Copy { shape, strides, wanted });
        };
        Ok(TensorView { storage, shape: wanted, strides, offset_bits, dtype })
    }
}

fn whole_bytes(bits: u128) -> Option<u64> {
    if bits.is_multiple_of(8) { (bits / 8).try_into().ok() } else { None }
}
