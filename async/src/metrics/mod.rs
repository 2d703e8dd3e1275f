//! What an operator watches: a manager's figures as a struct, as Prometheus text, and over HTTP.
//!
//! ```text
//!   manager/counts.rs, watch.rs ─┐
//!   core pool/stats.rs ──────────┼─► Metrics ─┬─► table.rs ─► text.rs ─► endpoint.rs     GET /metrics
//!   disk/stats.rs, queues ───────┘   (struct) │      └──────► reference.rs               docs/metrics.md
//!                                             └─► serde
//! ```
//!
//! | file | what |
//! |---|---|
//! | `snapshot.rs` | [`Metrics`]: the figures of one moment |
//! | `table.rs` | every metric: name, kind, unit, labels, words, and where its samples come from |
//! | `text.rs` | the exposition text, version 0.0.4 |
//! | `reference.rs` | the table as text, Markdown and data |
//! | `endpoint.rs` | [`Endpoint`]: `/metrics` and `/healthz` |
//! | `stats.rs` | [`ManagerStats`]: what a manager has counted |
//! | `histogram.rs` | latencies and sizes in fixed buckets |
//!
//! Invariants
//! - I1: whatever is counted is counted in one place, and read from there.
//! - I2: a metric is in the table or nowhere: text and reference are written from it.
//! - I3: counting makes no thread wait for another, and neither does reading what is counted. How much waits and is under way is not counted but
//!   looked up, under the manager's lock, as a call of an engine's takes it: numbers that are there, and a look through who waits.

mod endpoint;
mod head;
mod histogram;
mod reference;
mod snapshot;
mod stats;
mod table;
mod text;

pub use endpoint::{Bound, Endpoint};
pub use head::{Head, HeadReader, MOST_BYTES, TooLong};
pub use histogram::{BOUNDS, LatencyHistogram, SIZES, SizeHistogram};
pub use reference::{Entry, markdown, reference, text};
pub use snapshot::{
    Call, CallMetrics, DiskMetrics, Found, GroupMetrics, Lookups, Metrics, PathMetrics, Requests,
    ReuseMetrics, TenantMetrics, TierMetrics, VerificationFailures, Waiting, WorkerMetrics,
};
pub use stats::{ManagerStats, PathStats, Refusal};

#[cfg(feature = "bench")]
pub use crate::stripes::bench;
pub(crate) use histogram::{Latencies, Sizes};
pub(crate) use snapshot::ratio;
