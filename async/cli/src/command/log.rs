//! What the command logs, and where to: standard error, and with the feature `otel` a collector of spans
//! (`otel.rs`).

#[cfg(feature = "otel")]
use kvstrata::otel::Exporting;
use kvstrata_ffi::shown::shown;
use std::io::{self, Write};
use std::str::FromStr;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::prelude::*;

/// Says what is logged where `--log` does not.
const VARIABLE: &str = "KVSTRATA_LOG";
/// What an operator can act on.
const DEFAULT: &str = "warn";
/// How the targets of this crate and its parts begin.
const OURS: &str = "kvstrata";
/// How the names of the exporter's crates begin, which are its targets.
const EXPORTER: &str = "opentelemetry";

/// As long as something is logged.
#[must_use]
pub(super) struct Logging {
    #[cfg(feature = "otel")]
    _exporting: Option<Exporting>,
}

/// Events on a line each: what of one comes from outside can neither begin another line nor be obeyed by a terminal.
struct Lines<W>(W);

impl<W: Write> Write for Lines<W> {
    /// An event comes whole, with the end of its line.
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

/// Begins to log. Spans are told of when they end, with how long they took. They are sent to a collector by what has a manager alone, so that
/// what the environment says of collectors hinders nobody else.
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
            "{origin} {filter}: {error}; give a level (off, error, warn, info, debug, trace), or levels by module, as \
             info,kvstrata_backends::disk=debug"
        )
    })?;
    // Whoever asks for it has what the exporter of spans says, of each batch; the rest is told once (`otel.rs`).
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
    // Whoever calls main() within another program may have one already: then that has it.
    let _ = subscriber.try_init();
    Ok(Logging {
        #[cfg(feature = "otel")]
        _exporting: exporting,
    })
}

/// What is logged. A word that stands alone and is no level would be a module of which all is logged, and of everything else nothing: so one that
/// is none of ours is refused, being a level that was typed wrong.
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
    fn an_event_is_one_line_that_no_terminal_obeys() {
        let mut out = Vec::new();
        Lines(&mut out).write_all("a file=\u{1b}]0;x\u{7}\nERROR forged é\n".as_bytes()).expect("in memory");
        assert_eq!(out, "a file=\\u{1b}]0;x\\u{7}\\nERROR forged é\n".as_bytes());
    }

    #[test]
    fn a_level_that_was_typed_wrong_is_refused() {
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
