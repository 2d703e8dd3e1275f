//! Policies that move or spare blocks, S3-FIFO and SIEVE, during hits, other evictors, withdrawals and
//! the compactor on the same blocks. A block is in one list or owned by one thread, it can be evicted
//! afterwards, and the policy's counts are right (`src/pool/evict.rs`; `src/timeline`, I3).
#![cfg(loom)]

mod loom;

use kvstrata_core::{ImmutableBlock, Policy, Priority, RegistrationHandle, SequenceHash};
use loom::{Rig, model, model_within, spawn};

/// Hashes that a ghost list tells apart.
fn hash(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number) << 32)
}

fn store_scoped(rig: &Rig, number: u64) -> (ImmutableBlock<'_>, RegistrationHandle<'_>) {
    let mut blocks = Vec::with_capacity(1);
    rig.pool.allocate(1, &mut blocks).expect("there is room");
    let block = blocks.pop().expect("one");
    rig.write(block.id(), number);
    let complete = block.complete(hash(number)).expect("a new block is Reset");
    let (registered, handle) = rig.pool.register_scoped(complete, None);
    let block = registered.into_block();
    // The class that evictors scan first: less to interleave.
    block.set_priority(Priority::Low);
    (block, handle)
}

/// As [`store_scoped`], for ever.
fn store(rig: &Rig, number: u64) -> ImmutableBlock<'_> {
    let (block, handle) = store_scoped(rig, number);
    std::mem::forget(handle);
    block
}

fn hit(rig: &Rig, number: u64, times: usize) {
    for _ in 0..times {
        let block = rig.pool.lookup(hash(number));
        assert!(block.is_none_or(|block| rig.read(block.id()) == number), "bytes of another block");
    }
}

/// Evicts one block, and overwrites it as a new owner would.
fn evict(rig: &Rig) -> Option<SequenceHash> {
    let mut victims = Vec::with_capacity(1);
    rig.pool.evict(1, &mut victims);
    let victim = victims.pop()?;
    rig.write(victim.id(), 0);
    Some(victim.hash())
}

/// S3-FIFO's count of small blocks is right: with a hot block, in either list, and a new one, the new
/// one goes first.
fn small_is_counted(rig: &Rig) {
    hit(rig, 1, 2);
    drop(store(rig, 9));
    assert_eq!(evict(rig), Some(hash(9)), "the small list is full with one");
}

/// A pool with a block in main, hit `times` since.
fn promoted(times: usize) -> ::loom::sync::Arc<Rig> {
    let rig = Rig::new(2, Policy::S3Fifo);
    drop(store(&rig, 1));
    hit(&rig, 1, 2);
    drop(store(&rig, 2));
    assert_eq!(evict(&rig), Some(hash(2)), "the cold one");
    hit(&rig, 1, times);
    rig
}

/// A hit holds a block while an evictor moves it from small to main: one of the two leaves it in a list
/// where it is found.
#[test]
fn promotion_against_a_hit_keeps_one_list() {
    model(|| {
        let rig = Rig::new(2, Policy::S3Fifo);
        let other = rig.clone();
        drop(store(&rig, 1));
        hit(&rig, 1, 2);
        drop(store(&rig, 2));
        let thread = spawn(move || hit(&other, 1, 1));
        assert!(evict(&rig).is_some());
        thread.join().expect("no panic");
        small_is_counted(&rig);
        rig.at_rest();
    });
}

/// Two evictors find the same block worth promotion: it moves once, and is counted once.
#[test]
fn promotion_by_two_evictors_moves_once() {
    model_within(1, || {
        let rig = Rig::new(3, Policy::S3Fifo);
        let other = rig.clone();
        drop(store(&rig, 1));
        hit(&rig, 1, 2);
        drop(store(&rig, 2));
        drop(store(&rig, 3));
        let thread = spawn(move || evict(&other));
        let mine = evict(&rig);
        let theirs = thread.join().expect("no panic");
        assert!(mine.is_none() || mine != theirs, "one block has two new owners");
        if rig.pool.contains(hash(1)) && rig.pool.inactive() == 1 {
            small_is_counted(&rig);
        }
        rig.at_rest();
    });
}

/// A hit holds a block of main while an evictor gives it another turn.
#[test]
fn second_turn_against_a_hit_keeps_the_block() {
    model_within(2, || {
        let rig = promoted(1);
        let other = rig.clone();
        let thread = spawn(move || hit(&other, 1, 1));
        evict(&rig);
        thread.join().expect("no panic");
        rig.at_rest();
    });
}

/// Two evictors find the same block worth another turn.
#[test]
fn second_turn_by_two_evictors_evicts_once() {
    model_within(1, || {
        let rig = promoted(1);
        let other = rig.clone();
        let thread = spawn(move || evict(&other));
        let mine = evict(&rig);
        let theirs = thread.join().expect("no panic");
        assert!(mine.is_none() || theirs.is_none(), "one block has two new owners");
        rig.at_rest();
    });
}

/// A block is withdrawn while an evictor moves it: it is freed once, by whichever releases it last, and
/// counted out of the small list once.
#[test]
fn promotion_against_a_withdrawal_frees_once() {
    model(|| {
        let rig = Rig::new(2, Policy::S3Fifo);
        let other = rig.clone();
        let (block, handle) = store_scoped(&rig, 1);
        drop(block);
        hit(&rig, 1, 2);
        drop(store(&rig, 2));
        // SAFETY: the handle is dropped before `other`, which keeps its pool.
        let handle =
            unsafe { std::mem::transmute::<RegistrationHandle<'_>, RegistrationHandle<'static>>(handle) };
        let thread = spawn(move || {
            drop(handle);
            drop(other);
        });
        let evicted = evict(&rig);
        thread.join().expect("no panic");
        assert!(!rig.pool.contains(hash(1)));
        if evicted == Some(hash(2)) {
            // The second comes from the ghost into main: the first goes before it only if the count is right.
            drop(store(&rig, 9));
            drop(store(&rig, 2));
            assert_eq!(evict(&rig), Some(hash(9)), "the small list is full with one");
        }
        rig.at_rest();
    });
}

