//! [`Metrics`]: the figures of a manager at one moment, as plain data.
//!
//! Sums over threads that go on counting are each a moment old, and not all of the same one; at rest they are exact.

use super::histogram::LatencyHistogram;
use super::stats::ManagerStats;
use crate::tier::Tier;
use crate::transfer::TierStats;
use crate::transfer::{Class, Path};
use kvstrata_core::ReuseStats;
use serde::Serialize;
use std::time::Duration;

/// Where a request's blocks were found when it looked them up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// In a tier.
    Tier(Tier),
    /// On their way to the device already, for another request.
    Pending,
}

impl Found {
    /// All of them, with so many tiers below host memory.
    pub fn all(below: usize) -> impl Iterator<Item = Found> + Clone {
        Tier::all(below.max(1)).map(Found::Tier).chain([Found::Pending])
    }

    /// Its place in [`Lookups::found`].
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

/// A call of an engine's that is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Call {
    /// A look-up of a request's blocks.
    Match,
    /// Blocks to fill, from the call to the answer: those that were late included.
    Allocate,
    /// A run that was not all in the device, from the call to when its end is seen: who polls late is told late.
    Onboard,
    /// Copies down on request, from the call to when their end is seen.
    Offload,
    /// A list of blocks that is let go.
    Release,
}

impl Call {
    /// All of them.
    pub const ALL: [Call; 5] = [Call::Match, Call::Allocate, Call::Onboard, Call::Offload, Call::Release];

    /// As metrics spell it.
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

/// The figures of a manager.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Metrics {
    /// Of kvstrata.
    pub version: &'static str,
    /// Since the manager was made.
    pub uptime: Duration,
    /// Blocks of the device, all groups together, that an allocation can have: free, or held by nobody and not pinned.
    pub available_blocks: u64,
    /// Blocks of the device, all groups together, that somebody has: handles, flights, who waits in line.
    pub inflight_blocks: u64,
    /// `inflight_blocks` by all blocks of the device. What is free, and what is only kept to be found again, is no part of it.
    pub utilisation: f64,
    /// The names of the tiers, from the device down.
    pub tier_names: Vec<String>,
    /// Each tier of each group of layers.
    pub tiers: Vec<TierMetrics>,
    /// What requests looked up of each group of layers, and what of it was found.
    pub groups: Vec<GroupMetrics>,
    /// What the manager has counted.
    pub stats: ManagerStats,
    /// By path, in the order of [`Path::all`].
    pub paths: Vec<PathMetrics>,
    /// By call, in the order of [`Call::ALL`]; none without `metrics.histograms`.
    pub calls: Option<[CallMetrics; Call::ALL.len()]>,
    /// Bytes that were not what had been stored, each a miss.
    pub verification_failures: Vec<VerificationFailures>,
    /// The tiers below host memory of each group, whose ports count.
    pub lower: Vec<LowerMetrics>,
    /// Who waits.
    pub waiting: Waiting,
    /// Of tenants that have a name here, by name: as many as `metrics.tenants` says.
    pub tenants: Vec<TenantMetrics>,
    /// What a router asks of a worker.
    pub worker: WorkerMetrics,
}

/// Blocks of one tier of one group of layers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierMetrics {
    /// Which tier.
    pub tier: Tier,
    /// The group's name.
    pub group: String,
    /// All of them.
    pub blocks: u64,
    /// Empty, and nobody's.
    pub free: u64,
    /// Registered, held by nobody.
    pub inactive: u64,
    /// Registered, and held.
    pub active: u64,
    /// Held and not registered: to be filled, or moved, or never used again.
    pub owned: u64,
    /// What an allocation can have.
    pub available: u64,
    /// Registrations so far.
    pub stored: u64,
    /// Registrations that eviction has ended.
    pub evicted: u64,
    /// Registrations of a hash that was there.
    pub deduplicated: u64,
    /// How the policy `reuse` stands beside LRU; none under another policy.
    pub reuse: Option<ReuseMetrics>,
}

/// How a tier's policy `reuse` stands beside LRU: [`ReuseStats`], which says what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "they are the core's")]
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
    /// The name of a tier.
    #[must_use]
    pub fn tier_name(&self, tier: Tier) -> &str {
        self.tier_names.get(tier.index()).map_or(tier.name(), String::as_str)
    }

    /// How many tiers there are below host memory.
    #[must_use]
    pub fn below(&self) -> usize {
        self.tier_names.len().saturating_sub(Tier::Below(0).index())
    }
}

impl TierMetrics {
    /// Blocks that somebody has.
    #[must_use]
    pub fn inflight(&self) -> u64 {
        self.active + self.owned
    }

    /// The part of the blocks that somebody has, from 0 to 1.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        ratio(self.inflight(), self.blocks)
    }

    /// The part of the blocks that can be found by their hash, from 0 to 1.
    #[must_use]
    pub fn fill(&self) -> f64 {
        ratio(self.inactive + self.active, self.blocks)
    }
}

