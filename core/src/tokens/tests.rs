use super::*;
use crate::hash::{BlockHasher, Salt, SequenceHash, Xxh3};
use alloc::string::ToString;
use alloc::vec::Vec;
use proptest::prelude::*;

const SALT: Salt = Salt::new(SequenceHash::from_u128(0x5a17));

/// h(i) = XXH3-128(h(i-1) ‖ tokens(i)), from the bytes, all of it from scratch.
fn oracle(tokens: &[Token], block_size: usize) -> Vec<SequenceHash> {
    let mut parent = SALT.to_hash().to_bytes();
    let mut hashes = Vec::new();
    for block in tokens.chunks_exact(block_size) {
        let mut bytes = parent.to_vec();
        block.iter().for_each(|token| bytes.extend(token.to_le_bytes()));
        parent = xxhash_rust::xxh3::xxh3_128(&bytes).to_le_bytes();
        hashes.push(SequenceHash::from_bytes(parent));
    }
    hashes
}

fn check(sequence: &TokenBlockSequence<Xxh3>, tokens: &[Token]) {
    let size = sequence.block_size();
    assert_eq!(sequence.tokens(), tokens);
    assert_eq!(sequence.hashes(), oracle(tokens, size));
    assert_eq!((sequence.len(), sequence.is_empty()), (tokens.len(), tokens.is_empty()));
    assert_eq!(sequence.partial(), tokens.chunks_exact(size).remainder());
    let mut parent = SALT.to_hash();
    assert_eq!(sequence.blocks().len(), tokens.len() / size);
    for (index, block) in sequence.blocks().enumerate() {
        assert_eq!(block.parent, parent);
        assert_eq!(block.tokens, &tokens[index * size..(index + 1) * size]);
        assert_eq!(Some(block), sequence.block(index));
        assert_eq!(sequence.block_hash(index), Some(Xxh3.block_hash(block.tokens)));
        parent = block.hash;
    }
    assert_eq!(sequence.block(tokens.len() / size), None);
    assert_eq!(sequence.block(usize::MAX), None);
}

#[test]
fn sequence_with_block_size_zero_is_refused() {
    let refused = TokenBlockSequence::new(0, SALT, Xxh3).unwrap_err();
    assert_eq!(refused.to_string(), "block_size = 0: must be at least 1 token");
}

#[test]
fn fork_does_not_change_its_origin() {
    let tokens: Vec<Token> = (0..40).collect();
    let mut trunk = TokenBlockSequence::new(16, SALT, Xxh3).unwrap();
    assert_eq!(trunk.extend(&tokens), 0..2);
    let mut branch = trunk.fork();
    assert_eq!(branch.extend(&[7; 8]), 2..3);
    trunk.truncate(17);
    check(&trunk, &tokens[..17]);
    check(&branch, &[&tokens[..], &[7; 8]].concat());
}

#[test]
fn clear_keeps_the_salt() {
    let mut sequence = TokenBlockSequence::new(2, SALT, Xxh3).unwrap();
    sequence.extend(&[1, 2, 3]);
    sequence.clear();
    check(&sequence, &[]);
    sequence.extend(&[4, 5]);
    check(&sequence, &[4, 5]);
}

#[test]
fn sequence_of_any_block_size_matches_the_oracle() {
    let tokens: Vec<Token> = (0..10_000).collect();
    for block_size in [1, 7, 16, 5000, 10_001, usize::MAX] {
        let mut sequence = TokenBlockSequence::new(block_size, SALT, Xxh3).unwrap();
        assert_eq!(sequence.extend(&tokens), 0..tokens.len() / block_size);
        assert_eq!(sequence.hashes(), oracle(&tokens, block_size));
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Push(Token),
    Extend(Vec<Token>),
    Truncate(usize),
    Fork,
    Clear,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => any::<Token>().prop_map(Operation::Push),
        4 => prop::collection::vec(any::<Token>(), 0..100).prop_map(Operation::Extend),
        3 => (0usize..200).prop_map(Operation::Truncate),
        1 => Just(Operation::Fork),
        1 => Just(Operation::Clear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// However the tokens came, the sequence is the one computed from scratch (I1, I2).
    #[test]
    fn sequence_after_any_edits_equals_one_from_scratch(
        block_size in prop::sample::select(alloc::vec![1usize, 2, 3, 15, 16, 17, 32, 64, 65]),
        operations in prop::collection::vec(operation(), 0..40),
    ) {
        let mut sequence = TokenBlockSequence::new(block_size, SALT, Xxh3).unwrap();
        let mut model: Vec<Token> = Vec::new();
        for operation in operations {
            let before = model.len() / block_size;
            match operation {
                Operation::Push(token) => {
                    model.push(token);
                    let completed = model.len().is_multiple_of(block_size).then_some(before);
                    prop_assert_eq!(sequence.push(token), completed);
                }
                Operation::Extend(tokens) => {
                    model.extend(&tokens);
                    prop_assert_eq!(sequence.extend(&tokens), before..model.len() / block_size);
                }
                Operation::Truncate(tokens) => {
                    model.truncate(tokens);
                    sequence.truncate(tokens);
                }
                Operation::Fork => sequence = sequence.fork(),
                Operation::Clear => {
                    model.clear();
                    sequence.clear();
                }
            }
            check(&sequence, &model);
        }
    }
}
