//! A volume's file after arbitrary damage: it is opened and read to the last slot, and nothing may be
//! served that differs from the file's own description.
//!
//! The file is written as the format says, block by block; then it is edited. Some edits are accidents.
//! Some are forged with valid checksums, since a reader must survive those too: a forged block is served
//! as the block that it names, and as no other.
//!
//! - I1: a successful read matches the seal that its record has in the file. If neither was forged, it
//!   has the bytes of the requested block. In an encrypted volume it always has: without the key no seal
//!   can be forged, and the existing seals fit no other slot, number or name.
//! - I2: nothing panics or hangs, and a file that is refused does not change.
//! - I3: no file grows past the length that its options ask for.

use super::super::backend::Backend;
use super::super::cipher::{Binding, Cipher, key_check};
use super::super::engine::Round;
use super::super::error::{FailureCause, VolumeError};
use super::super::file;
use super::super::format::{
    MAX_SEQUENCE, NO_SALTS, RECORD_BYTES, Record, SEAL_BYTES, SUPERBLOCK_BYTES, SealKind, Shape, Sum,
    Superblock,
};
use super::super::options::VolumeOptions;
use super::super::pending::{Cell, Pending};
use super::super::recovery::Recovered;
use super::super::request::{Request, Urgency};
use super::super::ring::sim::World;
use super::super::table::masked;
use super::disk::Disk;
use super::faults::Faults;
use super::life::{Life, Opened, Simulated};
use super::oracle::{fill, is_block, name_of};
use super::plan::{Plan, key_of};
use super::random::Random;
use kvstrata_core::SequenceHash;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use twox_hash::XxHash3_64;

const VOLUME: u128 = 0x1234_5678_9ABC_DEF0_0FED_CBA9_8765_4321;
/// The byte that the key consists of.
const KEY: u8 = 0x77;
/// Rounds within which a request must be answered.
const ROUNDS: u32 = 10_000;

/// A file, the edits of it, and the options to open it with. Sizes are taken modulo small limits.
#[derive(Debug, Clone, Default)]
pub struct Case {
    /// Slots, from 1.
    pub slots: u16,
    /// Bytes a slot, from 1.
    pub slot_bytes: u16,
    /// The block of each slot; none if missing or 0.
    pub blocks: Vec<u8>,
    /// The edits of the file, in order.
    pub edits: Vec<Edit>,
    /// Whether to start over.
    pub reinitialize: bool,
    /// Slots in the options beyond those of the file.
    pub more_slots: u8,
    /// Whether the volume has a key; without effect in a build without the feature `encryption`.
    pub encrypted: bool,
}

/// One change to a file.
#[derive(Debug, Clone)]
pub enum Edit {
    /// Bytes, anywhere.
    Bytes {
        /// The place, modulo the file's length.
        at: u32,
        /// The bytes to write.
        bytes: Vec<u8>,
    },
    /// A stretch is copied elsewhere.
    Copy {
        /// The source, modulo the file's length.
        from: u32,
        /// The destination, modulo the file's length.
        to: u32,
        /// Number of bytes.
        bytes: u16,
    },
    /// Bytes of a superblock, with a checksum that matches them.
    Superblock {
        /// The last superblock, or the first.
        last: bool,
        /// The place in it.
        at: u16,
        /// The bytes to write.
        bytes: Vec<u8>,
    },
    /// A record with a valid checksum.
    Record {
        /// The slot, modulo their number.
        slot: u16,
        /// The block that it names.
        block: u8,
        /// Its sequence number.
        sequence: u64,
        /// The payload's length.
        payload_bytes: u32,
        /// Whether its seal matches the slot's payload. In an encrypted volume, number and seal are then
        /// those of the slot's present record.
        sealed: bool,
    },
    /// A new length of the file.
    Length {
        /// In bytes, modulo twice the present length.
        bytes: u32,
    },
}

/// The file before it is edited.
struct Made {
    file: File,
    superblock: Superblock,
    /// Set in an encrypted volume.
    cipher: Option<Cipher>,
    /// Blocks with forged records or payloads.
    forged: Vec<u8>,
}

