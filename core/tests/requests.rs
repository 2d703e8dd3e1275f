//! The request-level view, alone and by many threads.

use kvstrata_core::*;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

#[test]
fn request_returns_its_blocks_on_release() {
    let pool = BlockPool::new(PoolConfig::new(64)).expect("a valid setup");
    let table = RequestTable::new(&pool, 2);
    let mut out = vec![];
    assert_eq!(table.reserve(u64::MAX, 1, &mut out), Err(ReserveError::InvalidId));
    table.reserve(1, 30, &mut out).expect("30 of 64");
    table.reserve(2, 30, &mut out).expect("60 of 64");
    table.reserve(1, 2, &mut out).expect("more for the first");
    assert_eq!((out.len(), table.in_flight(), table.available()), (62, 62, 2));
    let refused = table.reserve(2, 3, &mut out);
    assert_eq!(refused, Err(ReserveError::OutOfBlocks(OutOfBlocks { requested: 3, available: 2 })));
    assert_eq!(out.len(), 62, "a refusal leaves nothing behind");
    assert_eq!((table.release(1), table.release(1), table.release(3)), (32, 0, 0));
    assert_eq!(table.available(), 34);
    drop(table);
    assert_eq!(pool.free(), 64, "dropping the table gives everything back");
}

#[test]
fn reserved_block_becomes_a_handle_by_detach() {
    let pool = BlockPool::new(PoolConfig::new(8)).expect("a valid setup");
    let table = RequestTable::new(&pool, 2);
    let mut out = vec![];
    table.reserve(1, 3, &mut out).expect("three of eight");
    assert_eq!(pool.adopt_mutable(out[0]).expect_err("it is the request's").reason, Reason::Reserved);
    let mut blocks = vec![];
    assert_eq!(table.detach(1, &mut blocks), 3);
    let mut complete: Vec<_> = (1..)
        .zip(blocks)
        .map(|(hash, block)| {
            block.complete(SequenceHash::from_u128(hash)).expect("a reserved block is Reset")
        })
        .collect();
    let mut held = vec![];
    pool.register_sequence(&mut complete, None, &mut held);
    assert_eq!((table.release(1), held.len(), table.in_flight()), (0, 3, 3));
}

#[test]
fn request_beyond_the_table_limit_is_refused() {
    let pool = BlockPool::new(PoolConfig::new(64)).expect("a valid setup");
    let table = RequestTable::new(&pool, 4);
    let mut out = vec![];
    let opened = (0..20).take_while(|request| table.reserve(*request, 1, &mut out).is_ok()).count();
    assert!((4..=8).contains(&opened), "{opened} of 20");
    assert_eq!(table.reserve(99, 1, &mut out), Err(ReserveError::TooManyRequests { limit: 4 }));
    assert_eq!(table.in_flight(), opened);
    for request in 0..20 {
        table.release(request);
    }
    assert_eq!(pool.free(), 64);
}

#[test]
fn requests_shared_by_threads_keep_blocks_apart() {
    let pool = BlockPool::new(PoolConfig::new(256).lanes(4)).expect("a valid setup");
    let table = RequestTable::new(&pool, 8);
    let owners: Vec<AtomicU32> = (0..256).map(|_| AtomicU32::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (table, owners) = (&table, &owners);
            scope.spawn(move || {
                let mut out = vec![];
                for step in 0..20_000 {
                    // Three threads use requests of their own, and all use request 100.
                    let request = if step % 3 == 0 { 100 } else { thread };
                    out.clear();
                    if table.reserve(request, 1 + step % 7, &mut out).is_ok() && request != 100 {
                        for id in &out {
                            assert_eq!(owners[id.index()].fetch_add(1, Relaxed), 0, "{id} has two owners");
                        }
                        for id in &out {
                            owners[id.index()].fetch_sub(1, Relaxed);
                        }
                    }
                    table.release(request);
                }
            });
        }
    });
    table.release(100);
    assert_eq!((table.in_flight(), pool.free()), (0, 256));
    assert_eq!(pool.census().free, 256);
}
