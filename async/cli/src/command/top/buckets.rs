//! A histogram of an exposition text, and the difference of two.

use serde::Serialize;

/// Buckets by their upper ends.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Buckets {
    /// Upper ends in seconds, ascending, each with the number of values up to it.
    ends: Vec<(f64, f64)>,
}

/// A quantile of the values, as the end of its bucket.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quantile {
    /// The upper end of the bucket in seconds; the lower end if the bucket has no upper one.
    pub seconds: f64,
    /// Whether the bucket has no upper end, so the value is above `seconds`.
    pub above: bool,
}

/// Latencies end here, at about a hundred years; longer bucket ends are left out.
const LONGEST: f64 = 3e9;

impl Buckets {
    /// Makes a histogram of ends and counts. Counts of equal ends are added up.
    pub(super) fn new(all: impl Iterator<Item = (f64, f64)>) -> Buckets {
        let mut all: Vec<(f64, f64)> =
            all.filter(|(end, _)| (0.0..LONGEST).contains(end) || *end == f64::INFINITY).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut ends = Vec::<(f64, f64)>::new();
        for (end, count) in all {
            match ends.last_mut() {
                Some(last) if last.0 == end => last.1 += count,
                _ => ends.push((end, count)),
            }
        }
        Buckets { ends }
    }

    /// The values counted after `before`; no count is negative. Ends ascend in both, so one pass
    /// suffices: a text may have as many ends as samples.
    pub(super) fn since(&self, before: &Buckets) -> Buckets {
        let mut before = before.ends.iter().peekable();
        let new = |(end, count): &(f64, f64)| {
            while before.next_if(|(other, _)| other < end).is_some() {}
            let had = before.next_if(|(other, _)| other == end).map_or(0.0, |(_, count)| *count);
            (*end, (count - had).max(0.0))
        };
        Buckets { ends: self.ends.iter().map(new).collect() }
    }

    /// The number of values.
    pub(super) fn count(&self) -> f64 {
        self.ends.last().map_or(0.0, |(_, count)| *count)
    }

    /// The quantile `part`, from 0 to 1; `None` without values.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<Quantile> {
        let rank = (self.count() * part).ceil().max(1.0);
        let at = self.ends.iter().position(|(_, count)| *count >= rank)?;
        let (end, below) = (self.ends[at].0, at.checked_sub(1).map_or(0.0, |below| self.ends[below].0));
        let above = end.is_infinite();
        Some(Quantile { seconds: if above { below } else { end }, above })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_has_the_ends_of_the_newer_histogram() {
        let of = |ends: &[(f64, f64)]| Buckets::new(ends.iter().copied());
        let before = of(&[(0.5, 1.0), (1.0, 4.0), (2.0, 5.0), (f64::INFINITY, 6.0)]);
        let now = of(&[(0.1, 1.0), (1.0, 6.0), (3.0, 8.0), (f64::INFINITY, 5.0)]);
        assert_eq!(now.since(&before), of(&[(0.1, 1.0), (1.0, 2.0), (3.0, 8.0), (f64::INFINITY, 0.0)]));
        assert_eq!(now.since(&Buckets::default()), now);
    }
}
