//! Histograms of latencies and sizes with fixed buckets, for monitoring over weeks: coarse and small, so
//! that readers can add them up over processes. The replay's report has finer histograms, which one thread
//! at a time writes.
//!
//! # Orderings
//! Relaxed: see `stripes.rs`. A reader may see a bucket without its part of the sum. The number of values
//! is the sum of the buckets.

use crate::stripes::add;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the buckets of latencies: three per decade, from a microsecond to a hundred seconds,
/// beyond the default deadlines. One more bucket has all longer latencies.
pub const BOUNDS: [Duration; 25] = {
    let mut bounds = [Duration::ZERO; 25];
    let (mut index, mut decade) = (0, 1000);
    while index < bounds.len() {
        bounds[index] = Duration::from_nanos(match index % 3 {
            0 => decade,
            1 => decade * 5 / 2,
            _ => decade * 5,
        });
        if index % 3 == 2 {
            decade *= 10;
        }
        index += 1;
    }
    bounds
};

/// Upper bounds of the buckets of sizes, in bytes: each is four times the one before, from 4 KiB to 4 GiB.
/// One more bucket has all larger sizes.
pub const SIZES: [u64; 11] = {
    let mut sizes = [4 << 10; 11];
    let mut index = 1;
    while index < sizes.len() {
        sizes[index] = sizes[index - 1] * 4;
        index += 1;
    }
    sizes
};

/// The counts of one stripe: `N` buckets, and the sum of all values.
#[derive(Debug)]
pub(crate) struct Buckets<const N: usize> {
    counts: [AtomicU64; N],
    sum: AtomicU64,
}

/// Buckets with [`BOUNDS`]; values are nanoseconds.
pub(crate) type Latencies = Buckets<{ BOUNDS.len() + 1 }>;
/// Buckets with [`SIZES`]; values are bytes.
pub(crate) type Sizes = Buckets<{ SIZES.len() + 1 }>;

impl<const N: usize> Default for Buckets<N> {
    fn default() -> Buckets<N> {
        Buckets { counts: [const { AtomicU64::new(0) }; N], sum: AtomicU64::new(0) }
    }
}

impl<const N: usize> Buckets<N> {
    #[inline]
    fn count(&self, bucket: usize, value: u64) {
        add(&self.counts[bucket], 1);
        add(&self.sum, value);
    }

    /// Returns the buckets of all stripes together, and the sum.
    fn all<'b>(stripes: impl Iterator<Item = &'b Buckets<N>>) -> ([u64; N], u64) {
        stripes.fold(([0; N], 0), |(mut all, sum), stripe| {
            all.iter_mut().zip(&stripe.counts).for_each(|(all, count)| *all += count.load(Relaxed));
            (all, sum + stripe.sum.load(Relaxed))
        })
    }
}

impl Latencies {
    #[inline]
    pub(crate) fn record(&self, time: Duration) {
        self.count(BOUNDS.partition_point(|bound| *bound < time), time.as_nanos() as u64);
    }
}

impl Sizes {
    #[inline]
    pub(crate) fn record(&self, bytes: u64) {
        self.count(SIZES.partition_point(|bound| *bound < bytes), bytes);
    }
}

/// A histogram of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SizeHistogram {
    /// The number of values in each bucket: up to its bound in [`SIZES`] and above the one before. The last
    /// bucket has the values above all bounds.
    pub buckets: [u64; SIZES.len() + 1],
    /// The sum of all values, in bytes.
    pub sum: u64,
}

impl SizeHistogram {
    /// Adds up stripes.
    pub(crate) fn of<'b>(stripes: impl Iterator<Item = &'b Sizes>) -> SizeHistogram {
        let (buckets, sum) = Buckets::all(stripes);
        SizeHistogram { buckets, sum }
    }
}

/// A histogram of latencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LatencyHistogram {
    /// The number of values in each bucket: up to its bound in [`BOUNDS`] and above the one before. The
    /// last bucket has the values above all bounds.
    pub buckets: [u64; BOUNDS.len() + 1],
    /// The sum of all values.
    pub sum: Duration,
}

impl LatencyHistogram {
    /// Adds up stripes.
    pub(crate) fn of<'b>(stripes: impl Iterator<Item = &'b Latencies>) -> LatencyHistogram {
        let (buckets, nanoseconds) = Buckets::all(stripes);
        LatencyHistogram { buckets, sum: Duration::from_nanos(nanoseconds) }
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the upper bound of the bucket with the `per_mille`/1000 quantile. None if there are no
    /// values, or if the quantile is above all [`BOUNDS`].
    #[must_use]
    pub fn quantile(&self, per_mille: u64) -> Option<Duration> {
        let rank = (u128::from(self.count()) * u128::from(per_mille.min(1000))).div_ceil(1000).max(1);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += u128::from(*count);
            seen >= rank
        });
        BOUNDS.get(bucket?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_three_a_decade_and_end_beyond_the_deadlines() {
        let seconds = |index: usize| BOUNDS[index].as_secs_f64();
        assert_eq!([seconds(0), seconds(1), seconds(2), seconds(3)], [1e-6, 2.5e-6, 5e-6, 1e-5]);
        assert_eq!(BOUNDS[24], Duration::from_secs(100));
        let rules = crate::Rules::default();
        let deadlines = [rules.allocate_deadline, rules.onboard_deadline, rules.offload_deadline];
        assert!(deadlines.iter().all(|time| *time < BOUNDS[24]));
        assert!(BOUNDS.is_sorted());
    }

    #[test]
    fn value_is_in_the_first_bucket_not_ending_before_it() {
        let (micro, nano) = (Duration::from_micros(1), Duration::from_nanos(1));
        for (time, bucket) in [
            (Duration::ZERO, 0),
            (micro, 0),
            (micro + nano, 1),
            (Duration::from_micros(5), 2),
            (BOUNDS[24], 24),
            (BOUNDS[24] + nano, 25),
        ] {
            let buckets = Latencies::default();
            buckets.record(time);
            let seen = LatencyHistogram::of([&buckets].into_iter());
            assert_eq!((seen.buckets[bucket], seen.count(), seen.sum), (1, 1, time), "{time:?}");
        }
    }

    #[test]
    fn stripes_add_up_and_quantiles_are_bounds() {
        let stripes = [Latencies::default(), Latencies::default()];
        for value in 1..=100 {
            stripes[value % 2].record(Duration::from_micros(value as u64));
        }
        let seen = LatencyHistogram::of(stripes.iter());
        assert_eq!((seen.count(), seen.sum), (100, Duration::from_micros(5050)));
        let micros = |micros| Some(Duration::from_micros(micros));
        assert_eq!(
            [0, 500, 510, 1000].map(|per_mille| seen.quantile(per_mille)),
            [micros(1), micros(50), micros(100), micros(100)]
        );
        assert_eq!(LatencyHistogram::default().quantile(500), None);
    }

    #[test]
    fn size_is_in_the_first_bucket_not_ending_before_it() {
        let sizes = Sizes::default();
        [1, 4096, 4097, 16 << 10, 4 << 30, (4 << 30) + 1].into_iter().for_each(|bytes| sizes.record(bytes));
        let seen = SizeHistogram::of([&sizes].into_iter());
        assert_eq!(seen.buckets, [2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(seen.sum, 1 + 4096 + 4097 + (16 << 10) + (8 << 30) + 1);
    }
}
