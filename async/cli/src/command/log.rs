//! Logging of the command: events to standard error and, with the feature `otel`, spans
//! to a collector (`otel.rs`).

#[cfg(feature = "otel")]
use kvstrata::otel::Exporting;
use kvstrata_ffi::shown::shown;
use std::io::{self, Write};
use std::str::FromStr;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::prelude::*;

/// The filter if `--log` is absent.
const VARIABLE: &str = "KVSTRATA_LOG";
/// Conditions that an operator can act on.
const DEFAULT: &str = "warn";
/// Prefix of the targets of kvstrata's crates.
const OURS: &str = "kvstrata";
/// Prefix of the targets of the exporter's crates.
const EXPORTER: &str = "opentelemetry";

/// Exports spans until it is dropped.
#[must_use]
pub(super) struct Logging {
    #[cfg(feature = "otel")]
    _exporting: Option<Exporting>,
}

/// Writes each event on one line. Control characters are escaped, so text from outside can neither begin
/// a line nor control a terminal.
struct Lines<W>(W);

impl<W: Write> Write for Lines<W> {
    /// Each call has one whole event with its line end.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let (line, end) = text.strip_suffix('\n').map_or((&text[..], ""), |line| (line, "\n"));
        self.0.write_all(format!("{}{end}", shown(line)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Starts logging. Spans are logged when they end, with their durations. Only commands with a manager
/// export spans, so that the environment's collector settings do not affect other commands.
pub(super) fn begin(option: Option<&str>, has_manager: bool) -> Result<Logging, String> {
    #[cfg(not(feature = "otel"))]
    let _ = has_manager;
    let variable = std::env::var(VARIABLE).ok().filter(|value| !value.is_empty());
    let (origin, filter) = match (option, &variable) {
        (Some(option), _) => ("--log", option),
        (None, Some(variable)) => (VARIABLE, variable.as_str()),
        (None, None) => (VARIABLE, DEFAULT),
    };
    let targets = filter_of(filter).map_err(|error| {
        format!(
            "{origin} {filter}: {error}; give a level (off, error, warn, info, debug, trace), or levels by module, for example \
             info,kvstrata_backends::disk=debug"
        )
    })?;
    // A filter that names the exporter shows its events for each batch. Otherwise
    // `otel.rs` logs a failure once.
    let targets = match filter.contains(EXPORTER) {
        true => targets,
        false => targets.with_target(EXPORTER, LevelFilter::OFF),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| Lines(std::io::stderr()))
        .with_ansi(false)
        .with_span_events(FmtSpan::CLOSE)
        .with_filter(targets);
    let subscriber = tracing_subscriber::registry().with(lines);
    #[cfg(feature = "otel")]
    let (subscriber, exporting) = {
        let exporting = match has_manager {
            true => Exporting::begin().map_err(|error| error.to_string())?,
            false => None,
        };
        let spans = exporting.as_ref().map(|exporting| exporting.layer());
        (subscriber.with(spans), exporting)
    };
    // A program that calls main() may have a subscriber already, which then stays.
    let _ = subscriber.try_init();
    Ok(Logging {
        #[cfg(feature = "otel")]
        _exporting: exporting,
    })
}

/// Parses a filter. `Targets` takes a lone word that is no level for a module and logs nothing else.
/// Such a word is most likely a misspelt level, so it is refused unless it names a module of
/// kvstrata or of the exporter.
fn filter_of(text: &str) -> Result<Targets, String> {
    let alone = text.split(',').map(str::trim).filter(|word| !word.is_empty() && !word.contains('='));
    let is_known = |word: &str| {
        word.parse::<LevelFilter>().is_ok() || [OURS, EXPORTER].iter().any(|ours| word.starts_with(ours))
    };
    match alone.into_iter().find(|word| !is_known(word)) {
        Some(word) => Err(format!("{word:?} is neither a level nor a module of kvstrata")),
        None => Targets::from_str(text).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_one_line_without_control_characters() {
        let mut out = Vec::new();
        Lines(&mut out).write_all("a file=\u{1b}]0;x\u{7}\nERROR forged é\n".as_bytes()).expect("in memory");
        assert_eq!(out, "a file=\\u{1b}]0;x\\u{7}\\nERROR forged é\n".as_bytes());
    }

    #[test]
    fn misspelt_level_is_refused() {
        for right in [
            "warn",
            "INFO",
            "off",
            "3",
            "info,kvstrata_backends::disk=debug",
            "kvstrata",
            "warn,hyper=info",
            " warn , kvstrata::manager",
        ] {
            assert!(filter_of(right).is_ok(), "{right}: {:?}", filter_of(right));
        }
        for wrong in ["wran", "infoo", "info,manager", "kvstrata=loud"] {
            assert!(filter_of(wrong).is_err(), "{wrong}");
        }
    }
}
