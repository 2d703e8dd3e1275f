//! Lines of a trace that contradict the assumptions about it: the unit of its times, the tokens of a
//! block, the order of its lines.
//!
//! A file specifies none of these. If [`TraceOptions`] give a value, a line that contradicts it is an
//! error. Otherwise the default is assumed. The first line that contradicts it is logged at once, and
//! the report lists all kinds.
//!
//! Invariants
//! - I1: there is at most one doubt of each kind. It has the first line that raised it and
//!   the number of such lines.

use super::{BLOCK_TOKENS, LineFault, Request, TraceOptions};
use core::fmt;
use std::ops::RangeInclusive;

/// Requests after which the unit of time is judged; a shorter trace is judged at its end.
const JUDGED_AFTER: u64 = 100;
/// The highest plausible average of requests a second, for times with fractions of milliseconds: no
/// single engine serves more.
const MOST_WITH_FRACTIONS: f64 = 100.0;
/// The same for whole milliseconds. It is higher, because only the rate suggests seconds.
const MOST_WITHOUT: f64 = 1500.0;

/// A kind of line that contradicts an assumption.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Doubt {
    /// The length of a prompt contradicts the number of its blocks.
    Length {
        /// Tokens of the prompt.
        input_length: u64,
        /// Ids of the prompt.
        blocks: usize,
        /// Tokens of a block, as assumed.
        block_tokens: u32,
        /// A power of two that fits all lines so far, if there is one.
        fitting: Option<u32>,
    },
    /// A request came earlier than that of an earlier line.
    Order {
        /// Its time, in the unit of the trace.
        timestamp: f64,
        /// The latest time before it, and its line.
        before: (f64, u64),
    },
    /// The times are plausible only as seconds.
    Seconds {
        /// The first and the latest time.
        times: [f64; 2],
        /// Requests a second, if these are milliseconds.
        per_second: f64,
    },
}

/// A doubt, and the lines that raised it.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceWarning {
    /// The first line that raised it, counted from 1.
    pub line: u64,
    /// Number of lines that raised it; 1 for a doubt about all lines together.
    pub lines: u64,
    /// The doubt.
    pub doubt: Doubt,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::Length { input_length, blocks, block_tokens, fitting } => {
                length(f, *input_length, *blocks, *block_tokens)?;
                f.write_str("; give the tokens of a block with --trace-block-tokens")?;
                fitting.map_or(Ok(()), |fitting| write!(f, " ({fitting} fits the lines read)"))
            }
            Doubt::Order { timestamp, before: (before, line) } => write!(
                f,
                "timestamp = {timestamp} is before that of line {line}, {before}: requests are served in the order of the lines; \
                 sort them first with jq -sc 'sort_by(.timestamp)[]'"
            ),
            Doubt::Seconds { times: [first, last], per_second } => write!(
                f,
                "timestamps from {first} to {last} in milliseconds give {per_second:.0} requests a second; if they are seconds, \
                 give --trace-time s, otherwise --trace-time ms"
            ),
        }
    }
}

impl fmt::Display for TraceWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.doubt)?;
        if self.lines > 1 { write!(f, " [{} such lines]", self.lines) } else { Ok(()) }
    }
}

/// Writes how the length of a prompt contradicts the number of its blocks.
pub(super) fn length(
    f: &mut fmt::Formatter<'_>,
    input_length: u64,
    blocks: usize,
    tokens: u32,
) -> fmt::Result {
    let wanted = input_length.div_ceil(u64::from(tokens));
    let ids = if blocks == 1 { "id" } else { "ids" };
    write!(
        f,
        "hash_ids has {blocks} {ids}, but input_length = {input_length} needs {wanted}, at {tokens} tokens a block"
    )
}

/// The doubts of one trace, raised as its lines are read.
#[derive(Debug)]
pub(super) struct Doubts {
    options: TraceOptions,
    requests: u64,
    /// Time of the first request, in the unit of the trace.
    first: Option<f64>,
    /// The latest time so far and its line.
    latest: (f64, u64),
    /// The first line whose time has a fraction.
    fraction: Option<u64>,
    /// Tokens of a block that fit all lines so far.
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

    /// Checks the request of a line, its time still in the unit of the trace. Returns doubts of new kinds.
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

    /// Judges the lines when no more are read. Returns doubts of new kinds.
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

    /// Compares the number of blocks with the length. A last block that is not full may be there or not.
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

    /// Judges the unit of the times. A second call, as at the end of the trace, raises nothing new.
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

    /// Adds a doubt, or counts it as another line of its kind (I1).
    fn raise(&mut self, line: u64, doubt: Doubt) {
        let kind = std::mem::discriminant(&doubt);
        match self.raised.iter_mut().find(|raised| std::mem::discriminant(&raised.doubt) == kind) {
            Some(raised) => raised.lines += 1,
            None => self.raised.push(TraceWarning { line, lines: 1, doubt }),
        }
    }
}
