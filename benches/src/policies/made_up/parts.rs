//! A real trace in parts, backwards, beside itself under other names.
//!
//! I1. Copies under other names share no block with the trace: their names begin behind its last.

use crate::policies::traffic::{Raw, Trace};

/// Makes all variants.
#[must_use]
pub fn parts(t: &Trace) -> Vec<Trace> {
    let raw = t.raw();
    let (n, copy) = (raw.len(), t.distinct as u64);
    let mut out = Vec::new();
    let thirds = [n / 3, 2 * n / 3];
    for (name, a, b) in [
        ("half1", 0, n / 2),
        ("half2", n / 2, n),
        ("third1", 0, thirds[0]),
        ("third2", thirds[0], thirds[1]),
        ("third3", thirds[1], n),
    ] {
        out.push(Trace::new(name, raw[a..b].to_vec()));
    }
    let end = raw.last().map_or(0, |last| last.0);
    out.push(Trace::new(
        "reversed",
        raw.iter().rev().map(|(t, ids)| (end.saturating_sub(*t), ids.clone())).collect(),
    ));
    let mut two = Vec::new();
    for (t, ids) in &raw {
        two.push((*t, ids.clone()));
        two.push((*t, ids.iter().map(|i| i + copy).collect()));
    }
    out.push(Trace::new("twice-lockstep", two));
    // The second copy starts in the middle of the first.
    let mut two: Raw = raw.clone();
    two.extend(
        raw.iter()
            .map(|(t, ids)| (t.saturating_add(end / 2) % end.max(1), ids.iter().map(|i| i + copy).collect())),
    );
    two.sort_by_key(|x| x.0);
    out.push(Trace::new("twice-shifted", two));
    let mut twice = raw.clone();
    twice.extend(raw.iter().map(|(t, ids)| (t.saturating_add(end), ids.clone())));
    out.push(Trace::new("repeated", twice));
    let fast: Raw = raw.iter().enumerate().filter(|(i, _)| i % 2 == 0).map(|(_, x)| x.clone()).collect();
    out.push(Trace::new("every-second", fast));
    // A short trace has empty parts.
    out.retain(|trace| trace.blocks > 0);
    out
}
