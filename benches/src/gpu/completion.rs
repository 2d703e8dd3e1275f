//! The output of `ffi/examples/cuda_completion`, as rows.

use super::Failure;
use super::report::{Row, Section};
use crate::rounds::Spread;
use serde_json::Value;
use std::path::Path;

/// Figures of a line: their names in it, and in the report.
const FIGURES: [(&str, &str); 4] = [
    ("alone_p50_us", "alone, median"),
    ("alone_p99_us", "alone, 99th percentile"),
    ("stream_us", "in a stream"),
    ("cpu_us", "processor time"),
];

/// Fills the section; it is empty without a file.
///
/// # Errors
/// The file is not the example's output.
pub fn measure(section: &mut Section, printed: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = printed else {
        section.skipped.push("completion: the example was not run; benches/gpu/run does".into());
        return Ok(());
    };
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let line: Value =
            serde_json::from_str(line).map_err(|error| format!("{}: {error}", path.display()))?;
        let Some(bytes) = line["bytes"].as_u64() else { continue };
        for (figure, name) in FIGURES {
            let value = line[figure].as_f64().ok_or_else(|| format!("{}: no {figure}", path.display()))?;
            let what = format!("{} KiB, by {}, {name}", bytes >> 10, line["way"].as_str().unwrap_or("?"));
            // The example prints no quartiles.
            section.rows.push(Row::new(what, Spread { low: value, median: value, high: value }, "µs"));
        }
    }
    Ok(())
}
