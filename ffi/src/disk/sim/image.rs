//! What opening a volume must find in a file: worked out from its bytes, slot by slot.

use super::super::format::{RECORD_BYTES, Record, SUPERBLOCK_BYTES, Shape, Superblock, pick};
use super::super::recovery::{Recovered, Recovery, RejectedRecords};
use super::disk::Disk;
use kvstrata_core::SequenceHash;
use std::collections::BTreeMap;

/// The superblock that counts, and how many copies are bad; None where neither is whole.
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

/// What opening the volume must find, in a file that has its full length.
pub(in crate::disk) fn expected(disk: &Disk) -> Recovery {
    let Some((superblock, bad, clean)) = superblock(disk) else {
        let rejected = RejectedRecords { superblock: 2, ..RejectedRecords::default() };
        return Recovery { rejected, created: true, ..Recovery::default() };
    };
    let shape = &superblock.shape;
    let mut rejected = RejectedRecords { superblock: bad, ..RejectedRecords::default() };
    let mut newest: BTreeMap<SequenceHash, Recovered> = BTreeMap::new();
    let table = disk.read_vec(&(shape.table_offset..shape.table_offset + shape.table_bytes()));
    for (slot, bytes) in (0..shape.slots).zip(table.as_chunks().0) {
        let record = match Record::decode(bytes, superblock.volume_id, slot) {
            Ok(Some(record)) => record,
            Ok(None) => continue,
            Err(_) => {
                rejected.record += 1;
                continue;
            }
        };
        if record.payload_bytes == 0 || record.payload_bytes > shape.slot_bytes {
            rejected.length += 1;
            continue;
        }
        let found = Recovered { slot, name: record.name(), sequence: record.sequence };
        let kept = newest.entry(record.hash).or_insert(found);
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
