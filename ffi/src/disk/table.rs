//! The slot table in memory: the record of each slot, as the bytes that lie in the file.
//!
//! ```text
//!   page 0                page 1                             bitmap: a bit a page
//!   ├ record 0 … 63 ──────┼ record 64 … 127 ──────┼ … ┤      1 0 0 1 1 0 …
//!                                                            │     └─┴─ dirty: newer here than in the file
//!   take_extent: ├──── dirty, at most 7 clean, dirty ────┤ ──► one write
//! ```
//!
//! In an encrypted volume the labels in these bytes are masked. The mask is taken off when a
//! record is read.
//!
//! One thread owns the table. Writes to the file come later and in no order, since nothing depends
//! on them: a missing record is a miss, and one that is too old names a block whose payload no
//! longer matches.
//!
//! Invariants
//! - I1: a slot's bytes are 64 zeros, or a record that this process encoded or verified.
//! - I2: a page that differs from its last copy by `take_extent` (or from the loaded bytes) is dirty.
//! - I3: the next sequence number is larger than that of every record that was ever in the table.

use super::cipher::Cipher;
use super::format::{MAX_SEQUENCE, PAGE_BYTES, RECORD_BYTES, RECORDS_A_PAGE, Record, Superblock};
use super::recovery::{Label, Recovered, RejectedRecords};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Longest run of clean pages that is rewritten to join two writes into one.
const GAP_PAGES: usize = 7;

/// The slot table: 64 bytes a slot, rounded up to pages, and a bit a page.
pub(crate) struct Table {
    volume: u128,
    slots: u32,
    /// Whole pages.
    bytes: Vec<u8>,
    dirty: Bits,
    /// Where the next search for dirty pages starts, so that every page gets its turn.
    cursor: usize,
    next_sequence: u64,
    /// Set in an encrypted volume.
    cipher: Option<Arc<Cipher>>,
}

/// Pages of the table for one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The first.
    pub(crate) first_page: usize,
    /// Number of pages, at least 1.
    pub(crate) pages: usize,
}

impl Extent {
    /// Where it starts, counted from the table's start.
    pub(crate) const fn offset_bytes(&self) -> u64 {
        (self.first_page * PAGE_BYTES) as u64
    }

    /// Its length.
    pub(crate) const fn bytes(&self) -> usize {
        self.pages * PAGE_BYTES
    }

    /// Whether they have a page in common.
    pub(crate) const fn overlaps(&self, other: &Extent) -> bool {
        self.first_page < other.first_page + other.pages && other.first_page < self.first_page + self.pages
    }
}

impl Table {
    /// An empty table without dirty pages, for a file with a table of zeros. For any other file, call
    /// [`redirty`](Table::redirty) for all [`pages`](Table::pages).
    ///
    /// None if there is too little memory.
    pub(crate) fn new(volume: u128, slots: u32, cipher: Option<Arc<Cipher>>) -> Option<Table> {
        let pages = (slots as usize).div_ceil(RECORDS_A_PAGE);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(pages.checked_mul(PAGE_BYTES)?).ok()?;
        bytes.resize(pages * PAGE_BYTES, 0);
        Some(Table { volume, slots, bytes, dirty: Bits::new(pages), cursor: 0, next_sequence: 1, cipher })
    }

