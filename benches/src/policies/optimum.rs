//! The two ends of the table: exact LRU, and the offline optimum.
//!
//! I1. Both count a request's hits before the request changes anything, as the pool does.

use super::traffic::Trace;
use std::collections::BinaryHeap;

/// The exact LRU by last release, tail first: what `kvstrata replay` counts over one tier.
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

/// The offline optimum: Belady with bypass, the deepest of a request first.
#[must_use]
pub fn optimum(trace: &Trace, capacity: usize) -> u64 {
    let never = u32::MAX;
    let mut next_use = vec![never; trace.distinct];
    let mut nexts: Vec<Vec<u32>> = Vec::with_capacity(trace.requests.len());
    for (n, request) in trace.requests.iter().enumerate().rev() {
        nexts.push(request.ids.iter().map(|id| next_use[*id as usize]).collect());
        for id in &request.ids {
            next_use[*id as usize] = n as u32;
        }
    }
    nexts.reverse();
    let mut there = vec![false; trace.distinct];
    let mut current = vec![(0u32, 0u32); trace.distinct];
    let mut heap: BinaryHeap<(u32, u32, u32)> = BinaryHeap::new();
    let (mut len, mut hits) = (0usize, 0u64);
    for (n, request) in trace.requests.iter().enumerate() {
        hits += request.ids.iter().take_while(|id| there[**id as usize]).count() as u64;
        for (at, id) in request.ids.iter().enumerate() {
            let next = nexts[n][at];
            let i = *id as usize;
            if next == never {
                if there[i] {
                    there[i] = false;
                    len -= 1;
                }
                continue;
            }
            if !there[i] {
                there[i] = true;
                len += 1;
            }
            current[i] = (next, at as u32);
            heap.push((next, at as u32, *id));
        }
        while len > capacity {
            let (next, at, id) = heap.pop().expect("not empty");
            if there[id as usize] && current[id as usize] == (next, at) {
                there[id as usize] = false;
                len -= 1;
            }
        }
    }
    hits
}
