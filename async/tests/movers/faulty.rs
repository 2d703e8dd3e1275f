//! The contract on a mover with faults, and tests of the faults.

use crate::faulty_mover::{Faults, FaultyMover};
use crate::ground::{Field, Ground, Move};
use crate::threads::Threads;
use kvstrata::transfer::Cause;
use std::sync::Arc;

struct Faulty {
    faults: Faults,
    seed: u64,
}

impl Ground for Faulty {
    fn shapes(&self) -> Vec<Vec<usize>> {
        vec![vec![700, 1, 4096]]
    }

    fn make(&self, blocks: u32, layers: &[usize]) -> Option<Field> {
        let field = Threads { threads: 2, past_caches: false }.make(blocks, layers)?;
        let mover = FaultyMover::new(field.mover, self.faults, self.seed);
        let release = Arc::new(mover.release());
        Some(Field { mover: Arc::new(mover), faulty: Some(release), ..field })
    }
}

mod some_of_all {
    contract!(super::Faulty { faults: super::Faults { lost: 10, delayed: 40, failed: 10 }, seed: 1 });
}

mod all_delayed {
    contract!(super::Faulty { faults: super::Faults { lost: 0, delayed: 100, failed: 0 }, seed: 2 });
}

/// An offload of four blocks on a mover with these faults.
fn offload(faults: Faults) -> (Field, Vec<Move>) {
    let field = Faulty { faults, seed: 3 }.make(4, &[100, 100]).expect("made");
    let one = |block| Move { up: false, device: block, host: block, layers: 0..2, verify: true };
    (field, (0..4).map(one).collect())
}

#[test]
fn delayed_answer_keeps_its_guards() {
    let (field, moves) = offload(Faults { lost: 0, delayed: 100, failed: 0 });
    let inbox = field.start(&moves);
    assert!((0..4).all(|block| field.memory.read(block).is_err()));
    assert_eq!(inbox.answers(), 0);
    assert!(field.wait(&inbox).iter().all(|copy| copy.outcome.is_ok()));
    assert!((0..4).all(|block| field.memory.read(block).is_ok()));
}

#[test]
fn lost_list_and_failed_copy_have_their_causes() {
    for (lost, failed, cause) in [(100, 0, Cause::Abandoned), (0, 100, Cause::Device)] {
        let (field, moves) = offload(Faults { lost, delayed: 0, failed });
        let outcomes = field.run(&moves);
        let failed_so = |outcome: &Result<(), _>| {
            outcome.is_err_and(|failure: kvstrata::transfer::Failure| failure.cause == cause)
        };
        assert!(outcomes.iter().all(failed_so), "{outcomes:?}");
    }
}
