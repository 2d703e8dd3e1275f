//! Counters without contention: one set for each core, up to a limit. A thread's number selects its set.
//!
//! ```text
//!   thread   0  1  2  3  4  5 …
//!   stripe   0  1  2  3  0  1 …      each alone on its cache lines; a reader adds them up
//! ```
//!
//! Threads may share a stripe: they add to it with `fetch_add`, so nothing is lost, and a thread that
//! ends has nothing to give back.
//!
//! # Orderings
//! Relaxed: a thread's number need only differ from others, and the counts publish nothing.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::available_parallelism;

/// More stripes would only make sums slower.
const MOST: usize = 64;

/// One set of counters, alone on its cache lines: 128 bytes, since x86 prefetches lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

/// A set of counters for each stripe.
#[derive(Debug)]
pub struct Stripes<T>(Box<[Padded<T>]>);

impl<T> Stripes<T> {
    /// Makes one set for each core, rounded up to a power of two, and at most 64.
    pub fn new(one: impl Fn() -> T) -> Stripes<T> {
        let cores = available_parallelism().map_or(1, usize::from);
        Stripes((0..cores.next_power_of_two().min(MOST)).map(|_| Padded(one())).collect())
    }

    /// Counts in the calling thread's set, by [`add`].
    #[inline]
    pub fn count(&self, in_it: impl FnOnce(&T)) {
        if counting() {
            in_it(self.mine());
        }
    }

    /// Adds to one counter of the calling thread's set.
    #[inline]
    pub fn add(&self, counter: impl FnOnce(&T) -> &AtomicU64, by: u64) {
        self.count(|mine| add(counter(mine), by));
    }

    /// Returns the sum of one counter over all sets.
    pub fn sum(&self, counter: impl Fn(&T) -> &AtomicU64) -> u64 {
        self.all().map(|stripe| counter(stripe).load(Relaxed)).sum()
    }

    /// Returns the calling thread's set.
    #[inline]
    fn mine(&self) -> &T {
        // The number of sets is a power of two.
        &self.0[number() & (self.0.len() - 1)].0
    }

    /// Returns all sets, for a reader to add up.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|stripe| &stripe.0)
    }
}

/// Adds to a counter of a stripe.
#[inline]
pub fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

/// Whether anything is counted. Always true, unless a benchmark of counting has turned it off.
#[inline]
pub fn counting() -> bool {
    #[cfg(feature = "bench")]
    return bench::COUNTING.load(Relaxed);
    #[cfg(not(feature = "bench"))]
    true
}

/// For benchmarks.
#[cfg(feature = "bench")]
pub mod bench {
    use std::sync::atomic::AtomicBool;

    /// Whether managers count. Figures that were counted only in part are worthless.
    pub static COUNTING: AtomicBool = AtomicBool::new(true);
}

/// Returns the calling thread's number: at its first call, the next one.
#[inline]
fn number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Relaxed);
    }
    NUMBER.with(|number| *number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn stripe_shared_by_threads_loses_no_count() {
        let stripes: Stripes<AtomicU64> = Stripes(Box::new([Padded(0.into()), Padded(0.into())]));
        thread::scope(|scope| {
            for _ in 0..7 {
                scope.spawn(|| (0..1000).for_each(|_| stripes.add(|mine| mine, 1)));
            }
        });
        let each: Vec<u64> = stripes.all().map(|stripe| stripe.load(Relaxed)).collect();
        assert_eq!((each.iter().sum::<u64>(), stripes.sum(|stripe| stripe)), (7000, 7000));
        assert!(each.iter().all(|count| *count > 0), "seven threads in a row have numbers of both kinds");
    }

    #[test]
    fn stripes_share_no_cache_line() {
        assert_eq!(align_of::<Padded<AtomicU64>>(), 128);
        assert!(Stripes::new(AtomicU64::default).0.len().is_power_of_two());
    }
}
