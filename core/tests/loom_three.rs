//! Three threads, or two evictors: cases beyond two-thread models, within fewer forced switches.
#![cfg(loom)]

mod loom;

use kvstrata_core::{BlockPool, ImmutableBlock, Policy, PoolConfig, Priority, RequestTable};
use loom::{Rig, model_within, spawn};

/// A block of the class that evictors scan first: less to interleave.
fn low(rig: &Rig, number: u64) -> ImmutableBlock<'_> {
    let block = rig.store(number).expect("there is room");
    block.set_priority(Priority::Low);
    block
}

/// Evicts up to one block, and overwrites it as a new owner would.
fn evict(rig: &Rig) -> usize {
    let mut victims = Vec::with_capacity(1);
    let found = rig.pool.evict(1, &mut victims);
    for victim in &victims {
        rig.write(victim.id(), 7);
    }
    found
}

/// A lookup, an eviction and a registration of the same hash: a thread that finds the block finds it whole.
#[test]
fn lookup_eviction_and_registration_find_whole_blocks() {
    model_within(1, || {
        let rig = Rig::new(2, Policy::Lru);
        drop(rig.store(1));
        let (second, third) = (rig.clone(), rig.clone());
        let evicting = spawn(move || evict(&third));
        let storing = spawn(move || drop(second.store(1)));
        drop(rig.lookup(1));
        evicting.join().expect("no panic");
        storing.join().expect("no panic");
        rig.at_rest();
    });
}

/// Two evictors and two blocks: no block has two new owners, and none is missed.
#[test]
fn evictors_of_two_blocks_take_each_once() {
    for policy in [Policy::Lru, Policy::Sieve] {
        model_within(1, move || {
            let rig = Rig::new(2, policy);
            let other = rig.clone();
            drop(rig.store(1));
            drop(rig.store(2));
            let thread = spawn(move || evict(&other));
            let mine = evict(&rig);
            let theirs = thread.join().expect("no panic");
            assert!((1..=2).contains(&(mine + theirs)), "two were there: {mine} and {theirs} taken");
            rig.at_rest();
        });
    }
}

/// A release, a lookup and an eviction of one block: it is held by one, inactive, or the evictor's.
#[test]
fn release_lookup_and_eviction_have_one_outcome() {
    for policy in [Policy::Lru, Policy::Sieve] {
        model_within(2, move || {
            let rig = Rig::new(1, policy);
            let (second, third) = (rig.clone(), rig.clone());
            let block = low(&rig, 1);
            let evicting = spawn(move || evict(&second));
            let looking = spawn(move || drop(third.lookup(1)));
            drop(block);
            evicting.join().expect("no panic");
            looking.join().expect("no panic");
            rig.at_rest();
        });
    }
}

/// A block is registered behind a parent that another holder releases, while an evictor looks for it:
/// the parent stays while the child does.
#[test]
fn parent_released_during_eviction_stays_while_its_child_does() {
    model_within(2, || {
        let rig = Rig::new(2, Policy::Lru);
        let (second, third) = (rig.clone(), rig.clone());
        let parent = low(&rig, 1);
        let also = parent.clone().into_ref();
        let mut blocks = Vec::with_capacity(1);
        rig.pool.allocate(1, &mut blocks).expect("two for two");
        let child = blocks.pop().expect("one");
        let evicting = spawn(move || evict(&second));
        let releasing = spawn(move || drop(third.pool.adopt_immutable(also).expect("it is ours")));
        // The child is of a higher class: without the children's count, the parent would go first.
        drop(rig.register(child, 2, Some(&parent)));
        drop(parent);
        evicting.join().expect("no panic");
        releasing.join().expect("no panic");
        let there = |number| rig.pool.contains(loom::hash(number));
        assert!(there(1) || !there(2), "a child outlived its parent");
        rig.at_rest();
    });
}

/// Two evictors move the cursor over the word into which a block is being released: whichever thread
/// pulls it back, it is not moved on for good.
#[test]
fn release_between_two_evictors_is_found() {
    model_within(1, || {
        let rig = Rig::new(2, Policy::Lru);
        let (second, third) = (rig.clone(), rig.clone());
        let (first, block) = (low(&rig, 1), low(&rig, 2).into_ref());
        let evicting = spawn(move || evict(&second));
        let releasing = spawn(move || drop(third.pool.adopt_immutable(block).expect("it is ours")));
        // Places up to the next word: the hit makes one stale.
        drop(first);
        drop(rig.lookup(1));
        let taken = evict(&rig) + evicting.join().expect("no panic");
        releasing.join().expect("no panic");
        assert_eq!(rig.pool.free(), taken);
        rig.at_rest();
    });
}

/// A block of SIEVE's is moved by the compactor during its release, and an evictor that finds it in
/// use drops it from its place. The releaser may know the old place only, but then the evictor knows
/// of the release (`src/timeline`, I3).
#[test]
fn release_during_compaction_and_sweep_is_found() {
    model_within(1, || {
        let rig = Rig::new(2, Policy::Sieve);
        let (second, third) = (rig.clone(), rig.clone());
        drop(low(&rig, 1));
        // Stale entries, until the next release moves the first block.
        for number in 50..57 {
            let weak = low(&rig, number).downgrade();
            rig.pool.unregister(weak).expect("nobody holds it");
        }
        let new = low(&rig, 2);
        let held = rig.lookup(1).expect("it is there").into_ref();
        assert_eq!(evict(&rig), 0, "in use; and the hit is forgotten");
        let evicting = spawn(move || evict(&second));
        let releasing = spawn(move || drop(third.pool.adopt_immutable(held).expect("it is ours")));
        drop(new);
        evicting.join().expect("no panic");
        releasing.join().expect("no panic");
        rig.at_rest();
    });
}

/// Two threads open the same request at once: one release gives back both reservations (I3 of
/// `src/request.rs`).
#[test]
fn request_opened_twice_returns_both_reservations() {
    model_within(2, || {
        let config = PoolConfig::new(2).lanes(1).lane_of(|| 0);
        // The models' threads are 'static, and the table borrows its pool.
        let pool: &'static BlockPool = Box::leak(Box::new(BlockPool::new(config).expect("a valid setup")));
        let table = ::loom::sync::Arc::new(RequestTable::new(pool, 2));
        let other = table.clone();
        let thread = spawn(move || other.reserve(1, 1, &mut Vec::with_capacity(1)).is_ok());
        assert!(table.reserve(1, 1, &mut Vec::with_capacity(1)).is_ok());
        assert!(thread.join().expect("no panic"));
        assert_eq!(table.release(1), 2);
        assert_eq!(table.in_flight(), 0);
    });
}
