//! Salts: the input besides tokens that makes KV differ, folded into h(-1).

use super::{BlockHasher, SequenceHash};
use alloc::vec::Vec;

/// h(-1), the parent of every first block. Sequences share blocks only if they share the salt.
///
/// The default is 0: blocks are shared with all sequences that use it.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Salt(SequenceHash);

impl Salt {
    /// A salt of the caller's own making.
    #[must_use]
    pub const fn new(hash: SequenceHash) -> Salt {
        Salt(hash)
    }

    /// As the hash that the first block is chained to.
    #[inline]
    #[must_use]
    pub const fn to_hash(self) -> SequenceHash {
        self.0
    }
}

impl From<Salt> for SequenceHash {
    #[inline]
    fn from(salt: Salt) -> SequenceHash {
        salt.0
    }
}

/// The parts of a salt. An empty part equals an absent one; all other differences give another salt.
///
/// ```
/// use kvstrata_core::hash::{Keyed, SaltParts};
/// let hasher = Keyed::new(&[7; 32]); // 32 random bytes
/// let base = SaltParts { tenant: "acme", model: "llama-3-70b@9f2c bf16 tp4", ..SaltParts::default() };
/// let tuned = SaltParts { lora: "support-v3", ..base };
/// assert_ne!(base.salt(&hasher), tuned.salt(&hasher));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SaltParts<'a> {
    /// The tenant: only its sequences share blocks.
    pub tenant: &'a str,
    /// Fingerprint of the model: weights, dtype, anything that changes its KV.
    pub model: &'a str,
    /// LoRA adapter.
    pub lora: &'a str,
    /// Anything else, in an order that the caller fixes, such as a cache salt from the request. An image
    /// belongs to the blocks that it fills
    /// ([`TokenBlockSequence::mark`](crate::tokens::TokenBlockSequence::mark)).
    pub extra: &'a [&'a [u8]],
}

impl SaltParts<'_> {
    /// The salt, by the same function as the blocks' hashes.
    #[must_use]
    pub fn salt<H: BlockHasher>(&self, hasher: &H) -> Salt {
        Salt(SequenceHash::from_u128(hasher.bytes(&self.encode())))
    }

    /// Version, then each part as its length (8 bytes, least significant first) and its bytes (I2).
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::from(*b"kvstrata.salt.1\0");
        let fixed = [self.tenant.as_bytes(), self.model.as_bytes(), self.lora.as_bytes()];
        for part in fixed.iter().chain(self.extra) {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        bytes
    }
}
