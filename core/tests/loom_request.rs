//! The request table: a block is given back by its own request, once (`src/request.rs`, I1 to I3).
#![cfg(loom)]

mod loom;

use ::loom::sync::Arc;
use ::loom::thread;
use kvstrata_core::{BlockPool, PoolConfig, RequestTable};
use loom::model;

/// A request is released, and its entry taken by another, while a thread adds to it.
#[test]
fn reserve_against_release() {
    model(|| {
        let config = PoolConfig::new(3).lanes(1).lane_of(|| 0);
        // The models' threads are 'static, and the table borrows its pool.
        let pool: &'static BlockPool = Box::leak(Box::new(BlockPool::new(config).expect("a valid setup")));
        let table = Arc::new(RequestTable::new(pool, 2));
        let other = table.clone();
        // 1 and 6 have the same home in the table.
        let mut out = Vec::with_capacity(3);
        table.reserve(1, 1, &mut out).expect("three for three");
        let thread = thread::spawn(move || {
            let released = other.release(1);
            other.reserve(6, 1, &mut Vec::with_capacity(1)).expect("three for three");
            released
        });
        table.reserve(1, 1, &mut out).expect("three for three");
        let released = thread.join().expect("no panic") + table.release(1);
        assert_eq!(released, 2, "request 1 gives back what it reserved");
        assert_eq!(table.release(6), 1);
        assert_eq!(table.in_flight(), 0);
    });
}
