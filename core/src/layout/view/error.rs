//! The reasons why there is no such view, or no such address in it.

use crate::layout::DType;
use core::fmt;

/// The reason why there is no such view of D dimensions, or no such address in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ViewError<const D: usize> {
    /// An index outside the shape.
    Bounds {
        /// The index.
        index: [u64; D],
        /// The shape.
        shape: [u64; D],
    },
    /// An element that does not start at a byte.
    MidByte {
        /// Its index.
        index: [u64; D],
        /// Bits behind the byte's start.
        bit: u32,
        /// The element's type.
        dtype: DType,
    },
    /// No such dimension.
    Dim {
        /// The dimension.
        dim: usize,
        /// The shape.
        shape: [u64; D],
    },
    /// A slice that ends before it starts, or outside the shape.
    Slice {
        /// The dimension.
        dim: usize,
        /// First index.
        start: u64,
        /// The index behind the last.
        end: u64,
        /// The shape.
        shape: [u64; D],
    },
    /// More elements, or further apart, than 64 bits count.
    Overflow {
        /// The shape.
        shape: [u64; D],
        /// The strides, in elements.
        strides: [u64; D],
    },
    /// A storage that ends beyond 64 bits.
    Storage {
        /// Its address.
        address: u64,
        /// Its size, in bytes.
        size_bytes: u64,
    },
    /// Elements outside the storage.
    Outside {
        /// The shape.
        shape: [u64; D],
        /// The strides, in elements.
        strides: [u64; D],
        /// The end of the last element, in bytes behind the storage's start, rounded up.
        end_bytes: u128,
        /// The storage's size, in bytes.
        size_bytes: u64,
    },
}

impl<const D: usize> fmt::Display for ViewError<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ViewError::Bounds { index, shape } => write!(f, "index {index:?} is outside shape {shape:?}"),
            ViewError::MidByte { index, bit, dtype } => {
                write!(
                    f,
                    "index {index:?}: this {dtype} element starts at bit {bit} of its byte and has no address"
                )
            }
            ViewError::Dim { dim, shape } => write!(f, "dimension {dim} is outside shape {shape:?}"),
            ViewError::Slice { dim, start, end, shape } => {
                write!(f, "slice {start}..{end} of dimension {dim} is outside shape {shape:?}")
            }
            ViewError::Overflow { shape, strides } => {
                write!(f, "shape {shape:?} with strides {strides:?} does not fit into 64 bits")
            }
            ViewError::Storage { address, size_bytes } => {
                write!(f, "the storage's {size_bytes} bytes from {address:#x} on do not fit into 64 bits")
            }
            ViewError::Outside { shape, strides, end_bytes, size_bytes } => write!(
                f,
                "shape {shape:?} with strides {strides:?} ends after {end_bytes} bytes, \
                 the storage after {size_bytes}"
            ),
        }
    }
}

impl<const D: usize> core::error::Error for ViewError<D> {}

/// The reason why a view of D dimensions has no view of E.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReshapeError<const D: usize, const E: usize> {
    /// Another number of elements.
    Elements {
        /// The shape.
        shape: [u64; D],
        /// The requested shape.
        wanted: [u64; E],
    },
    /// No strides reach the same elements in the same order: it would be a copy.
    Copy {
        /// The shape.
        shape: [u64; D],
        /// The strides, in elements.
        strides: [u64; D],
        /// The requested shape.
        wanted: [u64; E],
    },
}

impl<const D: usize, const E: usize> fmt::Display for ReshapeError<D, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReshapeError::Elements { shape, wanted } => {
                write!(f, "shape {wanted:?} must have as many elements as {shape:?}")
            }
            ReshapeError::Copy { shape, strides, wanted } => {
                write!(
                    f,
                    "shape {shape:?} with strides {strides:?} has no view of shape {wanted:?}; copy it first"
                )
            }
        }
    }
}

impl<const D: usize, const E: usize> core::error::Error for ReshapeError<D, E> {}
