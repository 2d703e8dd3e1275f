//! Ages in releases, in half octaves from a 64th of the capacity.
//!
//! I1. `edges` rise strictly; bucket b has the ages `edges[b] .. edges[b + 1]`, the last one all beyond.

/// Half octaves; few in models.
pub(super) const BUCKETS: usize = if cfg!(loom) { 2 } else { 28 };

#[derive(Clone, Copy)]
pub(super) struct Ages {
    edges: [u32; BUCKETS + 1],
    /// Fixed-point inverse of the first octave.
    unit: u32,
}

impl Ages {
    pub(super) fn new(capacity: usize) -> Ages {
        let unit = (capacity as u32 / 64).max(1);
        let mut edges = [0u32; BUCKETS + 1];
        for i in 1..=BUCKETS {
            let octave = u64::from(unit) << (i / 2);
            // 181/128 is the root of two.
            let at = if i % 2 == 1 { octave * 181 / 128 } else { octave };
            let most = u64::from(u32::MAX) - (BUCKETS - i) as u64;
            edges[i] = (at.min(most) as u32).max(edges[i - 1] + 1).max(i as u32 + 1);
        }
        Ages { edges, unit: edges[2].div_ceil(2).max(1) }
    }

    #[inline]
    pub(super) fn bucket(&self, age: u32) -> usize {
        let octave = ((age / self.unit) | 1).ilog2() as usize;
        let mut b = (2 * octave).min(BUCKETS - 2);
        // Either half of the octave is equally likely, so this is no branch.
        b += usize::from(age >= self.edges[b + 1]);
        // In the smallest pools edges are pushed apart (I1).
        while b > 0 && age < self.edges[b] {
            b -= 1;
        }
        while b + 1 < BUCKETS && age >= self.edges[b + 1] {
            b += 1;
        }
        b
    }

    /// First age of a bucket, and of the next one.
    #[inline]
    pub(super) fn span(&self, bucket: usize) -> (u32, u32) {
        (self.edges[bucket], self.edges[bucket + 1])
    }

    /// Number of ages in a bucket.
    #[inline]
    pub(super) fn width(&self, bucket: usize) -> f32 {
        (self.edges[bucket + 1] - self.edges[bucket]) as f32
    }
}

/// Releases in which evidence fades by half.
pub(super) fn half_life(capacity: u32) -> f32 {
    (32.0 * capacity as f32).max(262_144.0)
}

/// The age of a release, in releases. A release after the clock was read has age 0, not the highest age.
#[inline]
pub(super) fn age(now: u32, stamp: u32) -> u32 {
    const SINCE: u32 = 1 << 24;
    let age = now.wrapping_sub(stamp);
    if age > u32::MAX - SINCE { 0 } else { age }
}

/// Returns whether a stamp is not before another. Stamps count releases modulo 2³², so they must be less
/// than 2³¹ apart.
#[inline]
pub(super) fn not_before(stamp: u32, other: u32) -> bool {
    stamp.wrapping_sub(other) as i32 >= 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn age_of_any_length_is_in_one_bucket() {
        for capacity in [1, 2, 63, 64, 1000, 30_000, 1 << 28] {
            let ages = Ages::new(capacity);
            for b in 0..BUCKETS {
                let (first, next) = ages.span(b);
                assert!(first < next, "{capacity}: {b}");
                assert_eq!((ages.bucket(first), ages.bucket(next - 1)), (b, b), "{capacity}");
            }
            assert_eq!(ages.bucket(u32::MAX), BUCKETS - 1);
        }
    }

    #[test]
    fn age_of_a_later_stamp_is_zero() {
        assert_eq!([age(7, 5), age(7, 7), age(7, 8), age(7, 1000)], [2, 0, 0, 0]);
        assert_eq!(age(5, u32::MAX), 6);
        assert_eq!(age(0, 1 << 31), 1 << 31, "old");
    }

    #[test]
    fn stamps_after_wrapping_keep_their_order() {
        assert!(not_before(5, u32::MAX - 5) && !not_before(u32::MAX - 5, 5) && not_before(7, 7));
    }
}
