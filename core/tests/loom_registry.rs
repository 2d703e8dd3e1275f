//! The registry: a lookup finds a registered block, whole, or misses (`src/registry`, I1 to I5;
//! `src/slot`, I1).
//! Under loom there are two chains: see `loom::hash`.
#![cfg(loom)]

mod loom;

use kvstrata_core::Policy;
use loom::{Rig, model, model_within, spawn};

/// Of two registrations of one hash, one is found by the other (I2).
#[test]
fn hash_registered_by_two_is_registered_once() {
    model(|| {
        let rig = Rig::new(3, Policy::Lru);
        let other = rig.clone();
        drop(rig.store(9));
        let thread = spawn(move || {
            let block = other.store(1).expect("three blocks for three");
            block.id()
        });
        let block = rig.store(1).expect("three blocks for three");
        let theirs = thread.join().expect("no panic");
        assert_eq!(block.id(), theirs, "both have the same block");
        drop(block);
        assert_eq!(rig.pool.stats().deduplicated, 1);
        rig.at_rest();
    });
}

/// A thread that finds a block sees its bytes and its hash.
#[test]
fn found_block_has_its_bytes_and_hash() {
    model(|| {
        let rig = Rig::new(2, Policy::Lru);
        let other = rig.clone();
        let thread = spawn(move || drop(other.store(1)));
        drop(rig.lookup(1));
        thread.join().expect("no panic");
        assert!(rig.lookup(1).is_some());
        rig.at_rest();
    });
}

/// A block is evicted and used anew during a lookup: the lookup holds it, or misses;
/// it never sees other bytes.
#[test]
fn recycled_block_is_not_found_under_its_old_hash() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        drop(rig.store(1));
        let thread = spawn(move || drop(other.store(2)));
        drop(rig.lookup(1));
        thread.join().expect("no panic");
        assert!(rig.lookup(1).is_some() != rig.lookup(2).is_some(), "one of the two is there");
        rig.at_rest();
    });
}

/// A lookup walks over a block that is evicted and comes back in another chain: it still finds the
/// blocks behind (I4).
#[test]
fn lookup_over_a_block_that_changes_chain_finds_its_own() {
    model(|| {
        let rig = Rig::new(2, Policy::Lru);
        let other = rig.clone();
        let kept = rig.store(1).expect("two blocks for two");
        drop(rig.store(2));
        let thread = spawn(move || drop(other.store(103)));
        assert!(rig.lookup(1).is_some(), "a held block is found whatever happens around it");
        thread.join().expect("no panic");
        drop(kept);
        rig.at_rest();
    });
}

/// Two neighbours in a chain are removed at once: both are gone, and the rest is found (I3).
#[test]
fn neighbours_removed_at_once_are_both_gone() {
    model(|| {
        let rig = Rig::new(3, Policy::Lru);
        let other = rig.clone();
        let kept = rig.store(1).expect("three blocks for three");
        let (second, third) = (rig.store(2).expect("room"), rig.store(3).expect("room"));
        let (second, third) = (
            {
                let weak = second.downgrade();
                drop(second);
                weak
            },
            {
                let weak = third.downgrade();
                drop(third);
                weak
            },
        );
        let thread = spawn(move || other.pool.unregister(second).expect("nobody holds it"));
        rig.pool.unregister(third).expect("nobody holds it");
        thread.join().expect("no panic");
        assert!(rig.lookup(2).is_none() && rig.lookup(3).is_none() && rig.lookup(1).is_some());
        drop(kept);
        rig.at_rest();
    });
}

/// A copy that gave way to an equal block is held for a moment by a reader on its slot's last chain.
/// When the copy goes, no registration is removed that was never stored.
#[test]
fn discarded_copy_with_a_stale_reader_removes_no_entry() {
    model_within(2, || {
        let rig = Rig::new(2, Policy::Lru);
        let other = rig.clone();
        let a = rig.store(5).expect("room");
        let b = rig.store(1).expect("room");
        let (wa, wb) = (a.downgrade(), b.downgrade());
        drop(b);
        drop(a);
        // The reader walks over both slots while they are registered anew under one hash.
        let thread = spawn(move || {
            // Refused if the reader holds it.
            let _ = other.pool.unregister(wb);
            let _ = other.pool.unregister(wa);
            let first = other.store(1);
            let second = other.store(1);
            drop(second);
            drop(first);
        });
        let held = rig.lookup(1);
        thread.join().expect("no panic");
        drop(held);
        rig.at_rest();
    });
}

/// The same with a parent: it has one child, not none.
#[test]
fn discarded_child_with_a_stale_reader_keeps_the_count() {
    model_within(2, || {
        let rig = Rig::new(3, Policy::Lru);
        let other = rig.clone();
        let parent = rig.store(9).expect("room");
        let a = rig.store(5).expect("room");
        let b = rig.store(1).expect("room");
        let (wa, wb) = (a.downgrade(), b.downgrade());
        drop(b);
        drop(a);
        let thread = spawn(move || {
            let _ = other.pool.unregister(wb);
            let _ = other.pool.unregister(wa);
            let parent = other.lookup(9).expect("held");
            let mut blocks = Vec::with_capacity(1);
            for _ in 0..2 {
                if other.pool.allocate(1, &mut blocks).is_ok() {
                    drop(other.register(blocks.pop().expect("one"), 1, Some(&parent)));
                }
            }
        });
        let held = rig.lookup(1);
        thread.join().expect("no panic");
        drop(held);
        drop(parent);
        rig.at_rest();
    });
}

/// A block is evicted, filled for another hash and dropped: that hash was never there (`src/slot`, I1).
#[test]
fn hash_never_registered_is_not_found() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        drop(rig.store(1));
        let thread = spawn(move || {
            let mut blocks = Vec::with_capacity(1);
            other.pool.allocate(1, &mut blocks).expect("nobody holds it");
            drop(blocks.pop().expect("one").complete(loom::hash(2)).expect("a new block is Reset"));
        });
        assert!(!rig.pool.contains(loom::hash(2)));
        thread.join().expect("no panic");
        rig.at_rest();
    });
}
