//! Names of blocks ([`Name`]; in a record, [`Label`]), the blocks found when a volume is opened
//! ([`Recovery`]), and why a read may be refused ([`Rejection`]).
//!
//! The tier is a cache: a block that is not certain is a miss, counted by cause, and its slot
//! is free again.

use core::num::NonZeroU64;
use kvstrata_core::SequenceHash;
use twox_hash::XxHash3_64;

/// The identity of a slot's payload: the block's name, its parent's, and its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name {
    /// The block's sequence hash.
    pub hash: SequenceHash,
    /// The sequence hash of the block before it, or None for a first block. A parent with the value 0
    /// counts as none.
    pub parent: Option<SequenceHash>,
    /// The block's owner.
    pub owner: OwnerId,
}

/// The owner of a block, in each process that opens the volume: a number that the callers agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct OwnerId(pub u64);

impl OwnerId {
    /// The owner of blocks that were written for no one in particular.
    pub const NONE: OwnerId = OwnerId(0);
}

/// A key of eight bytes for a sequence hash: XXH3-64 of its sixteen bytes. Records name parents by
/// it. Two hashes share a key once in 2⁶⁴ times, or if a collision was searched for. Never the key
/// of the hash 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HashKey(NonZeroU64);

impl HashKey {
    /// The key of a hash. None for the hash 0, which no block has (and once in 2⁶⁴ times for
    /// another hash).
    #[must_use]
    pub fn of(hash: SequenceHash) -> Option<HashKey> {
        if hash == SequenceHash::default() {
            return None;
        }
        HashKey::from_number(XxHash3_64::oneshot(&hash.to_bytes()))
    }

    /// The key with a record's number; 0 is none.
    pub(super) fn from_number(number: u64) -> Option<HashKey> {
        NonZeroU64::new(number).map(HashKey)
    }

    /// The number for a record.
    #[must_use]
    pub fn number(key: Option<HashKey>) -> u64 {
        key.map_or(0, |key| key.0.get())
    }
}

/// The identity of a block in its record: the [`Name`], with the parent reduced to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Label {
    /// The block's sequence hash.
    pub hash: SequenceHash,
    /// The key of the parent's hash; None for a first block.
    pub parent: Option<HashKey>,
    /// The block's owner.
    pub owner: OwnerId,
}

impl Label {
    /// Hash, parent and owner, as they lie in a record.
    pub(super) fn to_bytes(self) -> [u8; 32] {
        let numbers = u128::from(self.owner.0) << 64 | u128::from(HashKey::number(self.parent));
        zerocopy::transmute!([self.hash.to_bytes(), numbers.to_le_bytes()])
    }

    pub(super) fn from_bytes(bytes: [u8; 32]) -> Label {
        let [hash, numbers]: [[u8; 16]; 2] = zerocopy::transmute!(bytes);
        let numbers = u128::from_le_bytes(numbers);
        Label {
            hash: SequenceHash::from_bytes(hash),
            parent: HashKey::from_number(numbers as u64),
            owner: OwnerId((numbers >> 64) as u64),
        }
    }
}

impl From<Name> for Label {
    fn from(name: Name) -> Label {
        Label { hash: name.hash, parent: name.parent.and_then(HashKey::of), owner: name.owner }
    }
}

/// One block that a volume still holds. Its payload is verified when it is first read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    /// The block's slot.
    pub slot: u32,
    /// The block's label.
    pub label: Label,
    /// The number of the write that made it, counted over the volume's writes: larger is later.
    pub sequence: u64,
    /// The payload's length: the length of the buffer that reads it.
    pub payload_bytes: u32,
}

/// The result of opening a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The blocks found, in the order in which they were written. No hash occurs twice.
    pub blocks: Vec<Recovered>,
    /// The records that were dropped, by cause.
    pub rejected: RejectedRecords,
    /// Whether the volume was shut down in order. For people only: nothing is trusted because of it.
    pub clean: bool,
    /// Whether the volume was created just now.
    pub created: bool,
}

/// Records that opening dropped, counted by cause. Each record is counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RejectedRecords {
    /// Damaged records: torn, flipped, of another volume or another slot, or with a number that no
    /// opening gave.
    pub record: u64,
    /// Records of a payload that is empty or longer than a slot.
    pub length: u64,
    /// Records of an encrypted volume that cannot be decrypted any more: the salt of their epoch is gone.
    pub salt: u64,
    /// Records of a block that a later record names too.
    pub duplicate: u64,
    /// Records of a slot beyond the end of a file that became shorter.
    pub truncated: u64,
    /// Damaged copies of the superblock: 0, 1, or 2.
    pub superblock: u64,
    /// Slots in parts of the table that could not be read.
    pub table: u64,
}

impl RejectedRecords {
    /// The sum of all counts.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.record + self.length + self.salt + self.duplicate + self.truncated + self.superblock + self.table
    }
}

impl core::ops::AddAssign for RejectedRecords {
    /// Adds the counts of another volume.
    fn add_assign(&mut self, other: RejectedRecords) {
        self.record += other.record;
        self.length += other.length;
        self.salt += other.salt;
        self.duplicate += other.duplicate;
        self.truncated += other.truncated;
        self.superblock += other.superblock;
        self.table += other.table;
    }
}

/// Why a payload was not served although the device answered. Each is a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Rejection {
    /// The slot is empty.
    #[error("the slot is empty")]
    Empty,
    /// The slot holds another block.
    #[error("the slot holds another block")]
    OtherHash,
    /// The payload does not match its seal: torn, flipped, misdirected, lost, or encrypted with another key.
    #[error("the payload does not match its seal")]
    Payload,
}
