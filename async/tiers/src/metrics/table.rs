//! The table of metrics: the only place that names them. The exposition text and the reference come from it.
//!
//! Names follow Prometheus: the unit at the end (`_blocks`, `_bytes`, `_seconds`, `_ratio`), then `_total`
//! for counters. The seven worker metrics keep the names that routers know. Metrics that are divided by one
//! another have the same labels, or one of them has none.

use super::histogram::{LatencyHistogram, SizeHistogram};
use super::snapshot::{Found, Metrics, PathMetrics, ReuseMetrics, TierMetrics};
use super::stats::Refusal;
use crate::tier::Tier;
use crate::transfer::{Cause, Class};

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Never decreases while the process runs.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Buckets, a sum and a count.
    Histogram,
}

impl Kind {
    /// The name in Prometheus.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// The value of a sample.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'m> {
    Whole(u64),
    Real(f64),
    Latencies(&'m LatencyHistogram),
    Sizes(&'m SizeHistogram),
}

/// Receives the samples of a metric: the values of the labels, in the order of [`Row::labels`], and the
/// value.
pub(super) type Take<'t> = dyn FnMut(&[&str], Value<'_>) + 't;

/// A metric.
pub(super) struct Row {
    /// The full name, with the prefix and, for counters, `_total`.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The unit; empty if there is none.
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
    Gauge "build_info" ["version"] "", "Version of kvstrata, as a label; the value is 1.",
        |m, take| take(&[m.version], Whole(1));
    Gauge "uptime_seconds" [] "seconds", "Time since the manager was created.",
        |m, take| take(&[], Real(m.uptime.as_secs_f64()));

    Gauge "tier_blocks" ["tier", "group"] "blocks", "Capacity of the tier in blocks.",
        |m, take| each_tier(m, take, |tier| Whole(tier.blocks));
    Gauge "blocks" ["tier", "group", "state"] "blocks",
        "Blocks by state. free: empty. inactive: registered, without a holder. active: registered and held. \
        owned: held and not registered, to be filled or moved. Inactive and active blocks are found by \
        their hash.",
        |m, take| for tier in &m.tiers {
            let states = [("free", tier.free), ("inactive", tier.inactive), ("active", tier.active), ("owned", tier.owned)];
            states.into_iter().for_each(|(state, blocks)| take(&[m.tier_name(tier.tier), &tier.group, state], Whole(blocks)));
        };
    Gauge "available_blocks" ["tier", "group"] "blocks",
        "Blocks that an allocation can take: free, or without a holder and not pinned.",
        |m, take| each_tier(m, take, |tier| Whole(tier.available));
    Gauge "inflight_blocks" ["tier", "group"] "blocks",
        "Blocks in use by handles, transfers and the wait queue.",
        |m, take| each_tier(m, take, |tier| Whole(tier.inflight()));
    Gauge "utilisation_ratio" ["tier", "group"] "ratio",
        "Fraction of the tier's blocks in use (inflight_blocks / tier_blocks). Free blocks, and blocks that \
        are only kept to be found again, are not in use.",
        |m, take| each_tier(m, take, |tier| Real(tier.utilisation()));
    Counter "stored_blocks_total" ["tier", "group"] "blocks", "Blocks registered in the tier.",
        |m, take| each_tier(m, take, |tier| Whole(tier.stored));
    Counter "evicted_blocks_total" ["tier", "group"] "blocks", "Blocks evicted from the tier.",
        |m, take| each_tier(m, take, |tier| Whole(tier.evicted));
    Counter "deduplicated_blocks_total" ["tier", "group"] "blocks",
        "Blocks registered under a hash that the tier already had.",
        |m, take| each_tier(m, take, |tier| Whole(tier.deduplicated));

    Gauge "reuse_ahead_blocks" ["tier", "group"] "blocks",
        "`reuse` policy only: hits, in blocks, beyond those of an LRU of the same capacity, since the \
        manager was created. Negative if LRU would have had more.",
        |m, take| each_reuse(m, take, |of| Real(of.ahead as f64));
    Gauge "reuse_ghost_blocks" ["tier", "group"] "blocks",
        "`reuse` policy only: blocks that an LRU would hold now and the tier does not.",
        |m, take| each_reuse(m, take, |of| Whole(of.ghosts));
    Gauge "reuse_ghost_allowed_blocks" ["tier", "group"] "blocks",
        "`reuse` policy only: further blocks that it may evict although an LRU would keep them. 0: its \
        guard allows evictions in LRU order only.",
        |m, take| each_reuse(m, take, |of| Whole(of.ghosts_allowed));
    Counter "reuse_setbacks_total" ["tier", "group"] "setbacks",
        "`reuse` policy only: times that it lost as many hits as its guard allows, and followed LRU order \
        until most of its ghosts were gone.",
        |m, take| each_reuse(m, take, |of| Whole(of.setbacks));
    Counter "reuse_unheard_blocks_total" ["tier", "group"] "blocks",
        "`reuse` policy only: block events dropped because the policy's journal was full. The guard counts \
        part of them as losses.",
        |m, take| each_reuse(m, take, |of| Whole(of.unheard));

