//! Reads the lines of a trace as requests. A bad line ends the trace with an error that names it.

use super::doubts::{self, Doubts, TraceWarning};
use super::source::Opened;
use super::{Encoding, Request, TimeUnit, TraceOptions, TraceSource};
use core::fmt;
use kvstrata_ffi::shown::shown;
use std::io::{self, BufRead, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The longest line accepted: a prompt of 500 million tokens. A file without line ends is not a trace.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// The fault of a line.
#[derive(Debug, thiserror::Error)]
pub enum LineFault {
    /// The line is not JSON, or a field is missing, negative or of another type.
    #[error(
        "{}; a line is {{\"timestamp\": ms, \"input_length\": tokens, \"output_length\": tokens, \"hash_ids\": [ids]}}, all \
         numbers 0 or more", shown(.0)
    )]
    Json(String),
    /// The line is a JSON array: the whole trace, as some programs write it, or one line of it.
    #[error("the line is a JSON array, but a trace has one JSON object a line; convert it with jq -c '.[]'")]
    Array,
    /// The text has two or four bytes a character, as some editors store it.
    #[error("the text is UTF-16 or UTF-32, but a trace is UTF-8; convert it with iconv -f UTF-16 -t UTF-8")]
    Wide,
    /// The time of arrival is negative.
    #[error("timestamp = {0}: must be 0 or more, counted from the start of the trace")]
    Timestamp(f64),
    /// The time is not finite in milliseconds.
    #[error("timestamp = {0}: too large; in milliseconds it is not a finite number")]
    TooLate(f64),
    /// The prompt has a block twice.
    #[error("hash_ids has {0} twice: a prompt has a block at most once; remove the second")]
    Twice(u64),
    /// The length contradicts the given number of tokens of a block.
    #[error("{}; correct --trace-block-tokens {block_tokens} or the line", Length(*.input_length, *.blocks, *.block_tokens))]
    Length {
        /// Tokens of the prompt.
        input_length: u64,
        /// Ids of the prompt.
        blocks: usize,
        /// Tokens of a block, as given.
        block_tokens: u32,
    },
    /// The line exceeds the limit.
    #[error("longer than {MAX_LINE_BYTES} bytes; is this a trace with one JSON object a line?")]
    TooLong,
}

struct Length(u64, usize, u32);

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Length(input_length, blocks, tokens) = self;
        doubts::length(f, *input_length, *blocks, *tokens)
    }
}

/// Why a trace cannot be opened, or read to its end.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The trace cannot be opened.
    #[error(
        "--trace {origin}: cannot be opened: {error}; name a file of JSON lines, plain or compressed, or leave --trace out for the bundled trace"
    )]
    Open {
        /// The trace.
        origin: TraceSource,
        /// The system's answer.
        error: io::Error,
    },
    /// The trace cannot be read to its end: the archive is damaged or cut off, or the disk failed.
    #[error(
        "--trace {origin}: {encoding} input ends or breaks after line {line}: {error}; fetch or compress it again"
    )]
    Read {
        /// The trace.
        origin: TraceSource,
        /// The compression.
        encoding: Encoding,
        /// The last whole line, counted from 1.
        line: u64,
        /// The error of the system or the decoder.
        error: io::Error,
    },
    /// A line is not a request.
    #[error("--trace {origin}: line {line}: {fault}")]
    Line {
        /// The trace.
        origin: TraceSource,
        /// The line, counted from 1.
        line: u64,
        /// Its fault.
        fault: LineFault,
    },
    /// The trace has no request.
    #[error("--trace {origin}: no requests; is the file empty, or was its download cut off?")]
    Empty {
        /// The trace.
        origin: TraceSource,
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
    time: TimeUnit,
    doubts: TraceWarnings,
    requests: u64,
    /// The sorted ids of one request, to find duplicates.
    sorted: Vec<u64>,
}

/// The warnings of a trace, as far as it has been read. A clone belongs to the same trace.
#[derive(Debug, Clone)]
pub struct TraceWarnings(Arc<Mutex<Doubts>>);

impl TraceWarnings {
    /// The warnings, at most one of each kind.
    #[must_use]
    pub fn list(&self) -> Vec<TraceWarning> {
        self.doubts().warnings()
    }

    fn doubts(&self) -> MutexGuard<'_, Doubts> {
        // A panic leaves the counts and lines consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TraceReader {
    /// Opens a trace with the default units: milliseconds, and blocks of
    /// [`BLOCK_TOKENS`](super::BLOCK_TOKENS).
    ///
    /// # Errors
    /// [`TraceError::Open`].
    pub fn open(source: TraceSource) -> Result<TraceReader, TraceError> {
        TraceReader::with(source, TraceOptions::default())
    }

    /// Opens a trace with the units of `options`.
    ///
    /// # Errors
    /// [`TraceError::Open`].
    pub fn with(source: TraceSource, options: TraceOptions) -> Result<TraceReader, TraceError> {
        let Opened { lines, encoding, input_bytes, consumed_bytes } = match source.open() {
            Ok(opened) => opened,
            Err(error) => return Err(TraceError::Open { origin: source, error }),
        };
        let doubts = TraceWarnings(Arc::new(Mutex::new(Doubts::new(options))));
        let (text, sorted) = (Vec::new(), Vec::new());
        let time = options.time.unwrap_or(TimeUnit::Milliseconds);
        let (line, requests) = (0, 0);
        Ok(TraceReader {
            source,
            encoding,
            lines,
            line,
            text,
            input_bytes,
            consumed_bytes,
            time,
            doubts,
            requests,
            sorted,
        })
    }

