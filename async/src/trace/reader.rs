//! Lines of a trace, as requests. A bad line ends the trace with an error that names it.

use super::source::Opened;
use super::{Encoding, Request, TraceSource};
use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The longest line taken: a prompt of 500 million tokens. A file without line ends is not a trace.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum LineFault {
    /// Not JSON, or not of this shape: a field is missing, or of another type, or negative.
    #[error(
        "{0}; a line is {{\"timestamp\": ms, \"input_length\": tokens, \"output_length\": tokens, \"hash_ids\": [ids]}}, all \
         numbers 0 or more"
    )]
    Json(String),
    /// The time of arrival is negative.
    #[error("timestamp = {0}: must be 0 or more, in milliseconds since the trace began")]
    Timestamp(f64),
    /// No end of the line in sight.
    #[error("longer than {MAX_LINE_BYTES} bytes; is this a trace of one JSON object a line?")]
    TooLong,
}

/// Why a trace cannot be read (on).
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It cannot be opened.
    #[error(
        "--trace {origin}: cannot be opened: {error}; name a file of requests as JSON lines, plain or compressed, or leave it out for the bundled trace"
    )]
    Open {
        /// The trace.
        origin: TraceSource,
        /// The system's answer.
        error: io::Error,
    },
    /// It cannot be read on: the archive is damaged or cut off, or the disk failed.
    #[error(
        "--trace {origin}: {encoding} input ends or breaks after line {line}: {error}; fetch or compress it again"
    )]
    Read {
        /// The trace.
        origin: TraceSource,
        /// How it is compressed.
        encoding: Encoding,
        /// The last line that was whole, counted from 1.
        line: u64,
        /// What the system or the decoder says.
        error: io::Error,
    },
    /// A line is not a request.
    #[error("--trace {origin}: line {line}: {fault}")]
    Line {
        /// The trace.
        origin: TraceSource,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        fault: LineFault,
    },
}

/// Reads requests in order.
pub struct TraceReader {
    source: TraceSource,
    encoding: Encoding,
    lines: Box<dyn BufRead + Send>,
    line: u64,
    text: Vec<u8>,
    input_bytes: Option<u64>,
    consumed_bytes: Arc<AtomicU64>,
}

impl TraceReader {
    /// Opens a trace.
    ///
    /// # Errors
    /// [`TraceError::Open`].
    pub fn open(source: TraceSource) -> Result<TraceReader, TraceError> {
        let Opened { lines, encoding, input_bytes, consumed_bytes } = match source.open() {
            Ok(opened) => opened,
            Err(error) => return Err(TraceError::Open { origin: source, error }),
        };
        Ok(TraceReader { source, encoding, lines, line: 0, text: Vec::new(), input_bytes, consumed_bytes })
    }

    /// How the trace is compressed.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Where it comes from.
    #[must_use]
    pub fn source(&self) -> &TraceSource {
        &self.source
    }

    /// The last line read, counted from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Bytes of the input, as compressed as they come, if that is known: the end of [`consumed`](TraceReader::consumed).
    #[must_use]
    pub fn input_bytes(&self) -> Option<u64> {
        self.input_bytes
    }

    /// Counts the bytes taken from the input so far.
    #[must_use]
    pub fn consumed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.consumed_bytes)
    }

    /// The next request; empty lines are skipped. `None` at the end.
    ///
    /// # Errors
    /// [`TraceError`]. What follows a bad line is not read.
    pub fn next_request(&mut self) -> Result<Option<Request>, TraceError> {
        loop {
            self.text.clear();
            let mut limited = (&mut self.lines).take(MAX_LINE_BYTES);
            let read = match limited.read_until(b'\n', &mut self.text) {
                Ok(0) => return Ok(None),
                Ok(read) => read as u64,
                Err(error) => {
                    let (origin, encoding, line) = (self.source.clone(), self.encoding, self.line);
                    return Err(TraceError::Read { origin, encoding, line, error });
                }
            };
            self.line += 1;
            if read == MAX_LINE_BYTES && !self.text.ends_with(b"\n") {
                return Err(self.fault(LineFault::TooLong));
            }
            if self.text.trim_ascii().is_empty() {
                continue;
            }
            if self.text.trim_ascii_start().first() != Some(&b'{') {
                return Err(self.fault(LineFault::Json("not a JSON object".to_owned())));
            }
            let request: Request = serde_json::from_slice(self.text.trim_ascii_end())
                .map_err(|error| self.fault(LineFault::Json(describe(&error))))?;
            if request.timestamp < 0.0 {
                return Err(self.fault(LineFault::Timestamp(request.timestamp)));
            }
            return Ok(Some(request));
        }
    }

    /// Compressed bytes taken so far.
    #[must_use]
    pub fn consumed_bytes(&self) -> u64 {
        // Relaxed: a figure for people.
        self.consumed_bytes.load(Ordering::Relaxed)
    }

    fn fault(&self, fault: LineFault) -> TraceError {
        TraceError::Line { origin: self.source.clone(), line: self.line, fault }
    }
}

/// The decoder counts lines within the text that it got, which is one line: only its column is news.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) if error.column() > 0 => format!("{what} at column {}", error.column()),
        _ => text,
    }
}

impl Iterator for TraceReader {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_request().transpose()
    }
}

impl core::fmt::Debug for TraceReader {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "TraceReader({}, {}, line {})", self.source, self.encoding, self.line)
    }
}
