//! Kinds that were written after the policy was finished: search trees, drift,
//! reversals of popularity, retries.
//!
//! Two of the guard's numbers were then chosen by them, so they are not blind either.
//!
//! I1. The same round gives the same traces.

use super::draw::{Rng, doc, key, zipf_cdf, zipf_pick};
use super::served::{Talks, rag};
use super::{ROUND, named};
use crate::policies::traffic::{Raw, Trace, key_of};

/// Makes all of them.
#[must_use]
pub fn other(round: u64) -> Vec<Trace> {
    let (n, seed) = (10_000, |number: u64| number + ROUND * round);
    let mut all: Vec<(&'static str, Raw)> = Vec::new();
    // Each document gets a few questions in a row, then never again.
    let mut r = Rng::new(seed(101));
    let (mut d, mut left, mut raw) = (0u64, 0u64, Raw::new());
    for i in 0..n {
        if left == 0 {
            d += 1;
            left = 1 + r.below(8);
        }
        left -= 1;
        let mut ids = doc(31, d, 5 + key_of(d as u32) % 30);
        ids.push(key(32, i as u64, 0));
        raw.push((i as u64 * 100, ids));
    }
    all.push(("batch-jobs", raw));
    // Search: a root; each request extends one of the 24 newest paths below 60 blocks by two blocks. A
    // new root with a chance of 1 %.
    let mut raw = Raw::new();
    let mut paths: Vec<Vec<u64>> = Vec::new();
    for i in 0..n {
        if paths.is_empty() || r.unit() < 0.01 {
            paths = vec![doc(33, i as u64, 10)];
        }
        let at = r.below(paths.len() as u64) as usize;
        let mut ids = paths[at].clone();
        ids.extend(doc(34, i as u64, 2));
        if ids.len() < 60 {
            paths.push(ids.clone());
        }
        if paths.len() > 24 {
            paths.remove(0);
        }
        raw.push((i as u64 * 100, ids));
    }
    all.push(("search-tree", raw));
    // A working set that drifts.
    all.push(("drift", (0..n).map(|i| (i as u64 * 100, doc(35, i as u64 / 12 + r.below(500), 8))).collect()));
    // Popularity that is reversed now and then.
    let cdf = zipf_cdf(1500, 1.0);
    all.push((
        "turning-zipf",
        (0..n)
            .map(|i| {
                let x = zipf_pick(&mut r, &cdf);
                (i as u64 * 100, doc(36, if (i / 2500) % 2 == 0 { x } else { 1500 - x }, 8))
            })
            .collect(),
    ));
    // Sessions that pause: quick turns, a long break, quick turns.
    let mut raw = Raw::new();
    for s in 0..900u64 {
        let begin = r.below(900_000);
        let mut t = begin;
        for k in 0..12u64 {
            t += if k == 6 { 200_000 } else { 3000 + r.below(6000) };
            let mut ids = doc(37, s, 6 + k * 2);
            ids.push(key(38, s, k));
            raw.push((t, ids));
        }
    }
    raw.sort_by_key(|x| x.0);
    all.push(("pausing", raw));
    // Conversations with rarer later turns, among hot documents.
    let mut a = Talks {
        rate: 2.0,
        again: |turn| if turn == 1 { 0.7 } else { 0.2 },
        gap: 90_000.0,
        fixed: false,
        first: 25.0,
        grow: 6.0,
        trunk: 1,
        trunks: 1,
    }
    .make(n / 2, seed(102));
    let b = rag(n / 2, 800, 0.9, seed(103));
    let span = a.last().map_or(1, |x| x.0);
    a.extend(b.into_iter().enumerate().map(|(i, (_, ids))| (i as u64 * span / (n as u64 / 2), ids)));
    a.sort_by_key(|x| x.0);
    all.push(("talk+rag", a));
    // Whole prompts repeated exactly, after a while: retries and tests.
    let mut raw = Raw::new();
    for i in 0..n as u64 {
        let back = if r.unit() < 0.4 { 1 + r.below(400).min(i) } else { 0 };
        let which = i - back.min(i);
        raw.push((i * 100, doc(39, which, 3 + key_of(which as u32) % 25)));
    }
    all.push(("retries", raw));
    // One kind of traffic at a time: LRU's best case, then its opposite, in quick turns.
    all.push((
        "quick-turns",
        (0..n)
            .map(|i| {
                let ids = if (i / 400) % 2 == 0 {
                    doc(40, i as u64 - r.below(60).min(i as u64), 8)
                } else {
                    doc(41, r.below(300), 8)
                };
                (i as u64 * 100, ids)
            })
            .collect(),
    ));
    named(all)
}
