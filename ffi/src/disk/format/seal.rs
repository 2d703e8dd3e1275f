//! The seals that verify payloads.
//!
//! ```text
//!   payload   ├ chunk 0, 64 KiB ┼ chunk 1, 64 KiB ┼ … ┼ chunk n, the rest ┤
//!   seal  =      XXH3(·, seed 0) +  XXH3(·, seed 1) + … +  XXH3(·, seed n)          mod 2⁶⁴
//! ```
//!
//! A sum has no order, so pieces are added as they arrive from the device or leave for it, while they are
//! in the cache. The seed is the chunk's number: chunks that changed places do not match.

use super::super::recovery::Rejection;
use twox_hash::XxHash3_64;

/// Bytes that are hashed together.
pub(crate) const CHUNK_BYTES: usize = crate::copy::SEAL_CHUNK_BYTES;
/// A seal's length.
pub(crate) const SEAL_BYTES: usize = 16;

/// The kind of a volume's seals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum SealKind {
    /// A checksum of the payload, and eight zeros.
    Checksum = 1,
    /// The tag of an AEAD: the payload is encrypted.
    Tag = 2,
}

impl SealKind {
    /// The kind of this number.
    pub(crate) const fn from_number(number: u32) -> Option<SealKind> {
        match number {
            1 => Some(SealKind::Checksum),
            2 => Some(SealKind::Tag),
            _ => None,
        }
    }

    /// Its number in a superblock.
    pub(crate) const fn number(self) -> u32 {
        self as u32
    }
}

impl core::fmt::Display for SealKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            SealKind::Checksum => "checksum (not encrypted)",
            SealKind::Tag => "tag (encrypted)",
        })
    }
}

/// A payload's checksum ([`SealKind::Checksum`]) while its pieces come in, in any order.
///
/// Not secret and not keyed: it finds accidents, not forgers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Adds the piece that starts `offset_bytes` after the payload's start. Each byte is added once; the
    /// offset is a multiple of [`CHUNK_BYTES`], and only the last piece may end elsewhere than on a
    /// multiple. Other pieces make a seal that matches nothing.
    pub(crate) fn add(&mut self, offset_bytes: usize, bytes: &[u8]) {
        debug_assert!(offset_bytes.is_multiple_of(CHUNK_BYTES), "a piece starts within a chunk");
        let first = (offset_bytes / CHUNK_BYTES) as u64;
        for (seed, chunk) in (first..).zip(bytes.chunks(CHUNK_BYTES)) {
            self.0 = self.0.wrapping_add(XxHash3_64::oneshot_with_seed(seed, chunk));
        }
    }

    /// A sum that was made elsewhere: on a device, or by the caller.
    pub(crate) fn given(sum: u64) -> Sum {
        Sum(sum)
    }

    /// The sum as a number.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// The seal of all added pieces.
    pub(crate) fn seal(self) -> [u8; SEAL_BYTES] {
        u128::from(self.0).to_le_bytes()
    }

    /// Compares with the seal of a record.
    pub(crate) fn verify(self, seal: &[u8; SEAL_BYTES]) -> Result<(), Rejection> {
        if self.seal() == *seal { Ok(()) } else { Err(Rejection::Payload) }
    }
}

/// The seal of a payload whose chunks have these sums, one for each chunk of 64 KiB, in any order: see
/// [`Payload::summed`](super::super::Payload::summed).
#[must_use]
pub fn seal_of(sums: &[u64]) -> u64 {
    sums.iter().fold(0, |seal, sum| seal.wrapping_add(*sum))
}

/// The sum of a whole payload, for [`Payload::summed`](super::super::Payload::summed).
#[must_use]
pub fn sum_of_payload(payload: &[u8]) -> u64 {
    let mut sum = Sum::default();
    sum.add(0, payload);
    sum.number()
}

/// The seal of a whole payload.
#[cfg(test)]
pub(crate) fn seal_of_payload(payload: &[u8]) -> [u8; SEAL_BYTES] {
    let mut sum = Sum::default();
    sum.add(0, payload);
    sum.seal()
}
