//! Compares a volume with the wanted one: the same model, the same layout, the same shape.

use super::seal::SealKind;
use super::shape::Shape;
use super::superblock::Superblock;

/// The properties that a volume must have to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Checksums or tags.
    pub(crate) seal_kind: SealKind,
    /// Fingerprint of the model.
    pub(crate) model_fingerprint: u128,
    /// Fingerprint of the layout.
    pub(crate) layout_fingerprint: u128,
    /// Number of slots.
    pub(crate) slots: u32,
    /// A payload's length.
    pub(crate) slot_bytes: u32,
    /// The volume's number in its set.
    pub(crate) stripe_index: u32,
    /// Volumes in the set.
    pub(crate) stripe_count: u32,
    /// The device's alignment: a volume with a larger one will do.
    pub(crate) alignment: u32,
    /// Check of the key; 0 unless encrypted.
    pub(crate) key_check: [u8; 16],
}

/// A field in which a volume differs from the wanted one, for a message to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// The field's name in the document; "key" for the key's check.
    pub(crate) field: &'static str,
    /// The volume's value.
    pub(crate) found: String,
    /// The wanted value.
    pub(crate) wanted: String,
}

impl Superblock {
    /// The first field in which this volume differs from the wanted one.
    pub(crate) fn mismatch(&self, wanted: &Wanted) -> Option<Mismatch> {
        fn differ<T: PartialEq + core::fmt::Display>(
            field: &'static str,
            found: T,
            wanted: T,
        ) -> Option<Mismatch> {
            let (found_text, wanted_text) = (found.to_string(), wanted.to_string());
            (found != wanted).then_some(Mismatch { field, found: found_text, wanted: wanted_text })
        }
        let hex = |value: u128| format!("{value:032x}");
        let shape = &self.shape;
        differ("seal_kind", self.seal_kind, wanted.seal_kind)
            .or_else(|| {
                differ("model_fingerprint", hex(self.model_fingerprint), hex(wanted.model_fingerprint))
            })
            .or_else(|| differ("slot_bytes", shape.slot_bytes, wanted.slot_bytes))
            .or_else(|| {
                differ("layout_fingerprint", hex(self.layout_fingerprint), hex(wanted.layout_fingerprint))
            })
            .or_else(|| differ("slots", shape.slots, wanted.slots))
            .or_else(|| differ("stripe_count", self.stripe_count, wanted.stripe_count))
            .or_else(|| differ("stripe_index", self.stripe_index, wanted.stripe_index))
            .or_else(|| {
                // Slots aligned to more than this device needs are aligned for it.
                if shape.alignment >= wanted.alignment {
                    return None;
                }
                differ("alignment", shape.alignment, wanted.alignment)
            })
            .or_else(|| {
                // This number of slots with this alignment has one shape only: a longer file would take
                // room that was not asked for.
                let one = Shape::new(shape.slots, shape.slot_bytes, shape.alignment)?;
                differ("stride", shape.stride, one.stride)
                    .or_else(|| differ("table_offset", shape.table_offset, one.table_offset))
                    .or_else(|| differ("origin", shape.origin, one.origin))
                    .or_else(|| differ("file_bytes", shape.file_bytes, one.file_bytes))
            })
            .or_else(|| {
                let check = |check| format!("one with check {}", hex(u128::from_le_bytes(check)));
                differ("key", check(self.key_check), check(wanted.key_check))
            })
    }
}