impl Case {
    /// Makes the file in `folder`, damages it, opens it, and reads all of it. Returns how many blocks
    /// were served.
    ///
    /// # Panics
    /// If a rule is broken.
    pub fn check(&self, folder: &Path) -> usize {
        let path = folder.join("volume");
        let Some(mut made) = self.make(&path) else { return 0 };
        self.edits.iter().for_each(|edit| made.edit(edit));
        let length = made.length();
        let before = (length < 1 << 20).then(|| made.read(0..length));

        let slots = made.superblock.shape.slots + u32::from(self.more_slots % 4);
        let slot_bytes = made.superblock.shape.slot_bytes as usize;
        let mut options = VolumeOptions::new(&path, slots, slot_bytes)
            .keep(true)
            .backend(Backend::UringBuffered)
            .reinitialize(self.reinitialize);
        options.system = Box::new(Simulated);
        options.key = made.cipher.as_ref().and_then(|_| key_of(KEY));
        let wanted = Shape::new(slots, slot_bytes as u32, 512).map_or(0, |shape| shape.file_bytes);
        let opened = file::prepare(&mut options).and_then(|file| file.begin(&mut options));
        let mut file = match opened {
            Ok(file) => file,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                let refused = matches!(
                    error,
                    VolumeError::Foreign { .. }
                        | VolumeError::Damaged { .. }
                        | VolumeError::NotAVolume { .. }
                );
                if let (true, Some(before)) = (refused, before) {
                    assert!(made.read(0..made.length()) == before, "{error}, but the file has changed");
                }
                return 0;
            }
        };
        file.named.stays();
        assert!(made.length() <= wanted.max(length), "the file has grown from {length} to {}", made.length());
        let found = core::mem::take(&mut file.recovery).blocks;
        assert!(found.windows(2).all(|pair| pair[0].sequence <= pair[1].sequence), "not in order: {found:?}");
        let sequence = Arc::clone(&options.stripe.sequence);
        // Relaxed: one thread.
        sequence.fetch_max(file.table.next_sequence(), Ordering::Relaxed);
        made.superblock = file.superblock;
        read_all(&made, Opened { file, sequence }, &found, &path)
    }

    fn make(&self, path: &Path) -> Option<Made> {
        let (slots, slot_bytes) = (u32::from(self.slots % 200) + 1, u32::from(self.slot_bytes % 5000) + 1);
        let shape = Shape::new(slots, slot_bytes, 512)?;
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path).ok()?;
        file.set_len(shape.file_bytes).ok()?;
        let mut superblock =
            Superblock { set_id: 7, writes: 5, clean: true, ..Superblock::plain(VOLUME, shape) };
        let key = if self.encrypted { key_of(KEY) } else { None };
        let cipher = match &key {
            None => None,
            Some(key) => {
                let cipher = Cipher::new(key, VOLUME, &NO_SALTS, Arc::new(AtomicU64::new(1))).ok()?;
                superblock.seal_kind = SealKind::Tag;
                superblock.key_check = key_check(key, VOLUME).ok()?;
                superblock.salts = *cipher.salts();
                Some(cipher)
            }
        };
        let mut made = Made { file, superblock, cipher, forged: Vec::new() };
        made.write(0, &superblock.to_bytes());
        made.write(shape.superblock_b(), &superblock.to_bytes());
        let mut payload = vec![0; slot_bytes as usize];
        for ((slot, block), sequence) in (0..slots).zip(&self.blocks).zip(1..) {
            if *block > 0 {
                // Every third block is shorter than its slot.
                let bytes = if block % 3 == 0 { slot_bytes.div_ceil(2) } else { slot_bytes };
                let payload = &mut payload[..bytes as usize];
                fill(u64::from(*block), payload);
                let (sequence, seal) = made.seal(slot, *block, sequence, payload);
                made.write(shape.offset(slot), payload);
                made.record(slot, *block, sequence, bytes, seal);
            }
        }
        Some(made)
    }
}

