//! A set of layer groups as bytes.
//!
//! ```text
//!   at   bytes
//!    0       8   "KVGROUPS"
//!    8       4   version, 1
//!   12       4   num_layers
//!   16       4   groups
//!   20           each group:  4 layers (L)   4 × L each layer   4 bytes of the description (B)
//!                             B the description of its layout
//! ```
//!
//! All integers are little-endian; nothing follows. Each description has a fingerprint of its own; the
//! rest is small enough to be checked by its rules.

use super::{GroupsError, LayerGroup, LayerGroups};
use crate::layout::Layout;
use crate::layout::describe::{Input, VERSION, value};
use alloc::vec::Vec;

const MAGIC: [u8; 8] = *b"KVGROUPS";

impl LayerGroups {
    /// The description of the set, version [`VERSION`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::from(MAGIC);
        for number in [VERSION, self.num_layers(), self.groups.len() as u32] {
            out.extend(number.to_le_bytes());
        }
        for LayerGroup { layers, layout } in &self.groups {
            out.extend((layers.len() as u32).to_le_bytes());
            out.extend(layers.iter().flat_map(|layer| layer.to_le_bytes()));
            let description = layout.to_bytes();
            out.extend((description.len() as u32).to_le_bytes()); // 65,536 × 2 × 2 regions at most
            out.extend(description);
        }
        out
    }

    /// The set of a description.
    ///
    /// # Errors
    ///
    /// The field, the layer or the group that does not fit.
    pub fn from_bytes(bytes: &[u8]) -> Result<LayerGroups, GroupsError> {
        let mut input = Input { bytes };
        input.start(MAGIC)?;
        let (num_layers, num_groups) = (input.u32("num_layers")?, input.u32("groups")?);
        let mut groups = Vec::new();
        for group in 0..num_groups {
            let layers = input.u32("layers")?;
            let layers = input.slice("layers", u64::from(layers) * 4)?.as_chunks().0;
            let layers = layers.iter().copied().map(u32::from_le_bytes).collect();
            let description = input.u32("description")?;
            let description = input.slice("description", description.into())?;
            let layout =
                Layout::from_bytes(description).map_err(|error| GroupsError::Group { group, error })?;
            groups.push(LayerGroup { layers, layout });
        }
        if !input.bytes.is_empty() {
            return Err(value("bytes behind the last group", input.bytes.len() as u64, "0").into());
        }
        LayerGroups::new(num_layers, groups)
    }
}
