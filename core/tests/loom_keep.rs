//! `Duplicates::Keep`: several blocks of one hash, each with a life of its own (`src/registry`, I1 to I5).
#![cfg(loom)]

mod loom;

use ::loom::sync::Arc;
use kvstrata_core::Duplicates;
use loom::{Rig, model, model_within, spawn};

fn keeping(capacity: u32) -> Arc<Rig> {
    Rig::with(capacity, |config| config.duplicates(Duplicates::Keep))
}

/// Two inactive copies; the newer one is evicted first, or last.
fn two_copies(newer_first: bool) -> Arc<Rig> {
    let rig = keeping(2);
    let (older, newer) = (rig.store(1).expect("room"), rig.store(1).expect("room"));
    assert_ne!(older.id(), newer.id(), "both stay");
    if newer_first {
        drop(newer);
        drop(older);
    } else {
        drop(older);
        drop(newer);
    }
    rig
}

/// Of two registrations of one hash none gives way: each is found while the other is absent,
/// and both are stored and removed.
#[test]
fn copies_registered_at_once_both_stay() {
    model(|| {
        let rig = keeping(2);
        let other = rig.clone();
        let thread = spawn(move || other.store(1).map(|block| block.id()));
        let mine = rig.store(1).map(|block| block.id());
        assert_ne!(mine, thread.join().expect("no panic"), "one block was given to two");
        let stats = rig.pool.stats();
        assert_eq!((stats.stored, stats.deduplicated), (2, 0));
        for left in [2, 1] {
            assert_eq!(rig.pool.inactive(), left);
            assert!(rig.lookup(1).is_some(), "{left} are there");
            assert_eq!(rig.pool.evict(1, &mut Vec::with_capacity(1)), 1);
        }
        assert!(rig.lookup(1).is_none());
        rig.at_rest();
    });
}

/// A copy is evicted during a lookup: the other one is found, wherever in the chain it is.
#[test]
fn lookup_during_eviction_of_a_copy_finds_the_other() {
    for newer_first in [true, false] {
        model(move || {
            let rig = two_copies(newer_first);
            let other = rig.clone();
            let thread = spawn(move || other.pool.evict(1, &mut Vec::with_capacity(1)));
            assert!(rig.lookup(1).is_some(), "one of two is always there");
            assert_eq!(thread.join().expect("no panic"), 1, "one of two is always free to go");
            assert!(rig.lookup(1).is_some(), "the other survives");
            rig.at_rest();
        });
    }
}

/// A copy is evicted and comes back under the same hash, at the head of the chain that a lookup is on.
#[test]
fn lookup_while_a_copy_comes_back_finds_one() {
    for newer_first in [true, false] {
        model(move || {
            let rig = two_copies(newer_first);
            let other = rig.clone();
            let thread = spawn(move || other.store(1).is_some());
            assert!(rig.lookup(1).is_some(), "one of two is always there");
            assert!(thread.join().expect("no panic"), "one of two is always free to go");
            assert_eq!(rig.pool.inactive(), 2);
            rig.at_rest();
        });
    }
}

/// Two evictors take a copy each, neighbours in one chain: none of the hash is left,
/// and each was removed once.
#[test]
fn copies_evicted_at_once_are_both_gone() {
    model_within(2, || {
        let rig = two_copies(true);
        let other = rig.clone();
        let thread = spawn(move || {
            let mut victims = Vec::with_capacity(1);
            let taken = other.pool.evict(1, &mut victims);
            victims.iter().for_each(|victim| other.write(victim.id(), 7));
            taken
        });
        let mut victims = Vec::with_capacity(1);
        let taken = rig.pool.evict(1, &mut victims);
        victims.iter().for_each(|victim| rig.write(victim.id(), 8));
        drop(victims);
        let taken = taken + thread.join().expect("no panic");
        assert_eq!(rig.pool.stats().removed, taken as u64);
        assert_eq!(rig.lookup(1).is_some(), taken < 2);
        rig.at_rest();
    });
}

/// A copy is withdrawn while the other one is evicted or looked up: the remaining copy is found.
#[test]
fn lookup_during_unregister_of_a_copy_finds_the_other() {
    model(|| {
        let rig = keeping(2);
        let (older, newer) = (rig.store(1).expect("room"), rig.store(1).expect("room"));
        let weak = newer.downgrade();
        drop((newer, older));
        let other = rig.clone();
        let thread = spawn(move || other.lookup(1).is_some());
        let gone = rig.pool.unregister(weak).is_ok();
        assert!(thread.join().expect("no panic"), "one of two is always there");
        assert_eq!(rig.pool.inactive(), if gone { 1 } else { 2 });
        assert!(rig.lookup(1).is_some());
        rig.at_rest();
    });
}
