//! A record of the slot table: the block of one slot.
//!
//! ```text
//!   0       16       24      32         40     56              60         64
//!   ├ hash ──┼ parent ┼ owner ┼ sequence ┼ seal ┼ payload_bytes ┼ checksum ┤
//!   │◄───────────────── covered by the checksum ────────────────►│
//! ```
//!
//! Invariants
//! - I1: 64 zeros are an empty slot; any other value without its own checksum is no record.
//! - I2: the checksum is seeded with the volume and the slot: a record that was written elsewhere is no
//!   record here.

use super::seal::SEAL_BYTES;
use super::{RECORD_BYTES, RECORDS_A_PAGE};
use crate::disk::recovery::{HashKey, Label, OwnerId};
use kvstrata_core::SequenceHash;
use twox_hash::XxHash3_64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Number of low bits of a sequence number. No opening takes more numbers than these count: with blocks
/// of 4 KiB that would be 4.5 exabytes.
pub(crate) const COUNT_BITS: u32 = 40;
/// The largest sequence number of a valid record: 2²² openings.
pub(crate) const MAX_SEQUENCE: u64 = (1 << 62) - 1;

/// The bytes of a record.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub(super) struct Wire {
    pub(super) hash: [u8; 16],
    pub(super) parent: U64,
    pub(super) owner: U64,
    pub(super) sequence: U64,
    pub(super) seal: [u8; SEAL_BYTES],
    pub(super) payload_bytes: U32,
    pub(super) checksum: U32,
}

const _: () = assert!(size_of::<Wire>() == RECORD_BYTES && RECORDS_A_PAGE == 64);

impl Wire {
    fn checksum(&self, volume: u128, slot: u32) -> u32 {
        let seed = (volume >> 64) as u64 ^ volume as u64 ^ u64::from(slot);
        let covered = &self.as_bytes()[..RECORD_BYTES - size_of::<U32>()];
        // The low half, on purpose.
        XxHash3_64::oneshot_with_seed(seed, covered) as u32
    }
}

/// The block of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// The block's name and owner.
    pub(crate) label: Label,
    /// The number of the write, 1 to [`MAX_SEQUENCE`].
    pub(crate) sequence: u64,
    /// Verifies the payload.
    pub(crate) seal: [u8; SEAL_BYTES],
    /// The payload's length.
    pub(crate) payload_bytes: u32,
}

/// Why bytes are not a record of this slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    /// Torn, flipped, of another slot, or of another volume.
    #[error("the record does not match its checksum")]
    Checksum,
    /// The checksum holds, but no writer gives such a number.
    #[error("the record's sequence number {sequence} is not within 1 to 2^62 - 1")]
    Sequence {
        /// The number.
        sequence: u64,
    },
}

impl Record {
    /// The bytes of this record in a slot of a volume.
    pub(crate) fn encode(&self, volume: u128, slot: u32) -> [u8; RECORD_BYTES] {
        let mut wire = Wire {
            hash: self.label.hash.to_bytes(),
            parent: HashKey::number(self.label.parent).into(),
            owner: self.label.owner.0.into(),
            sequence: self.sequence.into(),
            seal: self.seal,
            payload_bytes: self.payload_bytes.into(),
            checksum: 0.into(),
        };
        wire.checksum = wire.checksum(volume, slot).into();
        zerocopy::transmute!(wire)
    }

    /// Decodes a slot's bytes; None is an empty slot.
    ///
    /// # Errors
    /// Why they are not a record of this slot of this volume.
    pub(crate) fn decode(
        bytes: &[u8; RECORD_BYTES],
        volume: u128,
        slot: u32,
    ) -> Result<Option<Record>, RecordError> {
        if is_empty(bytes) {
            return Ok(None);
        }
        let wire: &Wire = zerocopy::transmute_ref!(bytes);
        if wire.checksum.get() != wire.checksum(volume, slot) {
            return Err(RecordError::Checksum);
        }
        let sequence = wire.sequence.get();
        if !(1..=MAX_SEQUENCE).contains(&sequence) {
            return Err(RecordError::Sequence { sequence });
        }
        Ok(Some(Record::from_wire(wire)))
    }

    /// Decodes bytes that this process encoded or verified before, without verifying them. None is
    /// an empty slot.
    pub(crate) fn trusted(bytes: &[u8; RECORD_BYTES]) -> Option<Record> {
        (!is_empty(bytes)).then(|| Record::from_wire(zerocopy::transmute_ref!(bytes)))
    }

    fn from_wire(wire: &Wire) -> Record {
        Record {
            label: Label {
                hash: SequenceHash::from_bytes(wire.hash),
                parent: HashKey::from_number(wire.parent.get()),
                owner: OwnerId(wire.owner.get()),
            },
            sequence: wire.sequence.get(),
            seal: wire.seal,
            payload_bytes: wire.payload_bytes.get(),
        }
    }
}

/// 64 zeros (I1).
fn is_empty(bytes: &[u8; RECORD_BYTES]) -> bool {
    *bytes == [0; RECORD_BYTES]
}
