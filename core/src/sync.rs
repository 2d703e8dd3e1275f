//! The only place that names `core::sync::atomic` or `loom`.
//!
//! Under `--cfg loom` every atomic of the crate is loom's, so that the models in `core/tests/loom_*.rs` run
//! the very code that ships. [`site!`] names an ordering, so that `KVSTRATA_MUTATION=name` can weaken just
//! that one and show that a model notices (`ci/test mutations`).

/// For figures that are read and never decide anything: models have nothing to find there, and
/// would try each of their orders.
pub(crate) mod figures {
    pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
}

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

/// As loom's.
#[cfg(not(loom))]
pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(core::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, work: impl FnOnce(*mut T) -> R) -> R {
        work(self.0.get())
    }
}

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

/// A value alone on its cache lines: 128 bytes, since x86 prefetches lines in pairs and some Arm lines
/// are that long.
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

impl<T> core::ops::Deref for CachePadded<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// The ordering of a named site: the strong one, or Relaxed if a model mutates the site.
macro_rules! site {
    ($name:tt, $strong:expr) => {
        if $crate::sync::mutated($name) { $crate::sync::Relaxed } else { $strong }
    };
}
/// Whether a named step is left out: never, except if a model mutates it.
macro_rules! skipped {
    ($name:tt) => {
        $crate::sync::mutated($name)
    };
}
pub(crate) use {site, skipped};

/// Returns whether `KVSTRATA_MUTATION` names this site or step. Evaluated at run time, by models only:
/// one build serves all mutations.
#[cfg(loom)]
pub(crate) fn mutated(name: &str) -> bool {
    static ASKED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    ASKED.get_or_init(|| std::env::var("KVSTRATA_MUTATION").ok()).as_deref() == Some(name)
}
/// Always false: release builds have no mutations.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn mutated(_name: &str) -> bool {
    false
}
