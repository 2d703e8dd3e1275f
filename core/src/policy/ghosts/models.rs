//! Models of the queues alone: at rest, as many ghosts are there as are counted. Under loom
//! a bucket has two entries.

use super::*;
use crate::hash::Placement;
use crate::sync::{Arc, model, spawn};

fn key(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number) << 33)
}

/// At rest, as many ghosts are there as are counted.
fn at_rest(ghosts: &Ghosts) {
    let counted = ghosts.len(0);
    let there = (1..4).filter(|number| ghosts.take(key(*number)).is_some());
    assert_eq!((there.count(), ghosts.len(0)), (counted, 0));
}

/// A block is back while its ghost is dropped as the oldest: it is counted out once (I1).
#[test]
fn ghost_taken_while_trimmed_is_counted_once() {
    model(|| {
        let ghosts = Arc::new(Ghosts::new(1, 2, Placement::new(1)));
        ghosts.insert(0, key(1), || 0);
        ghosts.insert(0, key(2), || 0);
        let other = ghosts.clone();
        let trimming = spawn(move || other.trim(0, 1));
        ghosts.take(key(1));
        trimming.join().expect("no panic");
        at_rest(&ghosts);
    });
}

/// Two blocks of one hash come back: one gets the ghost.
#[test]
fn ghost_taken_by_two_goes_to_one() {
    model(|| {
        let ghosts = Arc::new(Ghosts::new(1, 2, Placement::new(1)));
        ghosts.insert(0, key(1), || 0);
        let other = ghosts.clone();
        let taking = spawn(move || usize::from(other.take(key(1)).is_some()));
        let mine = usize::from(ghosts.take(key(1)).is_some());
        assert_eq!(mine + taking.join().expect("no panic"), 1);
        at_rest(&ghosts);
    });
}

/// The tail passes a number whose bit is not set yet: its ghost is given up, or stays, but it
/// is never counted and lost (I3).
#[test]
fn ghost_inserted_while_the_tail_passes_stays_counted() {
    model(|| {
        let ghosts = Arc::new(Ghosts::new(1, 2, Placement::new(1)));
        let other = ghosts.clone();
        let dropping = spawn(move || other.queues[0].drop_oldest());
        ghosts.insert(0, key(1), || 0);
        dropping.join().expect("no panic");
        at_rest(&ghosts);
    });
}

/// Two evictors insert ghosts with room for two in all, where one is there already.
#[test]
fn ghosts_of_two_evictors_stay_within_their_room() {
    model(|| {
        let ghosts = Arc::new(Ghosts::new(1, 2, Placement::new(1)));
        ghosts.insert(0, key(1), || 0);
        let other = ghosts.clone();
        let leaving = spawn(move || other.insert(0, key(2), || 0));
        ghosts.insert(0, key(3), || 0);
        leaving.join().expect("no panic");
        at_rest(&ghosts);
    });
}
