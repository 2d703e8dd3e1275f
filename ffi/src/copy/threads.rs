//! Threads that the caller hands in: an engine has a pool of its own, and pins it as it likes.

use std::thread;

/// Somebody's threads.
pub trait Threads {
    /// How many parts are worth making.
    fn count(&self) -> usize;

    /// Calls `part` once with each number below `parts`, on any threads, and returns when all calls have.
    fn run(&self, parts: usize, part: &(dyn Fn(usize) + Sync));
}

/// So many threads, made for each run; the calling one is among them. For tests, and where nobody has a pool.
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
            // What finds no thread is done here, behind the others' begin.
            let started =
                |thread: usize| thread::Builder::new().spawn_scoped(scope, move || share(thread)).is_ok();
            let left: Vec<usize> = (1..threads.min(parts)).filter(|thread| !started(*thread)).collect();
            share(0);
            left.into_iter().for_each(share);
        });
    }
}
