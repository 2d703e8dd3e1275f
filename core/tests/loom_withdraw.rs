//! A withdrawn block is taken by the holder of its only reference, and not while another thread reads it
//! (`src/pool/withdraw.rs`, I1 and I2).
#![cfg(loom)]

mod loom;

use kvstrata_core::{ImmutableBlock, Policy};
use loom::{Rig, model, spawn};

/// One thread reads a held block, and clones it, while another withdraws, takes and overwrites it.
#[test]
fn withdrawn_block_is_taken_after_its_last_reader() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let ours = rig.store(1).map(ImmutableBlock::into_ref).expect("there is room");
        let theirs = rig.pool.hold_again(ours).expect("it is held");
        let thread = spawn(move || {
            let clone = other.pool.hold_again(theirs).expect("it is held");
            other.pool.release_refs([theirs]);
            assert_eq!(other.read(clone.id), 1, "bytes of another block");
            other.pool.release_refs([clone]);
        });
        assert!(rig.pool.withdraw_held(ours));
        match rig.pool.take_withdrawn(ours) {
            Some(taken) => {
                rig.write(taken.id(), 7);
                drop(taken.into_mutable());
            }
            None => assert_eq!(rig.pool.release_refs([ours]), 0),
        }
        thread.join().expect("no panic");
        assert_eq!(rig.pool.free(), 1, "whoever was the last has freed it");
        rig.at_rest();
    });
}

/// A thread asks for a withdrawn block by its number during its last holder's release: it gets the
/// block, or the block was free before.
#[test]
fn withdrawn_block_is_held_before_its_last_release_or_never() {
    model(|| {
        let rig = Rig::new(1, Policy::Lru);
        let other = rig.clone();
        let theirs = rig.store(1).map(ImmutableBlock::into_ref).expect("there is room");
        assert!(rig.pool.withdraw_held(theirs));
        let thread = spawn(move || {
            assert_eq!(other.read(theirs.id), 1, "bytes of another block");
            assert_eq!(other.pool.release_refs([theirs]), 0);
        });
        let ours = rig.pool.hold_withdrawn(theirs.id).map(|(ours, _)| ours);
        thread.join().expect("no panic");
        if let Some(ours) = ours {
            assert_eq!((ours, rig.pool.free()), (theirs, 0));
            let taken = rig.pool.take_withdrawn(ours).expect("nobody else has it");
            rig.write(taken.id(), 7);
            drop(taken.into_mutable());
        }
        assert_eq!(rig.pool.free(), 1, "whoever was the last has freed it");
        rig.at_rest();
    });
}
