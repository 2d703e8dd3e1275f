//! Calls by numbers that must change nothing, or not all, checked by the pool's later answers
//! (`src/pool/by_number.rs`, I1, I2). `pool_model` compares their other effects with the oracle.

use kvstrata_core::*;

fn hash(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number) << 32)
}

fn pool() -> BlockPool {
    BlockPool::new(PoolConfig::new(200).page_size(4)).expect("a valid setup")
}

fn allocate(pool: &BlockPool, n: usize) -> Vec<BlockId> {
    let mut ids = vec![];
    pool.allocate_free_ids(n, &mut ids).expect("there is room");
    ids
}

/// The third of five is not full: all stay as they are, and can be registered once it is.
#[test]
fn register_ids_with_a_page_not_full_registers_none() {
    let pool = pool();
    let (ids, hashes) = (allocate(&pool, 5), [1, 2, 3, 4, 5].map(hash));
    let fill = |id, count| {
        let mut block = pool.adopt_mutable(id).expect("it is ours");
        if block.state() == State::Reset {
            block.init_sequence(Salt::default()).expect("it is Reset");
        }
        block.add_tokens(count).expect("there is room");
        block.into_id()
    };
    for (id, count) in [(ids[1], 4), (ids[2], 3)] {
        fill(id, count);
    }
    let before = pool.census();
    let mut out = vec![];
    let reason = Reason::PageNotFull { filled: 3, page_size: 4 };
    let refused = Err(TransitionError { block: ids[2], state: State::Partial, reason });
    assert_eq!(pool.register_ids(&ids, &hashes, None, &mut out), refused);
    assert_eq!((pool.census(), pool.stats(), out.len()), (before, Stats::default(), 0));
    fill(ids[2], 1);
    assert_eq!(pool.register_ids(&ids, &hashes, None, &mut out), Ok(0));
    assert_eq!(out.iter().map(|block| block.id).collect::<Vec<_>>(), ids);
    assert_eq!(pool.match_refs(&hashes, &mut out), 5);
    assert_eq!(pool.release_refs(out), 0);
    assert_eq!(pool.inactive(), 5);
}

/// Blocks registered apart are evicted in their own order, though they are one sequence; blocks
/// registered as one are evicted from its end.
#[test]
fn blocks_registered_apart_are_evicted_in_their_own_order() {
    for linked in [true, false] {
        let (pool, mut out) = (pool(), vec![]);
        let (ids, hashes) = (allocate(&pool, 3), (0..3).map(hash).collect::<Vec<_>>());
        let registered = match linked {
            true => pool.register_ids(&ids, &hashes, None, &mut out),
            false => pool.register_ids_apart(&ids, &hashes, &mut out),
        };
        assert_eq!(registered, Ok(0));
        assert_eq!(pool.release_refs(out[..2].iter().copied()), 0);
        let mut victims = vec![];
        assert_eq!(pool.evict_ids(3, &mut victims), if linked { 0 } else { 2 }, "the last one is held");
        assert_eq!(pool.release_refs([out[2]]), 0);
        pool.evict_ids(3, &mut victims);
        let order: Vec<_> = victims.iter().map(|(_, hash)| *hash).collect();
        let expected = if linked { [2, 1, 0] } else { [0, 1, 2] };
        assert_eq!(order, expected.map(hash));
    }
}

/// An empty registration is no error; a hash without a block is.
#[test]
fn register_ids_with_lists_of_two_lengths_is_refused() {
    let (pool, mut out) = (pool(), vec![]);
    assert_eq!(pool.register_ids(&[], &[], None, &mut out), Ok(0));
    let error = pool.register_ids(&[], &[hash(1)], None, &mut out).expect_err("no block");
    assert_eq!(error.reason, Reason::Unpaired { blocks: 0, hashes: 1 });
    let text = error.to_string();
    assert_eq!(text, "block 0 is Reset: 0 blocks were given with 1 hashes; give each block its hash");
}

/// One call names a block more often than it is held, or owned, near by and far apart: it goes once.
#[test]
fn block_named_too_often_is_released_as_often_as_held() {
    let pool = pool();
    let ids = allocate(&pool, 150);
    let mut held = vec![];
    let hashes: Vec<_> = (0..2).map(hash).collect();
    pool.register_ids(&ids[..2], &hashes, None, &mut held).expect("they are ours");
    let [a, b] = held[..] else { panic!("two") };
    assert_eq!(pool.hold_again(a), Some(a));
    assert_eq!(pool.release_refs([a, a, b, a, b, b]), 3, "a was held twice, b once");
    assert_eq!((pool.inactive(), pool.active()), (2, 148));
    assert_eq!(pool.hold_again(a), None, "nobody holds it");
    let (near, far) = (ids[2], ids[140]);
    assert_eq!(pool.give_back_ids([near, near, far, near, far, a.id]), 4);
    assert_eq!(pool.free(), 52);
    assert_eq!(pool.give_back_ids(ids[2..].iter().copied()), 2, "those two");
    assert_eq!((pool.free(), pool.census().owned), (198, 0));
}
