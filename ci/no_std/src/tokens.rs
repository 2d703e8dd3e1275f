//! Tokens and plans: no allocation within the capacity reserved at first, and the same hashes either way.

use kvstrata_core::layout::{DType, Layout, LayoutConfig, Region};
use kvstrata_core::plan::CopyPlan;
use kvstrata_core::tokens::{Token, TokenBlockSequence};
use kvstrata_core::{BlockId, Keyed, Salt, SequenceHash};

use crate::frugal;

const TOKENS: usize = 200;
const BLOCK_SIZE: usize = 16;

/// One token at a time, all at once, or too many and some truncated: the hashes are the same.
pub fn same_hashes_either_way() {
    let salt = Salt::new(SequenceHash::from_u128(7));
    let hasher = Keyed::new(&[7; 32]);
    let new = || match TokenBlockSequence::new(BLOCK_SIZE, salt, hasher.clone()) {
        Ok(mut sequence) => {
            sequence.reserve(TOKENS);
            sequence
        }
        Err(error) => panic!("{error}"),
    };
    let tokens: [Token; TOKENS] = core::array::from_fn(|i| i as Token * 31);
    let (mut one_by_one, mut at_once, mut truncated) = (new(), new(), new());
    frugal("push", || {
        for token in tokens {
            one_by_one.push(token);
        }
    });
    frugal("extend", || assert_eq!(at_once.extend(&tokens), 0..TOKENS / BLOCK_SIZE));
    frugal("truncate", || {
        truncated.extend(&tokens[..100]);
        truncated.truncate(90);
        truncated.extend(&tokens[90..]);
    });
    assert_eq!(one_by_one.hashes(), at_once.hashes());
    assert_eq!(truncated.hashes(), at_once.hashes());
}

/// A plan is computed again, and walked, in the memory that it has.
pub fn plans_are_made_in_place() {
    let config = LayoutConfig::new().num_blocks(10).num_layers(3).outer_dim(2).page_size(16).heads(2, 64);
    let config = config.dtype(DType::BF16).alignment(4096);
    assert!(Layout::fully_contiguous(config.num_blocks(0), Region::system(0, 0)).is_err());
    let at = |address| match Layout::fully_contiguous(config, Region::system(address, 10 * 24_576)) {
        Ok(layout) => layout,
        Err(error) => panic!("{error}"),
    };
    let (src, dst) = (at(1 << 20), at(1 << 30));
    let (one, other) = ([BlockId(1), BlockId(7), BlockId(2)], [BlockId(3), BlockId(0), BlockId(9)]);
    let mut plan = match CopyPlan::new(&src, &one, &dst, &other, .., ..) {
        Ok(plan) => plan,
        Err(error) => panic!("{error}"),
    };
    frugal("plan", || {
        assert!(plan.replan(&other, &one).is_ok());
        assert_eq!(plan.pieces().map(|piece| piece.bytes).sum::<u64>(), 3 * 24_576);
    });
}
