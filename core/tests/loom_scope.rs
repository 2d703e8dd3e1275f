//! Scopes of a registration: a block is found while one handle lives, and not after the last
//! (`src/slot/children.rs`, I2).
#![cfg(loom)]

mod loom;

use kvstrata_core::{Policy, Registered, RegistrationHandle};
use loom::{Rig, hash, model, spawn};

/// Registers block 1 within a scope. Returns whether it is new, and its scope.
fn scoped(rig: &Rig) -> (bool, RegistrationHandle<'_>) {
    let mut blocks = Vec::with_capacity(1);
    rig.pool.allocate(1, &mut blocks).expect("a block for each thread");
    let block = blocks.pop().expect("one");
    rig.write(block.id(), 1);
    let complete = block.complete(hash(1)).expect("a new block is Reset");
    let (registered, handle) = rig.pool.register_scoped(complete, None);
    let (Registered::New(block) | Registered::Deduplicated(block)) = &registered;
    rig.check(block, 1);
    (matches!(registered, Registered::New(_)), handle)
}

/// The last scope ends while another thread registers the same content: a holder of a handle finds the block.
#[test]
fn last_scope_against_a_new_one_keeps_the_content() {
    model(|| {
        let rig = Rig::new(2, Policy::Lru);
        let other = rig.clone();
        let (_, handle) = scoped(&rig);
        let thread = spawn(move || {
            let (_, handle) = scoped(&other);
            assert!(other.lookup(1).is_some(), "a scope is open");
            drop(handle);
        });
        drop(handle);
        thread.join().expect("no panic");
        assert!(!rig.pool.contains(hash(1)), "no scope is open");
        assert_eq!(rig.pool.census().free, 2);
        rig.at_rest();
    });
}

/// Two scopes of one block end at once: one of them is the last.
#[test]
fn scopes_ended_at_once_have_one_last() {
    model(|| {
        let rig = Rig::new(2, Policy::Lru);
        let other = rig.clone();
        let (_, first) = scoped(&rig);
        // A handle borrows the pool, which the model's own scope keeps alive until the thread is joined.
        let second = scoped(&rig).1;
        // SAFETY: `other` keeps the pool alive in the thread that the handle goes to.
        let second: RegistrationHandle<'static> = unsafe { core::mem::transmute(second) };
        let thread = spawn(move || {
            drop(second);
            drop(other);
        });
        drop(first);
        thread.join().expect("no panic");
        assert_eq!(rig.pool.census().free, 2, "gone, whichever was last");
        rig.at_rest();
    });
}

/// A registration without a scope while the last scope ends: the block stays.
#[test]
fn last_scope_against_an_unscoped_registration_keeps_it() {
    model(|| {
        let rig = Rig::new(2, Policy::Lru);
        let other = rig.clone();
        let (_, handle) = scoped(&rig);
        let thread = spawn(move || drop(other.store(1)));
        drop(handle);
        thread.join().expect("no panic");
        assert!(rig.lookup(1).is_some(), "registered without a scope");
        rig.at_rest();
    });
}

/// A scope ends while its block is evicted and its slot registered anew: the new registration is not touched.
#[test]
fn scope_end_against_eviction_spares_the_new_block() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let (_, handle) = scoped(&rig);
        // Refused if the only block is neither in its registration nor free yet.
        let thread = spawn(move || other.store(2).is_some());
        drop(handle);
        let stored = thread.join().expect("no panic");
        assert_eq!(rig.lookup(2).is_some(), stored, "somebody else's registration");
        rig.at_rest();
    });
}
