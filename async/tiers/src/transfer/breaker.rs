//! A circuit breaker for a path: no more is put on a path that takes too long, by the average time of
//! its transfers. It has no lock and no clock.
//!
//! ```text
//!   average of the last transfers, or the age of the oldest under way
//!        ▲
//!   upper┤ ─ ─ ─ ─ ╱‾‾‾╲ ─ ─ ─ ─ ─   above: open, one transfer at a time
//!        │       ╱       ╲
//!   lower┤ ─ ─ ╱ ─ ─ ─ ─ ─ ╲ ─ ─ ─   below: closed again
//!        └────┴──────────────┴────►
//! ```
//!
//! Invariants
//! - I1: while it is open one transfer at a time may go: the time of that transfer closes it.

use std::time::Duration;

/// The last transfer counts for one part in so many of the average.
const PART: u32 = 8;
/// A transfer hangs when it takes longer than so many averages.
const PAUSE: u32 = 4;

/// The breaker of a path.
#[derive(Debug, Clone)]
pub struct Breaker {
    upper: Duration,
    lower: Duration,
    average: Option<Duration>,
    open: bool,
}

impl Breaker {
    /// Returns a breaker that opens above one time and closes below another.
    #[must_use]
    pub fn new(upper: Duration, lower: Duration) -> Breaker {
        Breaker { upper, lower: lower.min(upper), average: None, open: false }
    }

    /// Counts a transfer that has ended, with the time that it took.
    pub fn ended(&mut self, took: Duration) {
        let average = self.average.map_or(took, |average| {
            // At most the larger of both, so no sum overflows.
            average / PART * (PART - 1) + took / PART
        });
        self.average = Some(average);
        self.look(Duration::ZERO);
    }

    /// Looks at the age of the oldest transfer under way. Returns whether the breaker is open.
    pub fn look(&mut self, oldest: Duration) -> bool {
        let time = self.average.unwrap_or_default().max(oldest);
        if time > self.upper {
            self.open = true;
        } else if time < self.lower {
            self.open = false;
        }
        self.open
    }

    /// Returns whether the oldest transfer under way has taken far longer than the average.
    #[must_use]
    pub fn hangs(&self, oldest: Duration) -> bool {
        self.average.is_some_and(|average| oldest > average * PAUSE)
    }

    /// Returns whether it was open at the last look.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn average_opens_above_upper_and_closes_below_lower_bound() {
        let mut breaker = Breaker::new(SECOND, SECOND / 2);
        (0..100).for_each(|_| breaker.ended(SECOND * 9 / 10));
        assert!(!breaker.is_open());
        breaker.ended(SECOND * 3);
        assert!(breaker.is_open());
        let mut ended = 0;
        while breaker.is_open() {
            breaker.ended(SECOND / 4);
            ended += 1;
        }
        assert!((5..=12).contains(&ended), "{ended}");
        (0..100).for_each(|_| breaker.ended(SECOND * 3 / 4));
        assert!(!breaker.is_open(), "between the bounds it stays as it is");
    }

    #[test]
    fn endless_transfer_opens_the_breaker_by_its_age() {
        let mut breaker = Breaker::new(SECOND, SECOND / 2);
        breaker.ended(SECOND / 100);
        assert_eq!([1, 2].map(|seconds| breaker.look(SECOND * seconds)), [false, true]);
        breaker.ended(SECOND * 20);
        assert!(breaker.is_open());
        assert!(!Breaker::new(SECOND, SECOND * 2).look(SECOND), "the lower one is no more than the upper");
    }

    #[test]
    fn transfer_over_four_times_the_average_hangs() {
        let mut breaker = Breaker::new(SECOND, SECOND / 2);
        assert!(!breaker.hangs(SECOND), "nothing is known");
        (0..100).for_each(|_| breaker.ended(SECOND / 100));
        assert_eq!([3, 5].map(|times| breaker.hangs(SECOND / 100 * times)), [false, true]);
    }
}
