//! The only place that names `core::sync::atomic` or `loom`.
//!
//! Under `--cfg loom` every atomic of the crate is loom's, so that the models in `core/tests/loom_*.rs` run the
//! very code that ships. [`site!`] names an ordering, so that `--cfg kvstrata_mutation="name"` can weaken just that
//! one and show that a model notices (`ci/test mutations`).

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// For models of private parts, which live beside them.
#[cfg(all(test, loom))]
pub(crate) use {
    loom::sync::Arc,
    search::{model, model_within, spawn},
};

#[cfg(all(test, loom))]
#[path = "../tests/loom/search.rs"]
mod search;

pub(crate) use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Tells the processor (or loom's scheduler) that this loop waits for another thread's store.
#[inline]
pub(crate) fn spin_loop() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// A value alone on its cache lines: 128 bytes, since x86 prefetches lines in pairs and some Arm lines are that long.
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

impl<T> core::ops::Deref for CachePadded<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// The ordering of a named site: the strong one, or Relaxed in a build that mutates the site.
macro_rules! site {
    ($name:tt, $strong:expr) => {
        if cfg!(kvstrata_mutation = $name) { $crate::sync::Relaxed } else { $strong }
    };
}
/// Whether a named step is left out: never, but in a build that mutates it.
macro_rules! skipped {
    ($name:tt) => {
        cfg!(kvstrata_mutation = $name)
    };
}
pub(crate) use {site, skipped};
