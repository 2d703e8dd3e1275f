//! A look at the eviction order in parts shows the blocks of a look at all of it, each once.

use kvstrata_core::{BlockPool, BlockRef, Policy, PoolConfig, SequenceHash, VictimsSeen};

fn in_parts(pool: &BlockPool, part: usize) -> Vec<(BlockRef, SequenceHash)> {
    let (mut seen, mut parts) = (VictimsSeen::default(), Vec::new());
    loop {
        let before = parts.len();
        pool.victims_behind(&mut seen, part, &mut parts);
        assert!(parts.len() <= before + part);
        if parts.len() < before + part {
            break;
        }
    }
    let all = parts.len();
    pool.victims_behind(&mut seen, part, &mut parts);
    assert_eq!(parts.len(), all, "there are no more");
    parts
}

#[test]
fn victims_in_parts_come_in_the_order_of_one_call() {
    for policy in Policy::ALL {
        let pool = BlockPool::new(PoolConfig::new(300).policy(policy)).expect("a pool");
        let mut ids = Vec::new();
        pool.allocate_free_ids(300, &mut ids).expect("free");
        let hash = |number: u32| SequenceHash::from_u128(u128::from(number) + 1);
        for (number, id) in (0..).zip(ids) {
            let block = pool.adopt_mutable(id).expect("ours").complete(hash(number)).expect("filled");
            drop(pool.register(block, None));
        }
        let held = pool.lookup(hash(7)).expect("there");
        let mut whole = Vec::new();
        // Uses make other lists and stale entries, and go round the timeline.
        for round in 0..80 {
            for number in (round % 3..300).step_by(3) {
                drop(pool.lookup(hash(number)));
            }
            whole.clear();
            pool.next_victims(1000, &mut whole);
            assert_eq!(whole.len(), 299, "{policy:?}");
            for part in [1, 7, 64, 65, 300] {
                assert_eq!(in_parts(&pool, part), whole, "{policy:?}, by {part}");
            }
        }
        for (block, hash) in whole {
            assert_eq!(pool.evictable(block), Some(hash));
        }
        let block = held.downgrade();
        assert_eq!(pool.evictable(block), None, "held");
        drop(held);
        assert_eq!(pool.evictable(block), Some(hash(7)));
        pool.unregister(block).expect("nobody holds it");
        assert_eq!(pool.evictable(block), None, "gone");
    }
}

/// LFU's age rises during a look in parts: each remaining block is seen all the same.
#[test]
fn look_in_parts_while_the_lfu_age_rises_sees_each_block() {
    let pool = BlockPool::new(PoolConfig::new(10).policy(Policy::Lfu)).expect("a pool");
    let mut ids = Vec::new();
    pool.allocate_free_ids(10, &mut ids).expect("free");
    let hash = |number: u32| SequenceHash::from_u128(u128::from(number) + 1);
    for (number, id) in (0..).zip(ids) {
        let block = pool.adopt_mutable(id).expect("ours").complete(hash(number)).expect("filled");
        drop(pool.register(block, None));
        // Each in a list of its own.
        (0..number).for_each(|_| drop(pool.lookup(hash(number))));
    }
    let (mut seen, mut parts) = (VictimsSeen::default(), Vec::new());
    pool.victims_behind(&mut seen, 2, &mut parts);
    let mut gone = Vec::new();
    assert_eq!(pool.evict(4, &mut gone), 4);
    pool.victims_behind(&mut seen, 10, &mut parts);
    let shown: Vec<SequenceHash> = parts.into_iter().map(|(_, hash)| hash).collect();
    assert_eq!(shown, [0, 1, 4, 5, 6, 7, 8, 9].map(hash));
}
