//! The types that loom models replace: the only place in this crate that names loom.
//!
//! In the crate's own tests under `--cfg loom`, the atomics, the lock and the queue of `arena/borrow.rs`,
//! `disk/doorbell.rs` and `disk/inbox.rs` are loom's, so the models beside them run the very code that
//! ships. [`site!`] and [`skipped!`] are as in the core's `sync.rs`: `KVSTRATA_MUTATION=name` weakens or
//! skips the named site, and a model must notice (`ci/test mutations`).

#[cfg(not(all(test, loom)))]
pub(crate) use {
    core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence},
    crossbeam_queue::ArrayQueue,
    std::sync::{Condvar, Mutex, MutexGuard},
};
#[cfg(all(test, loom))]
pub(crate) use {
    loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence},
    loom::sync::{Condvar, Mutex, MutexGuard},
    queue::ArrayQueue,
};

/// For the models themselves.
#[cfg(all(test, loom))]
pub(crate) use {
    loom::cell::UnsafeCell,
    loom::sync::{Arc, Notify},
    search::{model, model_within, spawn},
};

#[cfg(all(test, loom))]
#[path = "../../core/tests/loom/search.rs"]
mod search;

/// The ordering of a named site: the strong one, or Relaxed if a model is told to mutate the site.
macro_rules! site {
    ($name:tt, $strong:expr) => {
        if $crate::sync::mutated($name) { $crate::sync::Ordering::Relaxed } else { $strong }
    };
}
/// Whether a named step is left out: only if a model is told to mutate it.
macro_rules! skipped {
    ($name:tt) => {
        $crate::sync::mutated($name)
    };
}
pub(crate) use {site, skipped};

/// Whether `KVSTRATA_MUTATION` names this site or step. Read at run time, by models only: one build
/// serves all mutations.
#[cfg(loom)]
pub(crate) fn mutated(name: &str) -> bool {
    static ASKED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    ASKED.get_or_init(|| std::env::var("KVSTRATA_MUTATION").ok()).as_deref() == Some(name)
}
/// Always false: the shipped code has no mutations.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn mutated(_name: &str) -> bool {
    false
}

#[cfg(all(test, loom))]
mod queue {
    use super::{AtomicUsize, Ordering};
    use std::collections::VecDeque;

    /// Stands in for crossbeam's queue, whose atomics loom cannot see. It promises less: a pop sees the
    /// writes that its push published, and nothing else is ordered. "Full" and "empty" may be stale, while
    /// the real queue has fences. So whatever the models show with this one also holds for the real one.
    pub(crate) struct ArrayQueue<T> {
        len: AtomicUsize,
        /// Follows `len` without a loom step in between, so no thread finds it locked or at odds with `len`.
        items: std::sync::Mutex<VecDeque<T>>,
        capacity: usize,
    }

    impl<T> ArrayQueue<T> {
        pub(crate) fn new(capacity: usize) -> ArrayQueue<T> {
            ArrayQueue { len: AtomicUsize::new(0), items: std::sync::Mutex::default(), capacity }
        }

        pub(crate) fn push(&self, item: T) -> Result<(), T> {
            // Release: pairs with the Acquire in `pop`. Failure publishes nothing: Relaxed.
            let grown = |len| (len < self.capacity).then_some(len + 1);
            match self.len.fetch_update(Ordering::Release, Ordering::Relaxed, grown) {
                Ok(_) => {
                    self.items.lock().expect("no panic under the lock").push_back(item);
                    Ok(())
                }
                Err(_) => Err(item),
            }
        }

        pub(crate) fn pop(&self) -> Option<T> {
            // Acquire: pairs with the Release in `push`. Failure publishes nothing: Relaxed.
            let shrunk = |len: usize| len.checked_sub(1);
            self.len.fetch_update(Ordering::Acquire, Ordering::Relaxed, shrunk).ok()?;
            self.items.lock().expect("no panic under the lock").pop_front()
        }

        pub(crate) fn len(&self) -> usize {
            self.len.load(Ordering::Relaxed)
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.len() == 0
        }
    }
}
