//! The exposition text, read: what `GET /metrics` answers, from whoever it comes.
//!
//! The format: <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>. Comments,
//! types and help among them, say nothing that is needed here; what is not kvstrata's (an engine may serve
//! figures of its own beside it) is read and left out.
//!
//! Invariants
//! - I1: a text that is not of the format is refused whole, with the number of its line. Nothing in it makes
//!   a reader panic.
//! - I2: no more is kept than [`MOST_SAMPLES`], nor read than [`MOST_BYTES`].

use super::exposition::{Exposition, Labels};
use std::collections::BTreeMap;

/// Bytes that a text may have.
pub const MOST_BYTES: usize = 8 << 20;
/// Lines with a value that a text may have.
pub const MOST_SAMPLES: usize = 50_000;
const MOST_LABELS: usize = 16;
/// What kvstrata's names begin with.
const PREFIX: &str = "kvstrata_";
const BLANKS: [char; 2] = [' ', '\t'];

/// Why a text cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Refused {
    /// The line, from 1.
    pub line: usize,
    /// What it has, or lacks.
    pub what: &'static str,
}

impl Exposition {
    /// Reads a text.
    ///
    /// # Errors
    /// It is not of the format, cut off, or longer than [`MOST_BYTES`] or [`MOST_SAMPLES`].
    pub fn parse(text: &str) -> Result<Exposition, Refused> {
        let (mut samples, mut count) = (BTreeMap::<String, Vec<_>>::new(), 0);
        if text.len() > MOST_BYTES {
            return Err(Refused { line: 1, what: "begins a text of more than 8 MiB" });
        }
        for (index, line) in text.split_inclusive('\n').enumerate() {
            let refused = |what| Refused { line: index + 1, what };
            let Some(whole) = line.strip_suffix('\n') else {
                return Err(refused("is cut off: a text ends with the end of a line"));
            };
            let line = whole.strip_suffix('\r').unwrap_or(whole).trim_matches(BLANKS);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, labels, value) = sample(line).map_err(refused)?;
            count += 1;
            if count > MOST_SAMPLES {
                return Err(refused("is one sample more than are read (50,000)"));
            }
            if name.starts_with(PREFIX) {
                samples.entry(name.to_owned()).or_default().push((labels, value));
            }
        }
        Ok(Exposition { samples })
    }
}

/// Name, labels and value of a line.
fn sample(line: &str) -> Result<(&str, Labels, f64), &'static str> {
    let (name, rest) = name(line, true).ok_or("begins with no metric's name")?;
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Labels::new(), rest),
    };
    let mut words = rest.split(BLANKS).filter(|word| !word.is_empty());
    let value = words.next().ok_or("has no value")?.parse().map_err(|_| "has a value that is no number")?;
    match (words.next().map(str::parse::<i64>), words.next()) {
        (None | Some(Ok(_)), None) => Ok((name, labels, value)),
        _ => Err("has more than a value and a time"),
    }
}

/// What stands in braces, and what comes behind.
fn labels(mut rest: &str) -> Result<(Labels, &str), &'static str> {
    let mut labels = Labels::new();
    loop {
        rest = rest.trim_start_matches(BLANKS);
        if let Some(behind) = rest.strip_prefix('}') {
            return Ok((labels, behind));
        }
        let (name, behind) =
            name(rest, false).ok_or("has a label without a name, or no end of the labels")?;
        let behind = behind.strip_prefix('=').map(|value| value.trim_start_matches(BLANKS));
        let value = behind
            .and_then(|value| value.strip_prefix('"'))
            .ok_or("has a label without a value in quotes")?;
        let (value, behind) =
            quoted(value).ok_or("has a label whose value does not end, or an escape that is none")?;
        if labels.len() == MOST_LABELS {
            return Err("has more labels than are read (16)");
        }
        labels.push((name.to_owned(), value));
        rest = behind.trim_start_matches(BLANKS);
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None if rest.starts_with('}') => {}
            None => return Err("has neither , nor } behind a label"),
        }
    }
}

/// A name, with colons if it is a metric's, and what comes behind it and blanks.
fn name(text: &str, colons: bool) -> Option<(&str, &str)> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || colons && c == ':';
    let (name, rest) = text.split_at(text.find(|c| !part(c)).unwrap_or(text.len()));
    (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()))
        .then(|| (name, rest.trim_start_matches(BLANKS)))
}

/// A value up to its closing quote, without escapes, and what comes behind.
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
