//! The request table: a block is given back by its own request, once (`src/request.rs`, I1 to I3).
#![cfg(loom)]

mod loom;

use ::loom::thread;
use kvstrata_core::{Policy, RequestTable};
use loom::{Rig, model};

/// A request is released, and its entry taken by another, while a thread adds to it.
#[test]
fn reserve_against_release() {
    model(|| {
        let rig = Rig::new(3, Policy::Lru);
        // The models' threads are 'static; the table borrows its pool.
        let table = ::loom::sync::Arc::new(RequestTable::new(Box::leak(Box::new(rig)).pool_ref(), 1));
        let other = table.clone();
        let mut out = Vec::with_capacity(3);
        table.reserve(1, 1, &mut out).expect("three for three");
        let thread = thread::spawn(move || {
            let released = other.release(1);
            other.reserve(2, 1, &mut Vec::with_capacity(1)).expect("three for three");
            released
        });
        table.reserve(1, 1, &mut out).expect("three for three");
        let released = thread.join().expect("no panic") + table.release(1);
        assert_eq!(released, 2, "request 1 gives back what it reserved");
        assert_eq!(table.release(2), 1);
        assert_eq!(table.in_flight(), 0);
    });
}
