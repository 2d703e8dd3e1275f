//! The superblock: the volume's shape and identity.
//!
//! There are two copies, at the file's start and end, so that one torn write or one bad block leaves the
//! other. Both are written at creation, at each opening and at each shutdown. Each time `writes` grows by
//! one, so the copy with the larger count is the newer. A volume that is initialized again continues the
//! count, so that no former copy wins.
//!
//! Invariants
//! - I1: a superblock of another version is refused and never guessed at, whatever the other copy says.
//!   Magic, version and checksum have the same places in all versions.
//! - I2: a superblock that was read has passed [`Shape::check`], so its offsets can be computed with.

use super::seal::SealKind;
use super::shape::Shape;
use super::{COUNT_BITS, EPOCHS, MAX_SEQUENCE, SUPERBLOCK_BYTES, VERSION};
use twox_hash::XxHash3_64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"KVSTRATA";
/// Flag: the volume was shut down in order.
const CLEAN: u32 = 1;

/// The bytes of a superblock.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub(super) struct Wire {
    pub(super) magic: [u8; 8],
    pub(super) version: U32,
    pub(super) header_bytes: U32,
    pub(super) volume_id: [u8; 16],
    pub(super) set_id: [u8; 16],
    pub(super) layout_fingerprint: [u8; 16],
    pub(super) model_fingerprint: [u8; 16],
    pub(super) slots: U64,
    pub(super) slot_bytes: U64,
    pub(super) stride: U64,
    pub(super) table_offset: U64,
    pub(super) origin: U64,
    pub(super) file_bytes: U64,
    pub(super) alignment: U32,
    pub(super) seal_kind: U32,
    pub(super) writes: U64,
    pub(super) flags: U32,
    pub(super) stripe_index: U32,
    pub(super) stripe_count: U32,
    pub(super) reserved: U32,
    pub(super) created_unix_seconds: U64,
    pub(super) key_check: [u8; 16],
    pub(super) salts: Salts,
    pub(super) zeros: [u8; 1856],
    pub(super) checksum: U64,
}

/// A salt for each epoch of an encrypted volume. The salt of epoch e is entry e mod [`EPOCHS`];
/// zeros are none.
pub(crate) type Salts = [[u8; 16]; EPOCHS];
/// The salts of volumes that are not encrypted, or were never opened.
pub(crate) const NO_SALTS: Salts = [[0; 16]; EPOCHS];

const _: () = assert!(size_of::<Wire>() == SUPERBLOCK_BYTES);

impl Wire {
    fn checksum(&self) -> u64 {
        XxHash3_64::oneshot(&self.as_bytes()[..SUPERBLOCK_BYTES - size_of::<U64>()])
    }
}

/// A superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// Random, different for each volume ever created: it seeds the records' checksums.
    pub(crate) volume_id: u128,
    /// Random, the same for all volumes of a set.
    pub(crate) set_id: u128,
    /// Covers every field of the layout that changes the bytes of a block.
    pub(crate) layout_fingerprint: u128,
    /// Of the model that the blocks belong to.
    pub(crate) model_fingerprint: u128,
    /// The places of all parts.
    pub(crate) shape: Shape,
    /// How payloads are verified.
    pub(crate) seal_kind: SealKind,
    /// How often the superblock has been written.
    pub(crate) writes: u64,
    /// Whether the volume was shut down in order.
    pub(crate) clean: bool,
    /// The volume's number in its set, from 0.
    pub(crate) stripe_index: u32,
    /// Number of volumes in the set.
    pub(crate) stripe_count: u32,
    /// When the volume was created.
    pub(crate) created_unix_seconds: u64,
    /// Tells a wrong key from the right one; 0 unless encrypted.
    pub(crate) key_check: [u8; 16],
    /// Salts of the keys of its epochs; all zeros unless encrypted.
    pub(crate) salts: Salts,
}

