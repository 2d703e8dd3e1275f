//! The dimensions of a layout.

use super::{BoundsError, LayoutConfig};
use core::fmt;

/// A dimension. A row, the `head_size` elements of one (block, layer, outer, token, head), is never split.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Dim {
    /// Blocks.
    Block = 0,
    /// Layers.
    Layer = 1,
    /// Keys and values.
    Outer = 2,
    /// Tokens of a page.
    Token = 3,
    /// Heads.
    Head = 4,
}

impl Dim {
    /// All dimensions, in the order of an [`Index`].
    pub const ALL: [Dim; 5] = [Dim::Block, Dim::Layer, Dim::Outer, Dim::Token, Dim::Head];
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Dim::Block => "block",
            Dim::Layer => "layer",
            Dim::Outer => "outer",
            Dim::Token => "token",
            Dim::Head => "head",
        })
    }
}

/// A row: block, layer, outer index, token, head.
pub type Index = [u32; 5];

impl LayoutConfig {
    /// The shape, in the order of an [`Index`].
    #[must_use]
    pub const fn shape(&self) -> Index {
        [self.num_blocks, self.num_layers, self.outer_dim, self.page_size, self.num_heads]
    }

    /// Checks that the shape has such a row.
    ///
    /// # Errors
    ///
    /// It has none: the index and the shape.
    #[inline]
    pub fn check_index(&self, index: Index) -> Result<(), BoundsError> {
        let shape = self.shape();
        if index.iter().zip(shape).all(|(index, count)| *index < count) {
            return Ok(());
        }
        Err(BoundsError { index, shape })
    }
}