    /// The warnings of the trace, which grow as it is read.
    #[must_use]
    pub fn warnings(&self) -> TraceWarnings {
        self.doubts.clone()
    }

    /// The compression of the trace.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The source of the trace.
    #[must_use]
    pub fn source(&self) -> &TraceSource {
        &self.source
    }

    /// The last line read, counted from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Size of the (compressed) input, if known; [`consumed`](TraceReader::consumed) ends there.
    #[must_use]
    pub fn input_bytes(&self) -> Option<u64> {
        self.input_bytes
    }

    /// The counter of bytes taken from the (compressed) input.
    #[must_use]
    pub fn consumed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.consumed_bytes)
    }

    /// Reads the next request, with its time in milliseconds. Skips empty lines. Returns `None` at the end.
    ///
    /// # Errors
    /// [`TraceError`]. Lines after a bad line are not read.
    pub fn next_request(&mut self) -> Result<Option<Request>, TraceError> {
        loop {
            self.text.clear();
            let mut limited = (&mut self.lines).take(MAX_LINE_BYTES);
            let read = match limited.read_until(b'\n', &mut self.text) {
                Ok(0) if self.requests == 0 => {
                    return Err(TraceError::Empty { origin: self.source.clone() });
                }
                Ok(0) => {
                    self.end();
                    return Ok(None);
                }
                Ok(read) => read as u64,
                Err(error) => {
                    let (origin, encoding, line) = (self.source.clone(), self.encoding, self.line);
                    return Err(TraceError::Read { origin, encoding, line, error });
                }
            };
            self.line += 1;
            let is_whole = read < MAX_LINE_BYTES || self.text.ends_with(b"\n");
            let Some(mut request) = self.parse(is_whole).map_err(|fault| self.fault(fault))? else {
                continue;
            };
            let raised = self.doubts.doubts().look(&request, self.line);
            self.tell(&raised.map_err(|fault| self.fault(fault))?);
            if self.time == TimeUnit::Seconds {
                let milliseconds = request.timestamp * 1000.0;
                if !milliseconds.is_finite() {
                    return Err(self.fault(LineFault::TooLate(request.timestamp)));
                }
                request.timestamp = milliseconds;
            }
            self.requests += 1;
            return Ok(Some(request));
        }
    }

    /// Ends the reading, and raises the warnings that depend on all lines read. The end
    /// of the trace does the same.
    pub fn end(&mut self) {
        let raised = self.doubts.doubts().end();
        self.tell(&raised);
    }

    /// Parses a line; `None` for an empty one.
    fn parse(&mut self, is_whole: bool) -> Result<Option<Request>, LineFault> {
        let mut text = &self.text[..];
        if self.line == 1 {
            if is_wide(text) {
                return Err(LineFault::Wide);
            }
            text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        }
        let text = text.trim_ascii_start();
        match text.first() {
            None => return Ok(None),
            Some(b'[') => return Err(LineFault::Array),
            _ if !is_whole => return Err(LineFault::TooLong),
            Some(b'{') => {}
            Some(_) => return Err(LineFault::Json("not a JSON object".to_owned())),
        }
        let request: Request = serde_json::from_slice(text.trim_ascii_end())
            .map_err(|error| LineFault::Json(describe(&error)))?;
        if request.timestamp < 0.0 {
            return Err(LineFault::Timestamp(request.timestamp));
        }
        self.sorted.clone_from(&request.hash_ids);
        self.sorted.sort_unstable();
        match self.sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(LineFault::Twice(pair[0])),
            None => Ok(Some(request)),
        }
    }

    /// Logs warnings as they are raised, so each kind once.
    fn tell(&self, raised: &[TraceWarning]) {
        for warning in raised {
            tracing::warn!("--trace {}: {warning}", self.source);
        }
    }

    /// Bytes taken from the (compressed) input so far.
    #[must_use]
    pub fn consumed_bytes(&self) -> u64 {
        // Relaxed: the count is only displayed.
        self.consumed_bytes.load(Ordering::Relaxed)
    }

    fn fault(&self, fault: LineFault) -> TraceError {
        TraceError::Line { origin: self.source.clone(), line: self.line, fault }
    }
}

/// Some editors write it at the beginning of UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = &[0xef, 0xbb, 0xbf];

/// Whether text is UTF-16 or UTF-32, in either byte order: it begins with a byte order mark, or has a
/// zero byte next to its first ASCII character.
fn is_wide(text: &[u8]) -> bool {
    text.starts_with(&[0xff, 0xfe])
        || text.starts_with(&[0xfe, 0xff])
        || text.iter().take(4).any(|byte| *byte == 0)
}

/// The message of a decoder error, without its line number: the decoder sees one
/// line only, so it is always 1.
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
