//! A value behind a try-lock: one thread at a time holds it, and no thread waits for it.
//!
//! I1. The thread that has set `taken` from 0 to 1 is alone with the value until it stores 0.

use crate::sync::{Acquire, AtomicU32, Relaxed, Release, UnsafeCell, site, skipped};

pub(super) struct TryLock<T> {
    taken: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: I1: one thread at a time reaches the value, each after the one before; so `T: Send` is enough.
unsafe impl<T: Send> Sync for TryLock<T> {}

impl<T> TryLock<T> {
    pub(super) fn new(value: T) -> TryLock<T> {
        TryLock { taken: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Runs `work` on the value and returns its result; none if another thread holds the lock. If `work`
    /// panics, the lock stays taken for ever.
    #[inline]
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        // Acquire: pairs with the Release below, by the previous holder. Relaxed: a first look; if it
        // fails, nothing is read.
        let take = site!("reuse_lock_relaxed", Acquire);
        let is_taken =
            self.taken.load(Relaxed) != 0 || self.taken.compare_exchange(0, 1, take, Relaxed).is_err();
        if is_taken && !skipped!("reuse_lock_shared") {
            return None;
        }
        let result = self.value.with_mut(|value| {
            // SAFETY: I1: we have set `taken`, so no other reference exists.
            work(unsafe { &mut *value })
        });
        // Release: pairs with the Acquire above, by the next holder.
        self.taken.store(0, site!("reuse_unlock_relaxed", Release));
        Some(result)
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::{Arc, model, spawn};

    /// Two threads add to the value one after the other, or one of them is refused.
    #[test]
    fn reuse_lock_has_one_holder() {
        model(|| {
            let lock = Arc::new(TryLock::new(0));
            let other = lock.clone();
            let add = |lock: &TryLock<u32>| u32::from(lock.with(|value| *value += 1).is_some());
            let thread = spawn(move || add(&other));
            let both = add(&lock) + thread.join().expect("no panic");
            assert_eq!(lock.with(|value| *value), Some(both));
        });
    }
}
