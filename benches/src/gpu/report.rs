//! The results as Markdown for people and as JSON for tools.

use crate::rounds::Spread;
use serde_json::{Value, json};
use std::fmt::Write;

/// The target of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reach {
    /// At least so much.
    Least(f64),
    /// At most so much.
    Most(f64),
}

/// A figure beside another one.
#[derive(Clone, Debug)]
pub struct Beside {
    /// The other one.
    pub whom: String,
    /// The ratio of the two.
    pub ratio: Spread,
    /// The target of the ratio.
    pub reach: Option<Reach>,
}

/// A line of a table.
#[derive(Clone, Debug)]
pub struct Row {
    /// The measured operation.
    pub what: String,
    /// The value.
    pub value: Spread,
    /// Its unit.
    pub unit: &'static str,
    /// The target of the value.
    pub reach: Option<Reach>,
    /// Limits and peers.
    pub beside: Vec<Beside>,
    /// A note.
    pub note: String,
}

/// A table, with its limit.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// A description of the measurement, and of its limits.
    pub about: String,
    /// Its lines.
    pub rows: Vec<Row>,
    /// Parts that were left out, with the reason.
    pub skipped: Vec<String>,
    /// The reason why it ended early.
    pub failed: Option<String>,
}

/// All results of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The machine: names and values.
    pub machine: Vec<(String, String)>,
    /// Its parts.
    pub sections: Vec<Section>,
}

impl Reach {
    /// Returns whether a value meets the target.
    #[must_use]
    pub fn is_met(self, value: f64) -> bool {
        match self {
            Reach::Least(least) => value >= least,
            Reach::Most(most) => value <= most,
        }
    }

    fn words(self) -> String {
        match self {
            Reach::Least(least) => format!("≥ {least}"),
            Reach::Most(most) => format!("≤ {most}"),
        }
    }

    fn judged(self, value: f64) -> String {
        format!("{} {}", self.words(), if self.is_met(value) { "yes" } else { "NO" })
    }
}

impl Row {
    /// Makes a value without anything beside it.
    #[must_use]
    pub fn new(what: impl Into<String>, value: Spread, unit: &'static str) -> Row {
        Row { what: what.into(), value, unit, reach: None, beside: Vec::new(), note: String::new() }
    }

    /// Adds a figure beside it.
    #[must_use]
    pub fn beside(mut self, whom: impl Into<String>, ratio: Spread, reach: Option<Reach>) -> Row {
        self.beside.push(Beside { whom: whom.into(), ratio, reach });
        self
    }

    /// Sets the target of the value itself.
    #[must_use]
    pub fn reach(mut self, reach: Reach) -> Row {
        self.reach = Some(reach);
        self
    }

    /// Sets the note.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Row {
        self.note = note.into();
        self
    }

    /// Returns all targets, with their names and the values.
    fn judged(&self) -> impl Iterator<Item = (&str, Reach, f64)> {
        let own = self.reach.map(|reach| (self.unit, reach, self.value.median));
        let others = self.beside.iter().filter_map(|beside| {
            beside.reach.map(|reach| (beside.whom.as_str(), reach, beside.ratio.median))
        });
        own.into_iter().chain(others)
    }

    fn json(&self) -> Value {
        let reach = |reach: Option<Reach>, value: f64| {
            reach.map(|reach| json!({ "reach": reach.words(), "met": reach.is_met(value) }))
        };
        let beside = self.beside.iter().map(|beside| {
            json!({
                "whom": beside.whom, "ratio": beside.ratio.json(), "target": reach(beside.reach, beside.ratio.median),
            })
        });
        json!({
            "what": self.what, "unit": self.unit, "value": self.value.json(), "target": reach(self.reach, self.value.median),
            "beside": beside.collect::<Vec<_>>(), "note": self.note,
        })
    }
}

impl Section {
    /// Makes an empty section.
    #[must_use]
    pub fn new(name: &'static str, about: impl Into<String>) -> Section {
        Section { name, about: about.into(), ..Section::default() }
    }

