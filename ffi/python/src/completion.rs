//! Answers of batches, for Python.

use kvstrata::Tier;
use kvstrata::store::{Completion as Ended, Kind, Miss, Outcome};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The numbers of outcomes. Those below 16 are done. `kvstrata.Outcome` is made of this list.
const NUMBERS: [(&str, u8); 14] = [
    ("STORED", 1),
    ("PRESENT", 2),
    ("LOADED", 3),
    ("FORGOTTEN", 4),
    ("ABSENT", 16),
    ("LENGTH", 17),
    ("TOO_LONG", 18),
    ("FULL", 19),
    ("REFUSED", 20),
    ("BUSY", 21),
    ("SLOW", 22),
    ("LATE", 23),
    ("FAILED", 24),
    ("CLOSED", 25),
];

/// Returns the names and numbers of outcomes.
pub(crate) fn outcomes(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    NUMBERS.iter().try_for_each(|(name, number)| all.set_item(name, number))?;
    Ok(all)
}

fn number(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Stored(_) => 1,
        Outcome::Present => 2,
        Outcome::Loaded(_) => 3,
        Outcome::Forgotten => 4,
        Outcome::Absent => 16,
        Outcome::Missed(miss) => match miss {
            Miss::Length => 17,
            Miss::TooLong => 18,
            Miss::Full => 19,
            Miss::Refused => 20,
            Miss::Busy => 21,
            Miss::Slow => 22,
            Miss::Late => 23,
            Miss::Closed => 25,
            // `Failed`, and causes that this module does not know yet.
            _ => 24,
        },
    }
}

/// Returns the name of a tier.
pub(crate) fn tier_name(tier: Tier) -> &'static str {
    match tier {
        Tier::Device => "device",
        Tier::Host => "host",
        Tier::Below(_) => "disk",
    }
}

/// The answer of a batch that has ended: no transfer touches its buffers any more.
///
/// Attributes: job, kind, ok, outcomes, done, tiers, leading, error.
#[pyclass(frozen, module = "kvstrata")]
pub(crate) struct Completion {
    job: u64,
    kind: Kind,
    outcomes: Box<[Outcome]>,
}

impl Completion {
    /// Takes the answers. The lent memory is dropped here, which ends the loan.
    pub(crate) fn of(ended: Ended) -> Completion {
        Completion { job: ended.job.0, kind: ended.kind, outcomes: ended.outcomes }
    }
}

#[pymethods]
impl Completion {
    /// The number that the submit call returned.
    #[getter]
    fn job(&self) -> u64 {
        self.job
    }

    /// "store", "load" or "forget".
    #[getter]
    fn kind(&self) -> &'static str {
        match self.kind {
            Kind::Store => "store",
            Kind::Load => "load",
            Kind::Forget => "forget",
        }
    }

    /// Whether every key was done.
    #[getter]
    fn ok(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.is_done())
    }

    /// A number for each key, in the order of the call: see `kvstrata.Outcome`.
    #[getter]
    fn outcomes(&self) -> Vec<u16> {
        // As 16 bits: a list of bytes would become one bytes object.
        self.outcomes.iter().map(|outcome| number(*outcome).into()).collect()
    }

    /// Whether the call did its work, for each key.
    #[getter]
    fn done(&self) -> Vec<bool> {
        self.outcomes.iter().map(|outcome| outcome.is_done()).collect()
    }

    /// The tier that has or had the bytes, for each key: "host", "disk", or None.
    #[getter]
    fn tiers(&self) -> Vec<Option<&'static str>> {
        let tier = |outcome: &Outcome| match outcome {
            Outcome::Stored(tier) | Outcome::Loaded(tier) => Some(tier_name(*tier)),
            _ => None,
        };
        self.outcomes.iter().map(tier).collect()
    }

    /// The number of leading keys that were done: the usable prefix of a load.
    #[getter]
    fn leading(&self) -> usize {
        self.outcomes.iter().take_while(|outcome| outcome.is_done()).count()
    }

    /// Why keys were not done, with their number, or None: "2 of 32 keys not loaded: 1 absent, 1 late".
    #[getter]
    fn error(&self) -> Option<String> {
        let mut causes = BTreeMap::new();
        for outcome in &self.outcomes {
            let cause = match outcome {
                Outcome::Absent => "absent",
                Outcome::Missed(miss) => miss.name(),
                _ => continue,
            };
            *causes.entry(cause).or_insert(0_usize) += 1;
        }
        if causes.is_empty() {
            return None;
        }
        let act = match self.kind {
            Kind::Store => "stored",
            Kind::Load => "loaded",
            Kind::Forget => "forgotten",
        };
        let count: usize = causes.values().sum();
        let mut text = format!("{count} of {} keys not {act}: ", self.outcomes.len());
        for (place, (cause, count)) in causes.into_iter().enumerate() {
            // Writing to a string does not fail.
            let _ = write!(text, "{}{count} {cause}", if place == 0 { "" } else { ", " });
        }
        Some(text)
    }

    fn __repr__(&self) -> String {
        let why = self.error().unwrap_or_else(|| format!("{} keys", self.outcomes.len()));
        format!("<kvstrata.Completion job={} {}: {why}>", self.job, self.kind())
    }
}
