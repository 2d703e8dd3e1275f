//! [`Metrics`]: the metrics of a manager at one moment, as plain data.
//!
//! While threads go on counting, sums over threads are slightly old, and not all of the same moment. At
//! rest they are exact.

use super::histogram::LatencyHistogram;
use super::stats::ManagerStats;
use crate::tier::Tier;
use crate::transfer::TierStats;
use crate::transfer::{Class, Path};
use kvstrata_core::ReuseStats;
use serde::Serialize;
use std::time::Duration;

/// The place where a look-up of a request found blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A tier.
    Tier(Tier),
    /// Already on their way to the device, for another request.
    Pending,
}

impl Found {
    /// Returns all places, with `below` tiers below host memory.
    pub fn all(below: usize) -> impl Iterator<Item = Found> + Clone {
        Tier::all(below.max(1)).map(Found::Tier).chain([Found::Pending])
    }

    /// Returns the index in [`Lookups::found`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Found::Tier(Tier::Device) => 0,
            Found::Tier(Tier::Host) => 1,
            Found::Pending => 2,
            Found::Tier(Tier::Below(number)) => 3 + number as usize,
        }
    }
}

/// A timed call of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Call {
    /// A look-up of the blocks of a request.
    Match,
    /// An allocation, from the call to the answer, including allocations that were late.
    Allocate,
    /// An onboard of a run that was not entirely in the device, from the call to the poll that sees its
    /// end: a late poll makes it longer.
    Onboard,
    /// An explicit offload, from the call to the poll that sees its end.
    Offload,
    /// A release of a list of blocks.
    Release,
}

impl Call {
    /// All calls.
    pub const ALL: [Call; 5] = [Call::Match, Call::Allocate, Call::Onboard, Call::Offload, Call::Release];

    /// Returns the name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Call::Match => "match",
            Call::Allocate => "allocate",
            Call::Onboard => "onboard",
            Call::Offload => "offload",
            Call::Release => "release",
        }
    }
}

/// The metrics of a manager.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Metrics {
    /// The version of kvstrata.
    pub version: &'static str,
    /// Time since the manager was created.
    pub uptime: Duration,
    /// Device blocks of all groups that an allocation can take: free, or without a holder and not pinned.
    pub available_blocks: u64,
    /// Device blocks of all groups in use by handles, transfers and the wait queue.
    pub inflight_blocks: u64,
    /// `inflight_blocks` divided by all device blocks. Free blocks, and blocks that are only kept to be
    /// found again, are not in use.
    pub utilisation: f64,
    /// Names of the tiers, from the device down.
    pub tier_names: Vec<String>,
    /// Blocks of each tier of each group of layers.
    pub tiers: Vec<TierMetrics>,
    /// Look-ups and hits of requests, for each group of layers.
    pub groups: Vec<GroupMetrics>,
    /// The counters of the manager.
    pub stats: ManagerStats,
    /// Queues and latencies by path, in the order of [`Path::all`].
    pub paths: Vec<PathMetrics>,
    /// Latencies by call, in the order of [`Call::ALL`]; none without `metrics.histograms`.
    pub calls: Option<[CallMetrics; Call::ALL.len()]>,
    /// Blocks that were read with other bytes than stored. Each is a miss.
    pub verification_failures: Vec<VerificationFailures>,
    /// The tiers below host memory of each group, if their ports keep counters.
    pub lower: Vec<LowerMetrics>,
    /// Waiting requests and transfers.
    pub waiting: Waiting,
    /// Blocks of tenants, up to the number of tenants in `metrics.tenants`, by name.
    pub tenants: Vec<TenantMetrics>,
    /// The worker metrics for routers.
    pub worker: WorkerMetrics,
}

/// Blocks of one tier of one group of layers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierMetrics {
    /// Which tier.
    pub tier: Tier,
    /// The group's name.
    pub group: String,
    /// The capacity.
    pub blocks: u64,
    /// Empty and unowned.
    pub free: u64,
    /// Registered, without a holder.
    pub inactive: u64,
    /// Registered and held.
    pub active: u64,
    /// Held and not registered: to be filled or moved, or never used again.
    pub owned: u64,
    /// Blocks that an allocation can take.
    pub available: u64,
    /// Registrations so far.
    pub stored: u64,
    /// Registrations that ended by eviction.
    pub evicted: u64,
    /// Registrations of a hash that the tier already had.
    pub deduplicated: u64,
    /// The policy `reuse` compared with LRU; none under another policy.
    pub reuse: Option<ReuseMetrics>,
}

/// The policy `reuse` of a tier compared with LRU. [`ReuseStats`] describes the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the core documents them")]
pub struct ReuseMetrics {
    pub ahead: i64,
    pub ghosts: u64,
    pub ghosts_allowed: u64,
    pub setbacks: u64,
    pub unheard: u64,
}

impl From<ReuseStats> for ReuseMetrics {
    fn from(stats: ReuseStats) -> ReuseMetrics {
        let ReuseStats { ahead, ghosts, ghosts_allowed, setbacks, unheard } = stats;
        let [ghosts, ghosts_allowed, setbacks] = [ghosts, ghosts_allowed, setbacks].map(u64::from);
        ReuseMetrics { ahead, ghosts, ghosts_allowed, setbacks, unheard }
    }
}

impl Metrics {
    /// Returns the name of a tier.
    #[must_use]
    pub fn tier_name(&self, tier: Tier) -> &str {
        self.tier_names.get(tier.index()).map_or(tier.name(), String::as_str)
    }

