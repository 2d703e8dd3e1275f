//! Metrics of a manager for operators: as a struct, as Prometheus text, and over HTTP.
//!
//! ```text
//!   counters of the tiers ───────► Metrics ─┬─► to_prometheus ─► endpoint.rs     GET /metrics
//!                                (struct)   ├─► reference                        docs/metrics.md
//!                                           └─► serde
//! ```

// | file | contents |
// |---|---|
// | `endpoint.rs` | `Endpoint`: `/metrics` and `/healthz` |
// | `head.rs` | the head of an HTTP request |

mod endpoint;
mod head;

pub use endpoint::{Bound, Endpoint};
pub use head::{Head, HeadReader, MOST_BYTES, TooLong};
pub use kvstrata_tiers::metrics::*;
