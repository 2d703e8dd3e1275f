//! Answers to keys.

use crate::outcome::{Miss, Outcome};
use crate::state::{Job, JobKey, State, Waiter};
use kvstrata_ffi::arena::{BlockRead, BlockWrite};

impl State {
    /// Answers a key, and ends its batch if that was the last one.
    pub(crate) fn answer(&mut self, to: Waiter, outcome: Outcome) {
        let Some(job) = self.jobs.get(to.job) else { return };
        let bytes = bytes_of(job, to);
        self.tally.answered(job.kind(), outcome, bytes);
        self.effects.ended.extend(self.jobs.answer(to, outcome));
    }

    /// Answers keys with the same outcome.
    pub(crate) fn answer_all(&mut self, to: Vec<Waiter>, outcome: Outcome) {
        to.into_iter().for_each(|to| self.answer(to, outcome));
    }

    pub(crate) fn miss(&mut self, to: Waiter, miss: Miss) {
        self.answer(to, Outcome::Missed(miss));
    }

    /// Adds a batch; `begin` starts its keys.
    pub(crate) fn begin(&mut self, job: Job, begin: impl FnOnce(&mut State, JobKey)) {
        let (key, is_first) = self.jobs.add(job);
        if is_first {
            self.effects.wake_at = self.jobs.next_deadline();
        }
        begin(self, key);
        // A batch without keys.
        self.effects.ended.extend(self.jobs.end(key));
    }

    /// Returns the length of the memory that was lent for a key.
    pub(crate) fn lent_bytes(&self, of: Waiter) -> usize {
        self.jobs.get(of.job).map_or(0, |job| bytes_of(job, of))
    }

    /// Borrows the memory that was lent for a key, to read it.
    pub(crate) fn read_lent(&self, of: Waiter) -> Option<BlockRead> {
        self.jobs.get(of.job)?.memory()?.read(of.index as usize).ok()
    }

    /// Borrows the memory that was lent for a key, to write it.
    pub(crate) fn write_lent(&self, of: Waiter) -> Option<BlockWrite> {
        self.jobs.get(of.job)?.memory()?.write(of.index as usize).ok()
    }
}

fn bytes_of(job: &Job, of: Waiter) -> usize {
    job.memory().map_or(0, |memory| memory.bytes_of(of.index as usize))
}
