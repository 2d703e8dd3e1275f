//! The counters and metrics of an engine, as plain data.
//!
//! Invariants
//! - I1: each counter is counted in one place, and read from there.
//! - I2: every metric is in the table; text and reference are written from it.
//! - I3: neither counting nor reading counters makes a thread wait for another. The numbers of waiting and
//!   in-flight transfers and requests are not counted: a snapshot reads them under the engine's lock, as a
//!   call takes it, from existing numbers and one pass over the waiting requests.

// | file | contents |
// |---|---|
// | `snapshot.rs` | `Metrics`: all metrics at one moment |
// | `stats.rs` | `ManagerStats`: the counters of an engine |
// | `histogram.rs` | latencies and sizes in fixed buckets |
// | `table.rs` | every metric: name, type, unit, labels, description, and the source of its samples |
// | `text.rs` | the exposition text, version 0.0.4 |
// | `reference.rs` | the table as text, Markdown and data |

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
