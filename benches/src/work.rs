//! An operation that can be timed.

use crate::clock::thread_time;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// One thread's operation.
pub trait Work {
    /// Blocks (or tokens) that one run handles.
    fn items(&self) -> u64;
    /// Makes what `runs` runs consume. Never timed.
    fn prepare(&mut self, runs: u64) {
        let _ = runs;
    }
    /// The operation, once.
    fn run(&mut self);
}

/// What a clock can be held to. The loop is inside, so that a run costs no dynamic call.
pub trait Timed {
    /// Blocks (or tokens) that one run handles, over all threads.
    fn items(&self) -> u64;
    /// How long `runs` runs take.
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

/// One operation a thread, all at once, in whatever they share. Wall time, since waiting for each other counts, of the slowest thread.
/// With one thread it is what several are compared with: by the same clock.
pub struct Together<W, const THREADS: usize>(pub [W; THREADS]);

impl<W: Work + Send, const THREADS: usize> Timed for Together<W, THREADS> {
    fn items(&self) -> u64 {
        self.0.iter().map(Work::items).sum()
    }

    fn time(&mut self, runs: u64) -> Duration {
        let start = Barrier::new(self.0.len());
        std::thread::scope(|scope| {
            let threads = self.0.each_mut().map(|work| {
                let start = &start;
                scope.spawn(move || {
                    work.prepare(runs);
                    start.wait();
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
