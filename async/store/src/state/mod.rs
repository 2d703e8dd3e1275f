//! The state under the store's lock, by owner: a type keeps its fields private and its invariants true.
//!
//! | file | contents |
//! |---|---|
//! | `jobs.rs` | batches: which answers they still wait for |
//! | `reads.rs`, `writes.rs` | transfers by key, with the batches that wait for them |
//! | `copies.rs` | copies from host memory, or from another batch's memory, to a batch's memory |
//! | `lane.rs` | the queues and the breaker of a size class, and its staging blocks |
//! | `effects.rs` | work for after the lock is released |

mod copies;
mod effects;
mod jobs;
mod lane;
mod reads;
mod token;
mod writes;

pub(crate) use copies::{CopyFrom, CopyOut};
pub(crate) use effects::Effects;
pub(crate) use jobs::{Job, JobKey, Jobs, Sink, Waiter};
pub(crate) use lane::Lane;
pub(crate) use reads::{Into, Read, ReadKey, Reads};
pub(crate) use token::{CopyKey, TransferId};
pub(crate) use writes::{From, Write, WriteKey, Writes};

use crate::size_class::Scratch;
use crate::stats::Tally;
use slab::Slab;

/// All of it.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) jobs: Jobs,
    pub(crate) reads: Reads,
    pub(crate) writes: Writes,
    pub(crate) copies: Slab<CopyOut>,
    pub(crate) lanes: Box<[Lane]>,
    pub(crate) effects: Effects,
    pub(crate) scratch: Scratch,
    pub(crate) tally: Tally,
    /// A task is about to carry out effects.
    pub(crate) is_starting: bool,
    pub(crate) is_closed: bool,
}

impl State {
    pub(crate) fn new(lanes: Box<[Lane]>) -> State {
        State {
            jobs: Jobs::default(),
            reads: Reads::default(),
            writes: Writes::default(),
            copies: Slab::new(),
            lanes,
            effects: Effects::default(),
            scratch: Scratch::default(),
            tally: Tally::default(),
            is_starting: false,
            is_closed: false,
        }
    }

    /// Whether nothing is under way, and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.reads.is_empty() && self.writes.is_empty() && self.copies.is_empty()
    }
}
