//! What an engine has counted and shows: plain data.
//!
//! | file | what |
//! |---|---|
//! | `snapshot.rs` | [`Metrics`]: the figures of one moment |
//! | `stats.rs` | [`ManagerStats`]: what an engine has counted |
//! | `histogram.rs` | latencies and sizes in fixed buckets |
//! | `table.rs` | every metric: name, kind, unit, labels, words, and where its samples come from |
//! | `text.rs` | the exposition text, version 0.0.4 |
//! | `reference.rs` | the table as text, Markdown and data |
//!
//! Invariants
//! - I1: whatever is counted is counted in one place, and read from there.
//! - I2: a metric is in the table or nowhere: text and reference are written from it.
//! - I3: counting makes no thread wait for another, and neither does reading what is counted. How much waits
//!   and is under way is not counted but looked up, under the engine's lock, as a call takes it: numbers that
//!   are there, and a look through who waits.

mod histogram;
mod reference;
mod snapshot;
mod stats;
mod table;
mod text;

pub use histogram::{BOUNDS, LatencyHistogram, SIZES, SizeHistogram};
pub use reference::{Entry, markdown, reference, text};
pub use snapshot::{
    Call, CallMetrics, Found, GroupMetrics, Lookups, LowerMetrics, Metrics, PathMetrics, Requests,
    ReuseMetrics, TenantMetrics, TierMetrics, VerificationFailures, Waiting, WorkerMetrics,
};
pub use stats::{ManagerStats, PathStats, Refusal};
pub use text::CONTENT_TYPE;

#[cfg(feature = "bench")]
pub use crate::stripes::bench;
pub(crate) use histogram::{Latencies, Sizes};
pub(crate) use snapshot::ratio;
