//! Threads that the caller hands in: an engine has a pool of its own, and pins it as it likes.

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
        std::thread::scope(|scope| {
            for thread in 1..threads.min(parts) {
                scope.spawn(move || share(thread));
            }
            share(0);
        });
    }
}
