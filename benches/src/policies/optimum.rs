//! The two ends of the table: exact LRU, and the offline optimum.
//!
//! I1. A request's hits are counted before the request changes anything, as in the pool.

use super::traffic::Trace;

/// Counts the hits of exact LRU by last release, tail first, as `kvstrata replay` does over one tier.
#[must_use]
pub fn lru(trace: &Trace, capacity: usize) -> u64 {
    // A list over ids.
    let n = trace.distinct;
    let (mut prev, mut next) = (vec![n as u32; n + 1], vec![n as u32; n + 1]);
    let mut there = vec![false; n];
    let (mut len, mut hits) = (0usize, 0u64);
    for request in &trace.requests {
        hits += request.ids.iter().take_while(|id| there[**id as usize]).count() as u64;
        for id in request.ids.iter().rev() {
            let i = *id as usize;
            if there[i] {
                next[prev[i] as usize] = next[i];
                prev[next[i] as usize] = prev[i];
            } else {
                there[i] = true;
                len += 1;
            }
            let last = prev[n];
            prev[i] = last;
            next[i] = n as u32;
            next[last as usize] = *id;
            prev[n] = *id;
        }
        while len > capacity {
            let first = next[n] as usize;
            next[n] = next[first];
            prev[next[first] as usize] = n as u32;
            there[first] = false;
            len -= 1;
        }
    }
    hits
}

/// Counts the hits of the offline optimum: [`kvstrata_cli::policies::optimum`].
#[must_use]
pub fn optimum(trace: &Trace, capacity: usize) -> u64 {
    let prompts = trace.requests.iter().map(|request| request.ids.as_slice());
    kvstrata_cli::policies::optimum(prompts, trace.distinct, capacity)
}
