//! The order in which the dimensions of a block lie in memory, for tiers and engines.
//!
//! | arrangement | a region is | bytes, outermost first (NHD) | (HND) |
//! |---|---|---|---|
//! | `FullyContiguous` | everything | block layer outer token head | block layer outer head token |
//! | `CrossLayer` | everything | block layer outer token head | block head layer outer token |
//! | `CrossLayerPacked` | everything | block layer token head outer | block head layer token outer |
//! | `OuterFirst` | a layer | outer block token head | outer block head token |
//! | `BlockFirst` | a layer | block outer token head | block outer head token |
//! | `Packed` | a layer | block token head outer | block head token outer |
//! | `TokenMajor` | a layer's keys, or values | block token head | block head token |
//!
//! | arrangement | used by |
//! |---|---|
//! | `FullyContiguous` | the tiers here; TensorRT-LLM's pools (HND) |
//! | `CrossLayer` | vLLM 0.12, one tensor for all layers |
//! | `CrossLayerPacked` | the same since vLLM#44455 |
//! | `OuterFirst` | vLLM, FlashAttention: `[2][blocks][page][heads][size]` |
//! | `BlockFirst` | vLLM, FlashInfer and MLA: `[blocks][2][page][heads][size]` |
//! | `Packed` | vLLM since #44455: `[blocks][page][heads][2 × size]` |
//! | `TokenMajor` | SGLang: `[tokens][heads][size]` |
//!
//! Any other layout is a [list of tensors](super::tensors).

use super::{Dim, HeadOrder};
use core::fmt;
use core::str::FromStr;

/// The order of a layout's dimensions, and the content of a region. The [module](self) lists all of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the module's table has them")]
pub enum Arrangement {
    FullyContiguous,
    CrossLayer,
    CrossLayerPacked,
    OuterFirst,
    BlockFirst,
    Packed,
    TokenMajor,
}

/// How a layout's (layer, outer) pairs are spread over regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spread {
    One,
    Layer,
    Outer,
    LayerOuter,
}

impl Arrangement {
    /// All arrangements.
    pub const ALL: [Arrangement; 7] = [
        Arrangement::FullyContiguous,
        Arrangement::CrossLayer,
        Arrangement::CrossLayerPacked,
        Arrangement::OuterFirst,
        Arrangement::BlockFirst,
        Arrangement::Packed,
        Arrangement::TokenMajor,
    ];

    /// The name as options spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Arrangement::FullyContiguous => "fully-contiguous",
            Arrangement::CrossLayer => "cross-layer",
            Arrangement::CrossLayerPacked => "cross-layer-packed",
            Arrangement::OuterFirst => "outer-first",
            Arrangement::BlockFirst => "block-first",
            Arrangement::Packed => "packed",
            Arrangement::TokenMajor => "token-major",
        }
    }

    pub(super) const fn spread(self) -> Spread {
        match self {
            Arrangement::FullyContiguous | Arrangement::CrossLayer | Arrangement::CrossLayerPacked => {
                Spread::One
            }
            Arrangement::OuterFirst | Arrangement::BlockFirst | Arrangement::Packed => Spread::Layer,
            Arrangement::TokenMajor => Spread::LayerOuter,
        }
    }

    /// The dimensions within a region, outermost first.
    #[must_use]
    pub const fn order(self, heads: HeadOrder) -> &'static [Dim] {
        use Dim::{Block, Head, Layer, Outer, Token};
        match (self, heads) {
            (Arrangement::FullyContiguous | Arrangement::CrossLayer, HeadOrder::Nhd) => {
                &[Block, Layer, Outer, Token, Head]
            }
            (Arrangement::FullyContiguous, HeadOrder::Hnd) => &[Block, Layer, Outer, Head, Token],
            (Arrangement::CrossLayer, HeadOrder::Hnd) => &[Block, Head, Layer, Outer, Token],
            (Arrangement::CrossLayerPacked, HeadOrder::Nhd) => &[Block, Layer, Token, Head, Outer],
            (Arrangement::CrossLayerPacked, HeadOrder::Hnd) => &[Block, Head, Layer, Token, Outer],
            (Arrangement::OuterFirst, HeadOrder::Nhd) => &[Outer, Block, Token, Head],
            (Arrangement::OuterFirst, HeadOrder::Hnd) => &[Outer, Block, Head, Token],
            (Arrangement::BlockFirst, HeadOrder::Nhd) => &[Block, Outer, Token, Head],
            (Arrangement::BlockFirst, HeadOrder::Hnd) => &[Block, Outer, Head, Token],
            (Arrangement::Packed, HeadOrder::Nhd) => &[Block, Token, Head, Outer],
            (Arrangement::Packed, HeadOrder::Hnd) => &[Block, Head, Token, Outer],
            (Arrangement::TokenMajor, HeadOrder::Nhd) => &[Block, Token, Head],
            (Arrangement::TokenMajor, HeadOrder::Hnd) => &[Block, Head, Token],
        }
    }
}

impl fmt::Display for Arrangement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a name that is not an arrangement's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownArrangement;

impl fmt::Display for UnknownArrangement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown arrangement: known are")?;
        for (i, known) in Arrangement::ALL.into_iter().enumerate() {
            write!(f, "{} {known}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownArrangement {}

impl FromStr for Arrangement {
    type Err = UnknownArrangement;
    fn from_str(name: &str) -> Result<Arrangement, UnknownArrangement> {
        Arrangement::ALL.into_iter().find(|known| known.name() == name).ok_or(UnknownArrangement)
    }
}
