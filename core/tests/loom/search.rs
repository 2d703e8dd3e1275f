//! How models are searched: shared by those in `tests/`, and, by path, by those in the modules of the
//! core and of ffi.
#![allow(dead_code)]

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Runs a model with up to three forced switches, or as many as `LOOM_MAX_PREEMPTIONS` says. Exhaustive
/// search is hopeless past a handful, and bugs show within two or three.
pub fn model(run: impl Fn() + Sync + Send + 'static) {
    model_within(3, run);
}

/// Runs a model with up to `bound` forced switches, or `LOOM_MAX_PREEMPTIONS` of them: for the long ones.
pub fn model_within(bound: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(bound));
    // Not loom's: this count over all runs is no part of any run.
    let runs = std::sync::Arc::new(AtomicU64::new(0));
    let counted = runs.clone();
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        run();
    });
    assert!(runs.load(Relaxed) > 1, "loom saw no race, and tried one order only: see `spawn`");
}

/// Like loom's own `spawn`, but each of the two threads may go first. loom looks for a race with the
/// last access to a location only. If one thread has loaded it, and the other loads it too and then
/// changes it, loom forgets the first load, and tries no other order.
pub fn spawn<T: 'static>(run: impl FnOnce() -> T + 'static) -> loom::thread::JoinHandle<T> {
    let coin = Arc::new(AtomicUsize::new(0));
    let other = coin.clone();
    let thread = loom::thread::spawn(move || {
        other.fetch_add(1, Relaxed);
        run()
    });
    coin.fetch_add(1, Relaxed);
    thread
}
