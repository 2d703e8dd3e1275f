//! Random numbers, popularity, and keys by their path.
//!
//! I1. Two prompts share exactly the blocks of their equal beginnings: a key is determined by its
//!     kind, its document and its place.

use crate::policies::traffic::key_of;

/// xorshift64*.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Returns a number from 0 to 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn exp(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// Makes a key from its path, so that prompts with equal beginnings share blocks.
pub(super) fn key(kind: u64, a: u64, b: u64) -> u64 {
    let x = key_of(a as u32)
        ^ key_of((b as u32).wrapping_mul(7919) ^ 0x5bd1_e995).rotate_left(17)
        ^ kind.wrapping_mul(0x9e37_79b9_97f4_a7c1);
    x >> 8
}

pub(super) fn doc(kind: u64, number: u64, blocks: u64) -> Vec<u64> {
    (0..blocks).map(|b| key(kind, number, b)).collect()
}

pub(super) fn zipf_pick(r: &mut Rng, cdf: &[f64]) -> u64 {
    let u = r.unit() * cdf[cdf.len() - 1];
    cdf.partition_point(|x| *x < u) as u64
}

pub(super) fn zipf_cdf(items: usize, alpha: f64) -> Vec<f64> {
    let mut sum = 0.0;
    (1..=items)
        .map(|i| {
            sum += 1.0 / (i as f64).powf(alpha);
            sum
        })
        .collect()
}
