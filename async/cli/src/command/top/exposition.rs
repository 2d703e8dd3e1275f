//! The samples of an exposition text, and queries on them: sums, values of a label, histograms.
//! `parse.rs` reads the text.

use super::buckets::Buckets;
use super::reading::MOST;
use std::collections::BTreeMap;

/// Labels and their values, in the order of the text.
pub(super) type Labels = Vec<(String, String)>;

/// The samples of kvstrata's metrics.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Exposition {
    /// By name, each in the order of the text. Buckets, sum and count of a histogram have names of their own.
    pub(super) samples: BTreeMap<String, Vec<(Labels, f64)>>,
}

impl Exposition {
    /// Whether it has no sample of kvstrata's metrics.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// The samples of a metric: labels and value. Values are clamped to 0 … 2⁶⁴ - 1; one
    /// that is not finite becomes 0.
    pub fn samples(&self, name: &str) -> impl Iterator<Item = (&[(String, String)], f64)> {
        self.samples.get(name).into_iter().flatten().map(|(labels, value)| (labels.as_slice(), sound(*value)))
    }

    /// The sum of a metric's samples with at least these labels; `None` without such a sample.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let of = self.samples(name).filter(|(have, _)| has(have, labels));
        of.map(|(_, value)| value).reduce(|all, one| all + one)
    }

    /// The values of a metric's label, each once, in the order of the text; the first 64 of them.
    #[must_use]
    pub fn values(&self, name: &str, label: &str) -> Vec<&str> {
        let mut values = Vec::new();
        for value in self.samples(name).filter_map(|(labels, _)| value_of(labels, label)) {
            if values.len() < MOST && !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }

    /// The sum of a histogram's buckets with at least these labels.
    #[must_use]
    pub fn histogram(&self, name: &str, labels: &[(&str, &str)]) -> Buckets {
        let name = format!("{name}_bucket");
        let of = self.samples(&name).filter(|(have, _)| has(have, labels));
        Buckets::new(of.filter_map(|(labels, count)| Some((value_of(labels, "le")?.parse().ok()?, count))))
    }
}

fn sound(value: f64) -> f64 {
    if value.is_finite() { value.clamp(0.0, u64::MAX as f64) } else { 0.0 }
}

/// A label's value.
pub(super) fn value_of<'l>(labels: &'l [(String, String)], label: &str) -> Option<&'l str> {
    labels.iter().find(|(name, _)| name == label).map(|(_, value)| value.as_str())
}

fn has(labels: &[(String, String)], wanted: &[(&str, &str)]) -> bool {
    wanted.iter().all(|(label, value)| value_of(labels, label) == Some(value))
}
