//! The blocks that eviction would take next, without taking them.

use kvstrata_core::{
    BlockPool, BlockRef, EvictedBlock, Policy, PoolConfig, Priority, SequenceHash, VictimsSeen,
};

fn fill(pool: &BlockPool, hashes: std::ops::Range<u128>) {
    for hash in hashes.map(SequenceHash::from_u128) {
        let mut fresh = Vec::new();
        pool.allocate(1, &mut fresh).expect("room");
        let complete = fresh.remove(0).complete(hash).expect("a fresh block");
        drop(pool.register(complete, None));
    }
}

#[test]
fn next_victims_under_lru_match_eviction_and_change_nothing() {
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

/// Under policies that spare none, they are the evicted blocks, whichever list the policy
/// begins with, in parts or at once.
#[test]
fn next_victims_under_several_lists_match_eviction() {
    for policy in [Policy::Lfu, Policy::Arc, Policy::TwoQ] {
        // How often, in the order, a block used often follows one that is not, and the other way round.
        let mut mixed = [0, 0];
        for rounds in 1..40 {
            let pool = BlockPool::new(PoolConfig::new(64).policy(policy)).expect("a pool");
            // A few are used often, others come back when they have been evicted, most do not.
            for number in 0..u128::from(rounds * 64u32) {
                let hash = 1 + if number % 3 == 0 { number % 10 } else { number % 90 + number / 180 * 7 };
                if pool.lookup(SequenceHash::from_u128(hash << 32)).is_none() {
                    fill(&pool, hash << 32..(hash << 32) + 1);
                }
            }
            let low = SequenceHash::from_u128(3 << 32);
            pool.lookup(low).into_iter().for_each(|block| block.set_priority(Priority::Low));
            let (mut next, mut parts, mut seen) = (Vec::new(), Vec::new(), VictimsSeen::default());
            pool.next_victims(64, &mut next);
            (0..10).for_each(|_| pool.victims_behind(&mut seen, 7, &mut parts));
            assert_eq!(next, parts, "{policy}");
            let mut victims = Vec::new();
            pool.evict(64, &mut victims);
            let evicted: Vec<u32> = victims.iter().map(|victim| victim.id().0).collect();
            let next: Vec<u32> = next.iter().map(|(block, _)| block.id.0).collect();
            assert_eq!(next, evicted, "{policy}");
            let proven = |victim: &EvictedBlock| (1..11).any(|hash| victim.hash().to_u128() == hash << 32);
            let often: Vec<bool> = victims.iter().map(proven).collect();
            for (first, then) in often.iter().zip(&often[1..]) {
                if first != then {
                    mixed[usize::from(*first)] += 1;
                }
            }
        }
        assert!(mixed.iter().all(|mixed| *mixed > 10), "{policy}: {mixed:?}");
    }
}

#[test]
fn next_victims_under_every_policy_are_inactive_and_unique() {
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
