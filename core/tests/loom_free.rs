//! The free map: a slot has one owner at a time, and the next one sees all that the last did
//! (`src/free`, I1, I2).
#![cfg(loom)]

mod loom;

use kvstrata_core::Policy;
use loom::{Rig, model, spawn};

/// A slot that one thread frees may go to another at once, by a credit that was there before:
/// the bit must order the owners.
#[test]
fn freed_slot_is_handed_over_with_its_bytes() {
    model(|| {
        let rig = Rig::new(2, Policy::Lru);
        let other = rig.clone();
        let mut blocks = Vec::with_capacity(1);
        rig.pool.allocate_free(1, &mut blocks).expect("one of two");
        let id = blocks.pop().expect("one").into_id();
        rig.write(id, 1);
        let freer = spawn(move || {
            other.write(id, 2);
            drop(other.pool.adopt_mutable(id).expect("it is ours"));
        });
        rig.pool.allocate_free(1, &mut blocks).expect("one is free all the time");
        rig.write(blocks[0].id(), 3);
        freer.join().expect("no panic");
        drop(blocks);
        rig.at_rest();
    });
}

/// Two threads, two slots: each gets one, not the same.
#[test]
fn slot_wanted_by_two_threads_is_handed_out_once() {
    model(|| {
        let rig = Rig::new(2, Policy::Lru);
        let other = rig.clone();
        let allocate = |rig: &Rig, number: u64| {
            let mut blocks = Vec::with_capacity(1);
            rig.pool.allocate_free(1, &mut blocks).expect("two for two");
            rig.write(blocks[0].id(), number);
            blocks.pop().expect("one").into_id()
        };
        let thread = spawn(move || allocate(&other, 1));
        let mine = allocate(&rig, 2);
        let theirs = thread.join().expect("no panic");
        assert_ne!(mine, theirs);
        drop((rig.pool.adopt_mutable(mine), rig.pool.adopt_mutable(theirs)));
        rig.at_rest();
    });
}

/// All or nothing: of two threads that want both slots, at most one gets them, and a refusal leaves
/// nothing behind.
#[test]
fn allocation_of_all_by_two_serves_at_most_one() {
    model(|| {
        let rig = Rig::new(2, Policy::Lru);
        let other = rig.clone();
        // Kept to the end: a slot that comes back would hide that too many were promised.
        let allocate = |rig: &Rig| {
            let mut blocks = Vec::with_capacity(2);
            let got = rig.pool.allocate_free(2, &mut blocks).is_ok();
            assert_eq!(blocks.len(), if got { 2 } else { 0 });
            blocks.into_iter().map(|block| block.into_id()).collect::<Vec<_>>()
        };
        let thread = spawn(move || allocate(&other));
        let mut ids = allocate(&rig);
        ids.extend(thread.join().expect("no panic"));
        assert!(ids.len() <= 2, "two slots, {} handed out", ids.len());
        for id in ids {
            drop(rig.pool.adopt_mutable(id));
        }
        rig.at_rest();
    });
}
