//! Hints of a caller to a policy: that a conversation has ended; the length of its answer.

use super::traffic::Trace;
use kvstrata_cli::trace::{TraceReader, TraceSource};
use std::collections::HashMap;
use std::error::Error;
use std::hash::Hash;

/// Returns, for each request, the number of leading blocks that others may still request, if its
/// conversation has ended; all of them while it goes on. It has ended if no later request has its last
/// block but one: the last block is not full, and has another name in the next turn.
#[must_use]
pub fn endings(trace: &Trace) -> Vec<usize> {
    let mut last = vec![0; trace.distinct];
    for (at, request) in trace.requests.iter().enumerate() {
        request.ids.iter().for_each(|id| last[*id as usize] = at);
    }
    let keep = |(at, request): (usize, &super::traffic::Request)| {
        let len = request.ids.len();
        let wanted = request.ids.iter().take_while(|id| last[**id as usize] > at).count();
        if wanted + 2 <= len || (len == 1 && wanted == 0) { wanted } else { len }
    };
    trace.requests.iter().enumerate().map(keep).collect()
}

/// How well it can be predicted whether a conversation goes on, in bits: the entropy without any sign,
/// and the part that signs remove.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Signs {
    /// The number of requests.
    pub requests: usize,
    /// Requests with a conversation that went on.
    pub went_on: usize,
    /// Entropy of all requests.
    pub unknown: f64,
    /// Bits known from the number of turns.
    pub turn: f64,
    /// Bits known from turns and the length of the answer, in octaves.
    pub turn_and_answer: f64,
    /// Bits that turns and some other request's answer seem to give: the effect
    /// of chance with as many groups.
    pub turn_and_chance: f64,
}

/// Counts the signs in a trace.
///
/// # Errors
/// It cannot be read.
pub fn signs(source: TraceSource) -> Result<Signs, Box<dyn Error>> {
    let mut reader = TraceReader::open(source)?;
    // For each request: its turn, its answer's length, its blocks, whether it went on. For each block:
    // its last request.
    let mut requests: Vec<(u32, u64, usize, bool)> = vec![];
    let mut had: HashMap<u64, usize> = HashMap::new();
    while let Some(request) = reader.next_request()? {
        let ids = &request.hash_ids;
        let mut turn = 1;
        if let Some((depth, before)) = (0..ids.len()).rev().find_map(|at| Some((at, *had.get(&ids[at])?)))
            && depth >= requests[before].2.saturating_sub(2).max(1)
        {
            requests[before].3 = true;
            turn = requests[before].0 + 1;
        }
        ids.iter().for_each(|id| _ = had.insert(*id, requests.len()));
        requests.push((turn.min(6), request.output_length, ids.len(), false));
    }
    let octave = |length: u64| (length + 1).ilog2();
    // The request half the trace away: as good as a random one, and the same at each run.
    let other = |at: usize| requests[(at + requests.len() / 2) % requests.len()].1;
    let unknown = entropy(&requests, |_| ());
    Ok(Signs {
        requests: requests.len(),
        went_on: requests.iter().filter(|request| request.3).count(),
        unknown,
        turn: unknown - entropy(&requests, |at| requests[at].0),
        turn_and_answer: unknown - entropy(&requests, |at| (requests[at].0, octave(requests[at].1))),
        turn_and_chance: unknown - entropy(&requests, |at| (requests[at].0, octave(other(at)))),
    })
}

/// Returns the bits that are unknown about whether conversations go on, if each request's group is known.
fn entropy<G: Hash + Eq>(requests: &[(u32, u64, usize, bool)], group: impl Fn(usize) -> G) -> f64 {
    let mut groups: HashMap<G, [f64; 2]> = HashMap::new();
    for (at, request) in requests.iter().enumerate() {
        groups.entry(group(at)).or_default()[usize::from(request.3)] += 1.0;
    }
    let bits = |[ended, went_on]: &[f64; 2]| {
        let all = ended + went_on;
        [ended, went_on].into_iter().filter(|n| **n > 0.0).map(|n| n * (all / n).log2()).sum::<f64>()
    };
    groups.values().map(bits).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversation_ends_at_the_last_use_of_its_last_full_block() {
        let raw = [vec![1, 2, 3], vec![1, 2, 4, 5], vec![1, 9], vec![8], vec![8, 7]];
        let trace = Trace::new("short", raw.into_iter().map(|ids| (0, ids)).collect());
        assert_eq!(endings(&trace), [3, 1, 0, 1, 0]);
    }

    #[test]
    fn deciding_sign_leaves_nothing_unknown() {
        let requests = [(1, 0, 1, true), (1, 0, 1, true), (2, 0, 1, false), (2, 0, 1, false)];
        assert!((entropy(&requests, |_| ()) - 4.0).abs() < 1e-9);
        assert!(entropy(&requests, |at| requests[at].0).abs() < 1e-9);
    }
}
