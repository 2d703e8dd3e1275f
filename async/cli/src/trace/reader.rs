//! Lines of a trace, as requests. A bad line ends the trace with an error that names it.

use super::doubts::{self, Doubts, TraceWarning};
use super::source::Opened;
use super::{Encoding, Request, TimeUnit, TraceOptions, TraceSource};
use core::fmt;
use kvstrata_ffi::shown::shown;
use std::io::{self, BufRead, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The longest line taken: a prompt of 500 million tokens. A file without line ends is not a trace.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum LineFault {
    /// Not JSON, or not of this shape: a field is missing, or of another type, or negative.
    #[error(
        "{}; a line is {{\"timestamp\": ms, \"input_length\": tokens, \"output_length\": tokens, \"hash_ids\": [ids]}}, all \
         numbers 0 or more", shown(.0)
    )]
    Json(String),
    /// A JSON array: the whole trace, as some programs write it, or one line of it.
    #[error("a JSON array, and a trace is one JSON object a line; jq -c '.[]' makes it so")]
    Array,
    /// Text of two or four bytes a character, as some editors store it.
    #[error("the text is UTF-16 or UTF-32, and a trace is UTF-8; iconv -f UTF-16 -t UTF-8 makes it so")]
    Wide,
    /// The time of arrival is negative.
    #[error("timestamp = {0}: must be 0 or more, since the trace began")]
    Timestamp(f64),
    /// A time that no clock has: as milliseconds it is not finite.
    #[error("timestamp = {0}: more seconds than milliseconds can be counted of")]
    TooLate(f64),
    /// The prompt has a block twice.
    #[error("hash_ids has {0} twice: a prompt has a block once; remove the second")]
    Twice(u64),
    /// The tokens of a block were said, and are others.
    #[error("{}; --trace-block-tokens {block_tokens} is not what the trace has", Length(*.input_length, *.blocks, *.block_tokens))]
    Length {
        /// Tokens of the prompt.
        input_length: u64,
        /// How many ids it has.
        blocks: usize,
        /// Tokens a block, as they were said.
        block_tokens: u32,
    },
    /// No end of the line in sight.
    #[error("longer than {MAX_LINE_BYTES} bytes; is this a trace of one JSON object a line?")]
    TooLong,
}

struct Length(u64, usize, u32);

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Length(input_length, blocks, tokens) = self;
        doubts::length(f, *input_length, *blocks, *tokens)
    }
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
    /// It ends without a line.
    #[error("--trace {origin}: no requests in it; is the file empty, or was its download cut off?")]
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
    /// The ids of one request in order, to find one that it has twice.
    sorted: Vec<u64>,
}

/// What of a trace contradicts what was taken for granted of it, as far as it has been read. A clone is of the same trace.
#[derive(Debug, Clone)]
pub struct TraceWarnings(Arc<Mutex<Doubts>>);

impl TraceWarnings {
    /// One of each kind.
    #[must_use]
    pub fn list(&self) -> Vec<TraceWarning> {
        self.doubts().warnings()
    }

    fn doubts(&self) -> MutexGuard<'_, Doubts> {
        // Counts and lines, each of them whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TraceReader {
    /// Opens a trace of the usual numbers: milliseconds, and blocks of [`BLOCK_TOKENS`](super::BLOCK_TOKENS).
    ///
    /// # Errors
    /// [`TraceError::Open`].
    pub fn open(source: TraceSource) -> Result<TraceReader, TraceError> {
        TraceReader::with(source, TraceOptions::default())
    }

    /// Opens a trace whose numbers are as `options` say.
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

    /// What its lines contradict, now and as it is read on.
    #[must_use]
    pub fn warnings(&self) -> TraceWarnings {
        self.doubts.clone()
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

    /// The next request, its time in milliseconds; empty lines are skipped. `None` at the end.
    ///
    /// # Errors
    /// [`TraceError`]. What follows a bad line is not read.
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

    /// No more is read: what can be judged of all lines together is judged. The last line does the same.
    pub fn end(&mut self) {
        let raised = self.doubts.doubts().end();
        self.tell(&raised);
    }

    /// The line's request; none of an empty line.
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

    /// Each kind of doubt is logged once, as soon as there is one.
    fn tell(&self, raised: &[TraceWarning]) {
        for warning in raised {
            tracing::warn!("--trace {}: {warning}", self.source);
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

/// As some editors begin a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = &[0xef, 0xbb, 0xbf];

/// UTF-16 or UTF-32, in either order of bytes: by its mark, or by the zero beside a first character of ASCII.
fn is_wide(text: &[u8]) -> bool {
    text.starts_with(&[0xff, 0xfe])
        || text.starts_with(&[0xfe, 0xff])
        || text.iter().take(4).any(|byte| *byte == 0)
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
