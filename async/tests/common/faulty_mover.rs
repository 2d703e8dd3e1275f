//! A mover with faults drawn from a seed, over a sound one.
//!
//! ```text
//!   start ──┬─ lost: dropped, which is its answer
//!           └─ given to the mover below ──► its answer ──┬─ some copies have failed after all
//!                                                        └─ delayed: kept until `release`
//! ```
//!
//! Needs `common` at the test's root.

use crate::common::Random;
use kvstrata_tiers::transfer::{Cause, Copies, DeviceMover, Failure, Landed, Landing, Lands};
use std::sync::{Arc, Mutex};

/// Faults in percent: of lists, and for `failed` of copies.
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    pub lost: u64,
    pub delayed: u64,
    pub failed: u64,
}

#[derive(Debug)]
pub struct FaultyMover {
    inner: Arc<dyn DeviceMover>,
    books: Arc<Books>,
}

#[derive(Debug)]
struct Books {
    faults: Faults,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    seed: u64,
    started: u64,
    /// Lists below this number are answered without delay.
    released: u64,
    kept: Vec<Copies>,
}

impl State {
    fn happens(&mut self, percent: u64) -> bool {
        let mut random = Random(self.seed);
        let below = random.below(100);
        self.seed = random.0;
        below < percent
    }
}

impl FaultyMover {
    pub fn new(inner: Arc<dyn DeviceMover>, faults: Faults, seed: u64) -> FaultyMover {
        let state = State { seed, started: 0, released: 0, kept: Vec::new() };
        FaultyMover { inner, books: Arc::new(Books { faults, state: Mutex::new(state) }) }
    }

    /// Returns a function that ends the delay of all lists started by then, for a landing to call.
    pub fn release(&self) -> impl Fn() + Send + Sync + 'static {
        let books = Arc::clone(&self.books);
        move || books.release()
    }
}

impl Books {
    fn release(&self) {
        let mut state = self.state.lock().expect("no panic");
        state.released = state.started;
        let kept = std::mem::take(&mut state.kept);
        drop(state);
        drop(kept);
    }
}

impl DeviceMover for FaultyMover {
    fn start(&self, mut copies: Copies) {
        let mut state = self.books.state.lock().expect("no panic");
        let (lost, delayed) =
            (state.happens(self.books.faults.lost), state.happens(self.books.faults.delayed));
        let number = state.started;
        state.started += 1;
        drop(state);
        if lost {
            return;
        }
        let list = (0..copies.list().len()).map(|at| copies.lend(at)).collect();
        let books = Arc::clone(&self.books);
        let below = Below { copies: Mutex::new(Some(copies)), delayed: delayed.then_some(number), books };
        self.inner.start(Copies::new(list, Landing::new(Arc::new(below))));
    }

    fn blocks_at_once(&self) -> usize {
        self.inner.blocks_at_once()
    }

    fn describe(&self) -> String {
        format!("{}, with {:?}", self.inner.describe(), self.books.faults)
    }
}

impl Drop for FaultyMover {
    fn drop(&mut self) {
        self.books.release();
    }
}

/// Takes the answer of the mover below.
struct Below {
    /// The list as it came. Its copies are lent to the mover below.
    copies: Mutex<Option<Copies>>,
    delayed: Option<u64>,
    books: Arc<Books>,
}

impl Lands for Below {
    fn landed(&self, landed: Landed) {
        let Landed::Copies(list) = landed else { panic!("copies were started") };
        let mut copies = self.copies.lock().expect("no panic").take().expect("answered once");
        let mut state = self.books.state.lock().expect("no panic");
        for (place, mut copy) in copies.list_mut().iter_mut().zip(list) {
            if state.happens(self.books.faults.failed) {
                copy.outcome = Err(Failure::passing(Cause::Device));
            }
            *place = copy;
        }
        if self.delayed.is_some_and(|number| number >= state.released) {
            state.kept.push(copies);
        } else {
            drop(state);
            drop(copies);
        }
    }
}
