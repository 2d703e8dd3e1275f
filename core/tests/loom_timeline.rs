//! The timeline: eviction finds every released block, during other evictors, hits and the compactor
//! (`src/timeline`, I3, I4; `compact.rs`, I1 to I4). Under loom a word has two places, so that
//! cursors move and compaction runs.
#![cfg(loom)]

mod loom;

use kvstrata_core::{Policy, Priority};
use loom::{Rig, model, model_within, spawn};

/// An evictor moves the cursor over the place where a block is being released: the block is not lost (I4).
#[test]
fn release_against_a_moving_cursor_is_found() {
    model(|| {
        let rig = Rig::new(2, Policy::Lru);
        let other = rig.clone();
        let first = rig.store(1).expect("two for two");
        let second = rig.store(2).expect("two for two").into_ref();
        let thread = spawn(move || drop(other.pool.adopt_immutable(second).expect("it is ours")));
        // Places up to the next word: hits make them stale.
        drop(first);
        drop(rig.lookup(1));
        let mut victims = Vec::with_capacity(1);
        rig.pool.evict(1, &mut victims);
        drop(victims);
        thread.join().expect("no panic");
        rig.at_rest();
    });
}

/// The same if the cursor passes several empty words at once: the place is in one of
/// them, and not in the first.
#[test]
fn release_among_passed_words_is_found() {
    model(|| {
        let rig = Rig::new(3, Policy::Lru);
        let other = rig.clone();
        let first = rig.store(1).expect("three for three");
        let second = rig.store(2).expect("three for three").into_ref();
        let third = rig.store(3).expect("three for three");
        // Of another list: its places are empty words of the one that is searched.
        first.set_priority(Priority::High);
        drop(first);
        drop(rig.lookup(1));
        let thread = spawn(move || drop(other.pool.adopt_immutable(second).expect("it is ours")));
        drop(rig.lookup(1));
        drop(third);
        let mut victims = Vec::with_capacity(1);
        rig.pool.evict(1, &mut victims);
        drop(victims);
        thread.join().expect("no panic");
        rig.at_rest();
    });
}

/// A hit makes an entry stale while an evictor looks at it, and the release gives the block a new one.
#[test]
fn hit_and_release_against_eviction_keep_the_block() {
    model(|| {
        let rig = Rig::new(2, Policy::Lru);
        let other = rig.clone();
        drop(rig.store(1));
        drop(rig.store(2));
        let thread = spawn(move || drop(other.lookup(1)));
        let mut victims = Vec::with_capacity(1);
        rig.pool.evict(1, &mut victims);
        drop(victims);
        thread.join().expect("no panic");
        rig.at_rest();
    });
}

/// Hits until the compactor slides live entries, while the other thread acquires and
/// releases the block being moved.
#[test]
fn compaction_against_a_hit_loses_no_block() {
    model_within(2, || {
        let rig = Rig::new(2, Policy::Lru);
        let other = rig.clone();
        drop(rig.store(1));
        drop(rig.store(2));
        // The first stays at the head; the second fills the ring with stale entries.
        for _ in 0..4 {
            drop(rig.lookup(2));
        }
        let thread = spawn(move || drop(other.lookup(1)));
        drop(rig.lookup(2));
        drop(rig.lookup(2));
        thread.join().expect("no panic");
        assert_eq!(rig.pool.stats().unplaced, 0);
        rig.at_rest();
    });
}

/// A block that is hit while the compactor moves it is the youngest afterwards, not the oldest.
#[test]
fn compaction_against_a_hit_keeps_the_order() {
    model_within(2, || {
        let rig = Rig::new(3, Policy::Lru);
        let other = rig.clone();
        for number in [1, 3, 2] {
            drop(rig.store(number));
        }
        // The next hit but one makes the compactor reach the two oldest.
        for _ in 0..7 {
            drop(rig.lookup(2));
        }
        let thread = spawn(move || drop(other.lookup(1)));
        drop(rig.lookup(2));
        drop(rig.lookup(2));
        thread.join().expect("no panic");
        let mut victims = Vec::with_capacity(1);
        assert_eq!(rig.pool.evict(1, &mut victims), 1);
        assert_eq!(victims[0].hash(), loom::hash(3), "the one that nobody touched");
        drop(victims);
        rig.at_rest();
    });
}

/// The same while the other thread evicts.
#[test]
fn compaction_against_eviction_loses_no_block() {
    model_within(2, || {
        let rig = Rig::new(2, Policy::Lru);
        let other = rig.clone();
        drop(rig.store(1));
        drop(rig.store(2));
        for _ in 0..4 {
            drop(rig.lookup(2));
        }
        let thread = spawn(move || {
            let mut victims = Vec::with_capacity(1);
            other.pool.evict(1, &mut victims);
        });
        drop(rig.lookup(2));
        drop(rig.lookup(2));
        thread.join().expect("no panic");
        rig.at_rest();
    });
}

/// The last child goes while an evictor defers its parent: the parent is requeued.
#[test]
fn parent_deferred_while_its_child_goes_is_requeued() {
    model(|| {
        let rig = Rig::new(2, Policy::Lru);
        let other = rig.clone();
        let parent = rig.store(1).expect("two for two");
        let mut blocks = Vec::with_capacity(1);
        rig.pool.allocate(1, &mut blocks).expect("two for two");
        let child = rig.register(blocks.pop().expect("one"), 2, Some(&parent));
        child.set_priority(Priority::High);
        let weak = child.downgrade();
        drop(parent);
        drop(child);
        let thread = spawn(move || other.pool.unregister(weak).is_ok());
        let mut victims = Vec::with_capacity(2);
        rig.pool.evict(1, &mut victims);
        drop(victims);
        thread.join().expect("no panic");
        rig.at_rest();
    });
}

/// SIEVE keeps a block's place while it is used; evictor and release must agree on its bit.
#[test]
fn kept_place_against_eviction_is_not_lost() {
    model(|| {
        let rig = Rig::new(1, Policy::Sieve);
        let other = rig.clone();
        drop(rig.store(1));
        let thread = spawn(move || drop(other.lookup(1)));
        let mut victims = Vec::with_capacity(1);
        rig.pool.evict(1, &mut victims);
        drop(victims);
        thread.join().expect("no panic");
        rig.at_rest();
    });
}
