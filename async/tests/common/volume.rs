//! A second reader of a volume's metadata, written from docs/disk-format.md alone.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use twox_hash::XxHash3_64;

const PAGE: usize = 4096;
const RECORD: usize = 64;

/// The contents of a volume's superblocks and table.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Reading {
    /// Hash and slot of each valid record.
    pub blocks: HashMap<u128, u64>,
    /// Keys of the parents of blocks that have one.
    pub parents: HashMap<u128, u64>,
    /// Owners of blocks that have one.
    pub owners: HashMap<u128, u64>,
    pub clean: bool,
    pub table_offset: u64,
    pub origin: u64,
    pub stride: u64,
    /// Records, and copies of the superblock, that are not taken, by reason.
    pub record: u64,
    pub length: u64,
    pub duplicate: u64,
    pub truncated: u64,
    pub superblock: u64,
}

fn number(bytes: &[u8], offset: usize, length: usize) -> u128 {
    bytes[offset..offset + length].iter().rev().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// The key by which a child's record names a hash.
pub fn key(hash: u128) -> u64 {
    XxHash3_64::oneshot(&hash.to_le_bytes())
}

/// Reads a volume. `None`: no superblock is whole.
pub fn read(path: &Path) -> Option<Reading> {
    let bytes = std::fs::read(path).expect("the volume");
    let copies = [bytes.get(..PAGE), bytes.len().checked_sub(PAGE).and_then(|start| bytes.get(start..))];
    let whole = |copy: &&[u8]| {
        &copy[..8] == b"KVSTRATA" && number(copy, 4088, 8) == u128::from(XxHash3_64::oneshot(&copy[..4088]))
    };
    let whole: Vec<&[u8]> = copies.into_iter().flatten().filter(whole).collect();
    // Of equal copies the first.
    let best =
        whole.iter().copied().reduce(|a, b| if number(b, 136, 8) > number(a, 136, 8) { b } else { a })?;
    let field = |offset| number(best, offset, 8) as u64;
    let id = field(16) ^ field(24);
    let (slots, slot_bytes, stride) = (field(80), field(88), field(96));
    let (table_offset, origin) = (field(104), field(112));
    let openings = u128::from(field(136)) + 1;
    let last = ((openings << 40) - 1).min((1 << 62) - 1) as u64;
    let mut reading = Reading {
        clean: number(best, 144, 4) & 1 == 1,
        table_offset,
        origin,
        stride,
        superblock: 2 - whole.len() as u64,
        ..Reading::default()
    };
    let mut newest: HashMap<u128, (u64, u64)> = HashMap::new();
    for slot in 0..slots {
        let start = table_offset as usize + slot as usize * RECORD;
        let Some(record) = bytes.get(start..start + RECORD) else { break };
        if record.iter().all(|byte| *byte == 0) {
            continue;
        }
        let (hash, sequence) = (number(record, 0, 16), number(record, 32, 8) as u64);
        let payload_bytes = number(record, 56, 4) as u64;
        let checksum = XxHash3_64::oneshot_with_seed(id ^ slot, &record[..60]) as u32;
        if number(record, 60, 4) != u128::from(checksum) || !(1..=last).contains(&sequence) {
            reading.record += 1;
        } else if !(1..=slot_bytes).contains(&payload_bytes) {
            reading.length += 1;
        } else if origin + slot * stride + stride > bytes.len() as u64 {
            reading.truncated += 1;
        } else {
            let there = newest.entry(hash).or_insert((sequence, slot));
            if *there != (sequence, slot) {
                reading.duplicate += 1;
                if sequence > there.0 {
                    *there = (sequence, slot);
                }
            }
        }
    }
    for (hash, (_, slot)) in &newest {
        let record = &bytes[table_offset as usize + *slot as usize * RECORD..];
        for (offset, of) in [(16, &mut reading.parents), (24, &mut reading.owners)] {
            let number = number(record, offset, 8) as u64;
            if number != 0 {
                of.insert(*hash, number);
            }
        }
    }
    reading.blocks = newest.into_iter().map(|(hash, (_, slot))| (hash, slot)).collect();
    Some(reading)
}

/// Waits until no process has the volume any more: the kernel ends a killed process's transfers in its
/// own time.
pub fn settle(path: &Path) {
    let file = File::open(path).expect("the volume");
    file.lock().expect("a file system with locks");
}
