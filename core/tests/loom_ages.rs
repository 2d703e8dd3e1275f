//! Stamps of blocks (`src/ages.rs`, I1 to I3): concurrent marks of two threads are both kept, and
//! a late thread changes nothing.
#![cfg(loom)]

mod loom;

use ::loom::sync::Arc;
use kvstrata_core::{Ages, BlockId, BlockRef};
use loom::{model, spawn};

/// A generation of the only block.
const fn of(generation: u32) -> BlockRef {
    BlockRef { id: BlockId(0), generation }
}

/// Two generations of a block are stamped at once, and the first has ended: the later one's stamp stays (I2).
#[test]
fn stamp_of_an_older_generation_is_dropped() {
    model(|| {
        let ages = Arc::new(Ages::new(1));
        let other = ages.clone();
        let thread = spawn(move || other.released(of(1), 5));
        ages.set_clean(of(2));
        assert!(ages.is_clean(of(2)), "what was marked is there, whatever the older one does");
        thread.join().expect("no panic");
        assert!(ages.is_clean(of(2)) && !ages.is_clean(of(1)));
    });
}

/// Two threads use a generation a second time: one of them gets true, and the next
/// generation has its own (I1, I3).
#[test]
fn second_use_by_two_threads_is_reported_once() {
    model(|| {
        let ages = Arc::new(Ages::new(1));
        ages.released(of(1), 1);
        let other = ages.clone();
        let thread = spawn(move || other.second_use(of(1), 2));
        let first = ages.second_use(of(1), 2);
        assert!(first != thread.join().expect("no panic"));
        assert!(ages.used_again(BlockId(0)) && ages.second_use(of(2), 3));
    });
}

/// A block is marked clean, used again and released, each by its own thread: all three marks are there (I3).
#[test]
fn marks_by_three_threads_are_all_kept() {
    model(|| {
        let ages = Arc::new(Ages::new(1));
        ages.released(of(1), 1);
        let (one, two) = (ages.clone(), ages.clone());
        let cleaning = spawn(move || one.set_clean(of(1)));
        let releasing = spawn(move || two.released(of(1), 3));
        assert!(ages.second_use(of(1), 2));
        cleaning.join().expect("no panic");
        releasing.join().expect("no panic");
        assert!(ages.is_clean(of(1)) && ages.used_again(BlockId(0)));
        let mut out = Vec::new();
        ages.candidates(9, 0, 1, &mut out);
        assert!(out.is_empty(), "a clean block is no candidate");
    });
}

/// A generation is forgotten while the next one is stamped: the stamp stays, and nothing is
/// known of the first (I1).
#[test]
fn forget_of_a_generation_keeps_the_next_stamp() {
    model(|| {
        let ages = Arc::new(Ages::new(1));
        ages.set_clean(of(1));
        let other = ages.clone();
        let thread = spawn(move || other.forget(of(1)));
        ages.set_clean(of(2));
        thread.join().expect("no panic");
        assert!(ages.is_clean(of(2)) && !ages.is_clean(of(1)));
    });
}
