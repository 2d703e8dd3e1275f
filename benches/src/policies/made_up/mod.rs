//! Made-up traces, on which reuse must not fall below LRU.
//!
//! | file | contents |
//! |---|---|
//! | `draw.rs` | random numbers, popularity, keys by their path |
//! | `plain.rs` | documents by popularity, scans, loops, phases, recency |
//! | `served.rs` | traffic of LLM serving: conversations, retrieval, agents, bursts |
//! | `other.rs` | kinds that were written after the policy was finished |
//! | `parts.rs` | a real trace in parts, backwards, beside itself |
//!
//! I1. The same round gives the same traces.

mod draw;
mod other;
mod parts;
mod plain;
mod served;

pub use other::other;
pub use parts::parts;

use super::traffic::{Raw, Trace};
use plain::{looping, mixed, phases, scan_hot, stack, uniform, zipf};
use served::{Talks, agents, bursts, rag, reversal};

/// The distance between the seeds of two rounds.
const ROUND: u64 = 1000;

/// Requests of most traces; of traces with one block a request.
const REQUESTS: usize = 12_000;
const SHORT: usize = 60_000;

/// Makes so many blocks, by requests of `length`, none requested before: it measures the cost of
/// evictions alone.
#[must_use]
pub fn fresh(length: usize, blocks: usize) -> Trace {
    let names = |request: usize| (request * length..(request + 1) * length).map(|name| name as u64).collect();
    let raw: Raw = (0..blocks / length).map(|request| (request as u64, names(request))).collect();
    Trace::new(&format!("fresh{length}"), raw)
}

/// Makes all kinds that were used while the policy was developed. Another `round` has other random numbers.
#[must_use]
pub fn made_up(round: u64) -> Vec<Trace> {
    let (n, seed) = (REQUESTS, |number: u64| number + ROUND * round);
    let all = [
        ("uniform1", uniform(SHORT, 8000, 1, seed(1))),
        ("uniform8", uniform(n, 2000, 8, seed(2))),
        ("zipf0.7x1", zipf(SHORT, 20_000, 0.7, 1, seed(3))),
        ("zipf1.0x1", zipf(SHORT, 20_000, 1.0, 1, seed(4))),
        ("zipf0.9x8", zipf(n, 4000, 0.9, 8, seed(5))),
        ("loop1", looping(SHORT, 6000, 1)),
        ("loop8", looping(n, 1500, 8)),
        ("scan+hot", scan_hot(n, 300, 8, 0.5, seed(6))),
        ("scan+hot-rare", scan_hot(n, 800, 8, 0.15, seed(7))),
        ("phases", phases(n, 1500, 400, 8, seed(8))),
        ("phases-short", phases(n, 200, 100, 8, seed(9))),
        ("mixed", mixed(n, seed(10))),
        ("stack100", stack(n, 100.0, 8, 0.3, seed(11))),
        ("stack600", stack(n, 600.0, 8, 0.1, seed(12))),
        ("stack30x1", stack(SHORT, 2000.0, 1, 0.2, seed(13))),
        (
            "one-turn",
            Talks {
                rate: 3.0,
                again: |_| 0.0,
                gap: 60_000.0,
                fixed: false,
                first: 15.0,
                grow: 2.0,
                trunk: 2,
                trunks: 3,
            }
            .make(n, seed(14)),
        ),
        (
            "two-turns-fixed",
            Talks {
                rate: 3.0,
                again: |t| if t == 1 { 1.0 } else { 0.0 },
                gap: 45_000.0,
                fixed: true,
                first: 15.0,
                grow: 2.0,
                trunk: 1,
                trunks: 1,
            }
            .make(n, seed(15)),
        ),
        (
            "talk-memoryless",
            Talks {
                rate: 3.0,
                again: |_| 0.5,
                gap: 60_000.0,
                fixed: false,
                first: 15.0,
                grow: 2.0,
                trunk: 1,
                trunks: 1,
            }
            .make(n, seed(16)),
        ),
        (
            "talk-growing",
            Talks {
                rate: 3.0,
                again: |t| [0.25, 0.4, 0.55, 0.7][(t as usize - 1).min(3)],
                gap: 100_000.0,
                fixed: false,
                first: 20.0,
                grow: 1.0,
                trunk: 1,
                trunks: 1,
            }
            .make(n, seed(17)),
        ),
        (
            "talk-fading",
            Talks {
                rate: 3.0,
                again: |t| [0.9, 0.6, 0.3, 0.1][(t as usize - 1).min(3)],
                gap: 60_000.0,
                fixed: false,
                first: 12.0,
                grow: 2.0,
                trunk: 1,
                trunks: 1,
            }
            .make(n, seed(18)),
        ),
        (
            "talk-10turns",
            Talks {
                rate: 1.0,
                again: |t| if t < 10 { 1.0 } else { 0.0 },
                gap: 40_000.0,
                fixed: true,
                first: 8.0,
                grow: 2.0,
                trunk: 3,
                trunks: 1,
            }
            .make(n, seed(19)),
        ),
        (
            "talk-quick",
            Talks {
                rate: 3.0,
                again: |_| 0.6,
                gap: 10_000.0,
                fixed: false,
                first: 15.0,
                grow: 3.0,
                trunk: 2,
                trunks: 20,
            }
            .make(n, seed(20)),
        ),
        ("rag0.8", rag(n, 2000, 0.8, seed(21))),
        ("rag1.1", rag(n, 5000, 1.1, seed(22))),
        ("agents", agents(n, 6, 30, 12, 20, seed(23))),
        ("agents-many", agents(n, 40, 20, 6, 60, seed(24))),
        ("bursts", bursts(n, 20, 12, seed(25))),
        ("bursts-small", bursts(n, 4, 12, seed(26))),
        ("reversal", reversal(n, seed(27))),
    ];
    named(all)
}

fn named(all: impl IntoIterator<Item = (&'static str, Raw)>) -> Vec<Trace> {
    all.into_iter().map(|(name, raw)| Trace::new(name, raw)).collect()
}
