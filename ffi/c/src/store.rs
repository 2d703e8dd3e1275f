//! The handle of a store, and its end.
//!
//! Invariants
//! - I1: one thread closes the store, once. Every call of `kvs_close` waits for that thread.

use crate::bell::Limit;
use crate::edge::check_here;
use crate::namespaces::Namespaces;
use crate::status::Failure;
use crate::status::kvs_status::KVS_CLOSED;
use kvstrata::store::KvStore;
use kvstrata_ffi::EventFd;
use kvstrata_ffi::process::Origin;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake};
use std::thread;

/// A store: blocks by key, in host memory and on disk. kvs_open makes it, kvs_store_free ends it.
pub struct kvs_store {
    pub(crate) shared: Arc<Shared>,
}

/// The parts of a store that its clients keep.
pub(crate) struct Shared {
    pub(crate) store: KvStore,
    pub(crate) namespaces: Namespaces,
    pub(crate) origin: Origin,
    closing: Arc<Closing>,
}

struct Closing {
    /// Relaxed: a hint. A call that reads an old value submits to a closed store, which answers misses.
    has_begun: AtomicBool,
    state: Mutex<ClosingState>,
    news: Condvar,
    /// Readable once the store is closed.
    closed: EventFd,
}

#[derive(Default)]
struct ClosingState {
    has_begun: bool,
    has_ended: bool,
}

/// Tells that the store is closed, however the thread that closes it ends.
struct Ending(Arc<Closing>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).has_ended = true;
        self.0.news.notify_all();
        self.0.closed.ring();
    }
}

impl kvs_store {
    pub(crate) fn new(store: KvStore) -> io::Result<kvs_store> {
        let closing = Closing {
            has_begun: AtomicBool::new(false),
            state: Mutex::default(),
            news: Condvar::new(),
            closed: EventFd::new()?,
        };
        let namespaces = Namespaces::new(store.namespace());
        let shared = Shared { store, namespaces, origin: Origin::here(), closing: Arc::new(closing) };
        Ok(kvs_store { shared: Arc::new(shared) })
    }
}

impl Shared {
    /// Refuses calls once a close has begun.
    pub(crate) fn check_open(&self) -> Result<(), Failure> {
        match self.closing.has_begun.load(Relaxed) {
            false => Ok(()),
            true => Err(Failure::new(KVS_CLOSED, "store: closed; open another one")),
        }
    }

    /// Returns a descriptor that is readable once the store is closed.
    pub(crate) fn closed(&self) -> i32 {
        self.closing.closed.raw()
    }

    /// Closes the store, once (I1). Returns whether it is closed within the limit.
    pub(crate) fn close(self: &Arc<Shared>, limit: Limit) -> io::Result<bool> {
        let closing = &self.closing;
        let mut state = closing.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.has_begun {
            let (shared, told) = (Arc::clone(self), Arc::clone(closing));
            let close = move || {
                let ending = Ending(told);
                wait_for(shared.store.shutdown());
                // First: a caller that is told may free the store, and open its volumes again.
                drop(shared);
                drop(ending);
            };
            thread::Builder::new().name("kvstrata-end".to_owned()).spawn(close)?;
            state.has_begun = true;
            closing.has_begun.store(true, Relaxed);
        }
        while !state.has_ended {
            state = match limit.left() {
                None => closing.news.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return Ok(false),
                Some(left) => {
                    let waited = closing.news.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        Ok(true)
    }
}

/// Waits for a future on this thread.
fn wait_for(future: impl Future<Output = ()>) {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Unpark>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    while future.as_mut().poll(&mut context) == Poll::Pending {
        thread::park();
    }
}

/// Returns the store behind a handle of this process.
///
/// # Safety
/// C1.
pub(crate) unsafe fn store<'a>(store: *const kvs_store) -> Result<&'a Arc<Shared>, Failure> {
    // SAFETY: C1.
    let store = unsafe { store.as_ref() };
    let store = store.ok_or_else(|| Failure::invalid("store: NULL; give a store that kvs_open made"))?;
    check_here(store.shared.origin, "store")?;
    Ok(&store.shared)
}
