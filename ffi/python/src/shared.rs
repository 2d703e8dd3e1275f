//! A store as all of its Python handles share it: open, closing, closed, or of another process.
//!
//! ```text
//!   open ── close() of any handle ──► closing ── answered, or its time over ──► closed
//!   in a forked child: ForkedError from each call; closing and dropping do nothing
//! ```

use super::errors::{closed, forked};
use super::loans::{Ended, park, sweep};
use super::waits::wait;
use kvstrata::store::{Client, Completion, KvStore, Namespace};
use kvstrata_ffi::process::Origin;
use pyo3::prelude::*;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Stores of this process that may be open.
static OPENED: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// A store.
pub(crate) struct Shared {
    origin: Origin,
    /// `None`: a thread closes it, or has closed it.
    open: Mutex<Option<KvStore>>,
    /// Whether it is closed. Used only in the process that opened it.
    is_closed: Mutex<bool>,
    closed: Condvar,
    queues: Mutex<Vec<Weak<Queue>>>,
    pub(crate) ended: Arc<Ended>,
    pub(crate) namespace: Namespace,
    /// How long a close should take.
    pub(crate) within: Duration,
}

/// The completions of one handle.
#[derive(Default)]
pub(crate) struct Queue {
    /// `None` once the store is closed.
    client: Mutex<Option<Client>>,
    /// Completions that were there when it was closed.
    left: Mutex<Vec<Completion>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(store: KvStore) -> Arc<Shared> {
        let shared = Arc::new(Shared {
            origin: Origin::here(),
            namespace: store.namespace().clone(),
            within: store.shutdown_deadline(),
            open: Mutex::new(Some(store)),
            is_closed: Mutex::default(),
            closed: Condvar::new(),
            queues: Mutex::default(),
            ended: Arc::default(),
        });
        let mut opened = lock(&OPENED);
        opened.retain(|shared| shared.strong_count() > 0);
        opened.push(Arc::downgrade(&shared));
        shared
    }

    pub(crate) fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    /// Begins a call: refuses it in a forked child, and releases loans that have ended.
    pub(crate) fn enter(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_here() {
            return Err(forked());
        }
        self.ended.release(py);
        sweep(py);
        Ok(())
    }

    /// Returns the store, unless it is closed.
    pub(crate) fn store(&self) -> PyResult<KvStore> {
        lock(&self.open).clone().ok_or_else(closed)
    }

    /// Calls with the store, unless it is closed. The call must not run code of Python.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&KvStore) -> R) -> PyResult<R> {
        lock(&self.open).as_ref().map(call).ok_or_else(closed)
    }

    /// Makes a queue of completions.
    pub(crate) fn queue(&self) -> PyResult<Arc<Queue>> {
        let client = self.with(|store| store.client())??;
        let queue = Arc::new(Queue { client: Mutex::new(Some(client)), left: Mutex::default() });
        let mut queues = lock(&self.queues);
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(&queue));
        Ok(queue)
    }

    /// Closes the store, or waits until another thread has closed it. Returns whether it ended in time.
    pub(crate) fn close(&self, py: Python<'_>, until: Option<Instant>) -> PyResult<bool> {
        let taken = lock(&self.open).take();
        let Some(store) = taken else { return Ok(self.wait_closed(py, until)) };
        let ended = wait(py, store.shutdown(), until);
        let queues: Vec<_> = lock(&self.queues).drain(..).filter_map(|queue| queue.upgrade()).collect();
        let clients: Vec<_> = queues.iter().filter_map(|queue| queue.end()).collect();
        py.detach(|| {
            // The last handles of the store: their drop may wait for threads.
            drop((clients, store));
            *lock(&self.is_closed) = true;
            self.closed.notify_all();
        });
        self.ended.release(py);
        ended.map(|ended| ended.is_some())
    }

    fn wait_closed(&self, py: Python<'_>, until: Option<Instant>) -> bool {
        py.detach(|| {
            let mut is_closed = lock(&self.is_closed);
            while !*is_closed {
                let Some(until) = until else {
                    is_closed = self.closed.wait(is_closed).unwrap_or_else(PoisonError::into_inner);
                    continue;
                };
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return false;
                }
                let waited = self.closed.wait_timeout(is_closed, left);
                is_closed = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            true
        })
    }
}

/// Closes all stores of this process, at the end of the interpreter, so that a restart finds the keys of the
/// last moments too. Each gets the time of its `deadline.shutdown`.
#[pyfunction]
pub(crate) fn close_all(py: Python<'_>) -> PyResult<()> {
    let opened: Vec<_> = lock(&OPENED).drain(..).filter_map(|shared| shared.upgrade()).collect();
    for shared in opened.into_iter().filter(|shared| shared.is_here()) {
        shared.close(py, Instant::now().checked_add(shared.within))?;
    }
    Ok(())
}

impl Queue {
    /// Calls with the client, unless the store is closed. The call must not run code of Python.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&Client) -> R) -> PyResult<R> {
        lock(&self.client).as_ref().map(call).ok_or_else(closed)
    }

    /// Takes the completions, also those that a close has left.
    pub(crate) fn drain(&self) -> Vec<Completion> {
        let mut ended = std::mem::take(&mut *lock(&self.left));
        if let Some(client) = lock(&self.client).as_ref() {
            client.drain(&mut ended);
        }
        ended
    }

    fn end(&self) -> Option<Client> {
        let client = lock(&self.client).take()?;
        client.drain(&mut lock(&self.left));
        Some(client)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.is_here() {
            // A thread of the parent may hold the list's lock for ever.
            return std::mem::forget(Arc::clone(&self.ended));
        }
        // A handle of Python is freed with the GIL held, except after the end of the interpreter.
        let _ = Python::try_attach(|py| park(py, Arc::clone(&self.ended)));
    }
}
