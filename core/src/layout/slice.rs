//! The mapping of one side's layers, or heads, to the other's.

use core::ops::{Range, RangeFull};

/// A slice of a dimension, in the numbers of either side.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Slice {
    /// All of them; both sides have the same number.
    #[default]
    All,
    /// The same on both sides.
    Same(Range<u32>),
    /// `count` indices from `src` on become those from `dst` on.
    Moved {
        /// The first at the source.
        src: u32,
        /// The first at the destination.
        dst: u32,
        /// The number of indices.
        count: u32,
    },
}

impl From<RangeFull> for Slice {
    fn from(_: RangeFull) -> Slice {
        Slice::All
    }
}

impl From<Range<u32>> for Slice {
    fn from(range: Range<u32>) -> Slice {
        Slice::Same(range)
    }
}

/// A slice whose bounds were checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) src: u32,
    pub(crate) dst: u32,
    pub(crate) count: u32,
}

impl Span {
    /// Its part from `first` on, of length `count`.
    pub(crate) const fn part(self, first: u32, count: u32) -> Span {
        Span { src: self.src + first, dst: self.dst + first, count }
    }
}
