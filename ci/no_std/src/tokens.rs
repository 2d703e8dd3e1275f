//! Tokens and layouts: no allocation within the capacity asked for at first, and the same hashes either way.

use kvstrata_core::layout::{FullyContiguous, LayoutConfig};
use kvstrata_core::tokens::{Token, TokenBlockSequence};
use kvstrata_core::{Salt, SequenceHash};

use crate::frugal;

const TOKENS: usize = 200;
const BLOCK_SIZE: usize = 16;

/// One token at a time, or all at once, or more and some taken back.
pub fn same_hashes_either_way() {
    let salt = Salt::new(SequenceHash::from_u128(7));
    let new = || match TokenBlockSequence::with_capacity(BLOCK_SIZE, salt, TOKENS) {
        Ok(sequence) => sequence,
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

/// A layout is numbers only.
pub fn layout_is_arithmetic() {
    frugal("layout", || {
        let config =
            LayoutConfig::new().num_blocks(10).num_layers(3).outer_dim(2).page_size(16).inner_dim(128);
        match FullyContiguous::new(config.dtype_width_bytes(2).alignment(4096)) {
            Ok(layout) => assert_eq!(layout.total_bytes(), 10 * 24_576),
            Err(error) => panic!("{error}"),
        }
        assert!(FullyContiguous::new(config.num_blocks(0)).is_err());
    });
}
