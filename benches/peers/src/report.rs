//! The table as Markdown for people and as JSON for tools.

use kvstrata_benches::rounds::Spread;
use serde_json::{Value, json};
use std::fmt::{self, Write};

/// The unit of a figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Unit {
    /// Nanoseconds a run.
    Nanoseconds,
    /// Millions of blocks a second.
    Mblocks,
    /// Millions of tokens a second.
    Mtokens,
    /// Bytes a block.
    Bytes,
}

/// The target of a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reach {
    /// This many times as fast as the peer.
    Faster(f64),
    /// Two threads do this many times the work of one of our own.
    Scaling(f64),
    /// At most so many bytes.
    Bytes(f64),
    /// At least so many million tokens a second.
    Mtokens(f64),
    /// None: the row is for comparison only.
    Nothing,
}

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// The measured operation.
    pub operation: String,
    /// The unit of the figures.
    pub unit: Unit,
    /// The peer as documented.
    pub peer: Spread,
    /// The peer in its fastest setup, if that is another.
    pub leanest: Option<Spread>,
    /// Ours.
    pub ours: Spread,
    /// The ratio that is compared with `reach`, round by round.
    pub ratio: Spread,
    /// The same against the peer's fastest setup.
    pub ratio_leanest: Option<Spread>,
    /// The row's target.
    pub reach: Reach,
}

/// A limit of the machine.
pub struct Limit {
    /// The measured operation.
    pub what: &'static str,
    /// Nanoseconds.
    pub time: Spread,
}

/// All results of a run.
pub struct Report {
    /// The machine.
    pub machine: String,
    /// The day.
    pub date: String,
    /// The command that repeats it.
    pub command: String,
    /// The table.
    pub rows: Vec<Row>,
    /// The limits beside it.
    pub limits: Vec<Limit>,
}

impl Row {
    fn met(&self) -> Option<bool> {
        match self.reach {
            Reach::Faster(times) | Reach::Scaling(times) => Some(self.ratio.median >= times),
            Reach::Bytes(most) => Some(self.ours.median <= most),
            Reach::Mtokens(least) => Some(self.ours.median >= least),
            Reach::Nothing => None,
        }
    }
}

impl Report {
    /// Formats the report as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("{}, {}, `{}`\n\n", self.machine, self.date, self.command);
        text += "| operation | peer | peer, leanest | ours | ratio | to leanest | reach | met |\n";
        text += "|---|---|---|---|---|---|---|---|\n";
        for row in &self.rows {
            let figure = |spread: Spread| Figure { spread, unit: row.unit }.to_string();
            let leanest = row.leanest.map_or("–".into(), figure);
            let to_leanest = row.ratio_leanest.map_or("–".into(), |ratio| format!("{:.1}×", ratio.median));
            let ratio = format!("**{:.1}×** ({:.1}–{:.1})", row.ratio.median, row.ratio.low, row.ratio.high);
            let met = row.met().map_or("", |met| if met { "yes" } else { "**no**" });
            let (peer, ours) = (figure(row.peer), figure(row.ours));
            // Writing to a String does not fail.
            let _ = writeln!(
                text,
                "| {} | {peer} | {leanest} | {ours} | {ratio} | {to_leanest} | {} | {met} |",
                row.operation, row.reach
            );
        }
        text += "\n| the machine's limit | |\n|---|---|\n";
        for limit in &self.limits {
            let time = Figure { spread: limit.time, unit: Unit::Nanoseconds };
            let _ = writeln!(text, "| {} | {time} |", limit.what);
        }
        text
    }

    /// Formats the report as JSON.
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            json!({
                "operation": row.operation, "unit": row.unit.name(),
                "peer": row.peer.json(), "peer_leanest": row.leanest.map(|spread| spread.json()), "ours": row.ours.json(),
                "ratio": row.ratio.json(), "ratio_leanest": row.ratio_leanest.map(|spread| spread.json()),
                "reach": row.reach.to_string(), "met": row.met(),
            })
        });
        let limits = self.limits.iter().map(|limit| json!({ "what": limit.what, "ns": limit.time.json() }));
        json!({
            "machine": self.machine, "date": self.date, "command": self.command,
            "rows": rows.collect::<Vec<_>>(), "limits": limits.collect::<Vec<_>>(),
        })
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::Mblocks => "Mblocks/s",
            Unit::Mtokens => "Mtokens/s",
            Unit::Bytes => "B",
        }
    }
}

/// A median, and the deviation of the middle half of the samples from it.
struct Figure {
    spread: Spread,
    unit: Unit,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spread { low, median, high } = self.spread;
        match self.unit {
            Unit::Bytes => return write!(f, "{median:.1} B"),
            Unit::Nanoseconds if median < 1000.0 => write!(f, "{median:.1} ns")?,
            Unit::Nanoseconds => write!(f, "{:.2} µs", median / 1000.0)?,
            unit => write!(f, "{median:.0} {}", unit.name())?,
        }
        write!(f, " ±{:.0} %", (high - low) / 2.0 / median * 100.0)
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reach::Faster(times) => write!(f, "≥ {times}×"),
            Reach::Scaling(times) => write!(f, "≥ {times}× our own 1 thread"),
            Reach::Bytes(most) => write!(f, "≤ {most} B"),
            Reach::Mtokens(least) => write!(f, "≥ {least} Mtokens/s"),
            Reach::Nothing => Ok(()),
        }
    }
}
