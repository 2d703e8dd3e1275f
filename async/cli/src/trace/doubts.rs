//! What of a trace contradicts what was taken for granted of it: the unit of its times, the tokens of a
//! block, the order of its lines.
//!
//! A file says nothing of the three. Where somebody has said what they are ([`TraceOptions`]), a line that
//! contradicts it is refused. Where nobody has, the usual is taken, the first line that contradicts it is
//! logged at once, and the whole trace's doubts are in the report.
//!
//! Invariants
//! - I1: of each kind there is one doubt at most, of the first line that raised it, with the number of such
//!   lines.

use super::{BLOCK_TOKENS, LineFault, Request, TraceOptions};
use core::fmt;
use std::ops::RangeInclusive;

/// Requests after which the unit of time is judged; a shorter trace is judged at its end.
const JUDGED_AFTER: u64 = 100;
/// Requests a second, on average, that a trace with fractions of milliseconds has at most: no cache of one engine serves more.
const MOST_WITH_FRACTIONS: f64 = 100.0;
/// The same of whole milliseconds, where nothing but the rate speaks for seconds.
const MOST_WITHOUT: f64 = 1500.0;

/// One kind of line that contradicts what was taken for granted.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Doubt {
    /// The prompt's length and the number of its blocks do not go together.
    Length {
        /// Tokens of the prompt.
        input_length: u64,
        /// How many ids it has.
        blocks: usize,
        /// Tokens a block, as taken for granted.
        block_tokens: u32,
        /// A size that fits all lines so far, if a power of two does.
        fitting: Option<u32>,
    },
    /// A request that came before the one of an earlier line.
    Order {
        /// Its time, as the line has it.
        timestamp: f64,
        /// The latest time before it, and its line.
        before: (f64, u64),
    },
    /// Times that make sense as seconds only.
    Seconds {
        /// The first time and the latest.
        times: [f64; 2],
        /// Requests a second, if these are milliseconds.
        per_second: f64,
    },
}

/// A doubt, and where it arose.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceWarning {
    /// The first line that raised it, counted from 1.
    pub line: u64,
    /// Lines that raised it; 1 for what is judged of all lines together.
    pub lines: u64,
    /// What it is.
    pub doubt: Doubt,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::Length { input_length, blocks, block_tokens, fitting } => {
                length(f, *input_length, *blocks, *block_tokens)?;
                f.write_str("; say how many tokens a block has with --trace-block-tokens")?;
                fitting.map_or(Ok(()), |fitting| write!(f, " ({fitting} fits the lines read)"))
            }
            Doubt::Order { timestamp, before: (before, line) } => write!(
                f,
                "timestamp = {timestamp} is before that of line {line}, {before}: requests are taken in the order of the lines; sort \
                 them first, as by jq -sc 'sort_by(.timestamp)[]'"
            ),
            Doubt::Seconds { times: [first, last], per_second } => write!(
                f,
                "timestamps from {first} to {last} make {per_second:.0} requests a second if they are milliseconds; if they are \
                 seconds, give --trace-time s, and otherwise --trace-time ms"
            ),
        }
    }
}

impl fmt::Display for TraceWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.doubt)?;
        if self.lines > 1 { write!(f, " [{} lines in all]", self.lines) } else { Ok(()) }
    }
}

/// How the length of a prompt and its blocks contradict each other.
pub(super) fn length(
    f: &mut fmt::Formatter<'_>,
    input_length: u64,
    blocks: usize,
    tokens: u32,
) -> fmt::Result {
    let wanted = input_length.div_ceil(u64::from(tokens));
    write!(
        f,
        "hash_ids has {blocks} block(s), and input_length = {input_length} makes {wanted} of {tokens} tokens"
    )
}

/// The lines of one trace, looked at as they are read.
#[derive(Debug)]
pub(super) struct Doubts {
    options: TraceOptions,
    requests: u64,
    /// The first request's time, as its line has it.
    first: Option<f64>,
    /// The latest time so far and its line.
    latest: (f64, u64),
    /// The first line with a time that has a fraction.
    fraction: Option<u64>,
    /// Tokens a block that fit all lines so far.
    fitting: RangeInclusive<u64>,
    raised: Vec<TraceWarning>,
}

