//! Waiters for blocks (`src/waiting.rs`, I1): with a pool of one block, a sleeper is woken when the
//! block is released. A missed wake-up leaves the model asleep, which loom reports as a deadlock.
#![cfg(loom)]

mod loom;

use ::loom::sync::{Arc, Notify};
use kvstrata_core::{BlockRef, Policy, Waiting};
use loom::{Rig, model_within, spawn};

/// One block, and the sleep of each waiter.
struct Room {
    rig: Arc<Rig>,
    waiting: Waiting,
    beds: Vec<Notify>,
}

impl Room {
    fn new(policy: Policy, waiters: usize) -> Arc<Room> {
        let beds = (0..waiters).map(|_| Notify::new()).collect();
        Arc::new(Room { rig: Rig::new(1, policy), waiting: Waiting::new(), beds })
    }

    /// A releaser's step after its release.
    fn wake(&self) {
        if self.waiting.anyone() {
            self.beds.iter().for_each(Notify::notify);
        }
    }

    /// Takes the block, sleeping until it is there, and gives it back.
    fn take(&self, waiter: usize) {
        let mut blocks = Vec::with_capacity(1);
        self.waiting.enter();
        while self.rig.pool.allocate(1, &mut blocks).is_err() {
            self.beds[waiter].wait();
        }
        self.waiting.leave();
        self.rig.write(blocks[0].id(), 7);
        self.rig.pool.give_back(blocks);
        self.wake();
    }

    /// The block, held.
    fn held(&self) -> BlockRef {
        self.rig.store(1).expect("one for one").into_ref()
    }
}

/// An owned block is given back.
#[test]
fn waiter_sees_a_block_given_back() {
    model_within(2, || {
        let room = Room::new(Policy::Lru, 1);
        let mut ids = Vec::with_capacity(1);
        room.rig.pool.allocate_free_ids(1, &mut ids).expect("one for one");
        let other = room.clone();
        let thread = spawn(move || {
            assert_eq!(other.rig.pool.give_back_ids(ids), 0);
            other.wake();
        });
        room.take(0);
        thread.join().expect("no panic");
        room.rig.at_rest();
    });
}

/// A reference is released: the waiter evicts the block.
#[test]
fn waiter_sees_a_released_reference() {
    for policy in [Policy::Lru, Policy::Sieve] {
        model_within(2, move || {
            let room = Room::new(policy, 1);
            let held = room.held();
            let other = room.clone();
            let thread = spawn(move || {
                assert_eq!(other.rig.pool.release_refs([held]), 0);
                other.wake();
            });
            room.take(0);
            thread.join().expect("no panic");
            room.rig.at_rest();
        });
    }
}

/// A lease ends: the same.
#[test]
fn waiter_sees_the_end_of_a_lease() {
    model_within(2, || {
        let room = Room::new(Policy::Lru, 1);
        let held = room.held();
        assert!(room.rig.pool.lease(held));
        assert_eq!(room.rig.pool.release_refs([held]), 0);
        let other = room.clone();
        let thread = spawn(move || {
            other.rig.pool.end_lease(held);
            other.wake();
        });
        room.take(0);
        thread.join().expect("no panic");
        room.rig.at_rest();
    });
}

/// Two threads wait for one block: the first passes it on to the second.
#[test]
fn waiters_for_one_block_are_both_served() {
    model_within(1, || {
        let room = Room::new(Policy::Lru, 2);
        let held = room.held();
        let (one, two) = (room.clone(), room.clone());
        let releasing = spawn(move || {
            assert_eq!(one.rig.pool.release_refs([held]), 0);
            one.wake();
        });
        let waiting = spawn(move || two.take(1));
        room.take(0);
        releasing.join().expect("no panic");
        waiting.join().expect("no panic");
        room.rig.at_rest();
    });
}
