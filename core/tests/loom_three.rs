//! Three threads, and two evictors: what two-thread models cannot show, within fewer forced switches.
#![cfg(loom)]

mod loom;

use ::loom::thread;
use kvstrata_core::{BlockPool, Policy, PoolConfig, RequestTable};
use loom::{Rig, model_within};

/// A lookup, an eviction and a registration of the same hash: whoever finds it finds it whole.
#[test]
fn lookup_eviction_and_registration() {
    model_within(1, || {
        let rig = Rig::new(2, Policy::Lru);
        drop(rig.store(1));
        let (second, third) = (rig.clone(), rig.clone());
        let evicting = thread::spawn(move || third.pool.evict(1, &mut Vec::with_capacity(1)));
        let storing = thread::spawn(move || drop(second.store(1)));
        drop(rig.lookup(1));
        evicting.join().expect("no panic");
        storing.join().expect("no panic");
        rig.at_rest();
    });
}

/// Two evictors and two blocks: no block has two new owners, and none is missed.
#[test]
fn two_evictors() {
    for policy in [Policy::Lru, Policy::Sieve] {
        model_within(1, move || {
            let rig = Rig::new(2, policy);
            let other = rig.clone();
            drop(rig.store(1));
            drop(rig.store(2));
            let evict = |rig: &Rig| {
                let mut victims = Vec::with_capacity(1);
                let found = rig.pool.evict(1, &mut victims);
                for victim in &victims {
                    rig.write(victim.id(), 7);
                }
                found
            };
            let thread = thread::spawn(move || evict(&other));
            let mine = evict(&rig);
            let theirs = thread.join().expect("no panic");
            assert!((1..=2).contains(&(mine + theirs)), "two were there: {mine} and {theirs} taken");
            rig.at_rest();
        });
    }
}

/// Two threads open the same request at once: one release gives back what both reserved (I3 of `src/request.rs`).
#[test]
fn one_request_opened_twice() {
    model_within(2, || {
        let config = PoolConfig::new(2).lanes(1).lane_of(|| 0);
        // The models' threads are 'static, and the table borrows its pool.
        let pool: &'static BlockPool = Box::leak(Box::new(BlockPool::new(config).expect("a valid setup")));
        let table = ::loom::sync::Arc::new(RequestTable::new(pool, 2));
        let other = table.clone();
        let thread = thread::spawn(move || other.reserve(1, 1, &mut Vec::with_capacity(1)).is_ok());
        assert!(table.reserve(1, 1, &mut Vec::with_capacity(1)).is_ok());
        assert!(thread.join().expect("no panic"));
        assert_eq!(table.release(1), 2);
        assert_eq!(table.in_flight(), 0);
    });
}
