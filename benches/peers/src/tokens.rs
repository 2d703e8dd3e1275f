//! A long prompt to blocks with chained hashes: `dynamo-tokens` and ours.

use dynamo_tokens::TokenBlockSequence;
use kvstrata_benches::work::Work;
use kvstrata_benches::{PAGE, TOKENS, inputs};
use std::hint::black_box;

/// `TokenBlockSequence::from_slice`, its constructor for a whole prompt, and the drop of the sequence.
pub struct Split(Vec<u32>);

impl Default for Split {
    fn default() -> Self {
        Split(inputs::tokens(TOKENS))
    }
}

impl Work for Split {
    fn items(&self) -> u64 {
        self.0.len() as u64
    }

    #[inline]
    fn run(&mut self) {
        let sequence = TokenBlockSequence::from_slice(black_box(&self.0), PAGE, Some(7));
        assert_eq!(black_box(sequence.blocks()).len() as u64, self.items() / u64::from(PAGE));
    }
}
