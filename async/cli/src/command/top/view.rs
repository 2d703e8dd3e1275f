//! What is shown of a manager at one moment: plain data, drawn by `draw.rs` and written by `--json`.

use super::buckets::Quantile;
use super::reading::{Requests, Tenant};
use serde::Serialize;

/// What stands for all places together.
pub(super) const ALL: &str = "all";

/// A manager, as it is seen. Rates are over [`interval_seconds`](View::interval_seconds); none where there is no such interval.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct View {
    /// Where it serves its metrics.
    pub target: String,
    /// How often it is asked, in seconds.
    pub every_seconds: f64,
    /// It does not answer; the figures are the last that it gave, and there may be none.
    pub gone: Option<Gone>,
    /// Of kvstrata.
    pub version: Option<String>,
    /// Since it was made; none if it does not tell.
    pub uptime_seconds: Option<f64>,
    /// How often it has begun anew while it was watched.
    pub restarts: u64,
    /// Between the last two answers; none if there are no two of the same process.
    pub interval_seconds: Option<f64>,
    /// Who is served, and who waits; none before the first answer.
    pub requests: Option<Requests>,
    /// Each tier of each group of layers.
    pub tiers: Vec<TierView>,
    /// Each path that blocks take.
    pub paths: Vec<PathView>,
    /// Hits of each group of layers, by the tier that had them; behind each group's, all of them.
    pub hits: Vec<HitView>,
    /// What should not happen and did, the worst first.
    pub troubles: Vec<TroubleView>,
    /// Of the tenants with a quota, the one that is nearest to it.
    pub tenant: Option<Tenant>,
}

/// Nothing is heard.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gone {
    /// Since the last answer, or since the first question.
    pub seconds: f64,
    /// What came in its place the last time.
    pub why: String,
}

/// Blocks of a tier.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierView {
    /// Its name; with that of its group of layers, where there are several.
    pub tier: String,
    /// All of them.
    pub blocks: u64,
    /// Those that somebody has.
    pub in_use: u64,
    /// Those that are kept to be found again.
    pub inactive: u64,
    /// Empty ones.
    pub free: u64,
    /// Evictions since the process began.
    pub evicted: u64,
    /// Evictions a second.
    pub evicted_per_second: Option<f64>,
}

/// What moves on a path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathView {
    /// From where to where.
    pub path: String,
    /// Bytes a second that arrived.
    pub bytes_per_second: Option<f64>,
    /// Transfers a second that ended.
    pub transfers_per_second: Option<f64>,
    /// Where the half of them ended that took less time; none if none ended, or without `metrics.histograms`.
    pub p50: Option<Quantile>,
    /// The same of 99 in 100.
    pub p99: Option<Quantile>,
    /// Transfers that wait.
    pub queued: u64,
    /// Transfers under way.
    pub inflight: u64,
}

/// The parts of what was looked up that were found in a place, from 0 to 1; none of nothing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HitView {
    /// The group of layers.
    pub group: String,
    /// The tier; `pending`: on their way to the device already; `all`: any of them.
    pub place: String,
    /// Of the last interval.
    pub now: Option<f64>,
    /// Since the process began.
    pub overall: Option<f64>,
    /// Of intervals, the latest at the end.
    pub history: Vec<Option<f64>>,
}

/// Something that should not happen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TroubleView {
    /// What, and why.
    pub what: String,
    /// How often since the process began; or how many there are.
    pub count: u64,
    /// How many of them came in the last interval.
    pub new: Option<u64>,
}
