//! Latencies in buckets whose width is a fixed share of their values.
//!
//! ```text
//!   value        0 … 255    256 … 511   512 … 1023   1024 … 2047   …
//!   bucket width    1           2            4            8             128 buckets a power of two
//! ```
//!
//! A quantile is therefore at most 1/128 too high and never too low: it is the upper end of its
//! bucket, or the highest value recorded if that is less. A histogram takes 57 KiB; recording
//! is a shift and an addition.

/// Buckets for each power of two.
const SUB_BUCKETS: usize = 128;
const SUB_BITS: u32 = SUB_BUCKETS.trailing_zeros();
/// Each value below 2 × SUB_BUCKETS has its own bucket. Every further power of two up to 2⁶⁴ has SUB_BUCKETS.
const BUCKETS: usize = SUB_BUCKETS * (65 - SUB_BITS as usize);

/// Counts of latencies in nanoseconds.
#[derive(Clone)]
pub struct Histogram {
    buckets: Box<[u64]>,
    count: u64,
    max: u64,
}

impl Histogram {
    /// An empty histogram.
    #[must_use]
    pub fn new() -> Histogram {
        Histogram { buckets: vec![0; BUCKETS].into_boxed_slice(), count: 0, max: 0 }
    }

    /// Counts one value.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.buckets[bucket(nanoseconds)] += 1;
        self.count += 1;
        self.max = self.max.max(nanoseconds);
    }

    /// Adds the values of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The highest value; 0 without values.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The quantile at `per_mille` thousandths; 0 without values.
    #[must_use]
    pub fn quantile(&self, per_mille: u64) -> u64 {
        let rank = (u128::from(self.count) * u128::from(per_mille.min(1000))).div_ceil(1000).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= rank {
                return upper_end(index).min(self.max);
            }
        }
        self.max
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

impl core::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Histogram({} values, p50 {} ns, max {} ns)", self.count, self.quantile(500), self.max)
    }
}

fn bucket(value: u64) -> usize {
    // The power of two above the linear part, 0 within it.
    let magnitude = (u64::BITS - value.leading_zeros()).saturating_sub(SUB_BITS + 1);
    (magnitude as usize) * SUB_BUCKETS + (value >> magnitude) as usize
}

fn upper_end(index: usize) -> u64 {
    let magnitude = (index / SUB_BUCKETS).saturating_sub(1);
    let lower = ((index - magnitude * SUB_BUCKETS) as u64) << magnitude;
    lower + ((1u64 << magnitude) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_lies_in_its_bucket_near_its_end() {
        let powers = (0..64)
            .flat_map(|bit| [1u64 << bit, (1 << bit) - 1, (1 << bit) + 1, (1 << bit) | (1 << (bit / 2))]);
        for value in powers.chain(0..5000).chain([u64::MAX, u64::MAX - 1]) {
            let index = bucket(value);
            assert!(index < BUCKETS);
            let end = upper_end(index);
            assert!(end >= value && end - value <= value / 128, "{value} in {index}, which ends at {end}");
            assert!(
                index == 0 || upper_end(index - 1) < value,
                "{value} is not in the bucket before {index}"
            );
        }
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        let mut histogram = Histogram::new();
        let mut values: Vec<u64> = (0..10_000u64).map(|i| i * i % 977_351).collect();
        values.iter().for_each(|value| histogram.record(*value));
        values.sort_unstable();
        for (per_mille, rank) in [(500, 5000), (990, 9900), (999, 9990), (1000, 10_000), (0, 1)] {
            let (exact, got) = (values[rank - 1], histogram.quantile(per_mille));
            assert!(got >= exact && got - exact <= exact / 128, "{per_mille}: {got} for {exact}");
        }
        assert_eq!(histogram.max(), *values.last().expect("values"));
    }

    #[test]
    fn merged_histogram_has_the_values_of_both() {
        let (mut left, mut right, mut both) = (Histogram::new(), Histogram::new(), Histogram::new());
        for value in 0..1000 {
            if value % 3 == 0 {
                left.record(value * 17)
            } else {
                right.record(value * 17)
            }
            both.record(value * 17);
        }
        left.merge(&right);
        assert_eq!(
            (left.count(), left.max(), left.quantile(500)),
            (both.count(), both.max(), both.quantile(500))
        );
        assert_eq!(Histogram::new().quantile(999), 0);
    }
}
