//! A sequence of tokens, cut into blocks, each with its chained hash, kept up to date as tokens come.
//!
//! ```text
//!   tokens  │ t0 … t15 │ t16 … t31 │ t32 … t47 │ t48 … t52 │      one growing array
//!   hashes  │   h(0)   │   h(1)    │   h(2)    │ (partial)      one growing array, as match_prefix takes it
//!                 ▲ h(-1) = salt
//! ```
//!
//! A block is no object: it is a range of the first array and an entry of the second. A token costs 4
//! bytes and a block 16 more; block hashes (of the tokens alone) are computed on request.
//!
//! Invariants:
//!
//! - **I1** `hashes.len() == tokens.len() / block_size`, whenever the caller can look.
//! - **I2** `hashes[i]` = H(`hashes[i - 1]` ‖ tokens of block i ‖ its mark, if it has one),
//!   with the salt before the first.
//! - **I3** No allocation per block: both arrays grow by doubling, and not at all within their capacity.

mod sequence;
#[cfg(test)]
mod tests;

pub use crate::hash::Token;
pub use sequence::{MarkError, TokenBlock, TokenBlockSequence, ZeroBlockSize};
