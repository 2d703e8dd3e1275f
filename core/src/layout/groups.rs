//! Models whose layers differ in geometry: sliding windows beside full attention, latents beside an
//! indexer's keys.
//!
//! ```text
//!   model layers   0    1    2    3    4    5          group 0, full: layers 1 3 5      pages of 16 tokens
//!                  sl   full sl   full sl   full       group 1, sliding: layers 0 2 4   pages of 64 tokens
//!   find(3) = (group 0, index 1): layer 1 of the layout of group 0
//! ```
//!
//! Each group has a layout, and so a set of blocks, of its own; page sizes and element types may differ.
//! The allocating caller decides which blocks hold the same tokens. Keys and values of different head
//! sizes are two groups, with an outer dimension of 1 and layers of their own.
//!
//! I1. Every layer of the model is in exactly one group, and a group has as many layers as its layout.

mod bytes;
mod error;
#[cfg(test)]
mod tests;

pub use error::GroupsError;

use super::Layout;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Layers with one geometry.
#[derive(Clone, Debug)]
pub struct LayerGroup {
    /// Layers of the model, in the order of the layout's.
    pub layers: Vec<u32>,
    /// The place of their blocks.
    pub layout: Layout,
}

/// The groups of a model's layers. See the [module](self).
///
/// ```
/// use kvstrata_core::layout::groups::{LayerGroup, LayerGroups};
/// use kvstrata_core::layout::{DType, Layout, LayoutConfig, Region};
/// # use kvstrata_core::layout::LayoutError;
/// // 61 layers of a latent of 576, and each layer's indexer with a key of 128 and a scale of 4 bytes.
/// let layers = LayoutConfig::new().num_blocks(8).num_layers(61).page_size(64);
/// let latent = layers.inner_dim(576).dtype(DType::BF16).alignment(2);
/// let indexer = layers.inner_dim(132);
/// let layout = |config: LayoutConfig, at| -> Result<Layout, LayoutError> {
///     Layout::fully_contiguous(config, Region::system(at, 8 * config.block_bytes()?))
/// };
/// let all: Vec<u32> = (0..61).collect();
/// // An indexer's keys count as layers of their own, 61 to 121.
/// let groups = LayerGroups::new(122, vec![
///     LayerGroup { layers: all.clone(), layout: layout(latent, 1 << 30)? },
///     LayerGroup {
///         layers: all.iter().map(|layer| 61 + layer).collect(),
///         layout: layout(indexer, 1 << 40)?,
///     },
/// ])?;
/// assert_eq!(groups.find(61 + 7), Some((1, 7)));
/// assert_eq!(groups.bytes_per_token(), 61 * (576 * 2 + 132));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LayerGroups {
    groups: Box<[LayerGroup]>,
    /// Group and index of each layer of the model.
    found: Box<[(u32, u32)]>,
}

impl LayerGroups {
    /// The groups of a model of `num_layers` layers.
    ///
    /// # Errors
    ///
    /// A layer is in no group or in two, or the model does not have it; or a group's layers
    /// differ in number from its layout's.
    pub fn new(num_layers: u32, groups: Vec<LayerGroup>) -> Result<LayerGroups, GroupsError> {
        // Before memory is allocated for `num_layers`.
        let mut layers = 0u64;
        for (group, number) in groups.iter().zip(0..) {
            let (count, needed) = (group.layers.len() as u64, group.layout.config().num_layers);
            if count != u64::from(needed) {
                return Err(GroupsError::Count { group: number, layers: count, needed });
            }
            if let Some(layer) = group.layers.iter().find(|layer| **layer >= num_layers) {
                return Err(GroupsError::NoSuchLayer { group: number, layer: *layer, num_layers });
            }
            layers += count;
        }
        // If `layers` are fewer, one of the model's is in no group, and it is among the first `layers + 1`.
        let known = u64::from(num_layers).min(layers + 1) as usize;
        let mut found = vec![None; known];
        for (group, number) in groups.iter().zip(0..) {
            for (layer, index) in group.layers.iter().zip(0..) {
                let Some(found) = found.get_mut(*layer as usize) else { continue };
                if let Some((other, _)) = found.replace((number, index)) {
                    return Err(GroupsError::Twice { layer: *layer, groups: [other, number] });
                }
            }
        }
        let in_one = |(found, layer): (Option<_>, u32)| found.ok_or(GroupsError::Missing { layer });
        let found: Box<[_]> = found.into_iter().zip(0..).map(in_one).collect::<Result<_, _>>()?;
        if found.is_empty() {
            return Err(GroupsError::Empty);
        }
        Ok(LayerGroups { groups: groups.into(), found })
    }

    /// The group of a layer of the model, and the layer's index in the group; none if the
    /// model has no such layer.
    #[must_use]
    pub fn find(&self, layer: u32) -> Option<(u32, u32)> {
        self.found.get(layer as usize).copied()
    }

    /// A group; none if there is no such number.
    #[must_use]
    pub fn group(&self, group: u32) -> Option<&LayerGroup> {
        self.groups.get(group as usize)
    }

    /// All groups.
    #[must_use]
    pub fn groups(&self) -> &[LayerGroup] {
        &self.groups
    }

    /// Layers of the model.
    #[must_use]
    pub fn num_layers(&self) -> u32 {
        self.found.len() as u32 // not more than a u32 of them, see `new`
    }

    /// The least number of tokens that is a whole number of blocks in every group: the least common
    /// multiple of the page sizes. None if it exceeds 64 bits.
    #[must_use]
    pub fn tokens_per_block(&self) -> Option<u64> {
        let pages = self.groups.iter().map(|group| u64::from(group.layout.config().page_size));
        pages.into_iter().try_fold(1, least_common_multiple)
    }

    /// Bytes of a token in all groups together, without padding. Saturates.
    #[must_use]
    pub fn bytes_per_token(&self) -> u64 {
        let token = |group: &LayerGroup| {
            // Each row belongs to one token, so this is exact.
            group.layout.block_bytes() / u64::from(group.layout.config().page_size)
        };
        self.groups.iter().map(token).fold(0, u64::saturating_add)
    }
}

fn least_common_multiple(a: u64, b: u64) -> Option<u64> {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a / divisor).checked_mul(b)
}
