//! `TokenBlockSequence` allocates nothing per block: within its capacity not once, beyond it only to double.

use kvstrata_core::hash::{BlockHasher, Hasher, Keyed, Salt, SequenceHash, Xxh3};
use kvstrata_core::tokens::TokenBlockSequence;
use kvstrata_testing::counting::{Counting, counted_here};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn calls(work: impl FnOnce()) -> u64 {
    counted_here(work).1
}

fn hasher() -> Hasher {
    Keyed::new(&[7; 32]).into()
}

const TOKENS: usize = if cfg!(miri) { 1 << 9 } else { 1 << 17 };

#[test]
fn sequence_within_capacity_allocates_nothing() {
    let tokens: Vec<u32> = (0..TOKENS as u32).collect();
    let mut sequence = TokenBlockSequence::new(16, Salt::default(), hasher()).unwrap();
    sequence.reserve(TOKENS);
    let work = || {
        sequence.extend(&tokens);
        sequence.truncate(TOKENS / 2 + 5);
        sequence.extend(&tokens[..TOKENS / 2 - 5]);
        sequence.clear();
        for &token in &tokens {
            sequence.push(token);
        }
        assert_eq!(sequence.blocks().len(), TOKENS / 16);
    };
    assert_eq!(calls(work), 0);
}

#[test]
fn first_extend_allocates_once_per_array() {
    let tokens: Vec<u32> = (0..TOKENS as u32).collect();
    let mut sequence = TokenBlockSequence::new(16, Salt::default(), hasher()).unwrap();
    assert_eq!(calls(|| assert_eq!(sequence.extend(&tokens).len(), TOKENS / 16)), 2, "one a growing array");
}

#[test]
fn sequence_growth_allocates_by_doubling() {
    let mut sequence = TokenBlockSequence::new(1, Salt::default(), hasher()).unwrap();
    let pushes = || {
        (0..TOKENS as u32).for_each(|token| {
            sequence.push(token);
        })
    };
    assert!(calls(pushes) <= 2 * (u64::from(TOKENS.ilog2()) + 1));
}

#[test]
fn extend_chain_allocates_nothing() {
    let tokens: Vec<u32> = (0..TOKENS as u32).collect();
    let mut hashes = Vec::with_capacity(TOKENS / 16);
    for hasher in [hasher(), Xxh3.into()] {
        hashes.clear();
        assert_eq!(calls(|| hasher.extend_chain(SequenceHash::default(), &tokens, 16, &mut hashes)), 0);
    }
    assert_eq!(hashes.len(), TOKENS / 16);
}