/// Look-ups of requests, in blocks. What the manager looks up for itself, `access` and `resume` are none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Lookups {
    /// Blocks that were asked for.
    pub blocks: u64,
    /// Of them, those found, by [`Found::index`].
    pub found: Vec<u64>,
}

impl Lookups {
    /// Blocks found somewhere.
    #[must_use]
    pub fn found_by(&self, place: Found) -> u64 {
        self.found.get(place.index()).copied().unwrap_or_default()
    }

    /// The part of what was asked for that was found, from 0 to 1.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.found.iter().sum(), self.blocks)
    }
}

/// Look-ups of a group of layers; they are not to be added up with another's, whose blocks are worth more or less. Of a window or a state, what is asked for is what the whole sequence needs, and found is what of that is there:
/// all of it or nothing, mostly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupMetrics {
    /// The group's name.
    pub group: String,
    /// In blocks of it.
    pub lookups: Lookups,
}

/// What a path does now, and how long it takes. What it has moved is in [`Metrics::stats`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathMetrics {
    /// Which path.
    pub path: Path,
    /// Its name: that of the tiers at its ends.
    pub name: String,
    /// Transfers that wait, by class in the order of [`Class::ALL`].
    pub queued: [u64; Class::ALL.len()],
    /// Transfers under way.
    pub inflight: u64,
    /// Their bytes.
    pub inflight_bytes: u64,
    /// Whether it does not keep up, and blocks that would go down it are dropped; or were within the last half minute.
    pub dropping: bool,
    /// From the queue to the start of a transfer; none without `metrics.histograms`.
    pub wait: Option<LatencyHistogram>,
    /// From the start of a transfer to its end, good or bad; none without `metrics.histograms`.
    pub transfer: Option<LatencyHistogram>,
}

/// How long a call takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CallMetrics {
    /// Which call.
    pub call: Call,
    /// To its answer.
    pub latency: LatencyHistogram,
}

/// Bytes that were read, and were not what had been stored. What the opening of a disk has not taken is in
/// [`TierStats::rejected`](crate::transfer::TierStats::rejected).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct VerificationFailures {
    /// Where they came from.
    pub tier: Tier,
    /// What did not hold: `mismatch` of a sum in memory; of a disk as in [`RejectedReads`](crate::transfer::RejectedReads).
    pub cause: &'static str,
    /// How often.
    pub count: u64,
}

/// A tier below host memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LowerMetrics {
    /// The tier's name.
    pub tier: String,
    /// The group's name.
    pub group: String,
    /// What it has counted.
    pub stats: TierStats,
}

/// Who waits, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Waiting {
    /// Allocations and runs in line for blocks of the device, and those held back at their tenant's quota.
    pub requests: u64,
    /// Runs on their way up, each group's by itself.
    pub onboardings: u64,
    /// Transfers to the device that have their block, and wait beside a full queue, or for staging.
    pub aside: u64,
    /// Copies down that wait for a block of host memory.
    pub grounded: u64,
    /// Copies down that wait for a layer or an iteration of the engine's.
    pub gated: u64,
    /// Purges under way.
    pub purges: u64,
}

/// What a tenant has of a tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TenantMetrics {
    /// Its name; of one that is longer than 64 characters the first ones, and a hash.
    pub tenant: String,
    /// Which tier.
    pub tier: Tier,
    /// Blocks that it has, or is about to.
    pub blocks: u64,
    /// How many it may have; none: as many as there are.
    pub quota: Option<u64>,
}

/// An engine's requests, as it [tells](crate::Tiers::tell_requests).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Requests {
    /// Requests that it serves.
    pub active_slots: u64,
    /// Requests that it can serve at once.
    pub total_slots: u64,
    /// Requests that it has not begun.
    pub waiting: u64,
}

/// What a router chooses workers by: the seven figures of its reference, under their names there. Those of blocks are of one group of layers: the first
/// that needs all blocks of a sequence, as a router counts them, or the first where none does.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct WorkerMetrics {
    /// Requests that the engine serves; 0 if it does not tell.
    pub request_active_slots: u64,
    /// Requests that it can serve at once; 0 if it does not tell.
    pub request_total_slots: u64,
    /// Blocks of the device that somebody has.
    pub kv_active_blocks: u64,
    /// Blocks of the device.
    pub kv_total_blocks: u64,
    /// Requests that wait: in the engine, if it tells; else those that wait in the manager for blocks.
    pub num_requests_waiting: u64,
    /// `kv_active_blocks` by `kv_total_blocks`, from 0 to 1.
    pub gpu_cache_usage_perc: f64,
    /// Blocks found in the device by blocks looked up, since the start, from 0 to 1.
    pub gpu_prefix_cache_hit_rate: f64,
}

/// A part of a whole; 0 of nothing.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
