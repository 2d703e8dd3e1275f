//! An operation that can be timed.

use crate::clock::{pin_to, thread_time};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// One thread's operation.
pub trait Work {
    /// Blocks (or tokens) that one run handles.
    fn items(&self) -> u64;
    /// Makes the inputs of `runs` runs. Never timed.
    fn prepare(&mut self, runs: u64) {
        let _ = runs;
    }
    /// Performs the operation once.
    fn run(&mut self);
}

/// An operation with a clock. The loop is inside, so that a run costs no dynamic call.
pub trait Timed {
    /// Blocks (or tokens) that one run handles, over all threads.
    fn items(&self) -> u64;
    /// Returns the time of `runs` runs.
    fn time(&mut self, runs: u64) -> Duration;
}

impl<W: Work> Timed for W {
    fn items(&self) -> u64 {
        Work::items(self)
    }

    fn time(&mut self, runs: u64) -> Duration {
        self.prepare(runs);
        let start = thread_time();
        repeat(self, runs);
        thread_time() - start
    }
}

#[inline]
fn repeat(work: &mut impl Work, runs: u64) {
    for _ in 0..runs {
        black_box(&mut *work).run();
    }
}

/// One operation a thread, all at once, in the data that they share. Wall time of the slowest thread, since
/// waiting for each other counts. With one thread, it is the baseline for several threads: by the same clock.
pub struct Together<W, const THREADS: usize>([Apart<W>; THREADS]);

/// The data that one thread writes, on cache lines of its own.
#[repr(align(128))]
struct Apart<W>(W);

impl<W, const THREADS: usize> Together<W, THREADS> {
    /// Takes one operation for each thread.
    pub fn new(works: [W; THREADS]) -> Self {
        Together(works.map(Apart))
    }
}

impl<W: Work + Send, const THREADS: usize> Timed for Together<W, THREADS> {
    fn items(&self) -> u64 {
        self.0.iter().map(|work| work.0.items()).sum()
    }

    fn time(&mut self, runs: u64) -> Duration {
        // Each thread has a core, and they spin at the start: otherwise the scheduler now and then lets
        // them share one for much of the turn.
        let ready = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let mut cpu = 0;
            let threads = self.0.each_mut().map(|Apart(work)| {
                cpu += 1;
                let cpu = cpu - 1;
                let ready = &ready;
                scope.spawn(move || {
                    pin_to(cpu);
                    work.prepare(runs);
                    // Relaxed: it only starts a clock.
                    ready.fetch_add(1, Ordering::Relaxed);
                    while ready.load(Ordering::Relaxed) < THREADS {
                        spin_loop();
                    }
                    let start = Instant::now();
                    repeat(work, runs);
                    start.elapsed()
                })
            });
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a benchmark panicked"))
                .max()
                .unwrap_or_default()
        })
    }
}