    /// Returns the number of tiers below host memory.
    #[must_use]
    pub fn below(&self) -> usize {
        self.tier_names.len().saturating_sub(Tier::Below(0).index())
    }
}

impl TierMetrics {
    /// Returns the blocks in use.
    #[must_use]
    pub fn inflight(&self) -> u64 {
        self.active + self.owned
    }

    /// Returns the fraction of blocks in use, from 0 to 1.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        ratio(self.inflight(), self.blocks)
    }

    /// Returns the fraction of blocks that can be found by their hash, from 0 to 1.
    #[must_use]
    pub fn fill(&self) -> f64 {
        ratio(self.inactive + self.active, self.blocks)
    }
}

/// Look-ups of requests, in blocks. Look-ups by the manager itself, `access` and `resume` do not count.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Lookups {
    /// Blocks that were looked up.
    pub blocks: u64,
    /// Blocks that were found, by [`Found::index`].
    pub found: Vec<u64>,
}

impl Lookups {
    /// Returns the blocks found in one place.
    #[must_use]
    pub fn found_by(&self, place: Found) -> u64 {
        self.found.get(place.index()).copied().unwrap_or_default()
    }

    /// Returns the fraction of looked-up blocks that were found, from 0 to 1.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.found.iter().sum(), self.blocks)
    }
}

/// Look-ups of a group of layers. Do not add them up over groups: blocks of different groups do not
/// compare. For a window or a state, `blocks` are the blocks that the whole sequence needs, and `found` the
/// existing ones: mostly all or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupMetrics {
    /// The group's name.
    pub group: String,
    /// Look-ups, in blocks of the group.
    pub lookups: Lookups,
}

/// The queue and the latencies of a path. Its counters are in [`Metrics::stats`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathMetrics {
    /// Which path.
    pub path: Path,
    /// The name, from the tiers at its ends.
    pub name: String,
    /// Waiting transfers by class, in the order of [`Class::ALL`].
    pub queued: [u64; Class::ALL.len()],
    /// Transfers in flight.
    pub inflight: u64,
    /// Bytes of transfers in flight.
    pub inflight_bytes: u64,
    /// Whether the path does not keep up, so that evicted blocks are dropped, or were within the last half
    /// minute.
    pub dropping: bool,
    /// Time from the queue to the start of a transfer; none without `metrics.histograms`.
    pub wait: Option<LatencyHistogram>,
    /// Time from the start of a transfer to its end, successful or not; none without `metrics.histograms`.
    pub transfer: Option<LatencyHistogram>,
}

/// The latency of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CallMetrics {
    /// Which call.
    pub call: Call,
    /// Time to the answer.
    pub latency: LatencyHistogram,
}

/// Blocks that were read with other bytes than stored. Records that the opening of a disk rejected are in
/// [`TierStats::rejected`](crate::transfer::TierStats::rejected).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct VerificationFailures {
    /// The tier that they came from.
    pub tier: Tier,
    /// The failed check: `mismatch` of a checksum in memory; for a disk, as in
    /// [`RejectedReads`](crate::transfer::RejectedReads).
    pub cause: &'static str,
    /// The number of blocks.
    pub count: u64,
}

/// A tier below host memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LowerMetrics {
    /// The tier's name.
    pub tier: String,
    /// The group's name.
    pub group: String,
    /// The counters of the tier.
    pub stats: TierStats,
}

/// Waiting requests and transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Waiting {
    /// Allocations and onboards that wait in the queue for device blocks, or at the quota of their tenant.
    pub requests: u64,
    /// Onboards in progress, counted per group.
    pub onboardings: u64,
    /// Transfers to the device that have their block, and wait for room in a full queue or for a staging
    /// block.
    pub aside: u64,
    /// Copies down that wait for a host block.
    pub grounded: u64,
    /// Copies down that wait for a layer or an iteration of the engine.
    pub gated: u64,
    /// Purges of tenants in progress.
    pub purges: u64,
}

/// Blocks of a tenant in a tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TenantMetrics {
    /// The name of the tenant. A name of more than 64 characters is cut, and a hash is appended.
    pub tenant: String,
    /// Which tier.
    pub tier: Tier,
    /// Blocks that the tenant has, or is about to get.
    pub blocks: u64,
    /// The maximum number of blocks; none: no limit.
    pub quota: Option<u64>,
}

/// The requests of an engine, as it [reports](crate::Tiers::tell_requests) them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Requests {
    /// Requests that the engine serves.
    pub active_slots: u64,
    /// Requests that the engine can serve at once.
    pub total_slots: u64,
    /// Requests that the engine has not begun.
    pub waiting: u64,
}

/// The seven metrics by which a router chooses workers, with the names that routers use. Numbers of blocks
/// are for one group of layers: the first that needs all blocks of a sequence, as a router counts them, or
/// the first group if none does.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct WorkerMetrics {
    /// Requests that the engine serves; 0 if it does not report them.
    pub request_active_slots: u64,
    /// Requests that the engine can serve at once; 0 if it does not report them.
    pub request_total_slots: u64,
    /// Device blocks in use.
    pub kv_active_blocks: u64,
    /// Device blocks.
    pub kv_total_blocks: u64,
    /// Requests that wait in the engine, if it reports them; otherwise requests that wait in the manager
    /// for blocks.
    pub num_requests_waiting: u64,
    /// `kv_active_blocks` divided by `kv_total_blocks`, from 0 to 1.
    pub gpu_cache_usage_perc: f64,
    /// Blocks found in the device divided by blocks looked up, since the start, from 0 to 1.
    pub gpu_prefix_cache_hit_rate: f64,
}

/// Returns `part` divided by `whole`; 0 if `whole` is 0.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
