//! How long a path has been busy, as one atomic word: readers need no lock, and see whole changes.
//!
//! ```text
//!   63                               1   0
//!   ┌────────────────────────────────┬───┐   idle:  the sum of all spells, in nanoseconds               0
//!   │ nanoseconds, modulo 2⁶³        │ b │   busy:  the sum of ended spells, less this one's start      1
//!   └────────────────────────────────┴───┘          (plus the clock: the sum of all spells until now)
//! ```
//!
//! Invariants
//! - I1: only the holder of the manager's lock sets the word.
//! - I2: a reading never goes back. If the clock was read before the word, and a spell began in between,
//!   the sum is too small, never too large. A sum that was shown once is the least that is shown later.
//!
//! # Orderings
//! Relaxed: a figure publishes nothing, and `shown` is changed only by `fetch_max`.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const BUSY: u64 = 1;

#[derive(Debug, Default)]
pub(crate) struct Busy {
    word: AtomicU64,
    /// The largest sum that was read, in nanoseconds.
    shown: AtomicU64,
}

/// A duration in nanoseconds, shifted to the word's upper bits.
fn nanoseconds(of: Duration) -> u64 {
    (of.as_nanos() as u64) << 1
}

impl Busy {
    /// Sets whether the path is busy. Reads the clock only on a change.
    pub(crate) fn set(&self, busy: bool, now: impl FnOnce() -> Duration) {
        let word = self.word.load(Relaxed);
        let next = match (word & BUSY != 0, busy) {
            (false, true) => word.wrapping_sub(nanoseconds(now())) | BUSY,
            (true, false) => (word ^ BUSY).wrapping_add(nanoseconds(now())),
            _ => return,
        };
        self.word.store(next, Relaxed);
    }

    /// Returns the busy time until `now`, by the same clock.
    pub(crate) fn until(&self, now: Duration) -> Duration {
        let word = self.word.load(Relaxed);
        let spells = if word & BUSY == 0 { word } else { (word ^ BUSY).wrapping_add(nanoseconds(now)) };
        // Negative if the first spell began after `now` was read.
        let spells = (spells as i64 >> 1).max(0) as u64;
        Duration::from_nanos(self.shown.fetch_max(spells, Relaxed).max(spells))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::Instant;

    const fn after(seconds: u64) -> impl Fn() -> Duration + Copy {
        move || Duration::from_secs(seconds)
    }

    fn seconds(busy: &Busy, now: u64) -> u64 {
        busy.until(after(now)()).as_secs()
    }

    #[test]
    fn busy_spells_add_up_and_the_current_one_counts() {
        let busy = Busy::default();
        assert_eq!(seconds(&busy, 5), 0);
        busy.set(true, after(10));
        assert_eq!([9, 10, 17].map(|now| seconds(&busy, now)), [0, 0, 7]);
        busy.set(true, after(12));
        assert_eq!(seconds(&busy, 17), 7, "it was busy already");
        busy.set(false, after(20));
        busy.set(false, after(30));
        assert_eq!(seconds(&busy, 99), 10);
        busy.set(true, after(60));
        assert_eq!(seconds(&busy, 55), 10, "the clock was read before this spell began");
        busy.set(false, after(60));
        busy.set(true, after(100));
        assert_eq!((seconds(&busy, 100), seconds(&busy, 101)), (10, 11));
    }

    /// I2, beside a concurrent writer.
    #[test]
    fn busy_time_never_goes_back() {
        let (busy, over, began) = (Busy::default(), AtomicBool::new(false), Instant::now());
        thread::scope(|scope| {
            scope.spawn(|| {
                (0..200_000).for_each(|turn| busy.set(turn % 2 == 0, || began.elapsed()));
                over.store(true, Relaxed);
            });
            let mut last = Duration::ZERO;
            while !over.load(Relaxed) {
                let next = busy.until(began.elapsed());
                assert!(last <= next && next <= began.elapsed(), "{last:?}, then {next:?}");
                last = next;
            }
        });
    }
}
