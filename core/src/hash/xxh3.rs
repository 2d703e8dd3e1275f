//! XXH3-128: the H for tokens that come from trusted callers only.

use super::{BlockHash, BlockHasher, SequenceHash};
use crate::hash::Token;
use alloc::vec::Vec;
use xxhash_rust::xxh3;

/// XXH3-128 (seed 0, default secret), by the crate `xxhash-rust`.
///
/// It has no secret. Anyone who may choose the tokens of a prompt can make a block with the hash of any
/// other block, in less than a microsecond (SECURITY.md): use [`Keyed`](super::Keyed) there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Xxh3;

/// Bytes of a parent.
const PARENT: usize = 16;

impl BlockHasher for Xxh3 {
    #[inline]
    fn bytes(&self, bytes: &[u8]) -> u128 {
        xxh3::xxh3_128(bytes)
    }

    #[inline]
    fn block_hash(&self, tokens: &[Token]) -> BlockHash {
        BlockHash::from_u128(prefixed::<0>([], tokens))
    }

    #[inline]
    fn sequence_hash(&self, parent: SequenceHash, tokens: &[Token]) -> SequenceHash {
        SequenceHash::from_u128(prefixed(parent.to_bytes(), tokens))
    }

    fn marked_hash(&self, parent: SequenceHash, tokens: &[Token], mark: u128) -> SequenceHash {
        // An odd length: no message without a mark has one.
        let mut prefix = [b'm'; 33];
        prefix[1..17].copy_from_slice(&mark.to_le_bytes());
        prefix[17..].copy_from_slice(&parent.to_bytes());
        SequenceHash::from_u128(prefixed(prefix, tokens))
    }

    fn extend_chain(
        &self,
        mut parent: SequenceHash,
        tokens: &[Token],
        block_size: usize,
        out: &mut Vec<SequenceHash>,
    ) {
        match block_size {
            0 => {}
            16 => chain::<16, { PARENT + 64 }>(parent, tokens, out),
            32 => chain::<32, { PARENT + 128 }>(parent, tokens, out),
            64 => chain::<64, { PARENT + 256 }>(parent, tokens, out),
            _ => out.extend(tokens.chunks_exact(block_size).map(|block| {
                parent = self.sequence_hash(parent, block);
                parent
            })),
        }
    }
}

/// The chain over blocks of a size known to the compiler, which turns the copy into loads and XXH3's case
/// distinction by length into straight code.
fn chain<const TOKENS: usize, const BYTES: usize>(
    mut parent: SequenceHash,
    tokens: &[Token],
    out: &mut Vec<SequenceHash>,
) {
    const { assert!(BYTES == PARENT + 4 * TOKENS) };
    out.extend(tokens.as_chunks::<TOKENS>().0.iter().map(|block| {
        let mut bytes = [0; BYTES];
        fill(&mut bytes, parent.to_bytes(), block);
        parent = SequenceHash::from_u128(xxh3::xxh3_128(&bytes));
        parent
    }));
}

/// XXH3-128 of `prefix ‖ tokens`, through the smallest buffer on the stack that holds it.
#[inline]
fn prefixed<const PREFIX: usize>(prefix: [u8; PREFIX], tokens: &[Token]) -> u128 {
    match PREFIX + 4 * tokens.len() {
        bytes @ 0..=128 => xxh3::xxh3_128(fill(&mut [0; 128][..bytes], prefix, tokens)),
        bytes @ 129..=528 => xxh3::xxh3_128(fill(&mut [0; 528][..bytes], prefix, tokens)),
        bytes @ 529..=2064 => xxh3::xxh3_128(fill(&mut [0; 2064][..bytes], prefix, tokens)),
        _ => streamed(&prefix, tokens),
    }
}

/// Writes `prefix ‖ tokens` (I1: little-endian) into `bytes`, which is just as long.
#[inline(always)]
fn fill<'b, const PREFIX: usize>(bytes: &'b mut [u8], prefix: [u8; PREFIX], tokens: &[Token]) -> &'b [u8] {
    let (head, tail) = bytes.split_at_mut(PREFIX);
    head.copy_from_slice(&prefix);
    for (bytes, token) in tail.as_chunks_mut::<4>().0.iter_mut().zip(tokens) {
        *bytes = token.to_le_bytes();
    }
    bytes
}

/// The same for blocks of any length.
#[cold]
fn streamed(prefix: &[u8], tokens: &[Token]) -> u128 {
    let mut state = xxh3::Xxh3::new();
    state.update(prefix);
    for tokens in tokens.chunks(128) {
        state.update(fill(&mut [0; 512][..4 * tokens.len()], [], tokens));
    }
    state.digest128()
}
