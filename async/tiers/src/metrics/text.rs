//! The exposition text, version 0.0.4: for each metric with samples `# HELP`, `# TYPE`, and one line per
//! sample.
//!
//! Format: <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>. It has no line
//! for units: they are in the names.

use super::histogram::{BOUNDS, SIZES};
use super::snapshot::Metrics;
use super::table::{Row, TABLE, Value};
use std::fmt::{Display, Write};
use std::time::Duration;

/// The content type of the text, for HTTP servers.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Metrics {
    /// Returns the metrics as Prometheus text.
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        let mut text = String::with_capacity(16 << 10);
        for row in TABLE {
            let mut begun = false;
            (row.samples)(self, &mut |values, value| {
                debug_assert_eq!(values.len(), row.labels.len(), "{}", row.name);
                if !std::mem::replace(&mut begun, true) {
                    // Writing to a string does not fail, here and below.
                    let _ = writeln!(text, "# HELP {} {}", row.name, escaped(row.help, false));
                    let _ = writeln!(text, "# TYPE {} {}", row.name, row.kind.name());
                }
                match value {
                    Value::Whole(number) => sample(&mut text, row, "", values, None, number),
                    Value::Real(number) => sample(&mut text, row, "", values, None, number),
                    Value::Latencies(seen) => {
                        let ends = BOUNDS.iter().map(Duration::as_secs_f64);
                        histogram(&mut text, row, values, ends, &seen.buckets, seen.sum.as_secs_f64());
                    }
                    Value::Sizes(seen) => {
                        histogram(&mut text, row, values, SIZES.iter(), &seen.buckets, seen.sum);
                    }
                }
            });
        }
        text
    }
}

/// Writes a histogram. `ends` are the upper bounds of all buckets except the last.
fn histogram(
    text: &mut String,
    row: &Row,
    values: &[&str],
    ends: impl Iterator<Item = impl Display>,
    buckets: &[u64],
    sum: impl Display,
) {
    let mut so_far = 0;
    let ends = ends.map(|end| end.to_string());
    for (end, count) in ends.chain(["+Inf".to_owned()]).zip(buckets) {
        so_far += count;
        sample(text, row, "_bucket", values, Some(&end), so_far);
    }
    sample(text, row, "_sum", values, None, sum);
    sample(text, row, "_count", values, None, so_far);
}

fn sample(
    text: &mut String,
    row: &Row,
    suffix: &str,
    values: &[&str],
    end: Option<&str>,
    number: impl Display,
) {
    let labels = row.labels.iter().copied().zip(values.iter().copied()).chain(end.map(|end| ("le", end)));
    text.push_str(row.name);
    text.push_str(suffix);
    let mut open = '{';
    for (label, value) in labels {
        let _ = write!(text, "{open}{label}=\"{}\"", escaped(value, true));
        open = ',';
    }
    let close = if open == ',' { "}" } else { "" };
    let _ = writeln!(text, "{close} {number}");
}

/// Escapes the value of a label (`quoted`) or a help text.
fn escaped(text: &str, quoted: bool) -> std::borrow::Cow<'_, str> {
    let special = |c: char| c == '\\' || c == '\n' || quoted && c == '"';
    if !text.contains(special) {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len() + 2);
    for c in text.chars() {
        match c {
            '\n' => safe.push_str("\\n"),
            c if special(c) => safe.extend(['\\', c]),
            c => safe.push(c),
        }
    }
    safe.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaking_text_is_escaped() {
        assert_eq!(escaped("a \"b\"\\\nc", true), "a \\\"b\\\"\\\\\\nc");
        assert_eq!(escaped("a \"b\"\\\nc", false), "a \"b\"\\\\\\nc");
        assert_eq!(escaped("plain", true), "plain");
    }
}