    /// Loads the table of a file of `file_bytes`; `bytes` are the file's bytes from the table's start on.
    /// The superblock was read from that file and accepted, and counts the writes that it was read with:
    /// memory for its slots is allocated.
    ///
    /// Records that cannot be served are cleared and counted, and their pages are dirty. Of two records
    /// with one hash the one with the higher sequence number stays (if equal: the one in the lower slot).
    /// Slots beyond the end of `bytes` count as not readable, and their pages are dirty.
    pub(crate) fn load(
        superblock: &Superblock,
        bytes: &[u8],
        file_bytes: u64,
        cipher: Option<Arc<Cipher>>,
    ) -> Option<(Table, Vec<Recovered>, RejectedRecords)> {
        let shape = &superblock.shape;
        let mut table = Table::new(superblock.volume_id, shape.slots, cipher)?;
        let mut rejected = RejectedRecords::default();
        let there = shape.slots_within(file_bytes);
        let last = superblock.last_sequence();
        let records = bytes.as_chunks::<RECORD_BYTES>().0;
        // For each block the lower half of its hash, and its sequence number: 16 bytes to sort
        // instead of 64.
        let (mut names, mut order) = (Vec::new(), Vec::new());
        for (slot, record) in (0..shape.slots).zip(records) {
            let cause = match Record::decode(record, table.volume, slot) {
                Ok(None) => continue,
                Ok(Some(found)) if found.sequence > last => &mut rejected.record,
                Ok(Some(_)) if slot >= there => &mut rejected.truncated,
                Ok(Some(found)) if !(1..=shape.slot_bytes).contains(&found.payload_bytes) => {
                    &mut rejected.length
                }
                Ok(Some(found)) => match table.masked(found) {
                    None => &mut rejected.salt,
                    Some(found) => {
                        table.put(slot, record);
                        table.next_sequence = table.next_sequence.max(found.sequence + 1);
                        names.push((found.label.hash.to_u128() as u64, slot));
                        order.push((found.sequence, slot));
                        continue;
                    }
                },
                Err(_) => &mut rejected.record,
            };
            *cause += 1;
            table.dirty.set(slot as usize / RECORDS_A_PAGE);
        }
        // A page that is missing in part is dirty too.
        let read = records.len().min(shape.slots as usize);
        rejected.table = (shape.slots as usize - read) as u64;
        if read < shape.slots as usize {
            table.dirty.set_range(read / RECORDS_A_PAGE, table.pages());
        }

        names.sort_unstable();
        for near in names.chunk_by(|one, other| one.0 == other.0).filter(|near| near.len() > 1) {
            rejected.duplicate += table.clear_duplicates(near.iter().map(|&(_, slot)| slot));
        }
        order.sort_unstable();
        let mut blocks = Vec::with_capacity(order.len());
        // Blocks that were cleared just now are left out.
        let block = |(sequence, slot)| {
            let Record { label, payload_bytes, .. } = table.get(slot)?;
            Some(Recovered { slot, label, sequence, payload_bytes })
        };
        blocks.extend(order.into_iter().filter_map(block));
        Some((table, blocks, rejected))
    }

    /// Clears each of these slots whose block is in another of them with a later record. Returns how
    /// many it cleared.
    fn clear_duplicates(&mut self, slots: impl Iterator<Item = u32>) -> u64 {
        let held =
            slots.filter_map(|slot| self.get(slot).map(|record| (record.label.hash, record.sequence, slot)));
        let mut held: Vec<_> = held.collect();
        held.sort_unstable_by_key(|&(hash, sequence, slot)| (hash, core::cmp::Reverse(sequence), slot));
        let mut cleared = 0;
        for pair in held.windows(2) {
            if pair[0].0 == pair[1].0 {
                self.clear(pair[1].2);
                cleared += 1;
            }
        }
        cleared
    }

    /// How many pages the table has.
    pub(crate) fn pages(&self) -> usize {
        self.bytes.len() / PAGE_BYTES
    }

    /// The record of a slot; None if the slot is empty or does not exist.
    pub(crate) fn get(&self, slot: u32) -> Option<Record> {
        self.masked(Record::trusted(self.record(slot)?)?)
    }

    /// Whether a slot holds a block.
    pub(crate) fn holds(&self, slot: u32) -> bool {
        self.record(slot).is_some_and(|record| *record != [0; RECORD_BYTES])
    }

    /// In an encrypted volume, masks a record's label or takes the mask off. None if the salt of its
    /// epoch is gone.
    fn masked(&self, record: Record) -> Option<Record> {
        match &self.cipher {
            None => Some(record),
            Some(cipher) => masked(cipher, record),
        }
    }

    /// Writes a slot's record. Has no effect if the slot does not exist.
    pub(crate) fn set(&mut self, slot: u32, record: &Record) {
        self.next_sequence = self.next_sequence.max(record.sequence.saturating_add(1));
        // None does not happen: a new record was sealed in the newest epoch.
        let bytes = self.masked(*record).map_or([0; RECORD_BYTES], |record| record.encode(self.volume, slot));
        self.replace(slot, &bytes);
    }

    /// Empties a slot. Has no effect if it is empty or does not exist.
    pub(crate) fn clear(&mut self, slot: u32) {
        self.replace(slot, &[0; RECORD_BYTES]);
    }

