//! The reasons why a plan is refused: side, field, value, rule.

use crate::layout::{DType, Dim};
use core::fmt;

/// One side of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The origin of the bytes.
    Source,
    /// Their target.
    Destination,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Source => "source",
            Side::Destination => "destination",
        })
    }
}

/// The reason why there is no such plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PlanError {
    /// The two lists of blocks differ in length.
    Lengths {
        /// Blocks of the source's list.
        src: usize,
        /// Blocks of the destination's list.
        dst: usize,
    },
    /// A list is longer than 2³² - 1.
    TooMany {
        /// Its length.
        blocks: usize,
    },
    /// A block that a layout does not have.
    Block {
        /// The layout's side.
        side: Side,
        /// The block's place in its list.
        position: usize,
        /// The block.
        block: u32,
        /// The number of the layout's blocks.
        of: u32,
    },
    /// A block is written twice.
    Twice {
        /// The block, of the destination.
        block: u32,
    },
    /// The elements' types differ.
    DType {
        /// The source's.
        src: DType,
        /// The destination's.
        dst: DType,
    },
    /// The sides differ in a dimension that cannot be sliced, or was not.
    Shape {
        /// The dimension.
        dim: Dim,
        /// The source's size.
        src: u32,
        /// The destination's size.
        dst: u32,
    },
    /// Heads differ in size.
    HeadSize {
        /// The source's, in elements.
        src: u32,
        /// The destination's.
        dst: u32,
    },
    /// A slice is empty or leaves its layout.
    Slice {
        /// The slice's side.
        side: Side,
        /// Its dimension.
        dim: Dim,
        /// Its first index.
        first: u32,
        /// The number of its indices.
        count: u32,
        /// The number of the layout's indices.
        of: u32,
    },
    /// The page sizes differ, and so do the numbers of tokens in the two lists.
    Tokens {
        /// Tokens of the source's blocks.
        src: u64,
        /// Tokens of the destination's blocks.
        dst: u64,
    },
    /// Lists of more than 2³² - 1 tokens.
    TooManyTokens {
        /// The number of tokens.
        tokens: u64,
    },
    /// One plan would both read and write these bytes.
    Overlap {
        /// An address of such a byte.
        address: u64,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::Lengths { src, dst } => {
                write!(f, "src_blocks has {src} blocks and dst_blocks {dst}: list as many on each side")
            }
            PlanError::TooMany { blocks } => {
                write!(f, "{blocks} blocks: a plan has at most 4,294,967,295; split the lists")
            }
            PlanError::Block { side, position, block, of } => {
                write!(f, "{side} block [{position}] = {block}: the layout has {of} blocks, numbered from 0")
            }
            PlanError::Twice { block } => {
                write!(f, "destination block {block} is in the list twice: list each destination once")
            }
            PlanError::DType { src, dst } => {
                write!(
                    f,
                    "dtype: {src} cannot become {dst}; a plan only moves bytes, so use layouts of one dtype"
                )
            }
            PlanError::Shape { dim, src, dst } => {
                let (field, remedy) = match dim {
                    Dim::Layer => ("layers", "select layers of each side with a Slice"),
                    Dim::Head => ("heads", "select heads of each side with a Slice"),
                    Dim::Token => ("page_size", "use a PagePlan, which moves tokens between such blocks"),
                    Dim::Outer => ("outer_dim", "use layouts of one outer_dim"),
                    Dim::Block => ("blocks", "list the blocks to copy"),
                };
                write!(f, "{field}: the source has {src}, the destination {dst}; {remedy}")
            }
            PlanError::HeadSize { src, dst } => {
                write!(
                    f,
                    "head_size: the source has {src}, the destination {dst}; use layouts of one head_size"
                )
            }
            PlanError::Slice { side, dim, first, count, of } => {
                write!(
                    f,
                    "{dim} slice {first} + {count}: must not be empty, and must end within the {of} of the {side}"
                )
            }
            PlanError::Tokens { src, dst } => {
                write!(
                    f,
                    "src_blocks have {src} tokens and dst_blocks {dst}: list blocks with as many, \
                     or select tokens of each side with a Slice"
                )
            }
            PlanError::TooManyTokens { tokens } => {
                write!(f, "{tokens} tokens: a plan has at most 4,294,967,295; split the lists")
            }
            PlanError::Overlap { address } => {
                write!(f, "address {address:#x}: one plan would read and write it; use a separate buffer")
            }
        }
    }
}

impl core::error::Error for PlanError {}
