//! The hash function that a deployment has chosen.

use super::{BlockHash, BlockHasher, Keyed, SequenceHash, Xxh3};
use crate::hash::Token;
use alloc::vec::Vec;
use core::fmt;

/// The function H of a deployment, chosen once: all its processes, tiers and routers hash by the same one.
#[derive(Clone, PartialEq, Eq)]
pub enum Hasher {
    /// AES-128-CBC-MAC under a secret: the default.
    Keyed(Keyed),
    /// XXH3-128, which protects nothing against chosen tokens.
    Xxh3,
}

impl Hasher {
    /// Identifies function and secret without revealing the secret. Blocks of different
    /// fingerprints are never shared.
    #[must_use]
    pub fn fingerprint(&self) -> u128 {
        match self {
            Hasher::Keyed(keyed) => keyed.id(),
            Hasher::Xxh3 => u128::from_le_bytes(*b"kvstrata xxh3-v1"),
        }
    }

    /// The function's name: `keyed` or `xxh3`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Hasher::Keyed(_) => "keyed",
            Hasher::Xxh3 => "xxh3",
        }
    }
}

impl From<Keyed> for Hasher {
    fn from(keyed: Keyed) -> Hasher {
        Hasher::Keyed(keyed)
    }
}

impl From<Xxh3> for Hasher {
    fn from(_: Xxh3) -> Hasher {
        Hasher::Xxh3
    }
}

impl BlockHasher for Hasher {
    fn bytes(&self, bytes: &[u8]) -> u128 {
        match self {
            Hasher::Keyed(keyed) => keyed.bytes(bytes),
            Hasher::Xxh3 => Xxh3.bytes(bytes),
        }
    }

    fn block_hash(&self, tokens: &[Token]) -> BlockHash {
        match self {
            Hasher::Keyed(keyed) => keyed.block_hash(tokens),
            Hasher::Xxh3 => Xxh3.block_hash(tokens),
        }
    }

    fn sequence_hash(&self, parent: SequenceHash, tokens: &[Token]) -> SequenceHash {
        match self {
            Hasher::Keyed(keyed) => keyed.sequence_hash(parent, tokens),
            Hasher::Xxh3 => Xxh3.sequence_hash(parent, tokens),
        }
    }

    fn marked_hash(&self, parent: SequenceHash, tokens: &[Token], mark: u128) -> SequenceHash {
        match self {
            Hasher::Keyed(keyed) => keyed.marked_hash(parent, tokens, mark),
            Hasher::Xxh3 => Xxh3.marked_hash(parent, tokens, mark),
        }
    }

    fn extend_chain(
        &self,
        parent: SequenceHash,
        tokens: &[Token],
        block_size: usize,
        out: &mut Vec<SequenceHash>,
    ) {
        match self {
            Hasher::Keyed(keyed) => keyed.extend_chain(parent, tokens, block_size, out),
            Hasher::Xxh3 => Xxh3.extend_chain(parent, tokens, block_size, out),
        }
    }
}

/// Shows no secret.
impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hasher::Keyed(keyed) => keyed.fmt(f),
            Hasher::Xxh3 => f.write_str("Xxh3"),
        }
    }
}
