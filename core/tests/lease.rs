//! Leases: a block stays while it is copied, and is then where it would be without the lease
//! (`src/pool/lease.rs`, I1 to I3). Random strings of operations with leases are in
//! `pool_model`; races in `loom_lease`.

use kvstrata_core::*;

fn hash(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number) << 32)
}

/// A pool with ten inactive blocks, the first the oldest.
fn ten(policy: Policy) -> (BlockPool, Vec<BlockRef>) {
    let pool = BlockPool::new(PoolConfig::new(10).policy(policy)).expect("a valid setup");
    let (mut ids, mut refs) = (vec![], vec![]);
    pool.allocate_free_ids(10, &mut ids).expect("all are free");
    for (id, number) in ids.iter().zip(1..) {
        pool.register_ids(&[*id], &[hash(number)], None, &mut refs).expect("it is ours");
    }
    assert_eq!(pool.release_refs(refs.iter().copied()), 0);
    (pool, refs)
}

fn evict(pool: &BlockPool, count: usize) -> Vec<SequenceHash> {
    let mut victims = vec![];
    pool.evict(count, &mut victims);
    victims.iter().map(EvictedBlock::hash).collect()
}

#[test]
fn leased_block_keeps_its_place() {
    for policy in Policy::ALL {
        let (pool, blocks) = ten(policy);
        let before = pool.stats();
        assert!(pool.lease(blocks[0]) && pool.lease(blocks[0]));
        assert_eq!((pool.inactive(), pool.stats()), (10, before), "a lease is no use");
        assert_eq!(evict(&pool, 3), [2, 3, 4].map(hash), "{policy}: the next ones");
        pool.end_lease(blocks[0]);
        assert!(!evict(&pool, 1).contains(&hash(1)), "{policy}: one lease is left");
        pool.end_lease(blocks[0]);
        // Without hits all four have the order of insertion. But SIEVE's hand meets a passed
        // block only after a full round.
        let next = if policy == Policy::Sieve { 6 } else { 1 };
        assert_eq!(evict(&pool, 1), [hash(next)], "{policy}: its turn");
        assert_eq!((evict(&pool, 10).len(), pool.free()), (5, 10));
        pool.end_lease(blocks[0]);
        assert!(!pool.lease(blocks[0]), "it is gone");
    }
}

#[test]
fn leased_block_in_use_moves_as_any_other() {
    let (pool, blocks) = ten(Policy::Lru);
    assert!(pool.lease(blocks[0]));
    assert_eq!(evict(&pool, 1), [hash(2)]);
    drop(pool.lookup(hash(1)));
    pool.end_lease(blocks[0]);
    assert_eq!(evict(&pool, 9), [3, 4, 5, 6, 7, 8, 9, 10, 1].map(hash), "it is the youngest now");
}

/// LFU's age passes a leased block's worth: it is then the last of the blocks of least worth.
#[test]
fn leased_block_overtaken_by_the_age_goes_last() {
    let (pool, blocks) = ten(Policy::Lfu);
    for number in 2..=10 {
        drop(pool.lookup(hash(number)));
    }
    drop(pool.lookup(hash(10)));
    assert!(pool.lease(blocks[0]));
    assert_eq!(evict(&pool, 7), [2, 3, 4, 5, 6, 7, 8].map(hash), "worth 2, as the age is now");
    pool.end_lease(blocks[0]);
    assert_eq!(evict(&pool, 3), [9, 1, 10].map(hash));
}

#[test]
fn allocation_with_all_blocks_leased_is_refused() {
    for policy in Policy::ALL {
        let (pool, blocks) = ten(policy);
        assert!(blocks[1..].iter().all(|block| pool.lease(*block)));
        let mut out = vec![];
        let refused = OutOfBlocks { requested: 2, available: 1 };
        assert_eq!(pool.allocate(2, &mut out).map_err(|error| (error, out.len())), Err((refused, 0)));
        assert_eq!((pool.free(), pool.available()), (1, 10));
        blocks.iter().for_each(|block| pool.end_lease(*block));
        assert_eq!(pool.allocate(10, &mut out), Ok(()));
    }
}

