//! The places of a volume's parts in its file.

use super::{PAGE_BYTES, RECORD_BYTES, SUPERBLOCK_BYTES};

/// The range of alignments, all powers of two.
const ALIGNMENTS: core::ops::RangeInclusive<u32> = 512..=PAGE_BYTES as u32;

/// The places of all parts in the file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Number of slots.
    pub(crate) slots: u32,
    /// Maximum length of a payload.
    pub(crate) slot_bytes: u32,
    /// Distance from one slot to the next.
    pub(crate) stride: u64,
    /// Where the slot table starts.
    pub(crate) table_offset: u64,
    /// Where slot 0 starts.
    pub(crate) origin: u64,
    /// The file's length.
    pub(crate) file_bytes: u64,
    /// Origin and stride are multiples of this: 512, 1024, 2048 or 4096.
    pub(crate) alignment: u32,
}

impl Shape {
    /// The shape of a new volume. None if it is impossible: no slot, no byte, an alignment that is not
    /// one of the four, or a file longer than a file can be.
    pub(crate) fn new(slots: u32, slot_bytes: u32, alignment: u32) -> Option<Shape> {
        let page = PAGE_BYTES as u64;
        let table_offset = SUPERBLOCK_BYTES as u64;
        let stride = u64::from(slot_bytes).checked_next_multiple_of(u64::from(alignment))?;
        let origin = table_offset + table_bytes(slots);
        let file_bytes = u64::from(slots)
            .checked_mul(stride)?
            .checked_add(origin)?
            .checked_next_multiple_of(page)?
            .checked_add(SUPERBLOCK_BYTES as u64)?;
        let shape = Shape { slots, slot_bytes, stride, table_offset, origin, file_bytes, alignment };
        shape.check().is_ok().then_some(shape)
    }

    /// The slot table's length, rounded up to whole pages.
    pub(crate) fn table_bytes(&self) -> u64 {
        table_bytes(self.slots)
    }

    /// Where superblock B starts.
    pub(crate) fn superblock_b(&self) -> u64 {
        self.file_bytes - SUPERBLOCK_BYTES as u64
    }

    /// Where a slot starts; the slot is in range.
    pub(crate) fn offset(&self, slot: u32) -> u64 {
        debug_assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        self.origin + u64::from(slot) * self.stride
    }

    /// How many slots lie wholly within this many bytes: all of them unless the file became shorter.
    pub(crate) fn slots_within(&self, file_bytes: u64) -> u32 {
        // A slot without its padding does not count: it could not be read with O_DIRECT.
        let whole = file_bytes.saturating_sub(self.origin).checked_div(self.stride).unwrap_or(0);
        u32::try_from(whole).unwrap_or(u32::MAX).min(self.slots)
    }

    /// Whether the parts follow each other and fit.
    ///
    /// # Errors
    /// The first field that is impossible, by its name in the document.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let page = PAGE_BYTES as u64;
        let alignment = u64::from(self.alignment);
        let table_end = self.table_offset.checked_add(self.table_bytes());
        let slots_end =
            u64::from(self.slots).checked_mul(self.stride).and_then(|b| b.checked_add(self.origin));
        let all = [
            ("slots", self.slots > 0),
            ("slot_bytes", self.slot_bytes > 0),
            ("alignment", self.alignment.is_power_of_two() && ALIGNMENTS.contains(&self.alignment)),
            ("stride", self.stride >= u64::from(self.slot_bytes) && self.stride.is_multiple_of(alignment)),
            (
                "table_offset",
                self.table_offset >= SUPERBLOCK_BYTES as u64 && self.table_offset.is_multiple_of(page),
            ),
            ("origin", table_end.is_some_and(|end| self.origin >= end) && self.origin.is_multiple_of(page)),
            (
                "file_bytes",
                self.file_bytes <= i64::MAX as u64
                    && self.file_bytes.is_multiple_of(page)
                    && slots_end
                        .and_then(|end| end.checked_add(SUPERBLOCK_BYTES as u64))
                        .is_some_and(|end| self.file_bytes >= end),
            ),
        ];
        match all.iter().find(|(_, holds)| !holds) {
            None => Ok(()),
            Some(&(field, _)) => Err(field),
        }
    }
}

fn table_bytes(slots: u32) -> u64 {
    (u64::from(slots) * RECORD_BYTES as u64).next_multiple_of(PAGE_BYTES as u64)
}
