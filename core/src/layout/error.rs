//! The reasons why a layout is refused: the field, the value, the rule.

use super::arrangement::Spread;
use super::{Arrangement, DType, Dim, Index};
use crate::storage::StorageKind;
use core::fmt;

/// A field of a [`LayoutConfig`](super::LayoutConfig), a [`Region`](super::Region) or a
/// [`Tensor`](super::Tensor); prints as it is spelt there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each is the field of that name")]
pub enum Field {
    NumBlocks,
    NumLayers,
    OuterDim,
    PageSize,
    NumHeads,
    HeadSize,
    Alignment,
    Scales,
    Regions,
    Address,
    SizeBytes,
    Tensors,
    Shape,
    Strides,
    Dims,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Field::NumBlocks => "num_blocks",
            Field::NumLayers => "num_layers",
            Field::OuterDim => "outer_dim",
            Field::PageSize => "page_size",
            Field::NumHeads => "num_heads",
            Field::HeadSize => "head_size",
            Field::Alignment => "alignment",
            Field::Scales => "scales",
            Field::Regions => "regions",
            Field::Address => "address",
            Field::SizeBytes => "size_bytes",
            Field::Tensors => "tensors",
            Field::Shape => "shape",
            Field::Strides => "strides",
            Field::Dims => "dims",
        })
    }
}

