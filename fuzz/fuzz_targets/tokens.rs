//! A token sequence against an array: pushes, slices, truncations and forks in any order leave the blocks and
//! hashes that the tokens alone determine.
#![no_main]

use arbitrary::Arbitrary;
use kvstrata_core::hash::{BlockHasher, Keyed};
use kvstrata_core::tokens::{Token, TokenBlockSequence};
use kvstrata_core::{Salt, SequenceHash};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Case {
    block_size: u8,
    salt: u128,
    operations: Vec<Operation>,
}

#[derive(Arbitrary, Debug)]
enum Operation {
    Push(Token),
    Extend(Vec<Token>),
    /// So many equal tokens, for blocks that are too long for a short input.
    Repeat(Token, u16),
    Truncate(u16),
    /// Goes on with a copy, and changes the original.
    Fork,
    Clear,
}

/// More tokens find nothing new, and are slower: everything is compared after every operation.
const MOST_TOKENS: usize = 10_000;

const SECRET: [u8; 32] = [7; 32];

fuzz_target!(|case: Case| {
    let block_size = usize::from(case.block_size);
    let salt = Salt::new(SequenceHash::from_u128(case.salt));
    let Ok(mut sequence) = TokenBlockSequence::new(block_size, salt, Keyed::new(&SECRET)) else {
        assert_eq!(block_size, 0, "only a block without tokens is refused");
        return;
    };
    let mut tokens: Vec<Token> = Vec::new();
    for operation in case.operations.iter().take(64) {
        let whole = tokens.len() / block_size;
        match operation {
            Operation::Push(token) => {
                tokens.push(*token);
                let completed = tokens.len().is_multiple_of(block_size).then_some(whole);
                assert_eq!(sequence.push(*token), completed);
            }
            Operation::Extend(more) => {
                tokens.extend(more);
                assert_eq!(sequence.extend(more), whole..tokens.len() / block_size);
            }
            Operation::Repeat(token, count) => {
                let more = vec![*token; usize::from(*count)];
                tokens.extend(&more);
                assert_eq!(sequence.extend(&more), whole..tokens.len() / block_size);
            }
            Operation::Truncate(len) => {
                tokens.truncate(usize::from(*len));
                sequence.truncate(usize::from(*len));
            }
            Operation::Fork => {
                let fork = sequence.fork();
                sequence.truncate(tokens.len() / 2);
                sequence.extend(&[!0; 300]);
                sequence = fork;
            }
            Operation::Clear => {
                tokens.clear();
                sequence.clear();
            }
        }
        check(&sequence, &tokens, salt);
        if tokens.len() > MOST_TOKENS {
            break;
        }
    }
});

/// Compares the sequence's answers with those computed from the tokens, block by block.
fn check(sequence: &TokenBlockSequence<Keyed>, tokens: &[Token], salt: Salt) {
    let blocks = tokens.chunks_exact(sequence.block_size());
    assert_eq!(sequence.tokens(), tokens);
    assert_eq!(sequence.partial(), blocks.remainder());
    assert_eq!(sequence.hashes().len(), blocks.len());
    let (mut parent, oracle) = (salt.to_hash(), Keyed::portable(&SECRET));
    for (index, expected) in blocks.enumerate() {
        let block = sequence.block(index).expect("a whole block");
        assert_eq!((block.tokens, block.parent), (expected, parent));
        assert_eq!(block.hash, oracle.sequence_hash(parent, expected));
        assert_eq!(block.hash, sequence.hashes()[index]);
        parent = block.hash;
    }
    assert!(sequence.block(sequence.hashes().len()).is_none());
}
