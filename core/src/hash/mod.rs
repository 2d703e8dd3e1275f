//! Hashes that name blocks: the same tokens behind the same prefix have the same name,
//! everywhere and for ever.
//!
//! ```text
//!   salt ── h(-1)
//!             │      tokens(0)            tokens(1)            tokens(2)
//!             └─▶ H(h(-1) ‖ tokens) ─▶ H(h(0) ‖ tokens) ─▶ H(h(1) ‖ tokens) ─▶ …
//!                     = h(0)               = h(1)               = h(2)
//! ```
//!
//! A block has two names. Its [`SequenceHash`] h(i) = H(h(i-1) ‖ tokens(i)) stands for the block *and all
//! before it*: the key under which pools find it. Its [`BlockHash`] H(tokens(i)) stands for its tokens
//! alone: a router's radix tree compares these. H is a MAC under the deployment's secret ([`Keyed`]), or
//! XXH3-128 ([`Xxh3`]) where all input is trusted; [`Hasher`] is the choice of a deployment.
//!
//! Invariants:
//!
//! - **I1** The input is bytes: the parent's 16, least significant first, then each token's 4, least
//!   significant first, on every architecture. `tests.rs` pins vectors that the reference implementation
//!   made.
//! - **I2** Salts encode their parts with lengths, so that different parts never make the same bytes.
//!
//! A block may have a *mark*: 128 bits for anything besides tokens that its KV depends on, such as the
//! image behind placeholder tokens ([`TokenBlockSequence::mark`](crate::tokens::TokenBlockSequence::mark)).
//! A block without a mark has the hash that it always had.

mod choice;
mod keyed;
mod names;
mod placement;
mod salt;
#[cfg(test)]
mod tests;
mod xxh3;

pub use choice::Hasher;
pub use keyed::Keyed;
pub use names::{BlockHash, SequenceHash};
pub use placement::Placement;
pub use salt::{Salt, SaltParts};
pub use xxh3::Xxh3;

use alloc::vec::Vec;

/// A token: its number in the model's vocabulary.
pub type Token = u32;

/// The function H behind [`BlockHash`] and [`SequenceHash`].
///
/// Blocks hashed by different functions, or by one function under different keys, are never shared: a
/// pool, its tiers and its peers agree on one.
pub trait BlockHasher {
    /// H of bytes; used for salts.
    fn bytes(&self, bytes: &[u8]) -> u128;

    /// H of one block's tokens alone.
    fn block_hash(&self, tokens: &[Token]) -> BlockHash;

    /// h(i) = H(`parent` ‖ `tokens`), where `parent` is h(i-1), or the salt for the first block.
    fn sequence_hash(&self, parent: SequenceHash, tokens: &[Token]) -> SequenceHash;

    /// The same for a block with a mark. It differs from the hash without a mark, and from
    /// that with any other mark.
    fn marked_hash(&self, parent: SequenceHash, tokens: &[Token], mark: u128) -> SequenceHash;

    /// Appends the sequence hash of each whole block of `block_size` tokens to `out`, and ignores tokens
    /// behind the last whole block. For the hashes of a prompt without keeping its tokens.
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
