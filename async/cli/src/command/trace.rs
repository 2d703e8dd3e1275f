//! The trace of `replay` and `policies`, and the units of its numbers: both have the same options and errors.

use crate::trace::{TimeUnit, TraceError, TraceOptions, TraceReader, TraceSource};
use clap::{Args, ValueEnum};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    /// Trace file, - for standard input [default: the bundled conversation trace of Mooncake, FAST '25]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Unit of the trace's timestamps [default: ms, with a warning if they look like seconds]
    #[arg(long, value_name = "UNIT", requires = "trace")]
    trace_time: Option<Unit>,
    /// Tokens of a block of the trace, for example 16 [default: 512, with a warning if lengths contradict it]
    ///
    /// With this option, a line whose input_length and hash_ids contradict it is an error. Some traces of
    /// vLLM have blocks of 16 tokens.
    #[arg(long, value_name = "N", requires = "trace", value_parser = block_tokens)]
    trace_block_tokens: Option<NonZeroU32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Unit {
    /// Seconds, with or without a fraction
    S,
    /// Milliseconds
    Ms,
}

fn block_tokens(text: &str) -> Result<NonZeroU32, String> {
    let tokens = super::number::count(text)?;
    NonZeroU32::new(tokens).ok_or_else(|| "must be at least 1 token, for example 16 or 512".to_owned())
}

impl TraceArgs {
    pub(super) fn open(&self) -> Result<TraceReader, TraceError> {
        let time = self.trace_time.map(|unit| match unit {
            Unit::S => TimeUnit::Seconds,
            Unit::Ms => TimeUnit::Milliseconds,
        });
        TraceReader::with(self.source(), TraceOptions { time, block_tokens: self.trace_block_tokens })
    }

    fn source(&self) -> TraceSource {
        match self.trace.as_deref() {
            None => TraceSource::Bundled,
            Some(path) if is_stdin(path) => TraceSource::Stdin,
            Some(path) => TraceSource::File(path.to_owned()),
        }
    }

    /// The option and its file; `None` for standard input and the bundled trace.
    pub(super) fn file(&self) -> Option<(&'static str, PathBuf)> {
        self.trace.clone().filter(|path| !is_stdin(path)).map(|path| ("--trace", path))
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}
