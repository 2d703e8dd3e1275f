//! Models of the chains alone: with a pool they would take too long. Models with blocks and their bytes:
//! `core/tests/loom_registry.rs`.

use super::*;
use crate::sync::{Arc, model_within, spawn};
use alloc::vec::Vec;

struct Rig {
    registry: Registry,
    slots: Box<[Slot]>,
}

/// A key of the first chain, or of the second: there are two under loom.
fn key(number: u128, chain: u64) -> SequenceHash {
    let in_chain = |key: &u128| (*key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == chain;
    SequenceHash::from_u128((number * 16 + 1..).find(in_chain).expect("half of all keys are"))
}

impl Rig {
    fn new(slots: usize) -> Rig {
        Rig { registry: Registry::new(slots, Placement::new(1)), slots: Slot::table(slots) }
    }

    /// Registers a slot, before the threads start.
    fn register(&self, slot: u32, key: SequenceHash) {
        let own = &self.slots[slot as usize];
        own.set_key(key);
        own.set_word(own.word().with_state(State::Registered));
        self.insert(slot, key);
    }

    /// Ends a slot's registration, before the threads start: it is still in its chain.
    fn end(&self, slot: u32) {
        let own = &self.slots[slot as usize];
        own.set_word(own.word().reset());
    }

    /// The chain's step of an insert.
    fn insert(&self, slot: u32, key: SequenceHash) {
        assert!(matches!(self.registry.insert(&self.slots, slot, key, false), Inserted::New));
    }

    /// The chain's step of a removal.
    fn remove(&self, slot: u32) {
        self.registry.remove(&self.slots, slot, self.slots[slot as usize].key());
    }

    /// Three registered slots, 2 → 1 → 0. The last one stays registered.
    fn with_two_to_remove(slots: usize) -> Arc<Rig> {
        let rig = Rig::new(slots);
        (0..3).for_each(|slot| rig.register(slot, key(u128::from(slot), 0)));
        (1..3).for_each(|slot| rig.end(slot));
        Arc::new(rig)
    }

    /// The slot found under a key; it is held from then on.
    fn find(&self, key: SequenceHash) -> Option<u32> {
        self.registry.acquire(&self.slots, key).map(|found| found.slot)
    }
}

/// I4: a lookup stands on the first of three in a chain. One thread removes the first, another the
/// second, and takes it to another chain. The lookup finds the third: when it reads the second's new
/// link, it knows that the first has left.
#[test]
fn lookup_over_two_removed_entries_finds_the_last() {
    model_within(2, || {
        let rig = Rig::with_two_to_remove(3);
        let (one, two) = (rig.clone(), rig.clone());
        let removing = spawn(move || one.remove(2));
        let moving = spawn(move || {
            two.remove(1);
            two.insert(1, key(9, 1));
        });
        assert_eq!(rig.find(key(0, 0)), Some(0), "it was there all the time");
        removing.join().expect("no panic");
        moving.join().expect("no panic");
    });
}

/// I3: two neighbours are removed at once, while a third thread inserts before them: the remaining slots
/// are found, and nothing else is in the chain.
#[test]
fn removal_of_two_during_an_insert_keeps_the_rest() {
    model_within(2, || {
        let rig = Rig::with_two_to_remove(4);
        let (one, two) = (rig.clone(), rig.clone());
        let first = spawn(move || one.remove(2));
        let second = spawn(move || two.remove(1));
        rig.insert(3, key(3, 0));
        first.join().expect("no panic");
        second.join().expect("no panic");
        let mut chain = Vec::new();
        let walked = rig.registry.walk(&rig.slots, rig.registry.head(key(0, 0)), |slot| {
            chain.push(slot);
            Visit::<()>::Continue
        });
        assert!(walked.is_err());
        assert_eq!(chain, [3, 0]);
    });
}
