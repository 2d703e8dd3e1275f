//! Request traces: who asked when, and which KV blocks each prompt is made of.
//!
//! The format is that of the Mooncake FAST '25 release, one JSON object a line:
//!
//! ```json
//! {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 48, 2353]}
//! ```
//!
//! A block is 512 tokens, and times are milliseconds, unless [`TraceOptions`] say otherwise: files say
//! nothing of it. What contradicts that is said by line ([`TraceWarnings`]). An id stands for a block and all
//! before it. Input is plain, gzip, xz or zstd, told apart by its first bytes, and is streamed: memory does
//! not grow with the trace.
//!
//! | file | what |
//! |---|---|
//! | `source.rs` | opens a file or the bundled trace, and decompresses |
//! | `zstd.rs` | frame after frame, checksums compared |
//! | `reader.rs` | bytes to lines to [`Request`]s; errors that name the line |
//! | `doubts.rs` | lines that contradict what was taken for granted |

mod doubts;
mod reader;
mod source;
mod zstd;

#[cfg(test)]
mod tests;

pub use doubts::{Doubt, TraceWarning};
pub use reader::{LineFault, TraceError, TraceReader, TraceWarnings};
pub use source::{BUNDLED_REQUESTS, Encoding, TraceSource};

use serde::Deserialize;
use std::num::NonZeroU32;

/// Tokens a block, in traces of this format.
pub const BLOCK_TOKENS: u32 = 512;

/// The unit of a trace's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// As in the traces of Qwen (Bailian).
    Seconds,
    /// As in Mooncake's.
    Milliseconds,
}

/// What a trace's numbers are, since its file does not say it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceOptions {
    /// The unit of times; none: milliseconds, and a warning where only seconds make sense of them.
    pub time: Option<TimeUnit>,
    /// Tokens a block; none: [`BLOCK_TOKENS`], and a warning where prompts contradict it. One that is given is not contradicted.
    pub block_tokens: Option<NonZeroU32>,
}

/// One request of a trace.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Request {
    /// Arrival, in milliseconds since the trace began.
    pub timestamp: f64,
    /// Tokens of the prompt.
    pub input_length: u64,
    /// Tokens generated.
    pub output_length: u64,
    /// The prompt's blocks in order; an id stands for a block and all before it.
    pub hash_ids: Vec<u64>,
}
