//! How long a path has been busy, as one word: who reads needs no lock, and never sees a part of a change.
//!
//! ```text
//!   63                               1   0
//!   ┌────────────────────────────────┬───┐   idle:  all spells, in nanoseconds                        0
//!   │ nanoseconds, modulo 2⁶³        │ b │   busy:  those that are over, less when this one began     1
//!   └────────────────────────────────┴───┘           so with the clock added it is all of them, until now
//! ```
//!
//! Invariants
//! - I1: one at a time sets it: who has the manager's lock.
//! - I2: what is read never goes back. A clock that was read before the word makes too little of it if the
//!   spell began since, never too much; and what was shown once is shown again.
//!
//! # Orderings
//! Relaxed: a figure publishes nothing, and `shown` is changed by `fetch_max` alone.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const BUSY: u64 = 1;

#[derive(Debug, Default)]
pub(crate) struct Busy {
    word: AtomicU64,
    /// The most that was read: nanoseconds.
    shown: AtomicU64,
}

/// In the word's upper bits.
fn nanoseconds(of: Duration) -> u64 {
    (of.as_nanos() as u64) << 1
}

impl Busy {
    /// It is busy from now on, or idle; the clock is read where that is news.
    pub(crate) fn set(&self, busy: bool, now: impl FnOnce() -> Duration) {
        let word = self.word.load(Relaxed);
        let next = match (word & BUSY != 0, busy) {
            (false, true) => word.wrapping_sub(nanoseconds(now())) | BUSY,
            (true, false) => (word ^ BUSY).wrapping_add(nanoseconds(now())),
            _ => return,
        };
        self.word.store(next, Relaxed);
    }

    /// Until now, which is the clock's.
    pub(crate) fn until(&self, now: Duration) -> Duration {
        let word = self.word.load(Relaxed);
        let spells = if word & BUSY == 0 { word } else { (word ^ BUSY).wrapping_add(nanoseconds(now)) };
        // Less than nothing, where the first spell began behind `now`.
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
    fn spells_add_up_and_the_one_that_lasts_is_counted_until_now() {
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

    /// I2, beside who sets it.
    #[test]
    fn it_never_goes_back() {
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
