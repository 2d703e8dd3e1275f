//! The table of metrics as text, Markdown and data; `docs/metrics.md` is generated from it.

use super::histogram::{BOUNDS, SIZES};
use super::table::{Row, TABLE};
use crate::figures::binary;
use serde::Serialize;
use std::fmt::Write;

/// A metric in the reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The name in the exposition text.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The unit; empty if there is none.
    pub unit: &'static str,
    /// The names of the labels.
    pub labels: &'static [&'static str],
    /// The description.
    pub help: &'static str,
}

/// Returns all metrics.
#[must_use]
pub fn reference() -> Vec<Entry> {
    let entry = |row: &Row| {
        let Row { name, kind, unit, labels, help, .. } = *row;
        Entry { name, kind: kind.name(), unit, labels, help }
    };
    TABLE.iter().map(entry).collect()
}

/// Words in lines of at most 100 characters, indented.
fn wrapped(words: &str) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in words.split_whitespace() {
        let width = word.chars().count();
        let is_first = column == 0;
        if is_first || column + 1 + width > 100 {
            text.push_str(if is_first { "    " } else { "\n    " });
            column = 4;
        } else {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += width;
    }
    text
}

/// Returns the reference for a terminal.
#[must_use]
pub fn text() -> String {
    let mut text = String::new();
    for Entry { name, kind, unit, labels, help } in reference() {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let of = if unit.is_empty() { String::new() } else { format!(" of {unit}") };
        // Writing to a string does not fail, here and below.
        let _ = writeln!(text, "{name}{labels}  {kind}{of}\n{}", wrapped(help));
    }
    text
}

/// Returns the reference as Markdown, for `docs/metrics.md`.
#[must_use]
pub fn markdown() -> String {
    let [first, .., last] = BOUNDS;
    let [least, .., most] = SIZES.map(|bytes| binary(bytes as f64));
    let mut text = format!(
        "# Metrics\n\nMade by `kvstrata metrics --markdown` from the table in \
         `async/tiers/src/metrics/table.rs`; a test compares them.\n\n\
         `KvBlockManager::metrics()` returns the metrics as a struct, `Metrics::to_prometheus()` as Prometheus \
         text (0.0.4). With `metrics.listen` the manager serves this text at `/metrics` until its shutdown is \
         over, and at `/healthz` whether it is in service. `kvstrata replay --metrics ADDRESS` does the same while \
         it runs. A dashboard for Grafana is in [grafana/](grafana/).\n\n\
         Counters begin at 0 with the manager, except `kvstrata_stored_blocks_total` of the disk, which begins \
         with the blocks found at its opening. Histograms of time have three buckets per decade, from {first:?} to \
         {last:?}. Histograms of sizes have a bucket for each power of four from {least} to {most}. \
         `metrics.histograms = false` leaves histograms out. Tiers are `device`, `host`, and the tiers below by \
         name: settings create one, `disk`. Groups are groups of layers (`[[group]]`). Tenants have metrics up to \
         the number in `metrics.tenants`.\n\n\
         The hit ratio is a division of blocks by blocks. With several groups, compute it per group, since a block \
         of a window or a state does not compare with a block of all tokens: \
         `sum by (group) (rate(kvstrata_hit_blocks_total[5m])) / \
         sum by (group) (rate(kvstrata_lookup_blocks_total[5m]))`.\n\n\
         | metric | type | labels | description |\n|---|---|---|---|\n"
    );
    for Entry { name, kind, labels, help, .. } in reference() {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(text, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
    }
    text
}
