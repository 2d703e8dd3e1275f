//! Contenders measured in turns.
//!
//! A shared machine speeds up and slows down by the second. So the contenders of a row take short turns,
//! in an order that changes. A ratio is taken within a round, in which both had the same conditions; its
//! median and quartiles are reported.

use crate::work::Timed;
use std::time::{Duration, Instant};

/// The length of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Turns of each contender.
    pub rounds: usize,
    /// Length of a turn.
    pub turn: Duration,
}

impl Effort {
    /// For a table that is published.
    pub const FULL: Effort = Effort { rounds: 61, turn: Duration::from_millis(25) };
    /// For a quick run.
    pub const QUICK: Effort = Effort { rounds: 15, turn: Duration::from_millis(8) };
}

/// A median with its quartiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// A quarter is below.
    pub low: f64,
    /// Half is below.
    pub median: f64,
    /// A quarter is above.
    pub high: f64,
}

impl Spread {
    /// Takes the spread of at least one sample.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Spread {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        let at = |quarter: usize| samples[(samples.len() - 1) * quarter / 4];
        Spread { low: at(1), median: at(2), high: at(3) }
    }

    /// Takes the median, and in place of the quartiles the interval that holds it with a chance of
    /// 95 %: the samples 0.98·√n ranks from the middle (the sign test: n flips of a coin). For
    /// small differences of noisy figures.
    pub fn of_median(samples: impl IntoIterator<Item = f64>) -> Spread {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        let (middle, off) = ((samples.len() - 1) / 2, (0.98 * (samples.len() as f64).sqrt()).ceil() as usize);
        let at = |rank: usize| samples[rank.min(samples.len() - 1)];
        Spread { low: at(middle.saturating_sub(off)), median: at(middle), high: at(middle + off) }
    }

    /// Converts to another unit: `one` of the old are one of the new.
    #[must_use]
    pub fn per(&self, one: f64) -> Spread {
        Spread { low: self.low / one, median: self.median / one, high: self.high / one }
    }

    /// Converts the time that an amount took to the amount a unit of time.
    #[must_use]
    pub fn rate(&self, amount: f64) -> Spread {
        Spread { low: amount / self.high, median: amount / self.median, high: amount / self.low }
    }

    /// Formats it as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({ "q1": self.low, "median": self.median, "q3": self.high })
    }
}

/// The times of each contender: nanoseconds a run, one sample a round.
pub struct Samples(Vec<Vec<f64>>);

impl Samples {
    /// Measures the contenders in turns.
    pub fn take(effort: Effort, contenders: &mut [&mut dyn Timed]) -> Samples {
        Samples::take_until(effort, contenders, None)
    }

    /// Measures in fewer rounds, at least one, if it is later than `ends` after one of them.
    pub fn take_until(effort: Effort, contenders: &mut [&mut dyn Timed], ends: Option<Instant>) -> Samples {
        let runs: Vec<u64> =
            contenders.iter_mut().map(|contender| calibrate(*contender, effort.turn)).collect();
        let mut samples = vec![Vec::with_capacity(effort.rounds); contenders.len()];
        for round in 0..effort.rounds {
            for turn in 0..contenders.len() {
                let who = (turn + round) % contenders.len();
                let took = contenders[who].time(runs[who]);
                samples[who].push(took.as_nanos() as f64 / runs[who] as f64);
            }
            if ends.is_some_and(|ends| Instant::now() >= ends) {
                break;
            }
        }
        Samples(samples)
    }

    /// Returns the nanoseconds a run of contender `who`.
    pub fn time(&self, who: usize) -> Spread {
        Spread::of(self.0[who].iter().copied())
    }

    /// Returns how many times as long `slow` took as `fast`, round by round.
    pub fn times(&self, slow: usize, fast: usize) -> Spread {
        Spread::of(self.0[slow].iter().zip(&self.0[fast]).map(|(slow, fast)| slow / fast))
    }

    /// Returns how many nanoseconds more a run of `slow` took than one of `fast`, round by round.
    pub fn more(&self, slow: usize, fast: usize) -> Spread {
        Spread::of(self.0[slow].iter().zip(&self.0[fast]).map(|(slow, fast)| slow - fast))
    }
}

/// Returns how many runs fill a turn; warms up meanwhile.
fn calibrate(contender: &mut dyn Timed, turn: Duration) -> u64 {
    let mut runs = 1;
    loop {
        let took = contender.time(runs);
        if took * 4 >= turn {
            let scale = turn.as_secs_f64() / took.as_secs_f64();
            return ((runs as f64 * scale) as u64).max(1);
        }
        runs *= 2;
    }
}

/// Measures one contender alone: nanoseconds a run.
pub fn alone(effort: Effort, contender: &mut dyn Timed) -> Spread {
    Samples::take(effort, &mut [contender]).time(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_interval_spans_ten_ranks_on_each_side() {
        let spread = Spread::of_median((0..101).rev().map(f64::from));
        assert_eq!(spread, Spread { low: 40.0, median: 50.0, high: 60.0 });
        assert_eq!(Spread::of_median([7.0]), Spread { low: 7.0, median: 7.0, high: 7.0 });
    }
}
