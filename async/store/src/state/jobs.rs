//! Batches under way.
//!
//! Invariants
//! - I1: each key of a batch is answered once. The batch ends with its last answer.
//! - I2: a key is not answered while a device or a copy may touch its memory. So memory
//!   goes back to the caller only when nothing touches it.

use crate::outcome::{Completion, JobId, Kind, Miss, Outcome};
use futures_channel::oneshot;
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::disk::Urgency;
use slab::Slab;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Where the completion of a batch goes.
pub(crate) enum Sink {
    Future(oneshot::Sender<Completion>),
    Client(Arc<dyn Fn(Completion) + Send + Sync>),
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Sink::Future(_)) { "Future" } else { "Client" })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobKey(usize);

/// A key of a batch that waits for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) job: JobKey,
    pub(crate) index: u32,
}

/// A batch.
#[derive(Debug)]
pub(crate) struct Job {
    id: JobId,
    kind: Kind,
    memory: Option<Arc<HostArena>>,
    outcomes: Box<[Outcome]>,
    left: usize,
    deadline: Duration,
    pub(crate) urgency: Urgency,
    /// A store is answered when the bytes are in host memory.
    pub(crate) until_host: bool,
    sink: Sink,
}

impl Job {
    pub(crate) fn new(
        (id, kind): (JobId, Kind),
        keys: usize,
        memory: Option<Arc<HostArena>>,
        deadline: Duration,
        (urgency, until_host): (Urgency, bool),
        sink: Sink,
    ) -> Job {
        // Overwritten by each answer (I1).
        let outcomes = vec![Outcome::Missed(Miss::Closed); keys].into();
        Job { id, kind, memory, outcomes, left: keys, deadline, urgency, until_host, sink }
    }

    pub(crate) fn memory(&self) -> Option<&Arc<HostArena>> {
        self.memory.as_ref()
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether its deadline has passed.
    pub(crate) fn is_late(&self, now: Duration) -> bool {
        self.deadline <= now
    }

    fn complete(self) -> (Sink, Completion) {
        let Job { id, kind, memory, outcomes, sink, .. } = self;
        (sink, Completion { job: id, kind, outcomes, memory })
    }
}

/// The batches, and their deadlines.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    all: Slab<Job>,
    deadlines: BTreeSet<(Duration, JobKey)>,
}

impl Jobs {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a batch. Returns whether its deadline is the first.
    pub(crate) fn add(&mut self, job: Job) -> (JobKey, bool) {
        let deadline = job.deadline;
        let key = JobKey(self.all.insert(job));
        self.deadlines.insert((deadline, key));
        (key, self.deadlines.first() == Some(&(deadline, key)))
    }

    pub(crate) fn get(&self, key: JobKey) -> Option<&Job> {
        self.all.get(key.0)
    }

    /// Answers a key. Returns the completion if it was the last one (I1).
    pub(crate) fn answer(&mut self, waiter: Waiter, outcome: Outcome) -> Option<(Sink, Completion)> {
        let job = self.all.get_mut(waiter.job.0)?;
        *job.outcomes.get_mut(waiter.index as usize)? = outcome;
        job.left -= 1;
        self.end(waiter.job)
    }

    /// Ends a batch if it has all answers; a batch without keys has.
    pub(crate) fn end(&mut self, key: JobKey) -> Option<(Sink, Completion)> {
        let job = self.all.get(key.0).filter(|job| job.left == 0)?;
        self.deadlines.remove(&(job.deadline, key));
        Some(self.all.remove(key.0).complete())
    }

    /// Takes the next late batch off the list of deadlines.
    pub(crate) fn pop_late(&mut self, now: Duration) -> Option<JobKey> {
        let (at, _) = self.deadlines.first().copied()?;
        (at <= now).then(|| self.deadlines.pop_first()).flatten().map(|(_, key)| key)
    }

    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(at, _)| *at)
    }
}
