//! Reads an exposition text, the answer to `GET /metrics`, from an untrusted server.
//!
//! The format: <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>.
//! Comments, including types and help, are skipped. Metrics of others, for example of an engine at the
//! same address, are parsed and left out.
//!
//! Invariants
//! - I1: a text that violates the format is refused as a whole, with the number of the line. No
//!   text makes the reader panic.
//! - I2: at most [`MOST_SAMPLES`] samples and [`MOST_BYTES`] bytes are read.

use super::exposition::{Exposition, Labels};
use std::collections::BTreeMap;

/// The most bytes of a text.
pub const MOST_BYTES: usize = 8 << 20;
/// The most lines with a value in a text.
pub const MOST_SAMPLES: usize = 50_000;
const MOST_LABELS: usize = 16;
/// Prefix of the names of kvstrata's metrics.
const PREFIX: &str = "kvstrata_";
const BLANKS: [char; 2] = [' ', '\t'];

/// Why a text cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Refused {
    /// The line, counted from 1.
    pub line: usize,
    /// The fault of the line, as a predicate: "has no value".
    pub what: &'static str,
}

impl Exposition {
    /// Reads a text.
    ///
    /// # Errors
    /// If the text violates the format, is cut off, or exceeds [`MOST_BYTES`] or [`MOST_SAMPLES`].
    pub fn parse(text: &str) -> Result<Exposition, Refused> {
        let (mut samples, mut count) = (BTreeMap::<String, Vec<_>>::new(), 0);
        if text.len() > MOST_BYTES {
            return Err(Refused { line: 1, what: "begins a text of more than 8 MiB" });
        }
        for (index, line) in text.split_inclusive('\n').enumerate() {
            let refused = |what| Refused { line: index + 1, what };
            let Some(whole) = line.strip_suffix('\n') else {
                return Err(refused("is cut off: it has no line end"));
            };
            let line = whole.strip_suffix('\r').unwrap_or(whole).trim_matches(BLANKS);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, labels, value) = sample(line).map_err(refused)?;
            count += 1;
            if count > MOST_SAMPLES {
                return Err(refused("exceeds the limit of 50,000 samples"));
            }
            if name.starts_with(PREFIX) {
                samples.entry(name.to_owned()).or_default().push((labels, value));
            }
        }
        Ok(Exposition { samples })
    }
}

/// The name, labels and value of a line.
fn sample(line: &str) -> Result<(&str, Labels, f64), &'static str> {
    let (name, rest) = name(line, true).ok_or("does not begin with the name of a metric")?;
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Labels::new(), rest),
    };
    let mut words = rest.split(BLANKS).filter(|word| !word.is_empty());
    let value =
        words.next().ok_or("has no value")?.parse().map_err(|_| "has a value that is not a number")?;
    match (words.next().map(str::parse::<i64>), words.next()) {
        (None | Some(Ok(_)), None) => Ok((name, labels, value)),
        _ => Err("has more than a value and a time"),
    }
}

/// The labels in braces, and the text after them.
fn labels(mut rest: &str) -> Result<(Labels, &str), &'static str> {
    let mut labels = Labels::new();
    loop {
        rest = rest.trim_start_matches(BLANKS);
        if let Some(behind) = rest.strip_prefix('}') {
            return Ok((labels, behind));
        }
        let (name, behind) =
            name(rest, false).ok_or("has a label without a name, or labels without an end")?;
        let behind = behind.strip_prefix('=').map(|value| value.trim_start_matches(BLANKS));
        let value = behind
            .and_then(|value| value.strip_prefix('"'))
            .ok_or("has a label without a value in quotes")?;
        let (value, behind) =
            quoted(value).ok_or("has a label value without an end, or with an invalid escape")?;
        if labels.len() == MOST_LABELS {
            return Err("has more than 16 labels");
        }
        labels.push((name.to_owned(), value));
        rest = behind.trim_start_matches(BLANKS);
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None if rest.starts_with('}') => {}
            None => return Err("has neither , nor } after a label"),
        }
    }
}

/// A name and the text after it and after blanks. With `colons`, the name may have
/// colons, as that of a metric.
fn name(text: &str, colons: bool) -> Option<(&str, &str)> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || colons && c == ':';
    let (name, rest) = text.split_at(text.find(|c| !part(c)).unwrap_or(text.len()));
    (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()))
        .then(|| (name, rest.trim_start_matches(BLANKS)))
}

/// An unescaped value up to its closing quote, and the text after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut chars) = (String::new(), text.chars());
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            '\\' => value.push(match chars.next()? {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                _ => return None,
            }),
            c => value.push(c),
        }
    }
}