    /// A number larger than that of every record that was ever here, and than every number that this
    /// method returned.
    pub(crate) fn next_sequence(&mut self) -> u64 {
        let next = self.next_sequence.min(MAX_SEQUENCE);
        self.next_sequence = next + 1;
        next
    }

    /// How many pages are newer here than in the file.
    pub(crate) fn dirty_pages(&self) -> usize {
        self.dirty.count
    }

    /// Copies the next run of dirty pages to the start of `room`, and marks them as written. None if no
    /// page is dirty, or `room` is shorter than a page.
    ///
    /// Runs with at most 7 clean pages between them are joined: one longer write costs less than two
    /// writes. The search goes round, so that each dirty page gets its turn.
    pub(crate) fn take_extent(&mut self, room: &mut [u8]) -> Option<Extent> {
        let pages = room.len() / PAGE_BYTES;
        if pages == 0 {
            return None;
        }
        let first = self.dirty.next(self.cursor).or_else(|| self.dirty.next(0))?;
        let mut end = first + 1;
        while let Some(page) = self.dirty.next(end)
            && page - end <= GAP_PAGES
            && page < first + pages
        {
            end = page + 1;
        }
        let extent = &self.bytes[first * PAGE_BYTES..end * PAGE_BYTES];
        room[..extent.len()].copy_from_slice(extent);
        self.dirty.clear_range(first, end);
        self.cursor = end;
        Some(Extent { first_page: first, pages: end - first })
    }

    /// Marks the pages of an extent as dirty again, after its write failed.
    pub(crate) fn redirty(&mut self, extent: Extent) {
        let end = extent.first_page.saturating_add(extent.pages).min(self.pages());
        self.dirty.set_range(extent.first_page.min(end), end);
    }

    fn record(&self, slot: u32) -> Option<&[u8; RECORD_BYTES]> {
        self.bytes.as_chunks().0.get(slot as usize).filter(|_| slot < self.slots)
    }

    /// Stores a record's bytes; the slot is in range.
    fn put(&mut self, slot: u32, bytes: &[u8; RECORD_BYTES]) {
        self.bytes.as_chunks_mut().0[slot as usize] = *bytes;
    }

    fn replace(&mut self, slot: u32, bytes: &[u8; RECORD_BYTES]) {
        if self.record(slot).is_some_and(|old| old != bytes) {
            self.put(slot, bytes);
            self.dirty.set(slot as usize / RECORDS_A_PAGE);
        }
    }
}

impl core::fmt::Debug for Table {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Table")
            .field("slots", &self.slots)
            .field("dirty_pages", &self.dirty.count)
            .field("next_sequence", &self.next_sequence)
            .finish_non_exhaustive()
    }
}

/// Masks the label of an encrypted volume's record, or takes the mask off. None if the salt of its
/// epoch is gone.
pub(super) fn masked(cipher: &Cipher, mut record: Record) -> Option<Record> {
    let mut label = record.label.to_bytes();
    let masked = cipher.mask(record.sequence, &mut label);
    record.label = Label::from_bytes(label);
    masked.then_some(record)
}

/// A bit a page, counted.
struct Bits {
    words: Vec<u64>,
    count: usize,
}

impl Bits {
    fn new(bits: usize) -> Bits {
        Bits { words: vec![0; bits.div_ceil(64)], count: 0 }
    }

    fn set(&mut self, bit: usize) {
        self.set_range(bit, bit + 1);
    }

    fn set_range(&mut self, first: usize, end: usize) {
        for bit in first..end {
            let (word, mask) = (&mut self.words[bit / 64], 1 << (bit % 64));
            self.count += usize::from(*word & mask == 0);
            *word |= mask;
        }
    }

    fn clear_range(&mut self, first: usize, end: usize) {
        for bit in first..end {
            let (word, mask) = (&mut self.words[bit / 64], 1 << (bit % 64));
            self.count -= usize::from(*word & mask != 0);
            *word &= !mask;
        }
    }

    /// The first set bit from `from` on.
    fn next(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut left = self.words.get(word)? & (u64::MAX << (from % 64));
        while left == 0 {
            word += 1;
            left = *self.words.get(word)?;
        }
        Some(word * 64 + left.trailing_zeros() as usize)
    }
}
