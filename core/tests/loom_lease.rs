//! Leases against events that end a block's registration, or move it: bytes stay while they are read,
//! and the block is not lost afterwards (`src/pool/lease.rs`, I1 to I3).
#![cfg(loom)]

mod loom;

use kvstrata_core::{BlockRef, Policy, RegistrationHandle};
use loom::{Rig, hash, model, model_within, spawn};

/// Block 1, inactive.
fn stored(rig: &Rig) -> BlockRef {
    let block = rig.store(1).expect("there is room");
    let weak = block.downgrade();
    drop(block);
    weak
}

/// Evicts, and overwrites as a new owner would.
fn evict(rig: &Rig) -> usize {
    let mut victims = Vec::with_capacity(1);
    rig.pool.evict(1, &mut victims);
    victims.iter().for_each(|victim| rig.write(victim.id(), 7));
    victims.len()
}

/// Reads the block's bytes as a copy does, if it can be leased.
fn copy(rig: &Rig, block: BlockRef) -> bool {
    let leased = rig.pool.lease(block);
    if leased {
        assert_eq!(rig.read(block.id), 1, "bytes of another block");
        rig.pool.end_lease(block);
    }
    leased
}

/// A block is leased while it is evicted: one of the two comes first (I1).
#[test]
fn lease_against_eviction_has_one_winner() {
    for policy in [Policy::Lru, Policy::Sieve] {
        model(move || {
            let rig = Rig::new(1, policy);
            let other = rig.clone();
            let weak = stored(&rig);
            let thread = spawn(move || evict(&other));
            copy(&rig, weak);
            thread.join().expect("no panic");
            rig.at_rest();
        });
    }
}

/// One lease ends and another begins while an evictor looks: it sees one of them (I2). The
/// shortest way to it has four switches.
#[test]
fn lease_following_another_keeps_the_block() {
    model_within(4, || {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let weak = stored(&rig);
        assert!(rig.pool.lease(weak));
        let thread = spawn(move || evict(&other));
        rig.pool.end_lease(weak);
        copy(&rig, weak);
        thread.join().expect("no panic");
        rig.at_rest();
    });
}

/// The last lease ends while an evictor defers the block for it: the block is requeued.
#[test]
fn lease_end_against_eviction_requeues_the_block() {
    for policy in [Policy::Lru, Policy::Lfu, Policy::Sieve] {
        model(move || {
            let rig = Rig::new(1, policy);
            let other = rig.clone();
            let weak = stored(&rig);
            assert!(rig.pool.lease(weak));
            let thread = spawn(move || evict(&other));
            rig.pool.end_lease(weak);
            thread.join().expect("no panic");
            rig.at_rest();
        });
    }
}

/// A leased block is used while an evictor defers it: wherever it is put, it is found again.
#[test]
fn leased_block_after_hit_and_release_is_found_again() {
    for policy in [Policy::Lru, Policy::Lfu, Policy::Sieve, Policy::S3Fifo] {
        model_within(2, move || {
            let rig = Rig::new(1, policy);
            let other = rig.clone();
            let weak = stored(&rig);
            let thread = spawn(move || drop(other.lookup(1)));
            assert!(rig.pool.lease(weak), "nobody ends it");
            assert_eq!(evict(&rig), 0, "it is leased");
            rig.pool.end_lease(weak);
            thread.join().expect("no panic");
            rig.at_rest();
        });
    }
}

fn scoped(rig: &Rig) -> (BlockRef, RegistrationHandle<'_>) {
    let mut blocks = Vec::with_capacity(1);
    rig.pool.allocate(1, &mut blocks).expect("there is room");
    let block = blocks.pop().expect("one");
    rig.write(block.id(), 1);
    let (registered, handle) =
        rig.pool.register_scoped(block.complete(hash(1)).expect("a new block is Reset"), None);
    (registered.into_block().into_ref(), handle)
}

/// Overwrites the block if it is free.
fn overwrite(rig: &Rig) {
    let mut blocks = Vec::with_capacity(1);
    if rig.pool.allocate_free(1, &mut blocks).is_ok() {
        rig.write(blocks[0].id(), 8);
    }
}

/// A block is withdrawn while it is leased: it is free once, after both (I3).
#[test]
fn lease_against_withdrawal_frees_the_block_once() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let (block, handle) = scoped(&rig);
        assert_eq!(rig.pool.release_refs([block]), 0);
        let thread = spawn(move || copy(&other, block));
        drop(handle);
        overwrite(&rig);
        thread.join().expect("no panic");
        assert_eq!((rig.pool.census().free, rig.pool.stats().removed), (1, 1), "gone, whichever came last");
        rig.at_rest();
    });
}

/// The last reference to a withdrawn block goes while its last lease ends: the last of the
/// two frees it, once (I3).
#[test]
fn lease_end_against_last_release_frees_once() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let (block, handle) = scoped(&rig);
        assert!(rig.pool.lease(block));
        drop(handle);
        let thread = spawn(move || {
            assert_eq!(other.pool.release_refs([block]), 0);
            overwrite(&other);
        });
        assert_eq!(rig.read(block.id), 1, "bytes of another block");
        rig.pool.end_lease(block);
        thread.join().expect("no panic");
        assert_eq!((rig.pool.census().free, rig.pool.stats().removed), (1, 1), "gone, whichever came last");
        rig.at_rest();
    });
}

/// A block is taken out while it is leased: refused, or it is the taker's alone (I1).
#[test]
fn lease_against_take_out_has_one_winner() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let weak = stored(&rig);
        let thread = spawn(move || {
            let taken = other.pool.take_out(weak);
            taken.iter().for_each(|victim| other.write(victim.id(), 7));
            taken.is_ok()
        });
        let leased = copy(&rig, weak);
        assert!(thread.join().expect("no panic") || leased);
        rig.at_rest();
    });
}