    Counter "lookup_blocks_total" ["group"] "blocks",
        "Blocks that requests looked up; in a group with a window or a state, the blocks that the whole \
        sequence needs. Look-ups by the manager itself, access and resume are not counted.",
        |m, take| for of in &m.groups {
            take(&[&of.group], Whole(of.lookups.blocks));
        };
    Counter "hit_blocks_total" ["group", "tier"] "blocks",
        "Looked-up blocks that were found, by the tier that had them; pending: already on their way to the \
        device.",
        |m, take| for of in &m.groups {
            for place in Found::all(m.below()) {
                let name = match place {
                    Found::Tier(tier) => m.tier_name(tier),
                    Found::Pending => "pending",
                };
                take(&[&of.group, name], Whole(of.lookups.found_by(place)));
            }
        };
    Counter "onboarded_blocks_total" ["tier"] "blocks",
        "Blocks brought up to the device, by the tier that they came from.",
        |m, take| for (tier, blocks) in (Tier::Host.index()..).map(Tier::at).zip(&m.stats.onboarded) {
            take(&[m.tier_name(tier)], Whole(*blocks));
        };
    Counter "offloaded_blocks_total" ["tier"] "blocks",
        "Blocks copied down, by the tier that they came from.",
        |m, take| for (tier, blocks) in [Tier::Device, Tier::Host].into_iter().zip(m.stats.offloaded) {
            take(&[tier.name()], Whole(blocks));
        };
    Counter "dropped_blocks_total" ["tier"] "blocks",
        "Evicted blocks that were lost, since the tier below had no room or did not keep up, or the copy \
        failed.",
        |m, take| for (tier, blocks) in [Tier::Device, Tier::Host].into_iter().zip(m.stats.dropped) {
            take(&[tier.name()], Whole(blocks));
        };
    Counter "refused_blocks_total" ["cause"] "blocks",
        "Blocks of explicit offloads that were refused. tier: no tier below. queue: transfer.queue is \
        reached. gates: too many are held for a layer or an iteration. room: no room below, the tier does \
        not want the block, or it is gone. closed: the manager was shut down.",
        |m, take| for why in Refusal::ALL {
            take(&[why.name()], Whole(m.stats.refused_by(why)));
        };
    Counter "unwritten_blocks_total" [] "blocks",
        "Blocks registered ahead of a pass and withdrawn: the pass did not write them, or they had been \
        computed before.",
        |m, take| take(&[], Whole(m.stats.unwritten));
    Counter "hints_cut_blocks_total" [] "blocks",
        "Blocks of prefetch hints that were dropped at once, since the hint had more blocks than the \
        device.",
        |m, take| take(&[], Whole(m.stats.hints_cut));

