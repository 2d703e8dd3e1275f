//! Models of the map alone, with lanes of their own choice. Under loom a leaf has two slots and a summary
//! word two leaves, so that a few slots have several of each (`BITS`). Ownership by the pool's handles:
//! `core/tests/loom_free.rs`.

use super::*;
use crate::sync::{Arc, model, spawn};

/// The map, and the owner of each slot.
struct Rig {
    map: FreeMap,
    owned: Vec<AtomicU32>,
}

impl Rig {
    fn new(capacity: u32, stripes: usize) -> Arc<Rig> {
        let owned = (0..capacity).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Rig { map: FreeMap::new(capacity, stripes), owned })
    }

    /// Marks an allocated slot; each has one owner at a time (I2).
    fn own(&self, slot: u32) {
        // Relaxed: an exchange meets the newest value whatever its ordering.
        assert_eq!(self.owned[slot as usize].swap(1, Relaxed), 0, "slot {slot} was handed out twice");
    }

    /// Allocates `n` slots or none.
    fn allocate(&self, lane: usize, n: u32) -> Vec<u32> {
        let mut slots = Vec::new();
        let got = self.map.allocate(lane, n, |first, length| slots.extend(first..first + length));
        assert_eq!(slots.len(), if got { n as usize } else { 0 }, "all or nothing");
        slots.iter().for_each(|slot| self.own(*slot));
        slots
    }

    fn allocate_one(&self, lane: usize) -> Option<u32> {
        let slot = self.map.allocate_one(lane);
        slot.inspect(|slot| self.own(*slot))
    }

    fn free(&self, slots: &[u32]) {
        slots.iter().for_each(|slot| assert_eq!(self.owned[*slot as usize].swap(0, Relaxed), 1));
        self.map.free(slots.iter().copied());
    }

    /// At rest: credits, bits and owners agree (I1), each leaf with bits is announced (I3), and
    /// each free slot can be allocated.
    fn at_rest(&self) {
        let owned = self.owned.iter().filter(|owned| owned.load(Relaxed) == 1).count();
        let free = self.owned.len() - owned;
        assert_eq!(self.map.available(), free, "credits were lost or made");
        assert_eq!((0..self.owned.len() as u32).filter(|slot| self.map.is_free(*slot)).count(), free);
        for stripe in &self.map.stripes {
            for (number, leaf) in stripe.leaves.iter().enumerate() {
                let (word, bit) = stripe.summary_of(number);
                let announced = word.load(Relaxed) & bit != 0;
                assert!(
                    leaf.load(Relaxed) == 0 || announced,
                    "leaf {number} has bits that are not announced"
                );
            }
        }
        assert_eq!(self.allocate(0, free as u32).len(), free);
    }
}

/// I3: the last bit of a leaf is set again while a claimer finds the leaf empty and clears its
/// summary bit: the bit is found later.
#[test]
fn leaf_refilled_during_a_clear_is_announced() {
    model(|| {
        let rig = Rig::new(4, 1);
        let taken = rig.allocate(0, 2);
        assert_eq!(taken, [0, 1], "a leaf, whose summary bit is still set");
        let other = rig.clone();
        let freeing = spawn(move || other.free(&taken[..1]));
        assert!(rig.allocate_one(0).is_some(), "two are free all the time");
        freeing.join().expect("no panic");
        rig.at_rest();
    });
}

/// I3: the same, with two threads that clear, so that one may set the bit that the other
/// clears; only the steps that matter.
#[test]
fn leaf_freed_while_two_threads_clear_is_announced() {
    model(|| {
        let rig = Rig::new(4, 1);
        let taken = rig.allocate(0, 2);
        let (second, third) = (rig.clone(), rig.clone());
        let freeing = spawn(move || second.free(&taken[..1]));
        let clearing = spawn(move || third.map.stripes[0].clear_summary(0));
        rig.map.stripes[0].clear_summary(0);
        freeing.join().expect("no panic");
        clearing.join().expect("no panic");
        rig.at_rest();
    });
}

/// I1, I2: a thread that runs short takes the rest from another's stripe while its owner takes from it:
/// there is enough for both, and both are served.
#[test]
fn steal_against_the_owner_serves_both() {
    model(|| {
        let rig = Rig::new(4, 2);
        let other = rig.clone();
        let stealing = spawn(move || other.allocate(1, 3).len());
        assert!(rig.allocate_one(0).is_some());
        assert_eq!(stealing.join().expect("no panic"), 3);
        rig.at_rest();
    });
}

/// I1, I2: two threads steal from each other: at most one is served, and a refused one returns its
/// credits to the stripes that they came from.
#[test]
fn mutual_steal_serves_at_most_one_and_returns_credits() {
    model(|| {
        let rig = Rig::new(4, 2);
        let other = rig.clone();
        let stealing = spawn(move || other.allocate(1, 3).len());
        let got = rig.allocate(0, 3).len() + stealing.join().expect("no panic");
        assert!(got == 0 || got == 3, "four slots, {got} handed out");
        for (number, stripe) in rig.map.stripes.iter().enumerate() {
            assert!(got > 0 || stripe.credits.load(Relaxed) == 2, "stripe {number} has credits of another");
        }
        rig.at_rest();
    });
}

/// I1: a thief and the owner of the last credits meet a free: no thread waits for ever for a bit that
/// its credit promised.
#[test]
fn steal_against_a_free_finds_each_credited_bit() {
    model(|| {
        let rig = Rig::new(8, 2);
        let taken = rig.allocate(0, 3);
        let other = rig.clone();
        let freeing = spawn(move || {
            other.free(&taken[..2]);
            other.allocate(0, 2).len()
        });
        // Five are free all the time, and seven for a while: the home stripe has four.
        assert_eq!(rig.allocate(1, 5).len(), 5);
        assert_eq!(freeing.join().expect("no panic"), 2);
        rig.at_rest();
    });
}

/// I1, I2: two threads claim over the leaves of one stripe, and the summary words between.
#[test]
fn claims_over_many_leaves_are_disjoint() {
    model(|| {
        let rig = Rig::new(6, 1);
        let other = rig.clone();
        let claiming = spawn(move || other.allocate(0, 3));
        assert_eq!(rig.allocate(0, 3).len(), 3);
        let theirs = claiming.join().expect("no panic");
        rig.free(&theirs);
        rig.at_rest();
    });
}
