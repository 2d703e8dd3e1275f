//! Withdrawal by number: the block cannot be found, and the withdrawing caller gets it, with its bytes,
//! as its only holder (`src/pool/withdraw.rs`).

use kvstrata_core::*;

fn hash(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number) << 32)
}

/// A pool of four with one registered block, held once.
fn one(policy: Policy) -> (BlockPool, BlockRef) {
    let pool = BlockPool::new(PoolConfig::new(4).policy(policy)).expect("a valid setup");
    let (mut ids, mut refs) = (vec![], vec![]);
    pool.allocate_free_ids(1, &mut ids).expect("all are free");
    pool.register_ids(&ids, &[hash(1)], None, &mut refs).expect("it is ours");
    (pool, refs[0])
}

#[test]
fn withdrawn_block_is_taken_with_the_only_reference() {
    for policy in Policy::ALL {
        let (pool, block) = one(policy);
        assert_eq!(pool.registered(block.id), Some((block, hash(1))));
        assert!(pool.take_withdrawn(block).is_none(), "it is not withdrawn");
        let other = pool.hold_again(block).expect("it is held");
        assert!(pool.withdraw_held(block));
        assert_eq!((pool.registered(block.id), pool.contains(hash(1))), (None, false), "{policy}");
        assert!(pool.lookup(hash(1)).is_none() && pool.upgrade(block).is_none());
        assert!(pool.take_withdrawn(block).is_none(), "another holds it");
        pool.release_refs([other]);
        assert_eq!(pool.free(), 3, "{policy}: it is not free while one is left");
        let taken = pool.take_withdrawn(block).expect("nobody else has it");
        assert_eq!((taken.id(), taken.hash(), pool.free()), (block.id, hash(1), 3));
        assert!(pool.take_withdrawn(block).is_none(), "once");
        drop(taken.into_mutable());
        let stats = pool.stats();
        assert_eq!((pool.free(), pool.inactive(), stats.stored, stats.removed), (4, 0, 1, 1), "{policy}");
    }
}

#[test]
fn withdrawn_block_is_kept_by_a_lease() {
    let (pool, block) = one(Policy::Lru);
    assert!(pool.lease(block) && pool.withdraw_held(block));
    assert!(pool.take_withdrawn(block).is_none(), "it is being copied");
    pool.end_lease(block);
    drop(pool.take_withdrawn(block).expect("nobody else has it").into_mutable());
    assert_eq!(pool.free(), 4);
}

#[test]
fn withdrawn_block_is_held_again_by_another_caller() {
    for policy in Policy::ALL {
        let (pool, block) = one(policy);
        assert_eq!(pool.hold_withdrawn(block.id), None, "{policy}: it is not withdrawn");
        assert!(pool.lease(block) && pool.withdraw_held(block));
        pool.release_refs([block]);
        assert_eq!((pool.free(), pool.inactive()), (3, 1), "{policy}: leased");
        assert_eq!(pool.hold_withdrawn(block.id), Some((block, hash(1))));
        assert_eq!((pool.inactive(), pool.census().active), (0, 1), "{policy}: held");
        assert!(pool.take_withdrawn(block).is_none(), "{policy}: it is being copied");
        pool.end_lease(block);
        assert_eq!(pool.free(), 3, "{policy}: a reference is left");
        drop(pool.take_withdrawn(block).expect("nobody else has it").into_mutable());
        assert_eq!(pool.hold_withdrawn(block.id), None, "{policy}: it is free");
        assert_eq!((pool.free(), pool.inactive(), pool.stats().removed), (4, 0, 1), "{policy}");
    }
}

#[test]
fn block_not_held_is_not_withdrawn() {
    let (pool, block) = one(Policy::Lru);
    pool.release_refs([block]);
    assert!(!pool.withdraw_held(block), "nobody holds it");
    assert!(pool.contains(hash(1)));
    let again = pool.lookup_ref(hash(1)).expect("it is there");
    assert!(pool.withdraw_held(again));
    pool.release_refs([again]);
    assert_eq!(
        (pool.free(), pool.registered(block.id)),
        (4, None),
        "without a taker it is free with the last reference"
    );
    assert!(!pool.withdraw_held(again) && pool.take_withdrawn(again).is_none(), "it was recycled");
}
