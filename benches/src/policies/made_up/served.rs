//! Traffic of LLM serving: conversations, retrieval, agents, bursts.
//!
//! I1. A prompt ends in a block of its own, as a partial block or a question does, unless its kind says
//!     otherwise.

use super::draw::{Rng, doc, key, zipf_cdf, zipf_pick};
use crate::policies::traffic::{Raw, key_of};
use std::collections::BTreeMap;

struct Talk {
    id: u64,
    len: u64,
    turns: u64,
}

/// Conversations, with a partial block at each turn's end.
pub(super) struct Talks {
    /// New conversations a second.
    pub(super) rate: f64,
    /// The chance of another turn after so many.
    pub(super) again: fn(u64) -> f64,
    /// Milliseconds between two turns: exactly, or on average.
    pub(super) gap: f64,
    pub(super) fixed: bool,
    /// Mean blocks of the first turn, and of the part that another turn adds.
    pub(super) first: f64,
    pub(super) grow: f64,
    /// Blocks of a system prompt, and the number of system prompts.
    pub(super) trunk: u64,
    pub(super) trunks: u64,
}

impl Talks {
    pub(super) fn make(&self, n: usize, seed: u64) -> Raw {
        let Talks { rate, again, gap, fixed, first, grow, trunk, trunks } = *self;
        let mut r = Rng::new(seed);
        let mut due: BTreeMap<(u64, u64), Talk> = BTreeMap::new();
        let (mut now, mut id, mut out) = (0f64, 0u64, Raw::new());
        let mut tails = 0u64;
        while out.len() < n {
            now += r.exp(1000.0 / rate);
            let arrival = id;
            id += 1;
            due.insert((now as u64, arrival), Talk { id: arrival, len: 1 + r.exp(first) as u64, turns: 1 });
            while let Some(entry) = due.first_entry() {
                if entry.key().0 > now as u64 {
                    break;
                }
                let ((time, _), mut talk) = entry.remove_entry();
                let mut ids = doc(8, talk.id % trunks.max(1), trunk);
                ids.extend(doc(9, talk.id, talk.len.min(400)));
                tails += 1;
                ids.push(key(10, tails, 0));
                out.push((time, ids));
                if r.unit() < again(talk.turns) {
                    talk.turns += 1;
                    talk.len += 1 + r.exp(grow) as u64;
                    let wait = if fixed { gap } else { gap * 0.3 + r.exp(gap * 0.7) };
                    due.insert(((time as f64 + wait) as u64, talk.id), talk);
                }
            }
        }
        out.truncate(n);
        out
    }
}

/// Retrieval: a system prompt, documents by popularity, a question.
pub(super) fn rag(n: usize, docs: usize, alpha: f64, seed: u64) -> Raw {
    let mut r = Rng::new(seed);
    let cdf = zipf_cdf(docs, alpha);
    (0..n)
        .map(|i| {
            let mut ids = doc(11, 0, 2);
            let d = zipf_pick(&mut r, &cdf);
            ids.extend(doc(12, d, 3 + key_of(d as u32) % 20));
            ids.push(key(13, i as u64, 0));
            (i as u64 * 100, ids)
        })
        .collect()
}

/// Agents: a long shared prefix for each kind, quick steps that each add a little, then silence.
pub(super) fn agents(n: usize, kinds: u64, prefix: u64, steps: u64, at_once: usize, seed: u64) -> Raw {
    let mut r = Rng::new(seed);
    let mut live: Vec<(u64, u64, u64, u64)> = Vec::new();
    let mut id = 0;
    (0..n)
        .map(|i| {
            if live.len() < at_once {
                id += 1;
                live.push((id, r.below(kinds), 0, 1 + r.exp(steps as f64) as u64));
            }
            let at = r.below(live.len() as u64) as usize;
            let (me, kind, done, left) = &mut live[at];
            let mut ids = doc(14, *kind, prefix + *kind % 7);
            ids.extend(doc(15, *me, 1 + *done * 2));
            *done += 1;
            *left -= 1;
            if *left == 0 {
                live.swap_remove(at);
            }
            (i as u64 * 50, ids)
        })
        .collect()
}

/// Bursts: the same prompt many times within moments, then never again; ordinary conversations in between.
pub(super) fn bursts(n: usize, size: u64, len: u64, seed: u64) -> Raw {
    let mut r = Rng::new(seed);
    let mut open: Vec<(u64, u64)> = Vec::new();
    let mut id = 0;
    (0..n)
        .map(|i| {
            if open.len() < 5 || r.unit() < 0.02 {
                id += 1;
                open.push((id, 1 + r.exp(size as f64) as u64));
            }
            let at = r.below(open.len() as u64) as usize;
            open[at].1 -= 1;
            let mut ids = doc(16, open[at].0, len);
            ids.push(key(17, i as u64, 1));
            if open[at].1 == 0 {
                open.swap_remove(at);
            }
            (i as u64 * 100, ids)
        })
        .collect()
}

/// First long conversations pay, then the roles change: conversations with turns never come back, and
/// one-shots do.
pub(super) fn reversal(n: usize, seed: u64) -> Raw {
    let plain = Talks {
        rate: 2.0,
        again: |_| 0.8,
        gap: 60_000.0,
        fixed: false,
        first: 10.0,
        grow: 2.0,
        trunk: 1,
        trunks: 1,
    };
    let a = plain.make(n / 2, seed);
    let twice =
        Talks { again: |turn| if turn == 1 { 0.9 } else { 0.0 }, gap: 30_000.0, fixed: true, ..plain };
    let b = twice.make(n - n / 2, seed + 1);
    let t0 = a.last().map_or(0, |x| x.0);
    let mut out = a;
    out.extend(b.into_iter().map(|(t, ids)| (t + t0, ids.into_iter().map(|x| x ^ 0x55).collect())));
    out
}