/// Why bytes are not a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SuperblockError {
    /// There are fewer bytes than a superblock has.
    #[error("the superblock has {bytes} bytes instead of 4096")]
    Short {
        /// Number of bytes.
        bytes: usize,
    },
    /// No superblock is there.
    #[error("there is no superblock")]
    Magic,
    /// Torn or flipped.
    #[error("the superblock does not match its checksum")]
    Checksum,
    /// Of another version of the format.
    #[error("the superblock has version {found} of the format; this is version {}", VERSION)]
    Version {
        /// Its version.
        found: u32,
    },
    /// The checksum holds, but no writer of this version makes such a value.
    #[error("the superblock's {field} is impossible")]
    Field {
        /// The field's name in the document.
        field: &'static str,
    },
}

impl Superblock {
    /// A superblock of a volume that is neither encrypted nor striped.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn plain(volume_id: u128, shape: Shape) -> Superblock {
        Superblock {
            volume_id,
            set_id: 0,
            layout_fingerprint: 0,
            model_fingerprint: 0,
            shape,
            seal_kind: SealKind::Checksum,
            writes: 1,
            clean: false,
            stripe_index: 0,
            stripe_count: 1,
            created_unix_seconds: 0,
            key_check: [0; 16],
            salts: NO_SALTS,
        }
    }

    /// The largest sequence number that a record of this volume can have: an opening writes the
    /// superblock, and takes no more numbers than [`COUNT_BITS`] count. A record with a larger number is
    /// damaged or forged; numbering on from it would exhaust the numbers.
    pub(crate) fn last_sequence(&self) -> u64 {
        let openings = self.writes.min(MAX_SEQUENCE >> COUNT_BITS);
        (openings << COUNT_BITS) | ((1 << COUNT_BITS) - 1)
    }

    /// Its bytes.
    pub(crate) fn to_bytes(self) -> [u8; SUPERBLOCK_BYTES] {
        let mut wire = Wire {
            magic: MAGIC,
            version: VERSION.into(),
            header_bytes: (SUPERBLOCK_BYTES as u32).into(),
            volume_id: self.volume_id.to_le_bytes(),
            set_id: self.set_id.to_le_bytes(),
            layout_fingerprint: self.layout_fingerprint.to_le_bytes(),
            model_fingerprint: self.model_fingerprint.to_le_bytes(),
            slots: u64::from(self.shape.slots).into(),
            slot_bytes: u64::from(self.shape.slot_bytes).into(),
            stride: self.shape.stride.into(),
            table_offset: self.shape.table_offset.into(),
            origin: self.shape.origin.into(),
            file_bytes: self.shape.file_bytes.into(),
            alignment: self.shape.alignment.into(),
            seal_kind: self.seal_kind.number().into(),
            writes: self.writes.into(),
            flags: if self.clean { CLEAN } else { 0 }.into(),
            stripe_index: self.stripe_index.into(),
            stripe_count: self.stripe_count.into(),
            reserved: 0.into(),
            created_unix_seconds: self.created_unix_seconds.into(),
            key_check: self.key_check,
            salts: self.salts,
            zeros: [0; 1856],
            checksum: 0.into(),
        };
        wire.checksum = wire.checksum().into();
        zerocopy::transmute!(wire)
    }

    /// The superblock that these bytes start with.
    ///
    /// # Errors
    /// Why they do not start with one.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Superblock, SuperblockError> {
        let Ok((wire, _)) = Wire::ref_from_prefix(bytes) else {
            return Err(SuperblockError::Short { bytes: bytes.len() });
        };
        if wire.magic != MAGIC {
            return Err(SuperblockError::Magic);
        }
        if wire.checksum.get() != wire.checksum() {
            return Err(SuperblockError::Checksum);
        }
        if wire.version.get() != VERSION {
            return Err(SuperblockError::Version { found: wire.version.get() });
        }
        Superblock::from_wire(wire)
    }

    fn from_wire(wire: &Wire) -> Result<Superblock, SuperblockError> {
        let impossible = |field| SuperblockError::Field { field };
        let narrow = |field, value: U64| u32::try_from(value.get()).map_err(|_| impossible(field));
        if wire.header_bytes.get() != SUPERBLOCK_BYTES as u32 {
            return Err(impossible("header_bytes"));
        }
        if wire.flags.get() & !CLEAN != 0 {
            return Err(impossible("flags"));
        }
        if wire.reserved.get() != 0 {
            return Err(impossible("reserved"));
        }
        if wire.zeros != [0; 1856] {
            return Err(impossible("zeros"));
        }
        if wire.stripe_count.get() == 0 {
            return Err(impossible("stripe_count"));
        }
        if wire.stripe_index.get() >= wire.stripe_count.get() {
            return Err(impossible("stripe_index"));
        }
        let seal_kind = SealKind::from_number(wire.seal_kind.get()).ok_or(impossible("seal_kind"))?;
        if seal_kind != SealKind::Tag && wire.key_check != [0; 16] {
            return Err(impossible("key_check"));
        }
        if seal_kind != SealKind::Tag && wire.salts != NO_SALTS {
            return Err(impossible("salts"));
        }
        let shape = Shape {
            slots: narrow("slots", wire.slots)?,
            slot_bytes: narrow("slot_bytes", wire.slot_bytes)?,
            stride: wire.stride.get(),
            table_offset: wire.table_offset.get(),
            origin: wire.origin.get(),
            file_bytes: wire.file_bytes.get(),
            alignment: wire.alignment.get(),
        };
        shape.check().map_err(impossible)?;
        Ok(Superblock {
            volume_id: u128::from_le_bytes(wire.volume_id),
            set_id: u128::from_le_bytes(wire.set_id),
            layout_fingerprint: u128::from_le_bytes(wire.layout_fingerprint),
            model_fingerprint: u128::from_le_bytes(wire.model_fingerprint),
            shape,
            seal_kind,
            writes: wire.writes.get(),
            clean: wire.flags.get() & CLEAN != 0,
            stripe_index: wire.stripe_index.get(),
            stripe_count: wire.stripe_count.get(),
            created_unix_seconds: wire.created_unix_seconds.get(),
            key_check: wire.key_check,
            salts: wire.salts,
        })
    }
}