impl Made {
    fn length(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, at).expect("a file in memory");
    }

    /// Reads the part of a range that exists.
    fn read(&self, range: core::ops::Range<u64>) -> Vec<u8> {
        let end = range.end.min(self.length());
        let mut bytes = vec![0; end.saturating_sub(range.start) as usize];
        self.file.read_exact_at(&mut bytes, range.start).expect("it is there");
        bytes
    }

    /// Seals a payload as it is written to the file. Returns its number and its seal.
    fn seal(&self, slot: u32, block: u8, sequence: u64, payload: &mut [u8]) -> (u64, [u8; SEAL_BYTES]) {
        let name = name_of(u64::from(block));
        let Some(cipher) = &self.cipher else { return (sequence, sum(payload)) };
        let sealed = cipher.seal(&Binding { slot, label: name.into() }, payload);
        let sealed = sealed.expect("few and short payloads");
        (sealed.sequence, sealed.tag)
    }

    fn record(&mut self, slot: u32, block: u8, sequence: u64, payload_bytes: u32, seal: [u8; SEAL_BYTES]) {
        let name = name_of(u64::from(block));
        let record = Record { label: name.into(), sequence, seal, payload_bytes };
        // In an epoch without a salt the names stay unmasked.
        let record = self.cipher.as_ref().and_then(|cipher| masked(cipher, record)).unwrap_or(record);
        self.write(self.record_at(slot), &record.encode(VOLUME, slot));
    }

    fn record_at(&self, slot: u32) -> u64 {
        self.superblock.shape.table_offset + u64::from(slot) * RECORD_BYTES as u64
    }

    /// The record of a slot, with its names still masked.
    fn record_there(&self, slot: u32) -> Option<Record> {
        let at = self.record_at(slot);
        let bytes = self.read(at..at + RECORD_BYTES as u64);
        Record::decode(bytes.first_chunk()?, VOLUME, slot).ok().flatten()
    }

    fn edit(&mut self, edit: &Edit) {
        let shape = self.superblock.shape;
        let length = self.length();
        let within = |at: u32| u64::from(at) % length.max(1);
        match edit {
            Edit::Bytes { at, bytes } => {
                let at = within(*at);
                let most = (length - at).min(bytes.len() as u64) as usize;
                self.write(at, &bytes[..most]);
            }
            Edit::Copy { from, to, bytes } => {
                let (from, to) = (within(*from), within(*to));
                let mut moved = self.read(from..from + u64::from(*bytes));
                moved.truncate((length - to) as usize);
                self.write(to, &moved);
            }
            Edit::Superblock { last, at, bytes } => {
                let start = if *last { length.saturating_sub(SUPERBLOCK_BYTES as u64) } else { 0 };
                let mut there = self.read(start..start + SUPERBLOCK_BYTES as u64);
                there.resize(SUPERBLOCK_BYTES, 0);
                let body = SUPERBLOCK_BYTES - 8;
                let at = usize::from(*at) % body;
                let most = bytes.len().min(body - at);
                there[at..at + most].copy_from_slice(&bytes[..most]);
                let checksum = XxHash3_64::oneshot(&there[..body]);
                there[body..].copy_from_slice(&checksum.to_le_bytes());
                self.write(start, &there);
            }
            Edit::Record { slot, block, sequence, payload_bytes, sealed } => {
                let slot = u32::from(*slot) % shape.slots;
                self.forged.push(*block);
                let start = shape.offset(slot);
                // Larger invalid numbers are covered by edits of bytes.
                let sequence = (*sequence).min(MAX_SEQUENCE + 1);
                let there = if self.cipher.is_some() { self.record_there(slot) } else { None };
                let (sequence, seal) = match (sealed, there) {
                    (false, _) => (sequence, sum(&[])),
                    (true, Some(there)) => (there.sequence, there.seal),
                    (true, None) => {
                        let bytes = u64::from((*payload_bytes).min(shape.slot_bytes));
                        (sequence, sum(&self.read(start..start + bytes)))
                    }
                };
                self.record(slot, *block, sequence, *payload_bytes, seal);
            }
            Edit::Length { bytes } => {
                let bytes = u64::from(*bytes) % (2 * length.max(1) + 1);
                self.file.set_len(bytes).expect("a file in memory");
            }
        }
    }
}

