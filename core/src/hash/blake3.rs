//! Keyed BLAKE3, the H for inputs that an adversary chooses.

use super::{BlockHash, BlockHasher, SequenceHash};
use crate::tokens::Token;
use core::fmt;

/// BLAKE3 under a secret key, cut to its first 16 bytes.
///
/// Who does not know the key can neither make two blocks collide nor tell whether a block is cached by its name.
/// Domains are apart: a byte 0 (bytes), 1 (block) or 2 (sequence) goes first.
#[derive(Clone, Copy)]
pub struct Blake3 {
    key: [u8; 32],
}

impl Blake3 {
    /// With this key, the same in every process that shares blocks.
    #[must_use]
    pub const fn new(key: [u8; 32]) -> Blake3 {
        Blake3 { key }
    }

    fn hash(&self, domain: u8, prefix: &[u8], tokens: &[Token]) -> u128 {
        let mut state = blake3::Hasher::new_keyed(&self.key);
        state.update(&[domain]);
        state.update(prefix);
        for tokens in tokens.chunks(256) {
            let mut bytes = [0; 1024];
            for (bytes, token) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(tokens) {
                *bytes = token.to_le_bytes();
            }
            state.update(&bytes[..4 * tokens.len()]);
        }
        let mut first = [0; 16];
        first.copy_from_slice(&state.finalize().as_bytes()[..16]);
        u128::from_le_bytes(first)
    }
}

impl BlockHasher for Blake3 {
    fn bytes(&self, bytes: &[u8]) -> u128 {
        self.hash(0, bytes, &[])
    }

    fn block_hash(&self, tokens: &[Token]) -> BlockHash {
        BlockHash::from_u128(self.hash(1, &[], tokens))
    }

    fn sequence_hash(&self, parent: SequenceHash, tokens: &[Token]) -> SequenceHash {
        SequenceHash::from_u128(self.hash(2, &parent.to_bytes(), tokens))
    }
}

/// Does not print the key.
impl fmt::Debug for Blake3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blake3 { .. }")
    }
}