#[test]
fn leased_block_is_not_taken_out() {
    let (pool, blocks) = ten(Policy::Lru);
    let block = blocks[4];
    assert!(pool.lease(block));
    let refused = |reason| TransitionError { block: block.id, state: State::Registered, reason };
    let leased = refused(Reason::Leased { leases: 1 });
    assert_eq!(pool.take_out(block).map(drop), Err(leased));
    assert_eq!(pool.unregister(block), Err(leased));
    assert_eq!(leased.to_string(), "block 4 is Registered: 1 leases are on it; wait for the copies to end");
    pool.end_lease(block);
    let before = pool.stats();
    let victim = pool.take_out(block).expect("nothing keeps it");
    assert_eq!((victim.id(), victim.hash()), (block.id, hash(5)));
    assert_eq!(pool.stats(), Stats { removed: before.removed + 1, ..before }, "not evicted");
    assert_eq!((pool.free(), pool.census().owned), (0, 1));
    drop(victim);
    assert_eq!(pool.take_out(block).expect_err("gone").reason, Reason::Recycled);
}

#[test]
fn chosen_victim_counts_as_evicted() {
    let (pool, blocks) = ten(Policy::Lru);
    let before = pool.stats();
    let victim = pool.evict_this(blocks[4]).expect("nothing keeps it");
    assert_eq!((victim.id(), victim.hash()), (blocks[4].id, hash(5)));
    let after = Stats { removed: before.removed + 1, evicted: before.evicted + 1, ..before };
    assert_eq!(pool.stats(), after);
    drop(victim);
    assert_eq!(pool.evict_this(blocks[4]).expect_err("gone").reason, Reason::Recycled);
    assert_eq!(pool.stats(), after, "refused");
}

/// Fifteen leases are the most; a sixteenth changes nothing.
#[test]
fn leases_beyond_fifteen_are_refused() {
    let (pool, blocks) = ten(Policy::Lru);
    assert!((0..15).all(|_| pool.lease(blocks[0])) && !pool.lease(blocks[0]));
    assert_eq!(pool.unregister(blocks[0]).expect_err("leased").reason, Reason::Leased { leases: 15 });
    assert!((0..15).all(|_| evict(&pool, 10).iter().all(|gone| *gone != hash(1)) && {
        pool.end_lease(blocks[0]);
        true
    }));
    assert_eq!(evict(&pool, 10), [hash(1)]);
}

/// The last scope of a leased block ends, while the block is held or not: it cannot be found, and it
/// is free when nothing keeps it.
#[test]
fn withdrawn_block_stays_until_its_lease_ends() {
    for held in [false, true] {
        let pool = BlockPool::new(PoolConfig::new(1)).expect("a valid setup");
        let mut blocks = vec![];
        pool.allocate(1, &mut blocks).expect("it is free");
        let complete = blocks.pop().expect("one").complete(hash(1)).expect("it is Reset");
        let (registered, handle) = pool.register_scoped(complete, None);
        let block = registered.into_block();
        let (weak, block) = (block.downgrade(), held.then_some(block));
        assert!(pool.lease(weak));
        drop(handle);
        assert!(!pool.contains(hash(1)) && pool.upgrade(weak).is_none() && !pool.lease(weak));
        drop(block);
        assert_eq!(
            (pool.inactive(), pool.census().inactive, pool.stats().removed),
            (1, 1, 0),
            "held: {held}"
        );
        assert_eq!(evict(&pool, 1), []);
        pool.end_lease(weak);
        assert_eq!((pool.inactive(), pool.free(), pool.stats().removed), (0, 1, 1), "held: {held}");
    }
}

/// A pinned block that a lease alone keeps is no victim, and a search that meets its old place ends.
/// Under policies whose blocks keep their places in use, the search once met it again and again.
#[test]
fn search_passes_a_block_kept_by_a_lease_alone() {
    for policy in Policy::ALL {
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let (pool, blocks) = ten(policy);
            let used = pool.lookup(hash(1)).expect("registered");
            drop((pool.lookup(hash(1)), pool.lookup(hash(1))));
            drop(used);
            let held = pool.find(hash(1)).expect("registered");
            assert!(pool.lease(blocks[0]) && pool.withdraw_held(blocks[0]));
            held.set_priority(Priority::Pinned);
            drop(held);
            let victims = evict(&pool, 10);
            pool.end_lease(blocks[0]);
            done.send((victims.len(), pool.free())).expect("somebody waits");
        });
        let ended = ended.recv_timeout(std::time::Duration::from_secs(20));
        assert_eq!(ended, Ok((9, 10)), "{policy}");
    }
}
