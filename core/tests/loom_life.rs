//! The life of one block: references against eviction, weak references, withdrawal (`src/slot/state.rs`, I1 to I3).
#![cfg(loom)]

mod loom;

use ::loom::thread;
use kvstrata_core::{Policy, Priority, Reason};
use loom::{Rig, model};

/// A held block is not evicted; an evicted one is not found. One of the two wins.
#[test]
fn lookup_against_eviction() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        drop(rig.store(1));
        let thread = thread::spawn(move || {
            let mut victims = Vec::with_capacity(1);
            let evicted = other.pool.evict(1, &mut victims) == 1;
            if let Some(victim) = victims.pop() {
                // Its bytes are ours now.
                assert_eq!(other.read(victim.id()), 1);
                other.write(victim.id(), 7);
            }
            evicted
        });
        drop(rig.lookup(1));
        thread.join().expect("no panic");
        rig.at_rest();
    });
}

/// Two holders let go at once: the last one puts the block on the timeline, once.
#[test]
fn two_releases() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let block = rig.store(1).expect("one for one");
        let theirs = block.clone().into_id();
        let thread = thread::spawn(move || drop(other.pool.adopt_immutable(theirs).expect("it is ours")));
        drop(block);
        thread.join().expect("no panic");
        rig.at_rest();
    });
}

/// A weak reference either holds the very block it was made of, or fails.
#[test]
fn weak_reference_against_recycling() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let block = rig.store(1).expect("one for one");
        let weak = block.downgrade();
        drop(block);
        let thread = thread::spawn(move || drop(other.store(2)));
        if let Some(block) = rig.pool.upgrade(weak) {
            rig.check(&block, 1);
        }
        thread.join().expect("no panic");
        rig.at_rest();
    });
}

/// A withdrawn registration ends with the last reference, whoever has it.
#[test]
fn withdrawal_against_release() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let mut blocks = Vec::with_capacity(1);
        rig.pool.allocate(1, &mut blocks).expect("one for one");
        let block = blocks.pop().expect("one");
        rig.write(block.id(), 1);
        let complete = block.complete(loom::hash(1)).expect("a new block is Reset");
        let (registered, handle) = rig.pool.register_scoped(complete, None);
        let held = registered.into_block().into_id();
        let thread = thread::spawn(move || drop(other.pool.adopt_immutable(held).expect("it is ours")));
        drop(handle);
        thread.join().expect("no panic");
        assert_eq!(rig.pool.census().free, 1, "gone, whichever came last");
        rig.at_rest();
    });
}

/// `unregister` of a block that is being looked up: refused, or done; the lookup holds it, or misses.
#[test]
fn unregister_against_lookup() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let block = rig.store(1).expect("one for one");
        let weak = block.downgrade();
        drop(block);
        let thread = thread::spawn(move || other.lookup(1).is_some());
        let result = rig.pool.unregister(weak);
        let found = thread.join().expect("no panic");
        match result {
            Ok(()) => assert!(rig.lookup(1).is_none()),
            Err(error) => {
                assert_eq!(error.reason, Reason::Referenced { references: 1 });
                assert!(found);
            }
        }
        rig.at_rest();
    });
}

/// A block that is pinned while an evictor looks at it stays.
#[test]
fn pinning_against_eviction() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        drop(rig.store(1));
        let thread = thread::spawn(move || {
            let Some(block) = other.lookup(1) else { return false };
            block.set_priority(Priority::Pinned);
            true
        });
        rig.pool.evict(1, &mut Vec::with_capacity(1));
        let pinned = thread.join().expect("no panic");
        assert_eq!(rig.pool.contains(loom::hash(1)), pinned, "pinned and there, or evicted first");
        assert_eq!(rig.pool.available(), if pinned { 0 } else { 1 });
    });
}
