//! AES-128-CBC-MAC under a secret key: the default hash, for tokens that anyone may choose.
//!
//! ```text
//!   first block        tokens, 4 a word, zero-padded      mark of a marked block    parent
//!   (domain, length)   w0      w1      …      wn          (images), if it has one    h(i-1)
//!        │             │       │              │               │                       │
//!        └─ AES ───────⊕─ AES ─⊕─ AES ─ … ────⊕─ AES ─────────⊕─ AES ─────────────────⊕─ AES ─► h(i)
//! ```
//!
//! CBC-MAC is a pseudo-random function for messages none of which is a prefix of another (Bellare, Kilian and
//! Rogaway, "The security of the cipher block chaining message authentication code", 2000; Petrank and
//! Rackoff, "CBC MAC for real-time data sources", 2000). With 128-bit blocks an attacker who sees the hashes
//! of q messages of at most l words distinguishes them from random numbers with a probability of at most
//! about 12·l·q² / 2¹²⁸ (Bellare, Pietrzak and Rogaway, "Improved security analyses for CBC MACs", 2005).
//! SECURITY.md states the consequences.
//!
//! Invariants:
//!
//! - **I1** No message is a prefix of another one: the first block holds the domain and the length, and these
//!   two decide how many words follow.
//! - **I2** The parent is the last word. So all AES calls of a block except one are independent of the
//!   blocks before it, and the serial part of a chain is one AES call per block.
//! - **I3** No state of the chain inside a message leaves this module. A block hash is the end of a message
//!   of its own.
//! - **I4** Both paths give the same values: `portable` by the crate `aes`, which is constant-time on every
//!   processor, and `x86` by AES-NI, which computes the words of several blocks while it waits for a link.

mod portable;
#[cfg(test)]
mod tests;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

use super::{BlockHash, BlockHasher, SequenceHash};
use crate::hash::Token;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes256, Block};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// Tokens per word of 16 bytes.
const A_WORD: usize = 4;

/// AES-128-CBC-MAC under the secret of a deployment.
///
/// An attacker without the secret can neither make two blocks collide nor find tokens for a hash that
/// was seen. A clone shares the key schedule.
///
/// ```
/// use kvstrata_core::hash::{BlockHasher, Keyed};
/// let ours = Keyed::new(&[7; 32]); // 32 random bytes, the same in every process that shares blocks
/// let theirs = Keyed::new(&[8; 32]);
/// assert_ne!(ours.block_hash(&[1, 2, 3]), theirs.block_hash(&[1, 2, 3]));
/// assert_ne!(ours.id(), theirs.id()); // may be shown: it says which secret, and nothing about it
/// ```
#[derive(Clone)]
pub struct Keyed {
    cipher: Arc<Cipher>,
    id: u128,
}

struct Cipher {
    aes: Aes128,
    /// The key schedule for AES-NI, if the processor has it.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    rounds: Option<x86::Rounds>,
}

/// The kind of a message: the first byte of its first block (I1).
#[derive(Clone, Copy)]
enum Domain {
    Bytes = 0,
    Block = 1,
    Sequence = 2,
    /// A sequence's block that has a mark.
    Marked = 3,
}

impl Keyed {
    /// The hasher of this secret: 32 random bytes, the same in every process that shares blocks.
    ///
    /// The AES-128 key is AES-256 under the secret of a fixed label; the [`id`](Keyed::id) is that of
    /// another label.
    #[must_use]
    pub fn new(secret: &[u8; 32]) -> Keyed {
        let derive = Aes256::new(&(*secret).into());
        let of = |label: &[u8; 16]| {
            let mut block = Block::from(*label);
            derive.encrypt_block(&mut block);
            <[u8; 16]>::from(block)
        };
        let key = of(b"kvstrata hash v1");
        let cipher = Cipher {
            aes: Aes128::new(&key.into()),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            rounds: x86::Rounds::new(key),
        };
        Keyed { cipher: Arc::new(cipher), id: u128::from_le_bytes(of(b"kvstrata keyid 1")) }
    }

    /// Identifies the secret without revealing it: equal secrets have equal ids.
    #[must_use]
    pub fn id(&self) -> u128 {
        self.id
    }

