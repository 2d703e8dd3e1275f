//! Counters that threads do not meet at: as many sets of them as there are cores, a thread's own one by its number.
//!
//! ```text
//!   thread   0  1  2  3  4  5 …
//!   stripe   0  1  2  3  0  1 …      each alone on its cache lines; who reads adds them up
//! ```
//!
//! A stripe is nobody's alone: threads whose numbers meet add to it with `fetch_add`, so nothing is lost, and a thread that ends leaves nothing to
//! be given back.
//!
//! # Orderings
//! Relaxed: a number is only to differ from others, and what stripes count publishes nothing.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::available_parallelism;

/// More than that are only more to add up.
const MOST: usize = 64;

/// One set of counters, alone on its cache lines: 128 bytes, since x86 prefetches lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

/// Sets of counters.
#[derive(Debug)]
pub struct Stripes<T>(Box<[Padded<T>]>);

impl<T> Stripes<T> {
    /// One for each core.
    pub fn new(one: impl Fn() -> T) -> Stripes<T> {
        let cores = available_parallelism().map_or(1, usize::from);
        Stripes((0..cores.next_power_of_two().min(MOST)).map(|_| Padded(one())).collect())
    }

    /// Counts in the calling thread's, by [`add`].
    #[inline]
    pub fn count(&self, in_it: impl FnOnce(&T)) {
        if counting() {
            in_it(self.mine());
        }
    }

    /// Adds to one counter.
    #[inline]
    pub fn add(&self, counter: impl FnOnce(&T) -> &AtomicU64, by: u64) {
        self.count(|mine| add(counter(mine), by));
    }

    /// One counter of all of them.
    pub fn sum(&self, counter: impl Fn(&T) -> &AtomicU64) -> u64 {
        self.all().map(|stripe| counter(stripe).load(Relaxed)).sum()
    }

    /// The calling thread's.
    #[inline]
    fn mine(&self) -> &T {
        // As many as a power of two.
        &self.0[number() & (self.0.len() - 1)].0
    }

    /// All of them, for who adds them up.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|stripe| &stripe.0)
    }
}

/// Adds to one of a stripe's.
#[inline]
pub fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

/// Whether anything is counted: always, but where a benchmark of what that costs has it off for a while.
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

    /// Whether managers count what happens. Figures that were counted in part are worth nothing.
    pub static COUNTING: AtomicBool = AtomicBool::new(true);
}

/// The calling thread's number: the next one when it first asks.
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
    fn nothing_is_lost_however_many_threads_share_a_stripe() {
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