/// One of the two copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// At the file's start.
    A,
    /// At its end.
    B,
}

/// The result of comparing the two copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Picked {
    /// The newer intact copy, and which one it is. None if neither is intact, or one is of another
    /// version (I1).
    pub(crate) best: Option<(Which, Superblock)>,
    /// The fault of copy A.
    pub(crate) a: Option<SuperblockError>,
    /// The fault of copy B.
    pub(crate) b: Option<SuperblockError>,
    /// Whether both copies say that the volume was shut down in order.
    pub(crate) clean: bool,
}

impl Picked {
    /// Number of bad copies, for [`RejectedRecords`](crate::disk::RejectedRecords).
    pub(crate) fn bad(&self) -> u64 {
        u64::from(self.a.is_some()) + u64::from(self.b.is_some())
    }

    /// The other version, if a copy has one.
    pub(crate) fn version(&self) -> Option<u32> {
        [self.a, self.b].into_iter().find_map(|error| match error {
            Some(SuperblockError::Version { found }) => Some(found),
            _ => None,
        })
    }
}

/// Whether a superblock of any version begins here, intact or not.
pub(crate) fn has_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Chooses between the copies: the first 4096 bytes of the file, and the last. A is preferred if both are
/// equally new.
pub(crate) fn pick(a: &[u8], b: &[u8]) -> Picked {
    let (a, b) = (Superblock::from_bytes(a), Superblock::from_bytes(b));
    let best = match (&a, &b) {
        (Err(SuperblockError::Version { .. }), _) | (_, Err(SuperblockError::Version { .. })) => None,
        (Ok(a), Ok(b)) if b.writes > a.writes => Some((Which::B, *b)),
        (Ok(a), _) => Some((Which::A, *a)),
        (Err(_), Ok(b)) => Some((Which::B, *b)),
        (Err(_), Err(_)) => None,
    };
    let clean = matches!((&a, &b), (Ok(a), Ok(b)) if a.clean && b.clean);
    Picked { best, a: a.err(), b: b.err(), clean }
}
