//! What an operator watches: a manager's figures as a struct, as Prometheus text, and over HTTP.
//!
//! ```text
//!   what the tiers have counted ─► Metrics ─┬─► to_prometheus ─► endpoint.rs     GET /metrics
//!                                (struct)   ├─► reference                        docs/metrics.md
//!                                           └─► serde
//! ```
//!
//! | file | what |
//! |---|---|
//! | `endpoint.rs` | [`Endpoint`]: `/metrics` and `/healthz` |
//! | `head.rs` | the head of a request |

mod endpoint;
mod head;

pub use endpoint::{Bound, Endpoint};
pub use head::{Head, HeadReader, MOST_BYTES, TooLong};
pub use kvstrata_tiers::metrics::*;
