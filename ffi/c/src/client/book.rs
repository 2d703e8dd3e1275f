//! The jobs of a client, from the call to the report.
//!
//! ```text
//!   submit ──► jobs ── answers ──┬─► ended ──► the caller
//!      ▲                         └─► late ─┘   the loan of its memory was not over yet
//!      └ early: answers that came before the submit had entered its job
//! ```
//!
//! Invariants
//! - I1: a job that a submit has entered is in `jobs`, `late` or `ended`, and is reported once.
//! - I2: a job is in `ended` only after its loan is over: nothing of the store touches its memory then.
//! - I3: the caller's array of outcomes is written once, when the job is reported, by the thread that reports
//!   it.

use crate::client::loan::Loan;
use crate::outcome::kvs_outcome;
use kvstrata::store::{Client, Completion, Kind};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The kind of a job: the call that began it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum kvs_kind {
    /// kvs_submit_store.
    KVS_STORE = 1,
    /// kvs_submit_load.
    KVS_LOAD = 2,
    /// kvs_submit_forget.
    KVS_FORGET = 3,
}

/// A job that has ended. Its memory and its outcomes are the caller's again.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct kvs_completion {
    /// The number that the call gave.
    pub job: u64,
    /// The user_data of the job's options; 0 without.
    pub user_data: u64,
    /// The number of keys.
    pub keys: usize,
    /// The number of keys that were done.
    pub done: usize,
    /// The number of leading keys that were done: the usable prefix of a load.
    pub leading: usize,
    /// The array that the call got, filled now; NULL if it got none.
    pub outcomes: *mut kvs_outcome,
    /// The call that began the job.
    pub kind: kvs_kind,
    /// 0.
    pub reserved: u32,
}

/// A caller's array of outcomes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcomes(pub(super) *mut kvs_outcome);

// SAFETY: C4: the array is the library's until the job is reported, by whichever thread. Only that thread
// follows the pointer (I3).
unsafe impl Send for Outcomes {}

/// A job under way.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) user_data: u64,
    pub(super) outcomes: Outcomes,
    pub(super) loan: Option<Arc<Loan>>,
}

/// A job with its answers.
#[derive(Debug)]
struct Ended {
    completion: Completion,
    pending: Pending,
}

#[derive(Debug, Default)]
pub(super) struct Book {
    jobs: HashMap<u64, Pending>,
    late: Vec<Ended>,
    ended: VecDeque<Ended>,
    early: HashMap<u64, Completion>,
    /// Submits between their beginning and their entry.
    submitting: usize,
    /// Loans of calls that panicked: their jobs are not reported.
    lost: Vec<Arc<Loan>>,
    drained: Vec<Completion>,
}

impl Book {
    /// Begins a submit. It ends with `enter`, `lose` or `refuse`.
    pub(super) fn begin(&mut self) {
        self.submitting += 1;
    }

    /// Enters a job. Returns whether it has all answers already.
    pub(super) fn enter(&mut self, job: u64, pending: Pending) -> bool {
        self.submitting -= 1;
        match self.early.remove(&job) {
            Some(completion) => {
                self.settle(Ended { completion, pending });
                true
            }
            None => {
                self.jobs.insert(job, pending);
                false
            }
        }
    }

    /// Ends a submit that the store has refused.
    pub(super) fn refuse(&mut self) {
        self.submitting -= 1;
    }

    /// Ends a submit that has panicked.
    pub(super) fn lose(&mut self, loan: Option<Arc<Loan>>) {
        self.submitting -= 1;
        self.lost.extend(loan);
    }

    /// Takes the answers that the client has. Its descriptor is not readable afterwards, unless more come.
    pub(super) fn take_answers(&mut self, client: &Client) {
        client.drain(&mut self.drained);
        // Those that waited come first.
        for ended in std::mem::take(&mut self.late) {
            self.settle(ended);
        }
        for mut completion in std::mem::take(&mut self.drained) {
            // The last handle, unless a thread of the store has not let go of it yet.
            drop(completion.memory.take());
            match self.jobs.remove(&completion.job.0) {
                Some(pending) => self.settle(Ended { completion, pending }),
                None => _ = self.early.insert(completion.job.0, completion),
            }
        }
    }

    /// Puts a job where it belongs (I2).
    fn settle(&mut self, ended: Ended) {
        if ended.pending.loan.as_ref().is_none_or(|loan| loan.is_over()) {
            self.ended.push_back(ended);
        } else {
            self.late.push(ended);
        }
    }

    /// Returns whether a job is to be reported.
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Returns whether the store may touch memory of a job.
    pub(super) fn is_lent(&mut self) -> bool {
        self.lost.retain(|loan| !loan.is_over());
        self.submitting > 0 || !(self.jobs.is_empty() && self.late.is_empty() && self.lost.is_empty())
    }

    /// Reports a job: writes its outcomes, and forgets it (I1).
    pub(super) fn report(&mut self) -> Option<kvs_completion> {
        let Ended { completion, pending } = self.ended.pop_front()?;
        let to = pending.outcomes.0;
        if !to.is_null() {
            for (index, outcome) in completion.outcomes.iter().enumerate() {
                // SAFETY: C4: the array has a place for each key of the job, and is the library's still (I3).
                let place = unsafe { to.add(index) };
                // SAFETY: as above.
                unsafe { place.write(kvs_outcome::of(*outcome)) };
            }
        }
        let kind = match completion.kind {
            Kind::Store => kvs_kind::KVS_STORE,
            Kind::Load => kvs_kind::KVS_LOAD,
            Kind::Forget => kvs_kind::KVS_FORGET,
        };
        Some(kvs_completion {
            job: completion.job.0,
            user_data: pending.user_data,
            keys: completion.outcomes.len(),
            done: completion.outcomes.iter().filter(|outcome| outcome.is_done()).count(),
            leading: completion.leading(),
            outcomes: to,
            kind,
            reserved: 0,
        })
    }
}