    /// Returns the number of targets met, the number of targets, and the line
    /// that is furthest from its target.
    fn summary(&self) -> Option<(usize, usize, String)> {
        let all = self.rows.iter().flat_map(|row| row.judged().map(move |judged| (row, judged)));
        let distance = |reach: Reach, value: f64| match reach {
            Reach::Least(least) => value / least,
            Reach::Most(_) if value <= 0.0 => f64::INFINITY,
            Reach::Most(most) => most / value,
        };
        let (mut met, mut of, mut worst) = (0, 0, None::<(f64, String)>);
        for (row, (name, reach, value)) in all {
            of += 1;
            met += usize::from(reach.is_met(value));
            let distance = distance(reach, value);
            if worst.as_ref().is_none_or(|(other, _)| distance < *other) {
                worst = Some((distance, format!("{}: {value:.3} {name}, {}", row.what, reach.words())));
            }
        }
        worst.map(|(_, worst)| (met, of, worst))
    }

    fn markdown(&self, out: &mut String) {
        let _ = writeln!(out, "\n## {}\n\n{}\n", self.name, self.about);
        if let Some(failed) = &self.failed {
            let _ = writeln!(out, "**FAILED**: {failed}\n");
        }
        for skipped in &self.skipped {
            let _ = writeln!(out, "- SKIP {skipped}");
        }
        if self.rows.is_empty() {
            return;
        }
        let _ = writeln!(
            out,
            "\n| measured | median | quartiles | beside | reach | note |\n|---|---:|---|---|---|---|"
        );
        for row in &self.rows {
            let Spread { low, median, high } = row.value;
            let beside =
                row.beside.iter().map(|Beside { whom, ratio: Spread { low, median, high }, .. }| {
                    format!("**{median:.3}×** {whom} ({low:.3}–{high:.3})")
                });
            let reaches: Vec<String> = row.judged().map(|(_, reach, value)| reach.judged(value)).collect();
            let _ = writeln!(
                out,
                "| {} | {median:.2} {} | {low:.2}–{high:.2} | {} | {} | {} |",
                row.what,
                row.unit,
                beside.collect::<Vec<_>>().join(", "),
                reaches.join(", "),
                row.note
            );
        }
    }
}

impl Report {
    /// Returns whether every section came to its end.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.sections.iter().all(|section| section.failed.is_none())
    }

    /// Formats the tables.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = String::from("# Copies on a GPU\n\n");
        for (name, value) in &self.machine {
            let _ = writeln!(out, "- {name}: {value}");
        }
        let _ = writeln!(out, "\n| | targets met | furthest from its target |\n|---|---|---|");
        for section in &self.sections {
            let _ = match (&section.failed, section.summary()) {
                (Some(_), _) => writeln!(out, "| {} | FAILED | |", section.name),
                (None, Some((met, of, worst))) => {
                    writeln!(out, "| {} | {met} of {of} | {worst} |", section.name)
                }
                (None, None) => writeln!(out, "| {} | – | |", section.name),
            };
        }
        for section in &self.sections {
            section.markdown(&mut out);
        }
        out
    }

    /// Formats the results for tools.
    #[must_use]
    pub fn json(&self) -> Value {
        let machine: serde_json::Map<_, _> =
            self.machine.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let sections = self.sections.iter().map(|section| {
            let summary = section.summary().map(|(met, of, worst)| json!({ "met": met, "of": of, "furthest": worst }));
            json!({
                "name": section.name, "about": section.about, "failed": section.failed, "skipped": section.skipped,
                "targets": summary, "rows": section.rows.iter().map(Row::json).collect::<Vec<_>>(),
            })
        });
        json!({ "machine": machine, "sections": sections.collect::<Vec<_>>() })
    }
}

/// Converts nanoseconds to GB/s of so many bytes.
#[must_use]
pub fn gb_per_s(bytes: u64, ns: Spread) -> Spread {
    let rate = |ns: f64| bytes as f64 / ns;
    Spread { low: rate(ns.high), median: rate(ns.median), high: rate(ns.low) }
}
