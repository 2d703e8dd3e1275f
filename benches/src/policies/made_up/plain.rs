//! Documents by popularity, scans, loops, phases, recency.
//!
//! I1. A request is one document, whole.

use super::draw::{Rng, doc, zipf_cdf, zipf_pick};
use crate::policies::traffic::Raw;

pub(super) fn uniform(n: usize, items: u64, len: u64, seed: u64) -> Raw {
    let mut r = Rng::new(seed);
    (0..n).map(|i| (i as u64 * 100, doc(1, r.below(items), len))).collect()
}

pub(super) fn zipf(n: usize, items: usize, alpha: f64, len: u64, seed: u64) -> Raw {
    let mut r = Rng::new(seed);
    let cdf = zipf_cdf(items, alpha);
    (0..n).map(|i| (i as u64 * 100, doc(2, zipf_pick(&mut r, &cdf), len))).collect()
}

pub(super) fn looping(n: usize, items: u64, len: u64) -> Raw {
    (0..n).map(|i| (i as u64 * 100, doc(3, i as u64 % items, len))).collect()
}

pub(super) fn scan_hot(n: usize, hot: u64, len: u64, share: f64, seed: u64) -> Raw {
    let mut r = Rng::new(seed);
    (0..n)
        .map(|i| {
            (i as u64 * 100, if r.unit() < share { doc(4, r.below(hot), len) } else { doc(5, i as u64, len) })
        })
        .collect()
}

pub(super) fn phases(n: usize, phase: usize, items: u64, len: u64, seed: u64) -> Raw {
    let mut r = Rng::new(seed);
    (0..n).map(|i| (i as u64 * 100, doc(6, (i / phase) as u64 * 1_000_000 + r.below(items), len))).collect()
}

/// Kinds of traffic by phases: scans with hot sets, loops, drifting recency.
pub(super) fn mixed(n: usize, seed: u64) -> Raw {
    let mut r = Rng::new(seed);
    let cdf = zipf_cdf(3000, 0.9);
    let mut recent: Vec<u64> = Vec::new();
    (0..n)
        .map(|i| {
            let phase = i * 8 / n;
            let ids = match phase % 4 {
                0 => doc(20 + phase as u64, zipf_pick(&mut r, &cdf), 6),
                1 => {
                    if r.unit() < 0.5 && !recent.is_empty() {
                        let at = recent.len() - 1 - r.below(recent.len().min(300) as u64) as usize;
                        doc(21, recent[at], 6)
                    } else {
                        recent.push(i as u64);
                        doc(21, i as u64, 6)
                    }
                }
                2 => doc(22, i as u64 % 900, 6),
                _ => doc(23, (i / 2) as u64, 6),
            };
            (i as u64 * 100, ids)
        })
        .collect()
}

/// LRU's best case: recently used documents are used again, by stack distance.
pub(super) fn stack(n: usize, mean: f64, len: u64, fresh: f64, seed: u64) -> Raw {
    let mut r = Rng::new(seed);
    let mut order: Vec<u64> = Vec::new();
    let mut next = 0;
    (0..n)
        .map(|i| {
            let d = r.exp(mean) as usize;
            let item = if r.unit() < fresh || d >= order.len() {
                next += 1;
                next
            } else {
                let at = order.len() - 1 - d;
                order.remove(at)
            };
            order.push(item);
            (i as u64 * 100, doc(7, item, len))
        })
        .collect()
}
