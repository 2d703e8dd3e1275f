//! What eviction would take next, asked without taking it.

use kvstrata_core::{BlockPool, BlockRef, Policy, PoolConfig, Priority, SequenceHash};

fn fill(pool: &BlockPool, hashes: std::ops::Range<u128>) {
    for hash in hashes.map(SequenceHash::from_u128) {
        let mut fresh = Vec::new();
        pool.allocate(1, &mut fresh).expect("room");
        let complete = fresh.remove(0).complete(hash).expect("a fresh block");
        drop(pool.register(complete, None));
    }
}

#[test]
fn for_lru_they_are_what_is_evicted_and_asking_changes_nothing() {
    let pool = BlockPool::new(PoolConfig::new(200)).expect("a pool");
    fill(&pool, 1..200);
    // Some are used again, some are more important, one is pinned, one is in use.
    for hash in [3, 70, 5] {
        drop(pool.lookup(SequenceHash::from_u128(hash)));
    }
    pool.lookup(SequenceHash::from_u128(9)).expect("there").set_priority(Priority::High);
    pool.lookup(SequenceHash::from_u128(10)).expect("there").set_priority(Priority::Pinned);
    let held = pool.lookup(SequenceHash::from_u128(11));
    let census = pool.census();
    for n in [0, 1, 7, 64, 65, 150, 500] {
        let mut next = Vec::new();
        pool.next_victims(n, &mut next);
        let again: Vec<(BlockRef, SequenceHash)> = {
            let mut again = Vec::new();
            pool.next_victims(n, &mut again);
            again
        };
        assert_eq!((next.len(), &next), (n.min(197), &again));
        assert_eq!(pool.census(), census);
    }
    let mut next = Vec::new();
    pool.next_victims(197, &mut next);
    let mut victims = Vec::new();
    pool.evict(197, &mut victims);
    let evicted: Vec<u32> = victims.iter().map(|victim| victim.id().0).collect();
    assert_eq!(next.iter().map(|(block, _)| block.id.0).collect::<Vec<_>>(), evicted);
    drop(held);
}

#[test]
fn of_every_policy_they_are_inactive_blocks_and_each_once() {
    for policy in Policy::ALL {
        let pool = BlockPool::new(PoolConfig::new(100).policy(policy)).expect("a pool");
        fill(&pool, 1..90);
        for hash in (1..90).step_by(7) {
            drop(pool.lookup(SequenceHash::from_u128(hash)));
        }
        let mut next = Vec::new();
        pool.next_victims(1000, &mut next);
        assert_eq!(next.len(), pool.inactive(), "{policy}");
        next.sort_unstable_by_key(|(block, _)| block.id);
        next.dedup();
        assert_eq!(next.len(), pool.inactive(), "{policy}");
        assert!(
            next.iter().all(|(block, hash)| pool.upgrade(*block).is_some_and(|held| held.hash() == *hash)),
            "{policy}"
        );
    }
}
