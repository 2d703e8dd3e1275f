//! After construction the core allocates nothing, in any operation: a counting allocator watches.

use kvstrata_core::*;
use kvstrata_testing::counting::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn hash(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

#[test]
fn pool_calls_after_construction_allocate_nothing() {
    for policy in Policy::ALL {
        let pool = BlockPool::new(PoolConfig::new(300).policy(policy)).expect("a valid setup");
        let requests = RequestTable::new(&pool, 8);
        let (mut blocks, mut complete, mut held) =
            (Vec::with_capacity(64), Vec::with_capacity(64), Vec::with_capacity(64));
        let (mut victims, mut ids, mut hashes) =
            (Vec::with_capacity(64), Vec::with_capacity(64), Vec::with_capacity(64));
        let (mut numbers, mut refs) = (Vec::with_capacity(64), Vec::with_capacity(64));
        assert!(allocations() > 0, "the allocator counts");
        let before = allocations();
        for round in 0..2000u64 {
            pool.allocate(16, &mut blocks).expect("the rest is evictable");
            for (i, block) in blocks.drain(..).enumerate() {
                complete.push(block.complete(hash(round * 7 + i as u64)).expect("a new block is Reset"));
            }
            pool.register_sequence(&mut complete, None, &mut held);
            pool.release(held.drain(..).rev());
            hashes.clear();
            hashes.extend((0..32).map(|i| hash(round * 7 + i)));
            pool.match_prefix(&hashes, &mut held);
            pool.match_any(&hashes, &mut held);
            pool.release(held.drain(..).rev());
            pool.evict(5, &mut victims);
            pool.give_back(victims.drain(..).map(EvictedBlock::into_mutable));
            requests.reserve(round % 5, 9, &mut ids).expect("the rest is evictable");
            ids.clear();
            requests.release(round % 5);
            drop(pool.lookup(hash(round)));
            assert!(pool.allocate(301, &mut blocks).is_err());
            by_number(&pool, &hashes[..8], &mut numbers, &mut refs);
        }
        assert_eq!(allocations() - before, 0, "{policy}");
    }
}

/// A round by numbers: existing blocks are held twice and released, the others
/// stored, and a block given back.
fn by_number(pool: &BlockPool, hashes: &[SequenceHash], ids: &mut Vec<BlockId>, refs: &mut Vec<BlockRef>) {
    let found = pool.match_refs(hashes, refs);
    let held = refs.last().copied().and_then(|block| pool.hold_again(block));
    if pool.allocate_free_ids(hashes.len() - found, ids).is_ok() {
        let parent = refs.last().copied();
        pool.register_ids(ids, &hashes[found..], parent, refs).expect("new blocks are Reset");
        assert!(pool.register_ids(ids, hashes, None, refs).is_err());
        ids.clear();
    }
    pool.allocate_free_ids(1, ids).expect("requests gave theirs back");
    assert_eq!(pool.give_back_ids(ids.drain(..)), 0);
    assert_eq!(pool.release_refs(refs.drain(..).rev().chain(held)), 0);
    if let Some(block) = pool.lookup_ref(hashes[0]) {
        assert!(pool.lease(block));
        assert_eq!(pool.release_refs([block]), 0);
        pool.end_lease(block);
        drop(pool.take_out(block).expect("nothing keeps it"));
    }
}
