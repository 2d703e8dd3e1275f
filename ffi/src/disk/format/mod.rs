//! The bytes of a volume, version 2: superblocks, records of the slot table, seals of payloads.
//!
//! ```text
//!   0          4096                    origin                              file_bytes − 4096
//!   ├ superblock ┼ slot table ──────┬pad┼ slot 0 ──┬pad┼ slot 1 ──┬pad┼ … ┼ superblock ┤
//!   │     A      │ 64 B a slot      │   │◄── stride ──►│              │   │     B      │
//! ```
//!
//! `docs/disk-format.md` has every byte and the rules; `tests/document.rs` compares it with this code. Here
//! are bytes in, values out: no I/O, and no panic whatever the bytes.
//!
//! Invariants
//! - I1: numbers are little-endian on every architecture.
//! - I2: what a `from_bytes` or `decode` accepts, `to_bytes` or `encode` gives back byte by byte: no bit of a
//!   superblock or a record is without a meaning and outside a checksum.
//! - I3: a [`Superblock`] that was read has offsets that do not overlap, overflow, or leave the file.
//!
//! | file | what |
//! |---|---|
//! | `superblock.rs` | [`Superblock`]: the shape of the volume and whose it is; [`pick`] of its two copies |
//! | `shape.rs` | [`Shape`]: where the parts lie in the file |
//! | `wanted.rs` | [`Wanted`]: what a superblock is compared with, and in which field it differs |
//! | `record.rs` | [`Record`]: what a slot holds |
//! | `seal.rs` | [`Sum`]: the checksum of a payload, piece by piece |

mod record;
mod seal;
mod shape;
mod superblock;
#[cfg(test)]
mod tests;
mod wanted;

pub(crate) use record::{COUNT_BITS, MAX_SEQUENCE, Record};
pub use seal::seal_of;
pub(crate) use seal::{CHUNK_BYTES, SEAL_BYTES, SealKind, Sum};
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
/// Salts that a superblock has room for: the openings of an encrypted volume whose blocks can be told apart.
pub(crate) const EPOCHS: usize = 128;
/// Records in a page of the slot table.
pub(crate) const RECORDS_A_PAGE: usize = PAGE_BYTES / RECORD_BYTES;
