//! Request traces: the arrival time of each request, and the KV blocks of its prompt.
//!
//! The format is that of the Mooncake FAST '25 release, one JSON object on each line:
//!
//! ```json
//! {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 48, 2353]}
//! ```
//!
//! A file does not say how many tokens a block has, nor the unit of its times: they are taken to be
//! 512 and milliseconds, unless [`TraceOptions`] say otherwise. A line that contradicts an
//! assumption raises a warning with its number ([`TraceWarnings`]). An id stands for a block and all
//! blocks before it. Input is plain, gzip, xz or zstd, by its first bytes. It is streamed, so memory
//! does not grow with the trace.

// | file | contents |
// |---|---|
// | `source.rs` | opens a file or the bundled trace, and decompresses it |
// | `zstd.rs` | reads all frames of a zstd stream and compares their checksums |
// | `reader.rs` | bytes to lines to `Request`s; errors that name the line |
// | `doubts.rs` | lines that contradict the assumptions |

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

/// Tokens of a block in traces of this format.
pub const BLOCK_TOKENS: u32 = 512;

/// The unit of a trace's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds, as in the traces of Qwen (Bailian).
    Seconds,
    /// Milliseconds, as in those of Mooncake.
    Milliseconds,
}

/// The units of a trace's numbers, which its file does not name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceOptions {
    /// The unit of times. `None`: milliseconds, with a warning if only seconds are plausible.
    pub time: Option<TimeUnit>,
    /// Tokens of a block. `None`: [`BLOCK_TOKENS`], with a warning if a prompt contradicts them. If
    /// given, such a prompt is an error.
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
    /// The prompt's blocks in order. An id stands for a block and all blocks before it.
    pub hash_ids: Vec<u64>,
}
