//! The life of one block: references against eviction, weak references, withdrawal
//! (`src/slot/state.rs`, I1 to I3).
#![cfg(loom)]

mod loom;

use kvstrata_core::{ImmutableBlock, Policy, Priority, Reason, RegistrationHandle};
use loom::{Rig, model, model_within, spawn};

/// A held block is not evicted; an evicted one is not found. One of the two wins.
#[test]
fn lookup_against_eviction_has_one_winner() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        drop(rig.store(1));
        let thread = spawn(move || {
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

/// Two holders release at once: the last one puts the block on the timeline, once.
#[test]
fn release_by_two_holders_lists_the_block_once() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let block = rig.store(1).expect("one for one");
        let theirs = block.clone().into_ref();
        let thread = spawn(move || drop(other.pool.adopt_immutable(theirs).expect("it is ours")));
        drop(block);
        thread.join().expect("no panic");
        rig.at_rest();
    });
}

/// A weak reference either holds the very block it was made of, or fails.
#[test]
fn weak_reference_during_recycling_is_exact_or_fails() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let block = rig.store(1).expect("one for one");
        let weak = block.downgrade();
        drop(block);
        let thread = spawn(move || drop(other.store(2)));
        if let Some(block) = rig.pool.upgrade(weak) {
            rig.check(&block, 1);
        }
        thread.join().expect("no panic");
        rig.at_rest();
    });
}

/// A withdrawn registration ends with the last reference, whichever thread has it.
#[test]
fn withdrawal_against_release_ends_the_registration() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let mut blocks = Vec::with_capacity(1);
        rig.pool.allocate(1, &mut blocks).expect("one for one");
        let block = blocks.pop().expect("one");
        rig.write(block.id(), 1);
        let complete = block.complete(loom::hash(1)).expect("a new block is Reset");
        let (registered, handle) = rig.pool.register_scoped(complete, None);
        let held = registered.into_block().into_ref();
        let thread = spawn(move || drop(other.pool.adopt_immutable(held).expect("it is ours")));
        drop(handle);
        thread.join().expect("no panic");
        assert_eq!(rig.pool.census().free, 1, "gone, whichever came last");
        rig.at_rest();
    });
}

/// Registers block 1 within a scope.
fn scoped(rig: &Rig) -> (ImmutableBlock<'_>, RegistrationHandle<'_>) {
    let mut blocks = Vec::with_capacity(1);
    rig.pool.allocate(1, &mut blocks).expect("room");
    let block = blocks.pop().expect("one");
    rig.write(block.id(), 1);
    let (registered, handle) =
        rig.pool.register_scoped(block.complete(loom::hash(1)).expect("a new block is Reset"), None);
    (registered.into_block(), handle)
}

/// A registration of an unheld block is withdrawn during a lookup: the lookup misses, or holds it to its end.
#[test]
fn withdrawal_against_lookup_misses_or_holds() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let (block, handle) = scoped(&rig);
        drop(block);
        let thread = spawn(move || {
            let found = other.lookup(1);
            // While it is held it has no other owner yet.
            found.iter().for_each(|block| other.check(block, 1));
            found.is_some()
        });
        drop(handle);
        let census = rig.pool.census();
        thread.join().expect("no panic");
        assert!(census.inactive == 0, "held, or gone: {census:?}");
        assert_eq!(rig.pool.census().free, 1, "gone, whichever came last");
        assert_eq!(rig.pool.stats().removed, 1);
        rig.at_rest();
    });
}

/// A withdrawn block that is still held is not found, not even during its holder's release.
#[test]
fn withdrawn_block_during_release_is_not_found() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let (block, handle) = scoped(&rig);
        let held = block.into_ref();
        drop(handle);
        let thread = spawn(move || drop(other.pool.adopt_immutable(held).expect("it is ours")));
        assert!(rig.lookup(1).is_none() && rig.pool.upgrade(held).is_none(), "it was withdrawn");
        assert!(!rig.pool.contains(loom::hash(1)));
        thread.join().expect("no panic");
        assert_eq!(rig.pool.census().free, 1);
        rig.at_rest();
    });
}

/// A registration is withdrawn while its block is evicted: one of the two ends it, and
/// the block has one owner.
#[test]
fn withdrawal_against_eviction_ends_once() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let (block, handle) = scoped(&rig);
        drop(block);
        let thread = spawn(move || {
            let mut victims = Vec::with_capacity(1);
            other.pool.evict(1, &mut victims);
            victims.iter().for_each(|victim| other.write(victim.id(), 7));
            victims.len()
        });
        drop(handle);
        let mut blocks = Vec::with_capacity(1);
        if rig.pool.allocate_free(1, &mut blocks).is_ok() {
            rig.write(blocks[0].id(), 8);
        }
        let evicted = thread.join().expect("no panic") as u64;
        drop(blocks);
        let stats = rig.pool.stats();
        assert_eq!((stats.removed, stats.evicted), (1, evicted));
        assert_eq!(rig.pool.census().free, 1, "free, and once");
        rig.at_rest();
    });
}

/// A registration is withdrawn during a release and a lookup: the last of the three frees the block.
#[test]
fn withdrawal_beside_release_and_lookup_ends_once() {
    model_within(1, || {
        let rig = Rig::new(1, Policy::Lru);
        let (one, two) = (rig.clone(), rig.clone());
        let (block, handle) = scoped(&rig);
        let held = block.into_ref();
        let releasing = spawn(move || drop(one.pool.adopt_immutable(held).expect("it is ours")));
        let looking = spawn(move || drop(two.lookup(1)));
        drop(handle);
        releasing.join().expect("no panic");
        looking.join().expect("no panic");
        assert_eq!(rig.pool.census().free, 1, "gone, whichever came last");
        assert_eq!(rig.pool.stats().removed, 1);
        rig.at_rest();
    });
}

/// A withdrawal finds its block held, and looks again after it was released, evicted and registered
/// anew: the new registration is not touched.
#[test]
fn withdrawal_against_recycling_spares_the_new_block() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let (block, handle) = scoped(&rig);
        let held = block.into_ref();
        let thread = spawn(move || {
            drop(other.pool.adopt_immutable(held).expect("it is ours"));
            // Refused if the block is neither in its registration nor free yet.
            other.store(2).map(|block| block.into_ref())
        });
        drop(handle);
        let stored = thread.join().expect("no panic");
        assert_eq!(rig.lookup(2).is_some(), stored.is_some(), "somebody else's registration");
        drop(stored.map(|block| rig.pool.adopt_immutable(block).expect("it is ours")));
        rig.at_rest();
    });
}

/// `unregister` of a block that is being looked up: refused, or done; the lookup holds it, or misses.
#[test]
fn unregister_against_lookup_is_refused_or_done() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let block = rig.store(1).expect("one for one");
        let weak = block.downgrade();
        drop(block);
        let thread = spawn(move || other.lookup(1).is_some());
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
fn pin_against_eviction_keeps_the_block() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        drop(rig.store(1));
        let thread = spawn(move || {
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
