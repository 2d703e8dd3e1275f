//! Blocks are counted once, on trial or proven, while others use, pin and evict them (I1, I2): ARC and 2Q.

use super::{Counts, Pair};
use crate::policy::AnyPolicy;
use crate::sync::{Arc, model_within, spawn};
use crate::{BlockPool, CompleteBlock, ImmutableBlock, Policy, PoolConfig, Priority, SequenceHash};
use alloc::vec::Vec;

fn hash(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number) << 32)
}

fn pool(policy: Policy) -> Arc<BlockPool> {
    let config = PoolConfig::new(2).policy(policy).lanes(1).lane_of(|| 0);
    Arc::new(BlockPool::new(config).expect("a valid setup"))
}

fn complete(pool: &BlockPool, number: u64) -> CompleteBlock<'_> {
    let mut blocks = Vec::with_capacity(1);
    pool.allocate(1, &mut blocks).expect("there is room");
    blocks.pop().expect("one").complete(hash(number)).expect("a new block is Reset")
}

fn store(pool: &BlockPool, number: u64) -> ImmutableBlock<'_> {
    let block = pool.register(complete(pool, number), None).into_block();
    // The class that evictors scan first: less to interleave.
    block.set_priority(Priority::Low);
    block
}

fn evict(pool: &BlockPool, n: usize) -> usize {
    let mut victims = Vec::with_capacity(2);
    pool.evict(n, &mut victims)
}

/// On trial, and in all.
fn counted(pool: &BlockPool) -> (usize, usize) {
    let of = |counts: &Counts| (counts.on_trial(), counts.all());
    match pool.any_policy() {
        AnyPolicy::Arc(Pair { counts, .. }) => of(counts),
        AnyPolicy::TwoQ(Pair { counts, .. }) => of(counts),
        _ => panic!("another policy"),
    }
}

/// At rest, the existing blocks are counted, and none when all are gone.
fn at_rest(pool: &BlockPool) {
    let inactive = pool.census().inactive;
    assert_eq!(counted(pool).1, inactive);
    assert_eq!(evict(pool, 2), inactive, "none is lost to eviction");
    assert_eq!(counted(pool), (0, 0));
}

/// A block is used during its first release.
#[test]
fn use_during_first_release_is_counted_once() {
    for policy in [Policy::Arc, Policy::TwoQ] {
        model_within(2, move || {
            let pool = pool(policy);
            let other = pool.clone();
            let new = store(&pool, 1);
            let thread = spawn(move || drop(other.lookup(hash(1))));
            drop(new);
            thread.join().expect("no panic");
            // A use that comes while the place is chosen may be lost; this one is not.
            drop(pool.lookup(hash(1)));
            assert_eq!(counted(&pool), (usize::from(policy == Policy::TwoQ), 1), "{policy}");
            at_rest(&pool);
        });
    }
}

/// A block's scope ends during its first release: the block is counted out if it was counted in.
#[test]
fn withdrawal_during_first_release_is_counted_once() {
    for policy in [Policy::Arc, Policy::TwoQ] {
        model_within(2, move || {
            let pool = pool(policy);
            let other = pool.clone();
            let (registered, scope) = pool.register_scoped(complete(&pool, 1), None);
            let block = registered.into_block().into_ref();
            let thread = spawn(move || assert_eq!(other.release_refs([block]), 0, "it was held"));
            drop(scope);
            thread.join().expect("no panic");
            assert_eq!(pool.census().free, 2, "{policy}: it is gone");
            at_rest(&pool);
        });
    }
}

/// A block is pinned and released while another uses it.
#[test]
fn pin_against_a_use_is_counted_once() {
    for policy in [Policy::Arc, Policy::TwoQ] {
        model_within(2, move || {
            let pool = pool(policy);
            let other = pool.clone();
            drop(store(&pool, 1));
            let held = pool.lookup(hash(1)).expect("it is there");
            let thread = spawn(move || drop(other.lookup(hash(1))));
            held.set_priority(Priority::Pinned);
            drop(held);
            thread.join().expect("no panic");
            assert_eq!(counted(&pool), (0, 1), "{policy}");
            pool.lookup(hash(1)).expect("it is pinned").set_priority(Priority::Low);
            assert_eq!(counted(&pool), (0, 1), "{policy}");
            at_rest(&pool);
        });
    }
}

/// A block is evicted while another uses it.
#[test]
fn eviction_against_a_use_is_counted_once() {
    for policy in [Policy::Arc, Policy::TwoQ] {
        model_within(2, move || {
            let pool = pool(policy);
            let other = pool.clone();
            drop(store(&pool, 1));
            let thread = spawn(move || drop(other.lookup(hash(1))));
            evict(&pool, 1);
            thread.join().expect("no panic");
            at_rest(&pool);
        });
    }
}
