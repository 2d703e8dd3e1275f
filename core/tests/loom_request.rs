//! The request table: a block is given back by its own request, once (`src/request.rs`, I1 to I4).
#![cfg(loom)]

mod loom;

use ::loom::sync::Arc;
use kvstrata_core::{BlockPool, PoolConfig, RequestTable};
use loom::{model, spawn};

/// A table of four entries, over a pool of `capacity` blocks. In it requests 1 and 6 have the same home.
fn table(capacity: u32) -> Arc<RequestTable<'static>> {
    let config = PoolConfig::new(capacity).lanes(1).lane_of(|| 0);
    // The models' threads are 'static, and the table borrows its pool.
    let pool: &'static BlockPool = Box::leak(Box::new(BlockPool::new(config).expect("a valid setup")));
    Arc::new(RequestTable::new(pool, 2))
}

fn reserve(table: &RequestTable<'static>, request: u64, n: usize) {
    table.reserve(request, n, &mut Vec::with_capacity(n)).expect("enough for all");
}

/// A request is released, and its entry taken by another, while a thread adds to it (I2).
#[test]
fn reserve_against_release_and_reclaim_adds_to_its_own() {
    model(|| {
        let table = table(3);
        let other = table.clone();
        reserve(&table, 1, 1);
        let thread = spawn(move || {
            let released = other.release(1);
            reserve(&other, 6, 1);
            released
        });
        reserve(&table, 1, 1);
        let released = thread.join().expect("no panic") + table.release(1);
        assert_eq!(released, 2, "request 1 gives back what it reserved");
        assert_eq!(table.release(6), 1);
        assert_eq!(table.in_flight(), 0);
    });
}

/// A request is released by one thread while another opens it: all of its list goes back, or it is not
/// there yet (I1).
#[test]
fn request_opened_during_release_returns_all_or_stays() {
    model(|| {
        let table = table(2);
        let other = table.clone();
        let thread = spawn(move || reserve(&other, 1, 2));
        let early = table.release(1);
        assert!(early == 0 || early == 2, "{early} of 2 blocks given back");
        thread.join().expect("no panic");
        assert_eq!(early + table.release(1), 2);
        assert_eq!(table.in_flight(), 0);
    });
}

/// A request is released while another thread adds to it: the added blocks go with it, all of
/// them, or stay, all of them (I1).
#[test]
fn blocks_added_during_release_go_together() {
    model(|| {
        let table = table(3);
        reserve(&table, 1, 1);
        let other = table.clone();
        let thread = spawn(move || reserve(&other, 1, 2));
        let early = table.release(1);
        assert!(early == 1 || early == 3, "{early} of 1 and 2 blocks given back");
        thread.join().expect("no panic");
        assert_eq!(early + table.release(1), 3);
        assert_eq!(table.in_flight(), 0);
    });
}

/// Two release one request: one of them gives its blocks back.
#[test]
fn release_by_two_returns_the_blocks_once() {
    model(|| {
        let table = table(2);
        reserve(&table, 1, 2);
        let other = table.clone();
        let thread = spawn(move || other.release(1));
        let mine = table.release(1);
        assert_eq!(mine + thread.join().expect("no panic"), 2);
        assert_eq!(table.in_flight(), 0);
    });
}

/// An entry is claimed as soon as it is free: its new owner finds its head shut (I2).
#[test]
fn entry_claimed_during_release_has_its_head_shut() {
    model(|| {
        let table = table(2);
        reserve(&table, 1, 1);
        let other = table.clone();
        let thread = spawn(move || other.release(1));
        reserve(&table, 6, 1);
        assert_eq!(thread.join().expect("no panic"), 1);
        assert_eq!(table.release(6), 1);
        assert_eq!(table.in_flight(), 0);
    });
}

/// A request is put beyond its home, which another has: it is found there, even if the other goes (I4).
#[test]
fn request_away_from_its_home_entry_is_found() {
    model(|| {
        let table = table(2);
        reserve(&table, 1, 1);
        let other = table.clone();
        let thread = spawn(move || {
            reserve(&other, 6, 1);
            other.release(6)
        });
        assert_eq!(table.release(1), 1);
        assert_eq!(thread.join().expect("no panic"), 1);
        assert_eq!(table.in_flight(), 0);
    });
}
