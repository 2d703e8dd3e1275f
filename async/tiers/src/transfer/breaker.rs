//! Whether a path takes so long that nothing more is to be put on it: by the average of what its transfers
//! take. It has no lock and no clock.
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
//! - I1: while it is open one transfer at a time may go: its time is what closes it.

use std::time::Duration;

/// One in so many: the part of the last transfer in the average.
const PART: u32 = 8;
/// So many averages, and a transfer hangs.
const PAUSE: u32 = 4;

/// Of a path.
#[derive(Debug, Clone)]
pub struct Breaker {
    upper: Duration,
    lower: Duration,
    average: Option<Duration>,
    open: bool,
}

impl Breaker {
    /// One that opens above a time and closes below another.
    #[must_use]
    pub fn new(upper: Duration, lower: Duration) -> Breaker {
        Breaker { upper, lower: lower.min(upper), average: None, open: false }
    }

    /// A transfer has ended, which took so long.
    pub fn ended(&mut self, took: Duration) {
        let average = self.average.map_or(took, |average| {
            // Never more than the larger of both: no sum overflows.
            average / PART * (PART - 1) + took / PART
        });
        self.average = Some(average);
        self.look(Duration::ZERO);
    }

    /// The oldest transfer under way has taken so long by now; whether it is open.
    pub fn look(&mut self, oldest: Duration) -> bool {
        let time = self.average.unwrap_or_default().max(oldest);
        if time > self.upper {
            self.open = true;
        } else if time < self.lower {
            self.open = false;
        }
        self.open
    }

    /// Whether the oldest transfer under way, which has taken so long by now, takes far longer than most do.
    #[must_use]
    pub fn hangs(&self, oldest: Duration) -> bool {
        self.average.is_some_and(|average| oldest > average * PAUSE)
    }

    /// As it was at the last look.
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
    fn average_opens_above_the_upper_bound_and_closes_below_the_lower() {
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
    fn transfer_that_does_not_end_opens_it_by_its_age() {
        let mut breaker = Breaker::new(SECOND, SECOND / 2);
        breaker.ended(SECOND / 100);
        assert_eq!([1, 2].map(|seconds| breaker.look(SECOND * seconds)), [false, true]);
        breaker.ended(SECOND * 20);
        assert!(breaker.is_open());
        assert!(!Breaker::new(SECOND, SECOND * 2).look(SECOND), "the lower one is no more than the upper");
    }

    #[test]
    fn transfer_hangs_that_takes_four_times_the_average() {
        let mut breaker = Breaker::new(SECOND, SECOND / 2);
        assert!(!breaker.hangs(SECOND), "nothing is known");
        (0..100).for_each(|_| breaker.ended(SECOND / 100));
        assert_eq!([3, 5].map(|times| breaker.hangs(SECOND / 100 * times)), [false, true]);
    }
}
