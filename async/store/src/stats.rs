//! The figures of a store, as plain data.

use crate::outcome::{Kind, Miss, Outcome};
use kvstrata_tiers::Tier;
use kvstrata_tiers::transfer::{Cause, TierStats};
use serde::Serialize;
use std::collections::BTreeMap;

/// Figures of a store since it was opened.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct StoreStats {
    /// Keys and bytes that were stored.
    pub stored: u64,
    /// Bytes that were stored.
    pub stored_bytes: u64,
    /// Keys of stores that were there already.
    pub present: u64,
    /// Keys that were loaded from host memory.
    pub loaded_from_host: u64,
    /// Keys that were loaded from the tier below.
    pub loaded_from_below: u64,
    /// Bytes that were loaded.
    pub loaded_bytes: u64,
    /// Keys of loads that were not there.
    pub absent: u64,
    /// Keys that were forgotten on request.
    pub forgotten: u64,
    /// Keys of stores that were not stored, by cause.
    pub store_misses: BTreeMap<&'static str, u64>,
    /// Keys of loads that were there and were not loaded, by cause.
    pub load_misses: BTreeMap<&'static str, u64>,
    /// Loads and stores that joined a transfer of the same key under way.
    pub joined: u64,
    /// Blocks evicted from host memory that no tier below had.
    pub dropped: u64,
    /// Transfers straight between lent memory and the tier below.
    pub straight: u64,
    /// Transfers by way of host memory or staging.
    pub staged: u64,
    /// Batches under way.
    pub batches: u64,
    /// The size classes, from small to large.
    pub classes: Vec<SizeClassStats>,
}

/// Figures of a size class.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct SizeClassStats {
    /// Bytes of its blocks.
    pub block_bytes: usize,
    /// Blocks of the host tier, and those registered.
    pub host_blocks: [u64; 2],
    /// Free blocks of the host tier.
    pub host_free: u64,
    /// Blocks of the host tier that transfers hold.
    pub held: u64,
    /// Staging blocks, and those that are free.
    pub staging: [u64; 2],
    /// Blocks of the tier below, and those registered.
    pub below_blocks: [u64; 2],
    /// Transfers that wait.
    pub waiting: u64,
    /// Transfers under way to and from the tier below.
    pub moving: u64,
    /// Whether the tier below is spared because it takes too long.
    pub slow: bool,
    /// The counts of the tier below, if it counts.
    pub below: Option<TierStats>,
}

/// Counts, under the store's lock.
#[derive(Debug, Default, Clone)]
pub(crate) struct Tally {
    pub(crate) stats: StoreStats,
    misses: [BTreeMap<&'static str, u64>; 2],
}

impl Tally {
    /// Counts an answer.
    pub(crate) fn answered(&mut self, kind: Kind, outcome: Outcome, bytes: usize) {
        let stats = &mut self.stats;
        match outcome {
            Outcome::Stored(_) => {
                (stats.stored, stats.stored_bytes) = (stats.stored + 1, stats.stored_bytes + bytes as u64)
            }
            Outcome::Present => stats.present += 1,
            Outcome::Loaded(from) => {
                stats.loaded_bytes += bytes as u64;
                *(if from == Tier::Host {
                    &mut stats.loaded_from_host
                } else {
                    &mut stats.loaded_from_below
                }) += 1;
            }
            Outcome::Forgotten => stats.forgotten += 1,
            Outcome::Absent if kind == Kind::Load => stats.absent += 1,
            Outcome::Absent => {}
            Outcome::Missed(miss) => {
                let of = usize::from(kind == Kind::Load);
                *self.misses[of].entry(miss.name()).or_default() += 1;
            }
        }
    }

    /// Returns the figures, with all causes that a metric names.
    pub(crate) fn stats(&self) -> StoreStats {
        let mut stats = self.stats.clone();
        let [store, load] = &self.misses;
        (stats.store_misses, stats.load_misses) = (store.clone(), load.clone());
        stats
    }

    /// Counts a failed copy or transfer that no key has the answer of.
    pub(crate) fn failed(&mut self, kind: Kind, cause: Cause) {
        let of = usize::from(kind == Kind::Load);
        *self.misses[of].entry(Miss::Failed(cause).name()).or_default() += 1;
    }
}