    Gauge "queue_transfers" ["path", "class"] "transfers",
        "Transfers that wait in the path's queue, by urgency class.",
        |m, take| for path in &m.paths {
            for (class, waiting) in Class::ALL.into_iter().zip(path.queued) {
                take(&[&path.name, class.name()], Whole(waiting));
            }
        };
    Gauge "inflight_transfers" ["path"] "transfers", "Transfers in flight.",
        |m, take| each_path(m, take, |path| Whole(path.inflight));
    Gauge "inflight_bytes" ["path"] "bytes", "Bytes of transfers in flight.",
        |m, take| each_path(m, take, |path| Whole(path.inflight_bytes));
    Gauge "path_dropping" ["path"] "",
        "1 while the path does not keep up, and evicted blocks are dropped so that no request waits for it; \
        0 again half a minute after the last one. They count in transfer_failures_total, cause slow.",
        |m, take| each_path(m, take, |path| Whole(u64::from(path.dropping)));
    Counter "transfers_total" ["path"] "transfers",
        "Transfers that ended, successful or not. A transfer is a block, or some of its layers. A block \
        from the disk counts twice: it is read into host memory (disk_to_device; in a replay's report disk \
        → host), then copied up (host_to_device).",
        |m, take| each_path(m, take, |path| Whole(m.stats.path(path.path).transfers));
    Counter "transfer_bytes_total" ["path"] "bytes", "Bytes of successful transfers.",
        |m, take| each_path(m, take, |path| Whole(m.stats.path(path.path).bytes));
    Counter "transfer_busy_seconds_total" ["path"] "seconds",
        "Time with a transfer in flight. Bytes divided by this time are the rate of the path while it is \
        busy.",
        |m, take| each_path(m, take, |path| Real(m.stats.path(path.path).busy.as_secs_f64()));
    Counter "transfer_failures_total" ["path", "cause"] "transfers",
        "Failed transfers, each a miss or retried; cancelled: called off before they moved; buffer: memory \
        of another length than the block's, which stays. Two causes count blocks: deadline, not there in \
        time for a waiting caller; slow, dropped so that no request waited for the write.",
        |m, take| for path in &m.paths {
            for cause in Cause::ALL {
                take(&[&path.name, cause.name()], Whole(m.stats.path(path.path).failed_by(cause)));
            }
        };
    Counter "verification_failures_total" ["tier", "cause"] "blocks",
        "Blocks read with other bytes than stored, each a miss. Memory: mismatch of a checksum. Disk: empty \
        (no record), other_hash (another block), payload (not that of its record), after_crash (the same \
        after a process ended without a shutdown, where it is usual).",
        |m, take| for failures in &m.verification_failures {
            take(&[m.tier_name(failures.tier), failures.cause], Whole(failures.count));
        };
    Histogram "transfer_seconds" ["path"] "seconds",
        "Duration of transfers from start to end, successful or not.",
        |m, take| for path in &m.paths {
            path.transfer.iter().for_each(|seen| take(&[&path.name], Latencies(seen)));
        };
    Histogram "transfer_size_bytes" ["path"] "bytes",
        "Sizes of successful transfers; their sum is transfer_bytes_total.",
        |m, take| for path in m.paths.iter().filter(|path| path.transfer.is_some()) {
            take(&[&path.name], Sizes(&m.stats.path(path.path).sizes));
        };
    Histogram "transfer_wait_seconds" ["path"] "seconds",
        "Time that a transfer waits for its turn before it starts. Up: from when it has its device block. \
        Down: includes the wait for a host block. Excludes the wait for a layer or an iteration of the \
        engine.",
        |m, take| for path in &m.paths {
            path.wait.iter().for_each(|seen| take(&[&path.name], Latencies(seen)));
        };
    Counter "quarantined_transfers_total" [] "transfers",
        "Transfers that a failed device never finished; their blocks are never used again.",
        |m, take| take(&[], Whole(m.stats.quarantined));

    Histogram "call_seconds" ["call"] "seconds",
        "Time from a call of the engine to its answer: match; allocate; onboard (runs not entirely in the \
        device); offload (if awaited); release (of a list). onboard and offload end when the engine takes \
        the answer, which may have been ready earlier.",
        |m, take| for calls in m.calls.iter().flatten() {
            take(&[calls.call.name()], Latencies(&calls.latency));
        };
    Counter "short_onboardings_total" ["cause"] "requests",
        "Onboards that ended short of the run that was found, by the cause of the first missing block; \
        cancelled if they were dropped before.",
        |m, take| for cause in Cause::ALL {
            take(&[cause.name()], Whole(m.stats.missed_by(cause)));
        };
    Counter "late_allocations_total" [] "requests", "Allocations that were not served by their deadline.",
        |m, take| take(&[], Whole(m.stats.late));
    Gauge "waiting_requests" [] "requests",
        "Allocations and onboards that wait in the queue for device blocks, or at the quota of their \
        tenant.",
        |m, take| take(&[], Whole(m.waiting.requests));
    Gauge "onboarding_requests" [] "requests", "Onboards in progress, per group of layers.",
        |m, take| take(&[], Whole(m.waiting.onboardings));
    Gauge "waiting_for_queue_transfers" [] "transfers",
        "Transfers to the device that wait for room in a full queue, or for a staging block.",
        |m, take| take(&[], Whole(m.waiting.waiting_for_queue));
    Gauge "waiting_for_host_transfers" [] "transfers", "Copies down that wait for a host block.",
        |m, take| take(&[], Whole(m.waiting.waiting_for_host));
    Gauge "gated_transfers" [] "transfers",
        "Copies down that wait for a layer or an iteration of the engine.",
        |m, take| take(&[], Whole(m.waiting.gated));
    Gauge "purges" [] "purges", "Purges of tenants in progress.",
        |m, take| take(&[], Whole(m.waiting.purges));