impl Doubts {
    pub(super) fn new(options: TraceOptions) -> Doubts {
        let fitting = 1..=u64::from(u32::MAX);
        Doubts {
            options,
            requests: 0,
            first: None,
            latest: (0.0, 0),
            fraction: None,
            fitting,
            raised: Vec::new(),
        }
    }

    pub(super) fn warnings(&self) -> Vec<TraceWarning> {
        let mut sizes = (0..=16).map(|shift| 1_u32 << shift);
        let fits = sizes.find(|size| self.fitting.contains(&u64::from(*size)));
        let mut warnings = self.raised.clone();
        for warning in &mut warnings {
            if let Doubt::Length { fitting, .. } = &mut warning.doubt {
                *fitting = fits;
            }
        }
        warnings
    }

    /// Looks at a line's request, whose time is still as the line has it. Doubts of new kinds that it raised.
    pub(super) fn look(&mut self, request: &Request, line: u64) -> Result<Vec<TraceWarning>, LineFault> {
        let before = self.raised.len();
        self.length(request, line)?;
        let timestamp = request.timestamp;
        let first = *self.first.get_or_insert(timestamp);
        if timestamp < self.latest.0 {
            self.raise(line, Doubt::Order { timestamp, before: self.latest });
        } else {
            self.latest = (timestamp, line);
        }
        if timestamp.fract() != 0.0 {
            self.fraction.get_or_insert(line);
        }
        self.requests += 1;
        if self.requests == JUDGED_AFTER {
            self.judge(first);
        }
        Ok(self.raised_since(before))
    }

    /// What is left to be judged when no more lines are read.
    pub(super) fn end(&mut self) -> Vec<TraceWarning> {
        let before = self.raised.len();
        if let Some(first) = self.first.filter(|_| self.requests < JUDGED_AFTER) {
            self.judge(first);
        }
        self.raised_since(before)
    }

    fn raised_since(&self, before: usize) -> Vec<TraceWarning> {
        if self.raised.len() > before { self.warnings().split_off(before) } else { Vec::new() }
    }

    /// A prompt's blocks are its tokens', rounded up, or down where the last ones make no whole block.
    fn length(&mut self, request: &Request, line: u64) -> Result<(), LineFault> {
        let (input_length, blocks) = (request.input_length, request.hash_ids.len());
        let ids = blocks as u64;
        let least = if ids == 0 { input_length.saturating_add(1) } else { input_length.div_ceil(ids) };
        let most = if ids < 2 { u64::MAX } else { input_length.div_ceil(ids - 1).saturating_sub(1) };
        self.fitting = least.max(*self.fitting.start())..=most.min(*self.fitting.end());
        let block_tokens = self.options.block_tokens.map_or(BLOCK_TOKENS, |tokens| tokens.get());
        let (whole, up) =
            (input_length / u64::from(block_tokens), input_length.div_ceil(u64::from(block_tokens)));
        if (whole..=up).contains(&ids) {
            return Ok(());
        }
        if self.options.block_tokens.is_some() {
            return Err(LineFault::Length { input_length, blocks, block_tokens });
        }
        self.raise(line, Doubt::Length { input_length, blocks, block_tokens, fitting: None });
        Ok(())
    }

    /// Judges the times, once: a reader that has come to the end may be asked again.
    fn judge(&mut self, first: f64) {
        if self.raised.iter().any(|raised| matches!(raised.doubt, Doubt::Seconds { .. })) {
            return;
        }
        let (last, line) = self.latest;
        let seconds = (last - first) / 1000.0;
        let per_second = (self.requests - 1) as f64 / seconds;
        let is_odd = match self.fraction {
            Some(_) => per_second > MOST_WITH_FRACTIONS,
            None => self.requests >= JUDGED_AFTER && per_second > MOST_WITHOUT,
        };
        if self.options.time.is_none() && seconds > 0.0 && is_odd {
            let line = self.fraction.unwrap_or(line);
            self.raise(line, Doubt::Seconds { times: [first, last], per_second });
        }
    }

    /// I1.
    fn raise(&mut self, line: u64, doubt: Doubt) {
        let kind = std::mem::discriminant(&doubt);
        match self.raised.iter_mut().find(|raised| std::mem::discriminant(&raised.doubt) == kind) {
            Some(raised) => raised.lines += 1,
            None => self.raised.push(TraceWarning { line, lines: 1, doubt }),
        }
    }
}