/// The seal of a payload that is not encrypted.
fn sum(payload: &[u8]) -> [u8; SEAL_BYTES] {
    let mut sum = Sum::default();
    sum.add(0, payload);
    sum.seal()
}

/// Reads the blocks found, and asks each other slot for a block that it does not hold.
fn read_all(made: &Made, opened: Opened, found: &[Recovered], path: &Path) -> usize {
    let mut served = 0;
    let shape = made.superblock.shape;
    let blocks: BTreeMap<SequenceHash, u8> =
        (0..=u8::MAX).map(|block| (name_of(u64::from(block)).hash, block)).collect();
    let disk = Disk::open(path).expect("it is there");
    // The table as opening read it, before the engine writes anything.
    let table: Vec<Vec<u8>> = (0..shape.slots)
        .map(|slot| {
            let at = shape.table_offset + u64::from(slot) * RECORD_BYTES as u64;
            disk.read_vec(&(at..at + RECORD_BYTES as u64))
        })
        .collect();
    let world = Rc::new(RefCell::new(World::new(disk, Random::new(1))));
    let plan = Plan {
        slots: shape.slots,
        slot_bytes: shape.slot_bytes as usize,
        depth: 4,
        queue: 4,
        piece_bytes: 64 << 10,
        alignment: 512,
        table_delay: Duration::from_secs(1),
        trim: false,
        fill: false,
        encrypted: made.cipher.is_some(),
        buffers: 1,
        rounds: 1,
        urgent: 0,
        hot: 0,
        blocks: 256,
        faults: Faults::default(),
        operations: 0,
    };
    let mut life = Life::start(opened, &plan, Arc::from(path), &world).expect("memory for a small volume");
    let held: BTreeMap<u32, (SequenceHash, usize)> =
        found.iter().map(|block| (block.slot, (block.label.hash, block.payload_bytes as usize))).collect();
    for slot in 0..shape.slots {
        let (asked, bytes) = held.get(&slot).copied().unwrap_or((name_of(1).hash, plan.slot_bytes));
        let cell = Cell::new();
        let buffer = life.arena.write(0).expect("no borrower").first(bytes);
        let place = life.place(slot, bytes);
        let request = Request::read(buffer, asked, Urgency::Urgent, Arc::clone(&cell), place);
        assert!(life.inbox.try_push(request).is_ok(), "the queue is empty");
        let mut pending: Pending<_> = Pending::new(cell);
        let mut rounds = 0;
        let outcome = loop {
            assert_eq!(life.round(), Round::More);
            match pending.try_wait() {
                Ok(outcome) => break outcome,
                Err(still) => pending = still,
            }
            rounds += 1;
            assert!(rounds < ROUNDS, "slot {slot} is not answered");
        };
        match outcome {
            Ok(bytes) => {
                let record = table[slot as usize]
                    .first_chunk()
                    .and_then(|bytes| Record::decode(bytes, made.superblock.volume_id, slot).ok().flatten());
                let record = record.expect("the volume serves only blocks of the file");
                served += 1;
                let encrypted = made.cipher.is_some();
                assert!(
                    encrypted || record.label.hash == asked && sum(&bytes) == record.seal,
                    "slot {slot}: served without a valid seal"
                );
                let block = blocks.get(&asked).copied();
                assert!(
                    block.is_some() || !encrypted,
                    "slot {slot}: served under a name that was never sealed"
                );
                let genuine = block.filter(|block| encrypted || !made.forged.contains(block));
                assert!(
                    genuine.is_none_or(|block| is_block(u64::from(block), &bytes)),
                    "slot {slot}: WRONG BYTES"
                );
            }
            Err(failure) => {
                assert!(matches!(failure.cause, FailureCause::Rejected(_)), "slot {slot}: {failure}");
            }
        }
    }
    life.inbox.close();
    let over = (0..ROUNDS).any(|_| life.round() == Round::Over);
    assert!(over, "the volume does not end");
    served
}
