//! The flags of a block and their effect on the shadow, during concurrent uses, releases and evictions
//! (`mod.rs`, I2).

use crate::policy::AnyPolicy;
use crate::sync::{Arc, model_within, spawn};
use crate::{BlockPool, Policy, PoolConfig, SequenceHash};
use alloc::vec::Vec;

fn hash(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number) << 32)
}

fn pool() -> Arc<BlockPool> {
    let config = PoolConfig::new(2).policy(Policy::Reuse).lanes(1).lane_of(|| 0);
    Arc::new(BlockPool::new(config).expect("a valid setup"))
}

fn store(pool: &BlockPool, number: u64) -> crate::ImmutableBlock<'_> {
    let mut blocks = Vec::with_capacity(1);
    pool.allocate(1, &mut blocks).expect("there is room");
    let complete = blocks.pop().expect("one").complete(hash(number)).expect("a new block is Reset");
    pool.register(complete, None).into_block()
}

fn evict(pool: &BlockPool) -> usize {
    let mut victims = Vec::with_capacity(2);
    pool.evict(1, &mut victims)
}

/// The shadow holds exactly the inactive and the evicted blocks, since LRU has room for both; and
/// the inactive ones can be evicted.
fn at_rest(pool: &BlockPool) {
    let AnyPolicy::Reuse(policy) = pool.any_policy() else { panic!("another policy") };
    let inactive = pool.census().inactive;
    let of_lru = (inactive as u64 + pool.stats().evicted) as i64;
    let books = policy.books().expect("nobody else learns");
    assert_eq!([books[0], books[3]], [of_lru, inactive as i64], "what the shadow has, and what waits");
    assert_eq!(books[2], 0, "none has hit what another has lost");
    let mut victims = Vec::with_capacity(2);
    assert_eq!(pool.evict(2, &mut victims), inactive, "none is lost to eviction");
}

/// A use during the last holder's release: the block leaves the shadow as often as it enters.
#[test]
fn reuse_use_against_release_keeps_the_shadow_exact() {
    model_within(2, || {
        let pool = pool();
        let other = pool.clone();
        let held = store(&pool, 1);
        let thread = spawn(move || drop(other.lookup(hash(1))));
        drop(held);
        thread.join().expect("no panic");
        at_rest(&pool);
    });
}

/// A touch beside a use: whichever comes first, the block leaves the shadow once, and is there
/// again when both have released it.
#[test]
fn reuse_touch_against_use_keeps_the_shadow_exact() {
    model_within(1, || {
        let pool = pool();
        let other = pool.clone();
        drop(store(&pool, 1));
        let thread = spawn(move || {
            let mut found = Vec::with_capacity(1);
            other.touch_refs(&[hash(1)], &mut found);
            other.release_refs(found);
        });
        drop(pool.lookup(hash(1)));
        thread.join().expect("no panic");
        at_rest(&pool);
    });
}

/// A use against an eviction.
#[test]
fn reuse_use_against_eviction_keeps_the_shadow_exact() {
    model_within(1, || {
        let pool = pool();
        let other = pool.clone();
        drop(store(&pool, 1));
        let thread = spawn(move || drop(other.lookup(hash(1))));
        evict(&pool);
        thread.join().expect("no panic");
        at_rest(&pool);
    });
}

/// A hold that is no use keeps the block's place, unless another uses it meanwhile: then it gets a new one.
#[test]
fn reuse_hold_against_use_keeps_the_shadow_exact() {
    model_within(2, || {
        let pool = pool();
        let other = pool.clone();
        drop(store(&pool, 1));
        let thread = spawn(move || drop(other.find(hash(1))));
        drop(pool.lookup(hash(1)));
        thread.join().expect("no panic");
        at_rest(&pool);
    });
}

/// An evictor passes a block that is held and not used; its release requeues it.
#[test]
fn reuse_hold_against_eviction_requeues_the_block() {
    model_within(2, || {
        let pool = pool();
        let other = pool.clone();
        drop(store(&pool, 1));
        let thread = spawn(move || drop(other.find(hash(1))));
        evict(&pool);
        thread.join().expect("no panic");
        at_rest(&pool);
    });
}

/// A block is withdrawn by its number while another uses it.
#[test]
fn reuse_withdrawal_against_use_keeps_the_shadow_exact() {
    model_within(2, || {
        let pool = pool();
        let other = pool.clone();
        let block = store(&pool, 1).downgrade();
        let thread = spawn(move || drop(other.lookup(hash(1))));
        let _ = pool.unregister(block);
        thread.join().expect("no panic");
        at_rest(&pool);
    });
}

/// A block is used while it gets its first place, and another thread's hold and lease come in
/// between: it has a place in the end.
#[test]
fn reuse_hold_against_use_and_lease_keeps_a_place() {
    model_within(3, || {
        let pool = pool();
        let other = pool.clone();
        let block = store(&pool, 1).downgrade();
        let held = pool.find(hash(1));
        // Consecutively in one thread: with a thread each, the model would be too large.
        let thread = spawn(move || {
            drop(other.lookup(hash(1)));
            other.lease(block)
        });
        drop(held);
        if thread.join().expect("no panic") {
            pool.end_lease(block);
        }
        at_rest(&pool);
    });
}

/// A block is used beside its release: the use sees its new stamp, not one that LRU has lost.
#[test]
fn reuse_use_during_release_sees_the_new_stamp() {
    model_within(2, || {
        let pool = pool();
        let other = pool.clone();
        drop(store(&pool, 2));
        let held = store(&pool, 1);
        let AnyPolicy::Reuse(policy) = pool.any_policy() else { panic!("another policy") };
        // Stamps before this are lost, as that of a block that was never released.
        policy.orders.set(1, 1.0, 0, 0);
        let thread = spawn(move || drop(other.lookup(hash(1))));
        drop(held);
        thread.join().expect("no panic");
        at_rest(&pool);
    });
}
