//! The bytes of a volume, version 2: superblocks, records of the slot table, seals of payloads.
//!
//! ```text
//!   0          4096                    origin                              file_bytes − 4096
//!   ├ superblock ┼ slot table ──────┬pad┼ slot 0 ──┬pad┼ slot 1 ──┬pad┼ … ┼ superblock ┤
//!   │     A      │ 64 B a slot      │   │◄── stride ──►│              │   │     B      │
//! ```
//!
//! `docs/disk-format.md` has every byte and the rules; `tests/document.rs` compares it with this code.
//! This module turns bytes into values and back: no I/O, and no panic whatever the bytes.
//!
//! Invariants
//! - I1: numbers are little-endian on every architecture.
//! - I2: bytes that `from_bytes` or `decode` accepts are returned unchanged by `to_bytes` or `encode`:
//!   each bit of a superblock or a record has a meaning, or is covered by a checksum.
//! - I3: a [`Superblock`] that was read has offsets that do not overlap, overflow, or leave the file.
//!
//! | file | contents |
//! |---|---|
//! | `superblock.rs` | [`Superblock`]: the volume's shape and identity; [`pick`] of its two copies |
//! | `shape.rs` | [`Shape`]: the places of the parts in the file |
//! | `wanted.rs` | [`Wanted`]: the properties that a superblock must have, and the first difference |
//! | `record.rs` | [`Record`]: the block of a slot |
//! | `seal.rs` | [`Sum`]: the checksum of a payload, piece by piece |

mod record;
mod seal;
mod shape;
mod superblock;
#[cfg(test)]
mod tests;
mod wanted;

pub(crate) use record::{COUNT_BITS, MAX_SEQUENCE, Record};
pub(crate) use seal::{CHUNK_BYTES, SEAL_BYTES, SealKind, Sum};
pub use seal::{seal_of, sum_of_payload};
pub(crate) use shape::Shape;
pub(crate) use superblock::{NO_SALTS, Salts, Superblock, Which, has_magic, pick};
pub(crate) use wanted::Wanted;
#[cfg(test)]
pub(crate) use {record::RecordError, seal::seal_of_payload, superblock::SuperblockError};

/// The format's version.
pub(crate) const VERSION: u32 = 2;
/// A superblock's length.
pub(crate) const SUPERBLOCK_BYTES: usize = 4096;
/// A record's length.
pub(crate) const RECORD_BYTES: usize = 64;
/// The slot table is written back in pages of this length.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Salts that a superblock has room for: the blocks of this many openings of an encrypted
/// volume can be read.
pub(crate) const EPOCHS: usize = 128;
/// Records in a page of the slot table.
pub(crate) const RECORDS_A_PAGE: usize = PAGE_BYTES / RECORD_BYTES;
