//! What was learned: hits and time at risk by class and age, and from them the index of each class at each age.
//!
//! ```text
//!   hits, time at risk [class][age bucket] ─► shared rate × the class's multiplier ─► the class's own rate ─► index (Gittins)
//! ```
//!
//! The index of a block is the most hits for time of residence that any horizon from its age on promises.
//!
//! I1. `edges` rise strictly; bucket b has the ages `edges[b] .. edges[b + 1]`, the last one all beyond.

use super::{CLASSES, SAMPLE_SHIFT};

/// Ages: half octaves from a 64th of the capacity.
const BUCKETS: usize = 28;
/// Pseudo-hits of a class's multiplier (and so many requests' worth), and of its curve against the shared one.
const PRIOR_MULTIPLIER: f32 = 2.0;
const PRIOR_CURVE: f32 = 1000.0;

pub(super) struct Curve {
    capacity: u32,
    hits: [[f32; BUCKETS]; CLASSES],
    time: [[f32; BUCKETS]; CLASSES],
    index: [[f32; BUCKETS + 1]; CLASSES],
    shared: [f32; BUCKETS],
    edges: [u32; BUCKETS + 1],
}

impl Curve {
    pub(super) fn new(capacity: u32) -> Curve {
        let unit = (capacity / 64).max(1);
        let mut edges = [0u32; BUCKETS + 1];
        for (i, edge) in edges.iter_mut().enumerate().skip(1) {
            let octave = u64::from(unit) << (i / 2);
            // 181/128 is the root of two.
            let at = if i % 2 == 1 { octave * 181 / 128 } else { octave };
            *edge = at.min(u64::from(u32::MAX)) as u32;
            if *edge <= i as u32 {
                *edge = i as u32 + 1;
            }
        }
        for i in 1..=BUCKETS {
            edges[i] = edges[i].max(edges[i - 1] + 1);
        }
        let mut curve = Curve {
            capacity,
            hits: [[0.0; BUCKETS]; CLASSES],
            time: [[0.0; BUCKETS]; CLASSES],
            index: [[0.0; BUCKETS + 1]; CLASSES],
            shared: [0.0; BUCKETS],
            edges,
        };
        curve.share();
        (0..CLASSES).for_each(|class| curve.refresh(class, 1.0));
        curve
    }

    #[inline]
    fn bucket(&self, age: u32) -> usize {
        let q = age / self.edges[2].div_ceil(2).max(1);
        let mut b = if q == 0 { 0 } else { (2 * q.ilog2()).min(BUCKETS as u32 - 1) as usize };
        while b > 0 && age < self.edges[b] {
            b -= 1;
        }
        while b + 1 < BUCKETS && age >= self.edges[b + 1] {
            b += 1;
        }
        b
    }

    /// A block of the class waited from one age to another.
    pub(super) fn expose(&mut self, class: u8, from: u32, to: u32) {
        let (mut age, mut b) = (from, self.bucket(from));
        while age < to {
            let end = if b + 1 < BUCKETS { self.edges[b + 1].min(to) } else { to };
            self.time[class as usize][b] += (end - age) as f32;
            age = end;
            b += 1;
        }
    }

    /// A block of the class was asked for at this age.
    pub(super) fn hit(&mut self, class: u8, age: u32) {
        let b = self.bucket(age);
        self.hits[class as usize][b] += 1.0;
    }

    /// So many releases have passed.
    pub(super) fn decay(&mut self, releases: u32) {
        let half = (32.0 * self.capacity as f32).max(262_144.0);
        let keep = 1.0 - std::f32::consts::LN_2 * releases as f32 / half;
        self.hits.iter_mut().chain(&mut self.time).flatten().for_each(|x| *x *= keep);
    }

    /// The curve of all classes: hits over time at risk, from a prior of one hit in ten ages, which is LRU's order.
    pub(super) fn share(&mut self) {
        for b in 0..BUCKETS {
            let middle = (self.edges[b] as f32 + self.edges[b + 1] as f32) / 2.0;
            let hits: f32 = self.hits.iter().map(|h| h[b]).sum();
            let time: f32 = self.time.iter().map(|t| t[b]).sum();
            self.shared[b] = (hits + 0.2) / (time + 2.0 * middle);
        }
    }

    /// A class's rates, and its index at each age. `length`: mean blocks a request.
    pub(super) fn refresh(&mut self, class: usize, length: f32) {
        let (hits, time) = (&self.hits[class], &self.time[class]);
        let expected: f32 = (0..BUCKETS).map(|b| time[b] * self.shared[b]).sum();
        let scale = 1.0 / (1 << SAMPLE_SHIFT) as f32;
        let prior = PRIOR_MULTIPLIER * scale + (length * scale).max(1.0);
        let multiplier = (hits.iter().sum::<f32>() + prior) / (expected + prior);
        let curve = PRIOR_CURVE * scale;
        let mut chance = [0f32; BUCKETS];
        let mut spent = [0f32; BUCKETS];
        for b in 0..BUCKETS {
            let base = multiplier * self.shared[b];
            let rate = (hits[b] + curve) / (time[b] + curve / base);
            let width = (self.edges[b + 1] - self.edges[b]) as f32;
            chance[b] = (rate * width / (1.0 + 0.5 * rate * width)).min(1.0);
            spent[b] = width * (1.0 - 0.5 * chance[b]);
        }
        let index = &mut self.index[class];
        for (start, best) in index[..BUCKETS].iter_mut().enumerate() {
            let (mut alive, mut reward, mut cost) = (1f32, 0f32, 0f32);
            let (mut best_reward, mut best_cost) = (0f32, 1f32);
            for b in start..BUCKETS {
                reward += alive * chance[b];
                cost += alive * spent[b];
                alive *= 1.0 - chance[b];
                // Without a division: reward/cost > best.
                if reward * best_cost > best_reward * cost {
                    (best_reward, best_cost) = (reward, cost);
                }
            }
            *best = best_reward / best_cost;
        }
        index[BUCKETS] = 0.7 * index[BUCKETS - 1];
    }

    /// The index of a block of the class at this age: linear between the edges.
    #[inline]
    pub(super) fn value(&self, class: usize, age: u32) -> f32 {
        let b = self.bucket(age);
        let (low, high) = (self.edges[b], self.edges[b + 1]);
        let part = (age.min(high) - low) as f32 / (high - low) as f32;
        let index = &self.index[class];
        index[b] + (index[b + 1] - index[b]) * part
    }
}