/// The reason why there is no such layout, or why it does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LayoutError {
    /// A field is 0.
    Zero {
        /// The field.
        field: Field,
    },
    /// A field is too large.
    TooMany {
        /// The field.
        field: Field,
        /// Its value.
        value: u32,
        /// The largest allowed value.
        most: u32,
    },
    /// `outer_dim` is neither 1 nor 2.
    OuterDim {
        /// Its value.
        value: u32,
    },
    /// A field is not a power of two.
    NotPowerOfTwo {
        /// The field.
        field: Field,
        /// Its value.
        value: u64,
    },
    /// `alignment` is smaller than an element.
    AlignmentBelowElement {
        /// The alignment, in bytes.
        value: u64,
        /// The elements' type.
        dtype: DType,
    },
    /// A row's elements do not fill whole bytes, or whole groups that share a scale.
    HeadSize {
        /// The head size, in elements.
        value: u32,
        /// The elements' type.
        dtype: DType,
        /// Elements per group.
        group: u32,
    },
    /// Sizes or addresses exceed 64 bits.
    Overflow {
        /// The field with which the sum or product overflows.
        field: Field,
        /// Its value.
        value: u64,
    },
    /// Scales behind each page, but a page is not in one piece.
    ScalesApart {
        /// The arrangement.
        arrangement: Arrangement,
    },
    /// A padded block in an arrangement without a place for padding.
    Padded {
        /// Bytes of a block's data within the region.
        bytes: u64,
        /// The alignment, in bytes.
        alignment: u64,
    },
    /// The number of regions or tensors differs from that of the arrangement and the geometry.
    Count {
        /// The field.
        field: Field,
        /// The number given.
        value: u64,
        /// The number needed.
        needed: u64,
    },
    /// A region is smaller than its content.
    RegionTooSmall {
        /// The region.
        region: u32,
        /// Its size in bytes.
        size_bytes: u64,
        /// The bytes needed.
        needed: u64,
    },
    /// A region does not start at a multiple of the alignment.
    Misaligned {
        /// The region.
        region: u32,
        /// Its address.
        address: u64,
        /// The alignment, in bytes.
        alignment: u64,
    },
    /// A stride is smaller than the span between two indices of its dimension.
    Interleaved {
        /// The dimension of the stride.
        dim: Dim,
        /// The stride, in bytes.
        stride: u64,
        /// The dimension below it, none if that is the row.
        inner: Option<Dim>,
        /// Its span, in bytes.
        span: u64,
    },
    /// Two (layer, outer) overlap.
    LayersOverlap {
        /// One of them.
        a: [u32; 2],
        /// The other.
        b: [u32; 2],
        /// The span of each, in bytes.
        span: u64,
    },
    /// Elements and scales overlap.
    ScalesOverlap,
    /// Regions of several address spaces.
    Spaces {
        /// A region in another space than the first.
        region: u32,
        /// Its kind.
        kind: StorageKind,
        /// The kind of the first region.
        first: StorageKind,
    },
    /// All layers are in one region, but they must be apart.
    LayersTogether {
        /// The arrangement.
        arrangement: Arrangement,
    },
    /// A tensor's first element is not aligned.
    ElementMisaligned {
        /// The tensor's region.
        region: u32,
        /// Its address.
        address: u64,
        /// The elements' type.
        dtype: DType,
    },
    /// A tensor's dimension differs in size from the geometry's.
    Shape {
        /// The tensor's list, `tensors` or `scales`.
        list: Field,
        /// The tensor in it.
        tensor: u32,
        /// Its dimension.
        position: u32,
        /// The dimension's size.
        value: u64,
        /// The geometry's size.
        needed: u64,
    },
    /// A tensor's dimensions are not those of a layout.
    Dims {
        /// The tensor's list, `tensors` or `scales`.
        list: Field,
        /// The tensor in it.
        tensor: u32,
    },
    /// A tensor's strides are not those of the others.
    StridesDiffer {
        /// The tensors' list, `tensors` or `scales`.
        list: Field,
        /// One of them.
        tensor: u32,
        /// Another one.
        other: u32,
    },
    /// The rows of a tensor are not contiguous.
    RowStride {
        /// The tensor's list, `tensors` or `scales`.
        list: Field,
        /// The tensor in it.
        tensor: u32,
        /// The stride of its elements, in elements.
        value: u64,
    },
    /// An index outside the shape.
    Bounds(BoundsError),
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::Zero { field } => write!(f, "{field} = 0: must be at least 1"),
            LayoutError::TooMany { field, value, most } => {
                write!(f, "{field} = {value}: must be at most {most}")
            }
            LayoutError::OuterDim { value } => {
                write!(f, "outer_dim = {value}: must be 2 (keys and values) or 1 (MLA)")
            }
            LayoutError::NotPowerOfTwo { field, value } => {
                write!(f, "{field} = {value}: must be a power of two")
            }
            LayoutError::AlignmentBelowElement { value, dtype } => {
                let width = dtype.alignment();
                write!(f, "alignment = {value}: must be at least the {width} bytes of a {dtype} element")
            }
            LayoutError::HeadSize { value, dtype, group } => {
                write!(f, "head_size = {value}: must be a multiple of {group} for {dtype}")
            }
            LayoutError::Overflow { field, value } => {
                write!(
                    f,
                    "{field} = {value}: with it the layout does not fit into 64 bits; use a smaller one"
                )
            }
            LayoutError::ScalesApart { arrangement } => {
                write!(
                    f,
                    "scales = page: a page is not in one piece under arrangement = {arrangement}; \
                     use scales = row"
                )
            }
            LayoutError::Padded { bytes, alignment } => {
                write!(
                    f,
                    "alignment = {alignment}: a block's {bytes} bytes would be padded, which this \
                     arrangement does not allow; use a divisor of {bytes}"
                )
            }
            LayoutError::Count { field, value, needed } => {
                write!(f, "{field}: {value} given, this layout needs {needed}")
            }
            LayoutError::RegionTooSmall { region, size_bytes, needed } => {
                write!(f, "regions[{region}].size_bytes = {size_bytes}: must be at least {needed}")
            }
            LayoutError::Misaligned { region, address, alignment } => {
                write!(
                    f,
                    "regions[{region}].address = {address:#x}: must be a multiple of alignment = {alignment}"
                )
            }
            LayoutError::Interleaved { dim, stride, inner, span } => {
                write!(f, "strides: one {dim} follows another after {stride} bytes, but spans {span} (")?;
                match inner {
                    Some(inner) => write!(f, "all of its {inner} dimension)"),
                    None => f.write_str("a row)"),
                }
            }
            LayoutError::LayersOverlap { a, b, span } => {
                write!(
                    f,
                    "address: layer {}, outer {} and layer {}, outer {} overlap, each spanning {span} bytes; \
                     place them apart",
                    a[0], a[1], b[0], b[1]
                )
            }
            LayoutError::ScalesOverlap => {
                f.write_str("address: elements and scales overlap; place them apart")
            }
            LayoutError::Spaces { region, kind, first } => {
                write!(
                    f,
                    "regions[{region}].kind = {kind}: a layout lies in one address space, \
                     and regions[0].kind = {first}; make a layout for each"
                )
            }
            LayoutError::LayersTogether { arrangement } => {
                write!(f, "arrangement = {arrangement}: all layers are in one region; apart they are in")?;
                let apart = Arrangement::ALL.into_iter().filter(|other| other.spread() != Spread::One);
                for (i, other) in apart.enumerate() {
                    write!(f, "{} {other}", if i == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            LayoutError::ElementMisaligned { region, address, dtype } => {
                let width = dtype.alignment();
                write!(
                    f,
                    "regions[{region}].address = {address:#x}: must be a multiple of the {width} bytes \
                     of a {dtype} element"
                )
            }
            LayoutError::Shape { list, tensor, position, value, needed } => {
                write!(f, "{list}[{tensor}].shape[{position}] = {value}: the geometry has {needed}")
            }
            LayoutError::Dims { list, tensor } => {
                write!(
                    f,
                    "{list}[{tensor}].dims: needs block (or slot), token (unless slot), head (unless 1) \
                     and element, each once"
                )
            }
            LayoutError::StridesDiffer { list, tensor, other } => {
                write!(f, "{list}[{tensor}].strides: must be those of {list}[{other}]")
            }
            LayoutError::RowStride { list, tensor, value } => {
                write!(f, "{list}[{tensor}].strides: elements are {value} apart; must be 1")
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
    /// Block, layer, outer index, token, head.
    pub index: Index,
    /// The number of each.
    pub shape: Index,
}

impl fmt::Display for BoundsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BoundsError { index, shape } = self;
        write!(f, "index {index:?} is outside [blocks, layers, outer, tokens, heads] = {shape:?}")
    }
}

impl core::error::Error for BoundsError {}
