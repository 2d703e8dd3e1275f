//! The view of a manager at one moment: plain data, drawn by `draw.rs` and written by `--json`.

use super::buckets::Quantile;
use super::reading::{Requests, Tenant};
use serde::Serialize;

/// The place of a [`HitView`] that counts all tiers.
pub(super) const ALL: &str = "all";

/// The view of a manager. Rates are over [`interval_seconds`](View::interval_seconds), and
/// `None` without an interval.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct View {
    /// The address of the manager's metrics.
    pub target: String,
    /// Time between two readings, in seconds.
    pub every_seconds: f64,
    /// Set while the manager does not answer. The figures are then the last ones received, if any.
    pub gone: Option<Gone>,
    /// Version of kvstrata.
    pub version: Option<String>,
    /// Age of the manager; `None` if it does not report it.
    pub uptime_seconds: Option<f64>,
    /// Restarts of the manager while it was watched.
    pub restarts: u64,
    /// Time between the last two answers; `None` without two answers of the same process.
    pub interval_seconds: Option<f64>,
    /// Requests served and waiting calls; `None` before the first answer.
    pub requests: Option<Requests>,
    /// Each tier of each group of layers.
    pub tiers: Vec<TierView>,
    /// Each path between tiers.
    pub paths: Vec<PathView>,
    /// Hits of each group of layers, by tier; after the tiers of a group follows their sum.
    pub hits: Vec<HitView>,
    /// Failures and refusals, the worst first.
    pub troubles: Vec<TroubleView>,
    /// The tenant nearest to its quota, of those with a quota.
    pub tenant: Option<Tenant>,
}

/// The manager does not answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gone {
    /// Seconds since the last answer, or since the first question.
    pub seconds: f64,
    /// The error of the last attempt.
    pub why: String,
}

/// Blocks of a tier.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierView {
    /// Name of the tier, followed by that of its group of layers if there are several.
    pub tier: String,
    /// Capacity in blocks.
    pub blocks: u64,
    /// Blocks with a holder.
    pub in_use: u64,
    /// Registered blocks without a holder, which later requests may find.
    pub inactive: u64,
    /// Empty blocks.
    pub free: u64,
    /// Evictions since the process began.
    pub evicted: u64,
    /// Evictions a second.
    pub evicted_per_second: Option<f64>,
}

/// Transfers on a path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathView {
    /// Source and destination.
    pub path: String,
    /// Bytes moved a second.
    pub bytes_per_second: Option<f64>,
    /// Transfers completed a second.
    pub transfers_per_second: Option<f64>,
    /// Median of the transfers' times; `None` if none completed, or without `metrics.histograms`.
    pub p50: Option<Quantile>,
    /// 99th percentile of the transfers' times; `None` as for `p50`.
    pub p99: Option<Quantile>,
    /// Transfers in the queue.
    pub queued: u64,
    /// Transfers in flight.
    pub inflight: u64,
}

/// The share of looked-up blocks that a place had, from 0 to 1; `None` if no block was looked up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HitView {
    /// The group of layers.
    pub group: String,
    /// The tier; `pending` for blocks on their way to the device; `all` for any of these.
    pub place: String,
    /// Share in the last interval.
    pub now: Option<f64>,
    /// Share since the process started.
    pub overall: Option<f64>,
    /// Shares of past intervals, the latest at the end.
    pub history: Vec<Option<f64>>,
}

/// A kind of failure or refusal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TroubleView {
    /// The failure and its cause.
    pub what: String,
    /// Events since the process started, or the current number of a gauge.
    pub count: u64,
    /// Events of the last interval.
    pub new: Option<u64>,
}
