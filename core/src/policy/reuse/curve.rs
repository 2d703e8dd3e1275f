//! The learned figures: hits and time at risk by class and age, and from them each class's index at each age.
//!
//! ```text
//!   hits, time at risk [class][age bucket] ─► shared rate × the class's multiplier ─► the class's own rate
//!                                                                                  ─► index (Gittins)
//! ```
//!
//! The index of a block is the highest ratio of hits to time of residence that any horizon from its
//! age on promises. Rates are shrunk to priors that order blocks as LRU does, so that no difference
//! is believed before it was seen.

use super::SAMPLE_SHIFT;
use super::ages::{Ages, BUCKETS, half_life};
use super::classes::{CLASSES, LEAF, TRUNK};

/// Pseudo-hits of a class's multiplier (and as many requests' worth), and of its
/// curve against the shared one.
const PRIOR_MULTIPLIER: f32 = 2.0;
const PRIOR_CURVE: f32 = 1000.0;

/// A class's index at each edge of the ages.
pub(super) type Row = [f32; BUCKETS + 1];

/// A row of ages, up to `end`: the expectation of a block that has reached the first of them.
#[derive(Clone, Copy, Default)]
struct Stretch {
    hits: f32,
    time: f32,
    /// The part that is left at the end.
    left: f32,
    end: usize,
}

impl Stretch {
    /// Appends the next stretch.
    fn and(self, next: Stretch) -> Stretch {
        Stretch {
            hits: self.hits + self.left * next.hits,
            time: self.time + self.left * next.time,
            left: self.left * next.left,
            end: next.end,
        }
    }
}

pub(super) struct Curve {
    half_life: f32,
    ages: Ages,
    hits: [[f32; BUCKETS]; CLASSES],
    time: [[f32; BUCKETS]; CLASSES],
    shared: [f32; BUCKETS],
    dice: u32,
}

/// An `f32` sum would round away parts below this part of it; in pools of millions all parts are that small.
const LEAST: f32 = 1.0 / (1 << 18) as f32;

/// Adds to a sum. Where the part is too small for it, adds a larger one now and then,
/// so that the mean is right.
#[inline]
fn add(sum: &mut f32, part: f32, dice: &mut u32) {
    let least = *sum * LEAST;
    if part >= least {
        *sum += part;
        return;
    }
    *dice = dice.wrapping_mul(0x915f_77f5).wrapping_add(1);
    if ((*dice >> 8) as f32) * least < part * (1 << 24) as f32 {
        *sum += least;
    }
}

impl Curve {
    pub(super) fn new(capacity: usize, ages: Ages) -> Curve {
        let zero = [[0.0; BUCKETS]; CLASSES];
        let mut curve = Curve {
            half_life: half_life(capacity as u32),
            ages,
            hits: zero,
            time: zero,
            shared: [0.0; BUCKETS],
            dice: 1,
        };
        curve.share();
        curve
    }

    /// Counts time at risk: a block of the class waited from one age to another.
    pub(super) fn expose(&mut self, class: usize, from: u32, to: u32) {
        let (mut age, mut b) = (from, self.ages.bucket(from));
        while age < to {
            let end = if b + 1 < BUCKETS { self.ages.span(b).1.min(to) } else { to };
            add(&mut self.time[class][b], (end - age) as f32, &mut self.dice);
            age = end;
            b += 1;
        }
    }

    /// Counts a hit: a block of the class was used at this age.
    pub(super) fn hit(&mut self, class: usize, age: u32) {
        add(&mut self.hits[class][self.ages.bucket(age)], 1.0, &mut self.dice);
    }

    /// Hits and time at risk of a class.
    #[cfg(all(test, not(loom)))]
    pub(super) fn evidence(&self, class: usize) -> (f32, f32) {
        (self.hits[class].iter().sum(), self.time[class].iter().sum())
    }

    /// Hits of all classes, by age.
    #[cfg(all(test, not(loom)))]
    pub(super) fn hits(&self) -> [f32; BUCKETS] {
        core::array::from_fn(|b| self.hits.iter().map(|hits| hits[b]).sum())
    }

    /// Fades the evidence by the number of releases that have passed.
    pub(super) fn decay(&mut self, releases: u32) {
        let keep = 1.0 - core::f32::consts::LN_2 * releases as f32 / self.half_life;
        self.hits.iter_mut().chain(&mut self.time).flatten().for_each(|x| *x *= keep);
    }

    /// Computes the curve that all classes except trunks share: hits over time at risk, from a prior of
    /// one hit in ten ages, which is LRU's order. A single trunk, which each request uses, would put its
    /// own hits into the curve of all.
    pub(super) fn share(&mut self) {
        let of = |evidence: &[[f32; BUCKETS]; CLASSES], b: usize| -> f32 {
            let shared = evidence.iter().enumerate().filter(|(class, _)| !(TRUNK..LEAF).contains(class));
            shared.map(|(_, ages)| ages[b]).sum()
        };
        for b in 0..BUCKETS {
            let (first, next) = self.ages.span(b);
            let middle = (first as f32 + next as f32) / 2.0;
            self.shared[b] = (of(&self.hits, b) + 0.2) / (of(&self.time, b) + 2.0 * middle);
        }
    }

