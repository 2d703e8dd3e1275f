//! The blocks that opening a volume must find in a file: computed from the file's bytes, slot by slot.

use super::super::cipher::{Binding, Cipher, Key, Sealed};
use super::super::format::{RECORD_BYTES, Record, SUPERBLOCK_BYTES, Shape, Superblock, pick};
use super::super::recovery::{Recovered, Recovery, RejectedRecords};
use super::super::table::masked;
use super::disk::Disk;
use kvstrata_core::SequenceHash;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The superblock that counts, how many copies are bad, and the clean mark; None if neither
/// copy is intact.
pub(in crate::disk) fn superblock(disk: &Disk) -> Option<(Superblock, u64, bool)> {
    let bytes = SUPERBLOCK_BYTES as u64;
    let end = disk.bytes().saturating_sub(bytes);
    let picked = pick(&disk.read_vec(&(0..bytes)), &disk.read_vec(&(end..end + bytes)));
    picked.best.map(|(_, superblock)| (superblock, picked.bad(), picked.clean))
}

/// The bytes of a slot's record.
pub(in crate::disk) fn record_bytes(disk: &Disk, shape: &Shape, slot: u32) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    disk.read(record_offset(shape, slot), &mut bytes);
    bytes
}

pub(in crate::disk) fn record_offset(shape: &Shape, slot: u32) -> u64 {
    shape.table_offset + u64::from(slot) * RECORD_BYTES as u64
}

/// Reads the table and the payloads as the next opening of the volume would.
pub(in crate::disk) struct Reader {
    superblock: Superblock,
    table: Vec<u8>,
    cipher: Option<Cipher>,
}

/// Why a slot's record is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::disk) enum Dropped {
    Record,
    Length,
    Salt,
}

impl Reader {
    pub(in crate::disk) fn new(disk: &Disk, superblock: Superblock, key: Option<&Key>) -> Reader {
        let shape = &superblock.shape;
        let table = disk.read_vec(&(shape.table_offset..shape.table_offset + shape.table_bytes()));
        let records = (0..shape.slots).zip(table.as_chunks().0);
        let whole =
            records.filter_map(|(slot, bytes)| Record::decode(bytes, superblock.volume_id, slot).ok());
        let given =
            whole.flatten().map(|record| record.sequence).filter(|n| *n <= superblock.last_sequence());
        let last = given.max().unwrap_or(0);
        // The epoch begun here is not used; the others are opened with the salts of the file.
        let next = Arc::new(AtomicU64::new(last + 1));
        let cipher = key.map(|key| Cipher::new(key, superblock.volume_id, &superblock.salts, next));
        let cipher = cipher.map(|cipher| cipher.expect("random numbers"));
        Reader { superblock, table, cipher }
    }

    /// The record of a slot, with its names unmasked.
    pub(in crate::disk) fn record(&self, slot: u32) -> Result<Option<Record>, Dropped> {
        let Some(bytes) = self.table.as_chunks().0.get(slot as usize) else { return Ok(None) };
        let decoded = Record::decode(bytes, self.superblock.volume_id, slot);
        let Some(record) = decoded.map_err(|_| Dropped::Record)? else { return Ok(None) };
        if record.sequence > self.superblock.last_sequence() {
            return Err(Dropped::Record);
        }
        if !(1..=self.superblock.shape.slot_bytes).contains(&record.payload_bytes) {
            return Err(Dropped::Length);
        }
        match &self.cipher {
            None => Ok(Some(record)),
            Some(cipher) => masked(cipher, record).map(Some).ok_or(Dropped::Salt),
        }
    }

    /// The bytes of a slot's payload, decrypted in an encrypted volume; None if they do not
    /// match the seal.
    pub(in crate::disk) fn payload(&self, disk: &Disk, slot: u32, record: &Record) -> Option<Vec<u8>> {
        let start = self.superblock.shape.offset(slot);
        let mut payload = disk.read_vec(&(start..start + u64::from(record.payload_bytes)));
        let Some(cipher) = &self.cipher else { return Some(payload) };
        let sealed = Sealed { sequence: record.sequence, tag: record.seal };
        let binding = Binding { slot, label: record.label };
        cipher.open(&sealed, &binding, &mut payload).then_some(payload)
    }
}

/// The result that opening the volume must have, for a file of full length.
pub(in crate::disk) fn expected(disk: &Disk, key: Option<&Key>) -> Recovery {
    let Some((superblock, bad, clean)) = superblock(disk) else {
        let rejected = RejectedRecords { superblock: 2, ..RejectedRecords::default() };
        return Recovery { rejected, created: true, ..Recovery::default() };
    };
    let reader = Reader::new(disk, superblock, key);
    let mut rejected = RejectedRecords { superblock: bad, ..RejectedRecords::default() };
    let mut newest: BTreeMap<SequenceHash, Recovered> = BTreeMap::new();
    for slot in 0..superblock.shape.slots {
        let record = match reader.record(slot) {
            Ok(Some(record)) => record,
            Ok(None) => continue,
            Err(dropped) => {
                *match dropped {
                    Dropped::Record => &mut rejected.record,
                    Dropped::Length => &mut rejected.length,
                    Dropped::Salt => &mut rejected.salt,
                } += 1;
                continue;
            }
        };
        let Record { label, sequence, payload_bytes, .. } = record;
        let found = Recovered { slot, label, sequence, payload_bytes };
        let kept = newest.entry(record.label.hash).or_insert(found);
        if kept.slot != slot {
            rejected.duplicate += 1;
            if found.sequence > kept.sequence {
                *kept = found;
            }
        }
    }
    let mut blocks: Vec<Recovered> = newest.into_values().collect();
    blocks.sort_by_key(|block| (block.sequence, block.slot));
    Recovery { blocks, rejected, clean, created: false }
}