/// A block is unregistered while an evictor moves it: refused, as of any block in use, or done.
#[test]
fn promotion_against_unregister_is_refused_or_done() {
    model(|| {
        let rig = Rig::new(2, Policy::S3Fifo);
        let other = rig.clone();
        let weak = store(&rig, 1).downgrade();
        hit(&rig, 1, 2);
        drop(store(&rig, 2));
        let thread = spawn(move || other.pool.unregister(weak).is_ok());
        let evicted = evict(&rig);
        let gone = thread.join().expect("no panic");
        assert!(!(gone && rig.pool.contains(hash(1))));
        assert_eq!(rig.pool.free(), usize::from(gone) + usize::from(evicted.is_some()));
        // Its place can be used anew.
        while rig.pool.free() > 0 {
            drop(store(&rig, 9 + rig.pool.free() as u64));
        }
        rig.at_rest();
    });
}

/// Fills SIEVE's ring with stale entries, `count` of them.
fn fill(rig: &Rig, count: u64) {
    for number in 50..50 + count {
        let weak = store(rig, number).downgrade();
        rig.pool.unregister(weak).expect("nobody holds it");
    }
}

/// The compactor reaches the block at the head, which the hand has just spared: the hand moves along,
/// whichever blocks come meanwhile (`carry_hand`).
#[test]
fn hand_follows_the_spared_block_when_compacted() {
    model_within(2, || {
        let rig = Rig::new(3, Policy::Sieve);
        let other = rig.clone();
        drop(store(&rig, 1));
        hit(&rig, 1, 1);
        drop(store(&rig, 2));
        assert_eq!(evict(&rig), Some(hash(2)), "the first is spared");
        fill(&rig, 9);
        let (mine, theirs) = (store(&rig, 3), store(&rig, 4).into_ref());
        let thread = spawn(move || drop(other.pool.adopt_immutable(theirs).expect("it is ours")));
        drop(mine);
        thread.join().expect("no panic");
        assert_ne!(evict(&rig), Some(hash(1)), "its turn is over");
        rig.at_rest();
    });
}

/// A hot block behind the hand: the hand spares it on its first round and takes it on the second, unless
/// it is hit again; then it is still there to be found.
#[test]
fn second_round_against_a_hit_takes_or_keeps_the_block() {
    model_within(2, || {
        let rig = Rig::new(2, Policy::Sieve);
        let other = rig.clone();
        drop(store(&rig, 1));
        drop(store(&rig, 2));
        hit(&rig, 1, 1);
        assert_eq!(evict(&rig), Some(hash(2)), "the first is spared");
        hit(&rig, 1, 1);
        let thread = spawn(move || hit(&other, 1, 1));
        evict(&rig);
        thread.join().expect("no panic");
        rig.at_rest();
    });
}

/// The block at the head is moved during a sweep: it is taken once, or still there. Smallest ring,
/// one slide, two forced switches.
#[test]
fn sweep_against_compaction_takes_a_block_once() {
    model_within(2, || {
        let rig = Rig::new(2, Policy::Sieve);
        let other = rig.clone();
        drop(store(&rig, 1));
        fill(&rig, 7);
        let new = store(&rig, 2);
        let thread = spawn(move || evict(&other));
        drop(new);
        let victim = thread.join().expect("no panic");
        assert_eq!(rig.pool.free(), usize::from(victim.is_some()));
        rig.at_rest();
    });
}

/// The block at the head is moved while it is in use, and its new place is looked at and dropped; its
/// release finds that place (I3).
#[test]
fn release_during_compaction_and_sweep_finds_its_place() {
    model_within(3, || {
        let rig = Rig::new(2, Policy::Sieve);
        let other = rig.clone();
        drop(store(&rig, 1));
        fill(&rig, 7);
        let new = store(&rig, 2);
        let held = rig.pool.lookup(hash(1)).expect("it is there").into_ref();
        let thread = spawn(move || drop(other.pool.adopt_immutable(held).expect("it is ours")));
        drop(new);
        // The second looks at the first block again, without its heat.
        evict(&rig);
        evict(&rig);
        thread.join().expect("no panic");
        rig.at_rest();
    });
}

/// LFU gives a parent whose worth the age has passed a new place, while a hit holds it or another
/// evictor looks for it: it can be evicted afterwards.
#[test]
fn requeued_parent_against_hit_or_evictor_stays_evictable() {
    for hits in [true, false] {
        model_within(2, move || {
            let rig = Rig::new(3, Policy::Lfu);
            let parent = rig.store(1).expect("three for three");
            parent.set_priority(Priority::Low);
            let mut blocks = Vec::with_capacity(1);
            rig.pool.allocate(1, &mut blocks).expect("three for three");
            let child = rig.register(blocks.pop().expect("one"), 2, Some(&parent));
            child.set_priority(Priority::Low);
            drop(parent);
            drop(store(&rig, 3));
            hit(&rig, 3, 1);
            assert_eq!(evict(&rig), Some(hash(3)), "the parent waits, and the age goes on");
            drop(child);
            let other = rig.clone();
            let thread = spawn(move || {
                if hits {
                    drop(other.lookup(1));
                } else {
                    evict(&other);
                }
            });
            evict(&rig);
            thread.join().expect("no panic");
            rig.at_rest();
        });
    }
}
