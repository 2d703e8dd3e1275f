//! What a layout refuses: the field, the value, the rule.

use core::fmt;

/// A field of [`LayoutConfig`](super::LayoutConfig); prints as it is spelt there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each is the field of that name")]
pub enum Field {
    NumBlocks,
    NumLayers,
    OuterDim,
    PageSize,
    InnerDim,
    DtypeWidthBytes,
    Alignment,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Field::NumBlocks => "num_blocks",
            Field::NumLayers => "num_layers",
            Field::OuterDim => "outer_dim",
            Field::PageSize => "page_size",
            Field::InnerDim => "inner_dim",
            Field::DtypeWidthBytes => "dtype_width_bytes",
            Field::Alignment => "alignment",
        })
    }
}

/// Why there is no such layout, or why it does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutError {
    /// A field is 0.
    Zero {
        /// Which.
        field: Field,
    },
    /// `outer_dim` is neither 1 nor 2.
    OuterDim {
        /// What it is.
        value: u32,
    },
    /// A field is not a power of two.
    NotPowerOfTwo {
        /// Which.
        field: Field,
        /// What it is.
        value: u64,
    },
    /// `alignment` is smaller than an element.
    AlignmentBelowElement {
        /// What it is, in bytes.
        value: u64,
        /// Bytes an element.
        width: u32,
    },
    /// Sizes leave 64 bits.
    Overflow {
        /// The field that the product overflows with.
        field: Field,
        /// What it is.
        value: u64,
    },
    /// The storage is smaller than the region.
    StorageTooSmall {
        /// Bytes that the storage has.
        size_bytes: u64,
        /// Bytes that the layout takes.
        needed: u64,
    },
    /// The storage does not start at a multiple of the alignment.
    StorageMisaligned {
        /// Where it starts.
        address: u64,
        /// The alignment, in bytes.
        alignment: u64,
    },
    /// An index outside the shape.
    Bounds(BoundsError),
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::Zero { field } => write!(f, "{field} = 0: must be at least 1"),
            LayoutError::OuterDim { value } => {
                write!(f, "outer_dim = {value}: must be 2 (keys and values) or 1 (MLA)")
            }
            LayoutError::NotPowerOfTwo { field, value } => {
                write!(f, "{field} = {value}: must be a power of two")
            }
            LayoutError::AlignmentBelowElement { value, width } => {
                write!(f, "alignment = {value}: must be at least dtype_width_bytes = {width}")
            }
            LayoutError::Overflow { field, value } => {
                write!(f, "{field} = {value}: with it the layout's size in bytes does not fit into 64 bits")
            }
            LayoutError::StorageTooSmall { size_bytes, needed } => {
                write!(f, "size_bytes = {size_bytes}: the layout takes {needed} bytes")
            }
            LayoutError::StorageMisaligned { address, alignment } => {
                write!(f, "base_address = {address:#x}: must be a multiple of alignment = {alignment}")
            }
            LayoutError::Bounds(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for LayoutError {}

impl From<BoundsError> for LayoutError {
    fn from(error: BoundsError) -> LayoutError {
        LayoutError::Bounds(error)
    }
}

/// An index outside the shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BoundsError {
    /// Block, layer and outer index, as far as they were given.
    pub index: [Option<u32>; 3],
    /// `[num_blocks, num_layers, outer_dim]`.
    pub shape: [u32; 3],
}

impl fmt::Display for BoundsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("index [")?;
        for (i, index) in self.index.iter().flatten().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{index}")?;
        }
        let [blocks, layers, outer] = self.shape;
        write!(f, "] is outside [blocks, layers, outer] = [{blocks}, {layers}, {outer}]")
    }
}

impl core::error::Error for BoundsError {}
