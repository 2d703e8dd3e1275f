//! The table of metrics: the one place where each is named, and what the text and the reference are written from.
//!
//! Names follow Prometheus: a unit at the end (`_blocks`, `_bytes`, `_seconds`, `_ratio`), behind it `_total` for what only grows. The seven figures
//! of a worker keep the names that routers know. Figures that are divided by one another have the same labels, or none on one side.

use super::histogram::{LatencyHistogram, SizeHistogram};
use super::snapshot::{Found, Metrics, PathMetrics, ReuseMetrics, TierMetrics};
use super::stats::Refusal;
use crate::tier::Tier;
use crate::transfer::{Cause, Class};

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only grows, as long as the process lives.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Buckets, a sum and a count.
    Histogram,
}

impl Kind {
    /// As Prometheus spells it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A sample's value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'m> {
    Whole(u64),
    Real(f64),
    Latencies(&'m LatencyHistogram),
    Sizes(&'m SizeHistogram),
}

/// Takes the samples of a metric: the labels' values, in the order of [`Row::labels`], and the value.
pub(super) type Take<'t> = dyn FnMut(&[&str], Value<'_>) + 't;

/// A metric.
pub(super) struct Row {
    /// With the prefix, and with `_total` of a counter.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// What is counted; empty where nothing is.
    pub(super) unit: &'static str,
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
    pub(super) samples: fn(&Metrics, &mut Take<'_>),
}

macro_rules! rows {
    ($($kind:ident $name:literal [$($label:literal),*] $unit:literal, $help:literal, $samples:expr;)+) => {
        &[$(Row {
            name: concat!("kvstrata_", $name),
            kind: Kind::$kind,
            unit: $unit,
            labels: &[$($label),*],
            help: $help,
            samples: $samples,
        }),+]
    };
}

fn each_tier(metrics: &Metrics, take: &mut Take<'_>, value: impl Fn(&TierMetrics) -> Value<'static>) {
    for tier in &metrics.tiers {
        take(&[metrics.tier_name(tier.tier), &tier.group], value(tier));
    }
}

fn each_reuse(metrics: &Metrics, take: &mut Take<'_>, value: impl Fn(&ReuseMetrics) -> Value<'static>) {
    for tier in &metrics.tiers {
        if let Some(of) = &tier.reuse {
            take(&[metrics.tier_name(tier.tier), &tier.group], value(of));
        }
    }
}

fn each_path(metrics: &Metrics, take: &mut Take<'_>, value: impl Fn(&PathMetrics) -> Value<'static>) {
    metrics.paths.iter().for_each(|path| take(&[&path.name], value(path)));
}

fn each_disk(metrics: &Metrics, take: &mut Take<'_>, value: impl Fn(&crate::transfer::TierStats) -> u64) {
    for disk in &metrics.lower {
        take(&[&disk.tier, &disk.group], Value::Whole(value(&disk.stats)));
    }
}

use Value::{Latencies, Real, Sizes, Whole};

/// Every metric, in the order of the text.
pub(super) const TABLE: &[Row] = rows! {
    Gauge "build_info" ["version"] "", "1, of the version that runs.",
        |m, take| take(&[m.version], Whole(1));
    Gauge "uptime_seconds" [] "seconds", "Since the manager was made.",
        |m, take| take(&[], Real(m.uptime.as_secs_f64()));

    Gauge "tier_blocks" ["tier", "group"] "blocks", "Blocks of the tier.",
        |m, take| each_tier(m, take, |tier| Whole(tier.blocks));
    Gauge "blocks" ["tier", "group", "state"] "blocks", "Blocks by state: free; inactive (registered, held by nobody); active (registered and held); owned (held, to be filled or moved). Inactive and active ones are found by their hash.",
        |m, take| for tier in &m.tiers {
            let states = [("free", tier.free), ("inactive", tier.inactive), ("active", tier.active), ("owned", tier.owned)];
            states.into_iter().for_each(|(state, blocks)| take(&[m.tier_name(tier.tier), &tier.group, state], Whole(blocks)));
        };
    Gauge "available_blocks" ["tier", "group"] "blocks", "Blocks that an allocation can have: free, or held by nobody and not pinned.",
        |m, take| each_tier(m, take, |tier| Whole(tier.available));
    Gauge "inflight_blocks" ["tier", "group"] "blocks", "Blocks that somebody has: handles, flights, who waits in line.",
        |m, take| each_tier(m, take, |tier| Whole(tier.inflight()));
    Gauge "utilisation_ratio" ["tier", "group"] "ratio", "The part of the tier's blocks that somebody has. Free blocks, and those that are only kept to be found again, are no part of it.",
        |m, take| each_tier(m, take, |tier| Real(tier.utilisation()));
    Counter "stored_blocks_total" ["tier", "group"] "blocks", "Blocks registered in the tier.",
        |m, take| each_tier(m, take, |tier| Whole(tier.stored));
    Counter "evicted_blocks_total" ["tier", "group"] "blocks", "Blocks that eviction has taken out of the tier.",
        |m, take| each_tier(m, take, |tier| Whole(tier.evicted));
    Counter "deduplicated_blocks_total" ["tier", "group"] "blocks", "Blocks that were registered under a hash that the tier had.",
        |m, take| each_tier(m, take, |tier| Whole(tier.deduplicated));

    Gauge "reuse_ahead_blocks" ["tier", "group"] "blocks", "Of a tier under the policy reuse: hits that LRU in the same room would not have had, less those that it alone would have had, since the manager was made. Below 0 where LRU would have done better.",
        |m, take| each_reuse(m, take, |of| Real(of.ahead as f64));
    Gauge "reuse_ghost_blocks" ["tier", "group"] "blocks", "Of a tier under the policy reuse: blocks that LRU would have now, and the tier has not.",
        |m, take| each_reuse(m, take, |of| Whole(of.ghosts));
    Gauge "reuse_ghost_allowed_blocks" ["tier", "group"] "blocks", "Of a tier under the policy reuse: how many more blocks may be evicted that LRU would keep; 0 where its guard lets it evict in LRU's order alone.",
        |m, take| each_reuse(m, take, |of| Whole(of.ghosts_allowed));
    Counter "reuse_setbacks_total" ["tier", "group"] "setbacks", "Of a tier under the policy reuse: times that it lost what its guard lets it, and went back to LRU's order until that was made good.",
        |m, take| each_reuse(m, take, |of| Whole(of.setbacks));
    Counter "reuse_unheard_blocks_total" ["tier", "group"] "blocks", "Of a tier under the policy reuse: blocks of which its books have not heard what became of them, since more was told at once than they hold; the guard counts part of them as losses.",
        |m, take| each_reuse(m, take, |of| Whole(of.unheard));

    Counter "lookup_blocks_total" ["group"] "blocks", "Blocks that requests looked up: of a group with a window or a state, those that the whole sequence needs. What the manager looks up for itself, access and resume are not counted.",
        |m, take| for of in &m.groups {
            take(&[&of.group], Whole(of.lookups.blocks));
        };
    Counter "hit_blocks_total" ["group", "tier"] "blocks", "Of the blocks that requests looked up, those found, by the tier that had them; pending: on their way to the device already.",
        |m, take| for of in &m.groups {
            for place in Found::all(m.below()) {
                let name = match place {
                    Found::Tier(tier) => m.tier_name(tier),
                    Found::Pending => "pending",
                };
                take(&[&of.group, name], Whole(of.lookups.found_by(place)));
            }
        };
    Counter "onboarded_blocks_total" ["tier"] "blocks", "Blocks that came up to the device, by the tier that they came from.",
        |m, take| for (tier, blocks) in (Tier::Host.index()..).map(Tier::at).zip(&m.stats.onboarded) {
            take(&[m.tier_name(tier)], Whole(*blocks));
        };
    Counter "offloaded_blocks_total" ["tier"] "blocks", "Blocks that were copied down, by the tier that they came from.",
        |m, take| for (tier, blocks) in [Tier::Device, Tier::Host].into_iter().zip(m.stats.offloaded) {
            take(&[tier.name()], Whole(blocks));
        };
    Counter "dropped_blocks_total" ["tier"] "blocks", "Blocks that left a tier for good, since the tier below had no room or the copy failed.",
        |m, take| for (tier, blocks) in [Tier::Device, Tier::Host].into_iter().zip(m.stats.dropped) {
            take(&[tier.name()], Whole(blocks));
        };
    Counter "refused_blocks_total" ["cause"] "blocks", "Blocks that a caller wanted copied down, and that were refused: no tier below, a full queue, too many behind gates, no room below, shut down.",
        |m, take| for why in Refusal::ALL {
            take(&[why.name()], Whole(m.stats.refused_by(why)));
        };
    Counter "unwritten_blocks_total" [] "blocks", "Blocks that were registered ahead of a pass and withdrawn.",
        |m, take| take(&[], Whole(m.stats.unwritten));
    Counter "hints_cut_blocks_total" [] "blocks", "Blocks of hints that were forgotten at once, being more than the device has.",
        |m, take| take(&[], Whole(m.stats.hints_cut));

    Gauge "queue_transfers" ["path", "class"] "transfers", "Transfers that wait for their turn.",
        |m, take| for path in &m.paths {
            for (class, waiting) in Class::ALL.into_iter().zip(path.queued) {
                take(&[&path.name, class.name()], Whole(waiting));
            }
        };
    Gauge "inflight_transfers" ["path"] "transfers", "Transfers under way.",
        |m, take| each_path(m, take, |path| Whole(path.inflight));
    Gauge "inflight_bytes" ["path"] "bytes", "Bytes of transfers under way.",
        |m, take| each_path(m, take, |path| Whole(path.inflight_bytes));
    Gauge "path_dropping" ["path"] "", "1 while a path does not keep up, and blocks that would go down it are dropped instead, so that no request waits for it; 0 half a minute after the last one. They count as transfer_failures_total of the cause slow.",
        |m, take| each_path(m, take, |path| Whole(u64::from(path.dropping)));
    Counter "transfers_total" ["path"] "transfers", "Transfers that have ended, well or not. A transfer is a block, or some of its layers. What comes from the disk is read into host memory first (disk_to_device; replay's disk → host), and then copied up (host_to_device): it is in both.",
        |m, take| each_path(m, take, |path| Whole(m.stats.path(path.path).transfers));
    Counter "transfer_bytes_total" ["path"] "bytes", "Bytes of transfers that have ended well.",
        |m, take| each_path(m, take, |path| Whole(m.stats.path(path.path).bytes));
    Counter "transfer_busy_seconds_total" ["path"] "seconds", "How long something was under way: bytes by these seconds are the rate of a path that is busy.",
        |m, take| each_path(m, take, |path| Real(m.stats.path(path.path).busy.as_secs_f64()));
    Counter "transfer_failures_total" ["path", "cause"] "transfers", "Transfers that failed, each a miss or tried again, and those called off before they moved (cancelled); by deadline alone, blocks that were not there in time for somebody who waited; by slow alone, blocks that were dropped so that no request waited for their writes.",
        |m, take| for path in &m.paths {
            for cause in Cause::ALL {
                take(&[&path.name, cause.name()], Whole(m.stats.path(path.path).failed_by(cause)));
            }
        };
    Counter "verification_failures_total" ["tier", "cause"] "blocks", "Blocks that were read and were not what had been stored, each a miss: mismatch of a sum in memory; of a disk, no record (empty), another block's (other_hash), one of another length, a payload that is not its record's; after_crash is the same of what a process has left that ended without a shutdown, where it is usual.",
        |m, take| for failures in &m.verification_failures {
            take(&[m.tier_name(failures.tier), failures.cause], Whole(failures.count));
        };
    Histogram "transfer_seconds" ["path"] "seconds", "From the start of a transfer to its end, good or bad.",
        |m, take| for path in &m.paths {
            path.transfer.iter().for_each(|seen| take(&[&path.name], Latencies(seen)));
        };
    Histogram "transfer_size_bytes" ["path"] "bytes", "How large transfers are that have ended well: their sum is transfer_bytes_total.",
        |m, take| for path in m.paths.iter().filter(|path| path.transfer.is_some()) {
            take(&[&path.name], Sizes(&m.stats.path(path.path).sizes));
        };
    Histogram "transfer_wait_seconds" ["path"] "seconds", "From when a transfer could begin but for its turn to its start: up, from when it has its block of the device; down, also while it waits for a block of host memory. What waits for a layer or an iteration of the engine's does not wait here.",
        |m, take| for path in &m.paths {
            path.wait.iter().for_each(|seen| take(&[&path.name], Latencies(seen)));
        };
    Counter "parked_flights_total" [] "flights", "Flights whose blocks a failed device keeps: they are never used again.",
        |m, take| take(&[], Whole(m.stats.parked));

    Histogram "call_seconds" ["call"] "seconds", "From an engine's call to its answer: match; allocate; onboard, of runs that were not all in the device; offload, if it is awaited; release of a list. Those of onboard and offload end when the engine takes the answer, which may have been there before.",
        |m, take| for calls in m.calls.iter().flatten() {
            take(&[calls.call.name()], Latencies(&calls.latency));
        };
    Counter "short_onboardings_total" ["cause"] "requests", "Onboardings that ended short of the run that was found, by the cause of the first block that is missing.",
        |m, take| for cause in Cause::ALL {
            take(&[cause.name()], Whole(m.stats.missed_by(cause)));
        };
    Counter "late_allocations_total" [] "requests", "Allocations that were not served in time.",
        |m, take| take(&[], Whole(m.stats.late));
    Gauge "waiting_requests" [] "requests", "Allocations and runs in line for blocks of the device, and those held back at their tenant's quota.",
        |m, take| take(&[], Whole(m.waiting.requests));
    Gauge "onboarding_requests" [] "requests", "Runs on their way up, each group's by itself.",
        |m, take| take(&[], Whole(m.waiting.onboardings));
    Gauge "aside_transfers" [] "transfers", "Transfers to the device that wait beside a full queue, or for staging.",
        |m, take| take(&[], Whole(m.waiting.aside));
    Gauge "grounded_transfers" [] "transfers", "Copies down that wait for a block of host memory.",
        |m, take| take(&[], Whole(m.waiting.grounded));
    Gauge "gated_transfers" [] "transfers", "Copies down that wait for a layer or an iteration of the engine's.",
        |m, take| take(&[], Whole(m.waiting.gated));
    Gauge "purges" [] "purges", "Purges of tenants under way.",
        |m, take| take(&[], Whole(m.waiting.purges));

    Counter "disk_offered_blocks_total" ["tier", "group"] "blocks", "Blocks that came down to a tier below host memory and were not there.",
        |m, take| each_disk(m, take, |stats| stats.offered);
    Counter "disk_written_blocks_total" ["tier", "group"] "blocks", "Of the blocks offered to the disk tier, those written.",
        |m, take| each_disk(m, take, |stats| stats.written);
    Counter "disk_refused_blocks_total" ["tier", "group", "cause"] "blocks", "Of the blocks offered to the disk tier, those refused: by its admission, by its write budget, or since no volume takes writes just now.",
        |m, take| for disk in &m.lower {
            take(&[&disk.tier, &disk.group, "admission"], Whole(disk.stats.refused_by_admission));
            take(&[&disk.tier, &disk.group, "budget"], Whole(disk.stats.refused_by_budget));
            take(&[&disk.tier, &disk.group, "volume"], Whole(disk.stats.refused_by_volume));
        };
    Gauge "disk_rejected_at_opening" ["tier", "group", "cause"] "records", "What the opening of the disk tier found and did not take: records by what does not hold, superblocks. After a crash some is usual: each is a block that is a miss.",
        |m, take| for disk in &m.lower {
            for (cause, count) in disk.stats.rejected_at_opening.causes() {
                take(&[&disk.tier, &disk.group, cause], Whole(count));
            }
        };
    Gauge "disk_volumes" ["tier", "group", "state"] "volumes", "Volumes by what they do now: serving; writes_paused (no room: they are read, and asked again at growing intervals); away (their device does not answer, and is asked again); retired (out of service until the process starts again, or never opened).",
        |m, take| for disk in &m.lower {
            for (state, count) in disk.stats.volumes.causes() {
                take(&[&disk.tier, &disk.group, state], Whole(count));
            }
        };
    Counter "disk_failed_requests_total" ["tier", "group", "cause"] "requests", "Requests to volumes that failed, by cause: no_room; paused and away (refused unasked, by a volume without room, or whose device does not answer); drive; passing (the machine was short of something); retired.",
        |m, take| for disk in &m.lower {
            for (cause, count) in disk.stats.failed.causes() {
                take(&[&disk.tier, &disk.group, cause], Whole(count));
            }
        };
    Gauge "disk_removed_files" ["tier", "group"] "volumes", "Volumes whose file was removed, or replaced, while they are used: they are served on, and the next start is cold.",
        |m, take| each_disk(m, take, |stats| stats.removed_files);
    Gauge "disk_lost_volumes" ["tier", "group"] "volumes", "Volumes that are out of service until the process starts again.",
        |m, take| each_disk(m, take, |stats| stats.lost_volumes);
    Gauge "disk_parked_slots" ["tier", "group"] "blocks", "Slots that are never used again: of volumes out of service, or of writes that a device never answered.",
        |m, take| each_disk(m, take, |stats| stats.parked + stats.abandoned);

    Gauge "tenant_blocks" ["tenant", "tier"] "blocks", "Blocks that a tenant has, or is about to.",
        |m, take| for tenant in &m.tenants {
            take(&[&tenant.tenant, m.tier_name(tenant.tier)], Whole(tenant.blocks));
        };
    Gauge "tenant_quota_blocks" ["tenant", "tier"] "blocks", "Blocks that a tenant may have, where that is not all of them.",
        |m, take| for tenant in &m.tenants {
            tenant.quota.into_iter().for_each(|quota| take(&[&tenant.tenant, m.tier_name(tenant.tier)], Whole(quota)));
        };

    Gauge "worker_request_active_slots" [] "requests", "Requests that the engine serves; 0 if it does not tell.",
        |m, take| take(&[], Whole(m.worker.request_active_slots));
    Gauge "worker_request_total_slots" [] "requests", "Requests that the engine can serve at once; 0 if it does not tell.",
        |m, take| take(&[], Whole(m.worker.request_total_slots));
    Gauge "worker_kv_active_blocks" [] "blocks", "Blocks of the device that somebody has, of the first group of layers that needs all blocks of a sequence (the first, if none does).",
        |m, take| take(&[], Whole(m.worker.kv_active_blocks));
    Gauge "worker_kv_total_blocks" [] "blocks", "Blocks of the device, of the same group.",
        |m, take| take(&[], Whole(m.worker.kv_total_blocks));
    Gauge "worker_num_requests_waiting" [] "requests", "Requests that wait: in the engine, if it tells; else those that wait in the manager for blocks.",
        |m, take| take(&[], Whole(m.worker.num_requests_waiting));
    Gauge "worker_gpu_cache_usage_perc" [] "ratio", "The part of them that somebody has, from 0 to 1.",
        |m, take| take(&[], Real(m.worker.gpu_cache_usage_perc));
    Gauge "worker_gpu_prefix_cache_hit_rate" [] "ratio", "Blocks found in the device by blocks looked up, of the same group, since the start, from 0 to 1.",
        |m, take| take(&[], Real(m.worker.gpu_prefix_cache_hit_rate));
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_say_kind_and_unit() {
        let mut names = BTreeSet::new();
        for Row { name, kind, unit, labels, help, .. } in TABLE {
            assert!(names.insert(name), "{name} is there twice");
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            assert!(help.ends_with('.') && !help.contains('\n'), "{name}: {help}");
            assert!(!labels.contains(&"le"), "{name}: the text has that label for itself");
            let of_router = name.starts_with("kvstrata_worker_");
            for unit_in_name in ["blocks", "bytes", "seconds", "ratio"] {
                let named = name.trim_end_matches("_total").ends_with(unit_in_name);
                assert!(!named || *unit == unit_in_name, "{name} counts {unit}");
                let needs = ["bytes", "seconds", "ratio"].contains(&unit_in_name) && !of_router;
                assert!(!needs || *unit != unit_in_name || named, "{name} counts {unit}");
            }
        }
    }
}
