//! Completions without futures: a queue, and a descriptor that is readable while the queue has any.
//!
//! ```text
//!   submit_load, … ──► Store ──► queue ──► drain
//!                                  └─ eventfd: poll, epoll, asyncio's add_reader
//! ```
//!
//! Invariants
//! - I1: a completion goes to the client that submitted its batch, and to one call of `drain` only.
//! - I2: the descriptor becomes readable after a completion was added. `drain` clears it before it takes
//!   the completions, so none is left in the queue of a descriptor that is not readable.

use crate::calls::options::BatchOptions;
use crate::calls::store::{Store, SubmitError};
use crate::outcome::{Completion, JobId, Kind};
use crate::state::Sink;
use kvstrata_core::SequenceHash;
use kvstrata_ffi::EventFd;
use kvstrata_ffi::arena::HostArena;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug)]
struct Queue {
    ended: Mutex<Vec<Completion>>,
    bell: EventFd,
}

/// A caller that polls. Dropping it drops the completions that it has not drained; their transfers go on.
#[derive(Debug)]
pub struct Client {
    store: Store,
    queue: Arc<Queue>,
}

impl Client {
    pub(crate) fn new(store: Store) -> io::Result<Client> {
        let queue = Arc::new(Queue { ended: Mutex::default(), bell: EventFd::new()? });
        Ok(Client { store, queue })
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the descriptor to poll. It stays open as long as the client.
    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.queue.bell.raw()
    }

    /// Begins to store block `i` of the lent memory under `keys[i]`: see [`Store::store`].
    ///
    /// # Errors
    /// [`SubmitError`]: nothing has begun.
    pub fn submit_store(
        &self,
        keys: &[SequenceHash],
        memory: Arc<HostArena>,
        options: BatchOptions,
    ) -> Result<JobId, SubmitError> {
        self.store.submit(Kind::Store, keys, Some(memory), options, self.sink())
    }

    /// Begins to load the bytes of `keys[i]` into block `i` of the lent memory: see [`Store::load`].
    ///
    /// # Errors
    /// [`SubmitError`]: nothing has begun.
    pub fn submit_load(
        &self,
        keys: &[SequenceHash],
        memory: Arc<HostArena>,
        options: BatchOptions,
    ) -> Result<JobId, SubmitError> {
        self.store.submit(Kind::Load, keys, Some(memory), options, self.sink())
    }

    /// Begins to forget keys: see [`Store::forget`].
    ///
    /// # Errors
    /// [`SubmitError`]: nothing has begun.
    pub fn submit_forget(&self, keys: &[SequenceHash]) -> Result<JobId, SubmitError> {
        self.store.submit(Kind::Forget, keys, None, BatchOptions::default(), self.sink())
    }

    /// Appends the batches that have ended since the last call, in the order of their ends.
    pub fn drain(&self, ended: &mut Vec<Completion>) {
        self.queue.bell.silence();
        ended.append(&mut self.queue.ended.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn sink(&self) -> Sink {
        let queue = Arc::clone(&self.queue);
        Sink::Client(Arc::new(move |completion| {
            let mut ended = queue.ended.lock().unwrap_or_else(PoisonError::into_inner);
            ended.push(completion);
            let is_first = ended.len() == 1;
            drop(ended);
            if is_first {
                queue.bell.ring();
            }
        }))
    }
}
