//! The ground that calls and operations share: settings, the tiers of each group, counters, names, and
//! [`Inner`](inner::Inner), which has the lock.
//!
//! | file | contents |
//! |---|---|
//! | `inner.rs` | the lock, and how changes are made |
//! | `group_tiers.rs`, `lower.rs` | the tiers of a group of layers; one tier below host memory |
//! | `needs.rs`, `found.rs` | the blocks that a group needs; a block that a lookup found |
//! | `rules.rs` | settings |
//! | `tenants.rs`, `names.rs` | tenants and quotas; their names and numbers |
//! | `naming.rs`, `tier_names.rs` | names of blocks that are not full; names of tiers and paths |
//! | `counts.rs`, `busy.rs`, `watch.rs` | counters; how long paths were busy; lookups and latencies |
//! | `notices.rs`, `request_span.rs` | diagnostics for an operator, each logged once; spans of calls |
//! | `checked.rs` | writes to a lower tier, compared with their sums |
//! | `inherited.rs` | the error of calls in a forked process |

pub(crate) mod busy;
pub(crate) mod checked;
pub(crate) mod counts;
pub(crate) mod found;
pub(crate) mod group_tiers;
pub(crate) mod inherited;
pub(crate) mod inner;
pub(crate) mod lower;
pub(crate) mod names;
pub(crate) mod naming;
pub(crate) mod needs;
pub(crate) mod notices;
pub(crate) mod request_span;
pub(crate) mod rules;
pub(crate) mod tenants;
pub(crate) mod tier_names;
pub(crate) mod watch;