    /// A class's index at each edge. `length`: mean blocks per request.
    pub(super) fn row(&self, class: usize, length: f32) -> Row {
        let (hits, time) = (&self.hits[class], &self.time[class]);
        let expected: f32 = (0..BUCKETS).map(|b| time[b] * self.shared[b]).sum();
        let scale = 1.0 / (1 << SAMPLE_SHIFT) as f32;
        let prior = PRIOR_MULTIPLIER * scale + (length * scale).max(1.0);
        let multiplier = (hits.iter().sum::<f32>() + prior) / (expected + prior);
        let curve = PRIOR_CURVE * scale;
        // From the last age backwards: stretches of ages, each the best beginning of the rest. An age
        // joins the stretch behind it as long as that promises more than the age has by then. So all
        // ages together take as many steps as there are ages.
        let mut stretches = [Stretch::default(); BUCKETS];
        let mut index = [0f32; BUCKETS + 1];
        for b in (0..BUCKETS).rev() {
            let base = multiplier * self.shared[b];
            let rate = (hits[b] + curve) / (time[b] + curve / base);
            let width = self.ages.width(b);
            let chance = (rate * width / (1.0 + 0.5 * rate * width)).min(1.0);
            let spent = width * (1.0 - 0.5 * chance);
            let mut best = Stretch { hits: chance, time: spent, left: 1.0 - chance, end: b + 1 };
            while let Some(next) = stretches.get(best.end)
                // Compares hits over time without a division.
                && next.hits * best.time > best.hits * next.time
            {
                best = best.and(*next);
            }
            stretches[b] = best;
            index[b] = best.hits / best.time;
        }
        index[BUCKETS] = 0.7 * index[BUCKETS - 1];
        index
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const CAPACITY: u32 = 10_000;

    fn curve() -> Curve {
        Curve::new(CAPACITY as usize, Ages::new(CAPACITY as usize))
    }

    /// With no evidence, the older block goes first, whatever its class.
    #[test]
    fn curve_without_evidence_orders_like_lru() {
        let curve = curve();
        let row = curve.row(0, 20.0);
        assert!(row.windows(2).all(|pair| pair[0] > pair[1]), "{row:?}");
        assert!((1..CLASSES).all(|class| curve.row(class, 20.0) == row));
    }

    /// Two classes wait as long, and one of them is used.
    #[test]
    fn curve_of_a_used_class_is_worth_more() {
        let mut curve = curve();
        for _ in 0..1000 {
            (0..2).for_each(|class| curve.expose(class, 0, CAPACITY));
            curve.hit(0, CAPACITY / 2);
        }
        curve.share();
        let [hot, cold] = [0, 1].map(|class| curve.row(class, 20.0)[0]);
        assert!(cold < hot / 100.0, "{cold} {hot}");
        // One hit in half as many releases as there are blocks, and a little more
        // until the age is surely past.
        assert!((1.0..2.0).contains(&(hot * CAPACITY as f32)), "{hot}");
        let spent = curve.row(0, 20.0)[curve.ages.bucket(CAPACITY)];
        assert!(spent < hot / 2.0, "it comes no more at that age: {spent}, {hot}");
    }

    /// All requests use a system prompt: its hits tell nothing of other blocks.
    #[test]
    fn curve_hits_of_trunks_stay_with_trunks() {
        let mut curve = curve();
        (0..2000).for_each(|_| curve.expose(0, 0, CAPACITY));
        let alone = (0..2).map(|_| {
            curve.share();
            let row = curve.row(0, 20.0);
            (0..2000).for_each(|_| curve.hit(TRUNK, 30));
            row
        });
        let rows: Vec<Row> = alone.collect();
        assert_eq!(rows[0], rows[1]);
    }

    /// Time at risk is spread over the ages that it has passed.
    #[test]
    fn curve_time_at_risk_is_spread_over_the_ages_passed() {
        let mut curve = curve();
        curve.expose(2, 100, 5000);
        for b in 0..BUCKETS {
            let (first, next) = curve.ages.span(b);
            let within = next.min(5000).saturating_sub(first.max(100));
            assert_eq!(curve.time[2][b], within as f32, "{b}");
        }
    }

    /// Beyond 2²⁴ an `f32` cannot count by ones.
    #[test]
    fn curve_counts_beyond_the_precision_of_f32() {
        let mut curve = curve();
        (0..1 << 26).for_each(|_| curve.hit(3, 500));
        let (hits, _) = curve.evidence(3);
        assert!((hits / (1 << 26) as f32 - 1.0).abs() < 0.02, "{hits}");
    }

    #[test]
    fn curve_evidence_halves_in_a_half_life() {
        let mut curve = curve();
        curve.expose(0, 0, 1000);
        curve.hit(0, 10);
        let half_life = half_life(CAPACITY) as u32;
        (0..half_life / 1024).for_each(|_| curve.decay(1024));
        let (hits, time) = curve.evidence(0);
        assert!((hits - 0.5).abs() < 0.01 && (time - 500.0).abs() < 5.0, "{hits} {time}");
    }
}
