//! Hashes that name blocks: the same tokens behind the same prefix have the same name, everywhere and for ever.
//!
//! ```text
//!   salt ── h(-1)
//!             │      tokens(0)            tokens(1)            tokens(2)
//!             └─▶ H(h(-1) ‖ tokens) ─▶ H(h(0) ‖ tokens) ─▶ H(h(1) ‖ tokens) ─▶ …
//!                     = h(0)               = h(1)               = h(2)
//! ```
//!
//! Two names a block: its [`SequenceHash`] h(i) = H(h(i-1) ‖ tokens(i)) stands for the block *and all before it*, the
//! key under which pools find it; its [`BlockHash`] H(tokens(i)) stands for its tokens alone, what a router's radix
//! tree compares. H is XXH3-128 ([`Xxh3`]) or keyed BLAKE3 (`Blake3`, feature `blake3`).
//!
//! Invariants:
//!
//! - **I1** What is hashed is bytes: the parent's 16, least significant first, then each token's 4, least
//!   significant first, on every architecture. `tests.rs` pins vectors that the reference implementation made.
//! - **I2** Salts encode their parts with lengths, so that different parts never make the same bytes.
//!
//! # Why one level
//!
//! The usual alternative, two levels, hashes tokens alone and chains those hashes: H(h(i-1) ‖ H(tokens(i))). It is
//! said to be faster, since block hashes do not wait for each other. With XXH3-128 it is not, at the page size that
//! counts: an input of up to 128 bytes is folded from the middle outwards, the parent (its first 16 bytes) enters in
//! the last round, and a processor computes the other rounds of block i + 1 while it waits for h(i). Measured per
//! 16 tokens on a 2.6 GHz Zen 4, hashing only, xxhash-rust 0.8, pages of 16: a chain step whose other input is there
//! already 5.8 ns (the floor of both); one level 6.5 to 6.9; two levels 8.4. For pages of 32 to 512 tokens two
//! levels are ahead by 0.5 to 1.0 ns (6.2 against 7.3 at 32, 2.4 against 3.2 at 512), too little to pay for a second
//! scheme.

#[cfg(feature = "blake3")]
mod blake3;
mod names;
mod salt;
#[cfg(test)]
mod tests;
mod xxh3;

#[cfg(feature = "blake3")]
pub use self::blake3::Blake3;
pub use names::{BlockHash, SequenceHash};
pub use salt::{Salt, SaltParts};
pub use xxh3::Xxh3;

use crate::tokens::Token;
use alloc::vec::Vec;

/// The function H behind [`BlockHash`] and [`SequenceHash`].
///
/// Blocks hashed by different functions, or by one function under different keys, never share: a pool, its tiers and
/// its peers agree on one.
pub trait BlockHasher {
    /// H of bytes; what salts are made with.
    fn bytes(&self, bytes: &[u8]) -> u128;

    /// H of one block's tokens alone.
    fn block_hash(&self, tokens: &[Token]) -> BlockHash;

    /// h(i) = H(`parent` ‖ `tokens`), where `parent` is h(i-1), or the salt for the first block.
    fn sequence_hash(&self, parent: SequenceHash, tokens: &[Token]) -> SequenceHash;

    /// Appends the sequence hash of each whole block of `block_size` tokens to `out`; tokens behind the last whole
    /// block are left alone. The hashes of a prompt without keeping its tokens.
    ///
    /// `block_size` 0 appends nothing. Allocates only if `out` has no room.
    fn extend_chain(
        &self,
        mut parent: SequenceHash,
        tokens: &[Token],
        block_size: usize,
        out: &mut Vec<SequenceHash>,
    ) {
        if block_size > 0 {
            out.extend(tokens.chunks_exact(block_size).map(|block| {
                parent = self.sequence_hash(parent, block);
                parent
            }));
        }
    }
}
