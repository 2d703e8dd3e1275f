//! A caller: one step after the other, by chance.

use crate::common::Random;
use crate::content::{BLANK, KEYS, assert_same, blank, bytes_of, content, filled, key};
use crate::world::World;
use crate::world::pass;
use kvstrata_core::SequenceHash;
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::disk::Urgency;
use kvstrata_store::{Batch, BatchOptions, Completion, Outcome, SubmitError, Until};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

struct Caller {
    world: Rc<World>,
    random: Random,
    name: u64,
}

pub async fn run(world: Rc<World>, name: u64) {
    let random = Random(world.settings.seed.rotate_left(17) ^ name);
    let mut caller = Caller { world, random, name };
    for _ in 0..caller.world.settings.steps {
        caller.step().await;
    }
}

impl Caller {
    async fn step(&mut self) {
        if self.happens(self.world.settings.rot) {
            let world = Rc::clone(&self.world);
            world.rot(&mut self.random);
        }
        match self.random.below(10) {
            0..=3 => self.store().await,
            4..=7 => self.load().await,
            8 => self.forget().await,
            _ => {
                self.look();
                pass(Duration::from_millis(self.random.below(2000))).await;
            }
        }
    }

    fn happens(&mut self, odds: u64) -> bool {
        self.random.below(1000) < odds
    }

    /// Different keys, as a list or as a run of those with one length.
    fn keys(&mut self) -> (Vec<u64>, bool) {
        let first = self.random.below(KEYS);
        let aligned = self.random.below(2) == 0;
        let mut numbers: Vec<u64> = (0..1 + self.random.below(6)).map(|at| (first + at * 7) % KEYS).collect();
        if aligned {
            numbers.retain(|number| bytes_of(*number) == bytes_of(first));
        }
        // Now and then, a key is in a batch twice.
        if self.random.below(8) == 0 {
            numbers.push(first);
        }
        (numbers, aligned)
    }

    fn options(&mut self) -> BatchOptions {
        let until = if self.random.below(2) == 0 { Until::Host } else { Until::Below };
        let urgency = if self.random.below(2) == 0 { Urgency::Urgent } else { Urgency::Ordinary };
        let options = BatchOptions::default().until(until).urgency(urgency);
        match self.happens(self.world.settings.hurry) {
            true => options.within(Duration::from_millis(self.random.below(400))),
            false => options,
        }
    }

    /// Awaits a batch, or drops its future; then the memory must come back in the end.
    async fn awaited(
        &mut self,
        batch: Result<Batch, SubmitError>,
        memory: Option<&Arc<HostArena>>,
    ) -> Option<Completion> {
        let batch = match batch {
            Ok(batch) => batch,
            Err(SubmitError::Busy { .. } | SubmitError::Closed) => return None,
            Err(error) => panic!("{error}"),
        };
        if self.happens(self.world.settings.drop) {
            self.world.lent.borrow_mut().extend(memory.cloned());
            drop(batch);
            return None;
        }
        Some(batch.await.expect("an answer"))
    }

    fn storing(&self, numbers: &[u64], delta: i64) {
        let mut known = self.world.known.borrow_mut();
        for number in numbers {
            let of = &mut known[*number as usize];
            (of.storing, of.changes) = (of.storing.wrapping_add_signed(delta), of.changes + 1);
        }
    }

    async fn store(&mut self) {
        let (numbers, aligned) = self.keys();
        let (keys, memory) = (names(&numbers), filled(&numbers, aligned));
        let options = self.options();
        self.storing(&numbers, 1);
        let batch = self.world.store.store(&keys, Arc::clone(&memory), options);
        if batch.is_err() {
            self.storing(&numbers, -1);
        }
        let Some(ended) = self.awaited(batch, Some(&memory)).await else { return };
        self.storing(&numbers, -1);
        self.note("store", &numbers, &ended);
        drop(ended);
        for (block, number) in numbers.iter().enumerate() {
            assert_eq!(
                *memory.read(block).expect("given back"),
                content(*number)[..],
                "a store changes nothing"
            );
        }
        assert_eq!(Arc::strong_count(&memory), 1, "the memory is given back");
    }

    async fn load(&mut self) {
        let (numbers, aligned) = self.keys();
        // A caller that is wrong about the length.
        let less = usize::from(self.random.below(12) == 0) * 8;
        let (keys, memory) = (names(&numbers), blank(&numbers, aligned, less));
        let there: Vec<bool> = keys.iter().map(|key| self.world.store.contains(*key)).collect();
        let options = self.options();
        let batch = self.world.store.load(&keys, Arc::clone(&memory), options);
        let Some(ended) = self.awaited(batch, Some(&memory)).await else { return };
        self.note("load", &numbers, &ended);
        for (block, (number, outcome)) in numbers.iter().zip(&ended.outcomes).enumerate() {
            let bytes = memory.read(block).expect("given back");
            match outcome {
                Outcome::Loaded(_) => {
                    assert_eq!(less, 0, "loaded to a span of another length");
                    assert_same(&bytes, *number);
                    self.world.loaded.set(self.world.loaded.get() + 1);
                }
                Outcome::Absent => assert!(bytes.iter().all(|byte| *byte == BLANK), "key {number}"),
                Outcome::Missed(_) => {}
                other => panic!("a load is answered with {other:?}"),
            }
            // A key that was there at the call is held from then on.
            if there[block] && less == 0 && self.is_calm() {
                assert!(outcome.is_done(), "key {number} was there: {outcome:?}");
            }
        }
        drop(ended);
        assert_eq!(Arc::strong_count(&memory), 1, "the memory is given back");
    }

    async fn forget(&mut self) {
        let (numbers, _) = self.keys();
        let before: Vec<_> =
            numbers.iter().map(|number| self.world.known.borrow()[*number as usize]).collect();
        let batch = self.world.store.forget(&names(&numbers));
        let Some(ended) = self.awaited(batch, None).await else { return };
        self.note("forget", &numbers, &ended);
        for ((number, before), outcome) in numbers.iter().zip(before).zip(&ended.outcomes) {
            let now = self.world.known.borrow()[*number as usize];
            let is_answered = matches!(outcome, Outcome::Forgotten | Outcome::Absent);
            if is_answered && before.storing == 0 && before.changes == now.changes {
                assert!(!self.world.store.contains(key(*number)), "key {number} is forgotten");
            }
        }
    }

    /// Each key that is found has its entry's length.
    fn look(&self) {
        for number in 0..KEYS {
            if let Some(found) = self.world.store.find(key(number)) {
                assert_eq!(found.bytes, bytes_of(number), "key {number}");
            }
        }
    }

    fn is_calm(&self) -> bool {
        let settings = &self.world.settings;
        settings.plan.fail == 0 && settings.queue > 100 && !settings.closes
    }

    fn note(&self, what: &str, numbers: &[u64], ended: &Completion) {
        self.world.note(|| format!("{} {what} {numbers:?}: {:?}", self.name, ended.outcomes));
    }
}

fn names(numbers: &[u64]) -> Vec<SequenceHash> {
    numbers.iter().map(|number| key(*number)).collect()
}