    /// Returns whether hashes are made by the processor's AES instructions through this crate's own
    /// code; otherwise the crate `aes` makes them, which chooses by itself.
    #[must_use]
    pub fn is_accelerated(&self) -> bool {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        return self.cipher.rounds.is_some();
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        false
    }

    /// The same hasher without AES-NI, for tests and benchmarks.
    #[doc(hidden)]
    #[must_use]
    pub fn portable(secret: &[u8; 32]) -> Keyed {
        let keyed = Keyed::new(secret);
        let cipher = Cipher {
            aes: keyed.cipher.aes.clone(),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            rounds: None,
        };
        Keyed { cipher: Arc::new(cipher), id: keyed.id }
    }

    /// A whole message: first block, words, last words.
    fn message(&self, domain: Domain, length: usize, words: impl Iterator<Item = u128>) -> u128 {
        let start = self.cipher.encrypt(first_block(domain, length));
        words.fold(start, |state, word| self.cipher.encrypt(state ^ word))
    }

    fn chain(
        &self,
        parent: SequenceHash,
        tokens: &[Token],
        block_size: usize,
        start: u128,
        out: &mut Vec<SequenceHash>,
    ) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if let Some(rounds) = &self.cipher.rounds {
            rounds.chain(start, parent, tokens, block_size, out);
            return;
        }
        portable::chain(&self.cipher.aes, start, parent, tokens, block_size, out);
    }
}

impl Cipher {
    fn encrypt(&self, word: u128) -> u128 {
        let mut block = Block::from(word.to_le_bytes());
        self.aes.encrypt_block(&mut block);
        u128::from_le_bytes(block.into())
    }
}

/// Domain in byte 0, length in bytes 8 to 15: in tokens, or in bytes of a message of bytes.
fn first_block(domain: Domain, length: usize) -> u128 {
    u128::from(length as u64) << 64 | domain as u128
}

/// Tokens as words of four, the last one padded with zeros.
fn words(tokens: &[Token]) -> impl Iterator<Item = u128> {
    tokens.chunks(A_WORD).map(word)
}

/// At most four tokens, least significant first (I1 of the module above).
#[inline]
fn word(tokens: &[Token]) -> u128 {
    tokens.iter().rev().fold(0, |word, token| word << 32 | u128::from(*token))
}

impl BlockHasher for Keyed {
    fn bytes(&self, bytes: &[u8]) -> u128 {
        let words = bytes.chunks(16).map(|chunk| {
            let mut word = [0; 16];
            word[..chunk.len()].copy_from_slice(chunk);
            u128::from_le_bytes(word)
        });
        self.message(Domain::Bytes, bytes.len(), words)
    }

    fn block_hash(&self, tokens: &[Token]) -> BlockHash {
        BlockHash::from_u128(self.message(Domain::Block, tokens.len(), words(tokens)))
    }

    fn sequence_hash(&self, parent: SequenceHash, tokens: &[Token]) -> SequenceHash {
        let words = words(tokens).chain([parent.to_u128()]);
        SequenceHash::from_u128(self.message(Domain::Sequence, tokens.len(), words))
    }

    fn marked_hash(&self, parent: SequenceHash, tokens: &[Token], mark: u128) -> SequenceHash {
        let words = words(tokens).chain([mark, parent.to_u128()]);
        SequenceHash::from_u128(self.message(Domain::Marked, tokens.len(), words))
    }

    fn extend_chain(
        &self,
        parent: SequenceHash,
        tokens: &[Token],
        block_size: usize,
        out: &mut Vec<SequenceHash>,
    ) {
        if block_size > 0 && tokens.len() >= block_size {
            out.reserve(tokens.len() / block_size);
            let start = self.cipher.encrypt(first_block(Domain::Sequence, block_size));
            self.chain(parent, tokens, block_size, start, out);
        }
    }
}

/// Does not print the key.
impl fmt::Debug for Keyed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyed(id {:032x})", self.id)
    }
}

/// Equal secrets.
impl PartialEq for Keyed {
    fn eq(&self, other: &Keyed) -> bool {
        self.id == other.id
    }
}

impl Eq for Keyed {}
