//! The pool: blocks through their whole life, with every `Vec` reserved beforehand.

use alloc::vec::Vec;

use kvstrata_core::{
    BlockPool, CompleteBlock, ImmutableBlock, MutableBlock, Policy, PoolConfig, Registered, SequenceHash,
};

use crate::frugal;

const BLOCKS: usize = 64;

/// Hash number `i` of the test.
fn hash(i: usize) -> SequenceHash {
    SequenceHash::from_u128(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835_u128.wrapping_mul(i as u128 + 1))
}

fn new_pool(policy: Policy) -> BlockPool {
    match BlockPool::new(PoolConfig::new(BLOCKS as u32).policy(policy)) {
        Ok(pool) => pool,
        Err(error) => panic!("{error}"),
    }
}

fn complete(block: MutableBlock<'_>, hash: SequenceHash) -> CompleteBlock<'_> {
    match block.complete(hash) {
        Ok(complete) => complete,
        Err(refused) => panic!("{}", refused.error),
    }
}

/// Fills `blocks`, registers them as one sequence with the hashes from number `first` on, and holds them.
fn register<'p>(
    pool: &'p BlockPool,
    blocks: &mut Vec<MutableBlock<'p>>,
    first: usize,
    held: &mut Vec<ImmutableBlock<'p>>,
) {
    for (i, block) in blocks.drain(..).enumerate() {
        held.push(pool.register(complete(block, hash(first + i)), held.last()).into_block());
    }
}

/// Allocate, complete, register, match, release, deduplicate, evict, and run out.
pub fn life_cycle() {
    let pool = new_pool(Policy::Lru);
    let hashes: Vec<SequenceHash> = (0..BLOCKS).map(hash).collect();
    // One more than the pool has: the last `allocate` asks for it and is refused.
    let mut blocks = Vec::with_capacity(BLOCKS + 1);
    let mut held = Vec::with_capacity(BLOCKS);
    let mut evicted = Vec::with_capacity(BLOCKS);

    frugal("allocate", || assert!(pool.allocate(BLOCKS, &mut blocks).is_ok()));
    assert_eq!(pool.free(), 0);
    frugal("allocate from an empty pool", || assert!(pool.allocate(1, &mut blocks).is_err()));
    frugal("register", || register(&pool, &mut blocks, 0, &mut held));
    assert_eq!(pool.active(), BLOCKS);
    frugal("release", || pool.release(held.drain(..).rev()));
    assert_eq!(pool.inactive(), BLOCKS);

    frugal("match_prefix", || assert_eq!(pool.match_prefix(&hashes, &mut held), BLOCKS));
    frugal("a second reference", || {
        let weak = held[0].downgrade();
        let again = pool.lookup(hashes[0]);
        assert!(again.is_some_and(|block| block.downgrade() == weak));
    });
    frugal("release", || pool.release(held.drain(..).rev()));

    frugal("evict", || assert_eq!(pool.evict(8, &mut evicted), 8));
    frugal("drop evicted blocks", || evicted.clear());
    assert_eq!(pool.free(), 8);
    frugal("allocate with eviction", || assert!(pool.allocate(16, &mut blocks).is_ok()));
    frugal("deduplicate", || {
        if let Some(block) = blocks.pop() {
            assert!(matches!(pool.register(complete(block, hashes[0]), None), Registered::Deduplicated(_)));
        }
    });
    frugal("drop blocks", || blocks.clear());
    assert_eq!(pool.free() + pool.inactive(), BLOCKS);
}

/// Many rounds of half a pool of fresh blocks under each policy, so that each policy evicts, and its data
/// beside the slots fills up and is tidied.
pub fn all_policies() {
    for policy in [Policy::Lru, Policy::Lfu, Policy::Sieve, Policy::S3Fifo] {
        let pool = new_pool(policy);
        let mut blocks = Vec::with_capacity(BLOCKS);
        let mut held = Vec::with_capacity(BLOCKS);
        frugal("fresh blocks through a full pool", || {
            for round in 0..200 {
                assert!(pool.allocate(BLOCKS / 2, &mut blocks).is_ok());
                register(&pool, &mut blocks, round * BLOCKS, &mut held);
                pool.release(held.drain(..).rev());
            }
        });
        assert_eq!(pool.free() + pool.inactive(), BLOCKS);
    }
}
