//! What was found, as a person reads it (Markdown) and as a tool does (JSON).

use crate::rounds::Spread;
use serde_json::{Value, json};
use std::fmt::Write;

/// What a figure has to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reach {
    /// So much, or more.
    Least(f64),
    /// So much, or less.
    Most(f64),
}

/// A figure beside another one.
#[derive(Clone, Debug)]
pub struct Beside {
    /// The other one.
    pub whom: String,
    /// How many times as much.
    pub ratio: Spread,
    /// What that is to reach.
    pub reach: Option<Reach>,
}

/// A line of a table.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was measured.
    pub what: String,
    /// How much.
    pub value: Spread,
    /// Of what.
    pub unit: &'static str,
    /// What the value is to reach.
    pub reach: Option<Reach>,
    /// Limits and peers.
    pub beside: Vec<Beside>,
    /// What else there is to say.
    pub note: String,
}

/// A table, and what its limit is.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// What is measured, and beside what.
    pub about: String,
    /// Its lines.
    pub rows: Vec<Row>,
    /// What was left out, and why.
    pub skipped: Vec<String>,
    /// Why it ended before its end.
    pub failed: Option<String>,
}

/// All that a run found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What it ran on: name and value.
    pub machine: Vec<(String, String)>,
    /// Its parts.
    pub sections: Vec<Section>,
}

impl Reach {
    /// Whether this much is enough.
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
    /// A value without anything beside it.
    #[must_use]
    pub fn new(what: impl Into<String>, value: Spread, unit: &'static str) -> Row {
        Row { what: what.into(), value, unit, reach: None, beside: Vec::new(), note: String::new() }
    }

    /// Puts it beside another one.
    #[must_use]
    pub fn beside(mut self, whom: impl Into<String>, ratio: Spread, reach: Option<Reach>) -> Row {
        self.beside.push(Beside { whom: whom.into(), ratio, reach });
        self
    }

    /// What the value itself is to reach.
    #[must_use]
    pub fn reach(mut self, reach: Reach) -> Row {
        self.reach = Some(reach);
        self
    }

    /// Says something more.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Row {
        self.note = note.into();
        self
    }

    /// All that is to be reached, by its name, and how much it is.
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
    /// An empty one.
    #[must_use]
    pub fn new(name: &'static str, about: impl Into<String>) -> Section {
        Section { name, about: about.into(), ..Section::default() }
    }

    /// How many targets are met, of how many, and the line that is furthest from one.
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
            "\n| what | median | quartiles | beside | reach | note |\n|---|---:|---|---|---|---|"
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
    /// Whether every section came to its end.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.sections.iter().all(|section| section.failed.is_none())
    }

    /// The tables.
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

    /// The same for a tool.
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

/// Nanoseconds as GB/s of so many bytes.
#[must_use]
pub fn gb_per_s(bytes: u64, ns: Spread) -> Spread {
    let rate = |ns: f64| bytes as f64 / ns;
    Spread { low: rate(ns.high), median: rate(ns.median), high: rate(ns.low) }
}
