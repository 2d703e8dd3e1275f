//! The table of metrics for people and programs; `docs/metrics.md` is made from it.

use super::histogram::{BOUNDS, SIZES};
use super::table::{Row, TABLE};
use crate::figures::binary;
use serde::Serialize;
use std::fmt::Write;

/// A metric, as the reference has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// As the exposition text has it.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What is counted; empty where nothing is.
    pub unit: &'static str,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it is.
    pub help: &'static str,
}

/// All metrics.
#[must_use]
pub fn reference() -> Vec<Entry> {
    let entry = |row: &Row| {
        let Row { name, kind, unit, labels, help, .. } = *row;
        Entry { name, kind: kind.name(), unit, labels, help }
    };
    TABLE.iter().map(entry).collect()
}

/// The reference for a terminal.
#[must_use]
pub fn text() -> String {
    let mut text = String::new();
    for Entry { name, kind, unit, labels, help } in reference() {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let of = if unit.is_empty() { String::new() } else { format!(" of {unit}") };
        // Writing to a string does not fail, here and below.
        let _ = writeln!(text, "{name}{labels}  {kind}{of}\n    {help}");
    }
    text
}

/// The reference as `docs/metrics.md` has it.
#[must_use]
pub fn markdown() -> String {
    let [first, .., last] = BOUNDS;
    let [least, .., most] = SIZES.map(|bytes| binary(bytes as f64));
    let mut text = format!(
        "# Metrics\n\nMade by `kvstrata metrics --markdown` from the table in `async/tiers/src/metrics/table.rs`; a test compares them.\n\n\
         `KvBlockManager::metrics()` gives the figures as a struct, `Metrics::to_prometheus()` as Prometheus text (0.0.4). With \
         `metrics.listen` the manager serves that at `/metrics` until its shutdown is over, and at `/healthz` whether it is in service; `kvstrata replay --metrics \
         ADDRESS` does the same while it runs. A dashboard for Grafana is in [grafana/](grafana/).\n\n\
         Counters begin at 0 with the manager, but for `kvstrata_stored_blocks_total` of the disk, which begins with the blocks that its \
         opening has found. Histograms of time have three buckets a decade, from {first:?} to {last:?}, those of sizes one for each power of four from {least} to {most}; \
         `metrics.histograms = false` leaves them out. Tiers are `device`, `host`, and those below by their names: settings make one, `disk`. Groups are those of layers \
         (`[[group]]`). Names of tenants are told where `metrics.tenants` says how many. A ratio of hits is one division, blocks by \
         blocks, of one group at a time if there are several: a block of a window or a state is not worth one of all tokens: \
         `sum by (group) (rate(kvstrata_hit_blocks_total[5m])) / sum by (group) (rate(kvstrata_lookup_blocks_total[5m]))`.\n\n\
         | metric | type | labels | what |\n|---|---|---|---|\n"
    );
    for Entry { name, kind, labels, help, .. } in reference() {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(text, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
    }
    text
}
