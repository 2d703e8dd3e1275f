//! Threads that the caller hands in: an engine has a pool of its own, pinned as it likes.

use std::thread;

/// A caller's threads.
pub trait Threads {
    /// Returns the number of parts that are worth making.
    fn count(&self) -> usize;

    /// Calls `part` once with each number below `parts`, on any threads, and returns when all calls
    /// have returned.
    fn run(&self, parts: usize, part: &(dyn Fn(usize) + Sync));
}

/// This many threads, started for each run; the calling thread is one of them. For tests, and for callers
/// without a pool.
#[derive(Clone, Copy, Debug)]
pub struct ScopedThreads(pub usize);

impl Threads for ScopedThreads {
    fn count(&self) -> usize {
        self.0.max(1)
    }

    fn run(&self, parts: usize, part: &(dyn Fn(usize) + Sync)) {
        let threads = self.count();
        // Part i, i + threads, …: no counter to share.
        let share = |first: usize| (first..parts).step_by(threads).for_each(part);
        thread::scope(|scope| {
            // Shares whose thread did not start run here, after the others have begun.
            let started =
                |thread: usize| thread::Builder::new().spawn_scoped(scope, move || share(thread)).is_ok();
            let left: Vec<usize> = (1..threads.min(parts)).filter(|thread| !started(*thread)).collect();
            share(0);
            left.into_iter().for_each(share);
        });
    }
}