    Counter "disk_offered_blocks_total" ["tier", "group"] "blocks",
        "Blocks offered to the tier below host memory that it did not have.",
        |m, take| each_disk(m, take, |stats| stats.offered);
    Counter "disk_written_blocks_total" ["tier", "group"] "blocks", "Offered blocks that were written.",
        |m, take| each_disk(m, take, |stats| stats.written);
    Counter "disk_refused_blocks_total" ["tier", "group", "cause"] "blocks",
        "Offered blocks that were refused. admission: by disk.admission. budget: by disk.write_budget. \
        volume: no volume takes writes at the moment.",
        |m, take| for disk in &m.lower {
            take(&[&disk.tier, &disk.group, "admission"], Whole(disk.stats.refused_by_admission));
            take(&[&disk.tier, &disk.group, "budget"], Whole(disk.stats.refused_by_budget));
            take(&[&disk.tier, &disk.group, "volume"], Whole(disk.stats.refused_by_volume));
        };
    Gauge "disk_rejected_at_opening" ["tier", "group", "cause"] "records",
        "Records, by the check that they failed, and superblocks that the opening of the tier rejected. \
        After a crash some are usual. Each rejected record is a block that is a miss.",
        |m, take| for disk in &m.lower {
            for (cause, count) in disk.stats.rejected_at_opening.causes() {
                take(&[&disk.tier, &disk.group, cause], Whole(count));
            }
        };
    Gauge "disk_volumes" ["tier", "group", "state"] "volumes",
        "Volumes by state. serving. writes_paused: no room, so reads only, retried at growing intervals. \
        away: the device does not answer, and is retried. retired: out of service until the process \
        restarts, or never opened.",
        |m, take| for disk in &m.lower {
            for (state, count) in disk.stats.volumes.causes() {
                take(&[&disk.tier, &disk.group, state], Whole(count));
            }
        };
    Counter "disk_failed_requests_total" ["tier", "group", "cause"] "requests",
        "Failed requests to volumes. no_room. paused, away: refused without asking a volume that has no \
        room or does not answer. drive. passing: the machine was short of a resource for a moment. \
        retired.",
        |m, take| for disk in &m.lower {
            for (cause, count) in disk.stats.failed.causes() {
                take(&[&disk.tier, &disk.group, cause], Whole(count));
            }
        };
    Gauge "disk_removed_files" ["tier", "group"] "volumes",
        "Volumes with a file that was removed or replaced while in use. They keep serving; the next start \
        finds none of their blocks.",
        |m, take| each_disk(m, take, |stats| stats.removed_files);
    Gauge "disk_lost_volumes" ["tier", "group"] "volumes",
        "Volumes that are out of service until the process restarts.",
        |m, take| each_disk(m, take, |stats| stats.lost_volumes);
    Gauge "disk_quarantined_slots" ["tier", "group"] "blocks",
        "Slots that are never used again: of volumes out of service, or of writes that a device never \
        answered.",
        |m, take| each_disk(m, take, |stats| stats.quarantined + stats.abandoned);

    Gauge "tenant_blocks" ["tenant", "tier"] "blocks", "Blocks that a tenant has, or is about to get.",
        |m, take| for tenant in &m.tenants {
            take(&[&tenant.tenant, m.tier_name(tenant.tier)], Whole(tenant.blocks));
        };
    Gauge "tenant_quota_blocks" ["tenant", "tier"] "blocks",
        "Maximum blocks of a tenant; absent without a limit.",
        |m, take| for tenant in &m.tenants {
            tenant.quota.into_iter().for_each(|quota| take(&[&tenant.tenant, m.tier_name(tenant.tier)], Whole(quota)));
        };

    Gauge "worker_request_active_slots" [] "requests",
        "Requests that the engine serves; 0 if it does not report them.",
        |m, take| take(&[], Whole(m.worker.request_active_slots));
    Gauge "worker_request_total_slots" [] "requests",
        "Requests that the engine can serve at once; 0 if it does not report them.",
        |m, take| take(&[], Whole(m.worker.request_total_slots));
    Gauge "worker_kv_active_blocks" [] "blocks",
        "Device blocks in use, of the first group of layers that needs all blocks of a sequence, or of the \
        first group if none does.",
        |m, take| take(&[], Whole(m.worker.kv_active_blocks));
    Gauge "worker_kv_total_blocks" [] "blocks", "Device blocks of the group of worker_kv_active_blocks.",
        |m, take| take(&[], Whole(m.worker.kv_total_blocks));
    Gauge "worker_num_requests_waiting" [] "requests",
        "Requests that wait in the engine, if it reports them; otherwise requests that wait in the manager \
        for blocks.",
        |m, take| take(&[], Whole(m.worker.num_requests_waiting));
    Gauge "worker_gpu_cache_usage_perc" [] "ratio", "Fraction of worker_kv_total_blocks in use, from 0 to 1.",
        |m, take| take(&[], Real(m.worker.gpu_cache_usage_perc));
    Gauge "worker_gpu_prefix_cache_hit_rate" [] "ratio",
        "Blocks found in the device divided by blocks looked up, in the group of worker_kv_active_blocks, \
        since the start; from 0 to 1.",
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
