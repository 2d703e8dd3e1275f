//! Collects the manager's figures (see [`crate::metrics`]).

use crate::engine::inner::Inner;
use crate::engine::needs::Needs;
use crate::metrics::{
    Call, CallMetrics, Found, GroupMetrics, LowerMetrics, ManagerStats, Metrics, PathMetrics, TenantMetrics,
    TierMetrics, VerificationFailures, Waiting, WorkerMetrics,
};
use crate::state::{Entry, Waiter};
use crate::tier::Tier;
use crate::transfer::{Cause, Class, Path, RejectedReads};
use kvstrata_core::TenantId;
use kvstrata_ffi::disk::OwnerId;
use std::collections::HashSet;

/// Most characters of a tenant's name in a label.
const MOST_OF_NAME: usize = 64;

/// Returns all figures.
pub(crate) fn metrics(inner: &Inner) -> Metrics {
    let stats = inner.counts.snapshot(inner.elapsed());
    let (waiting, paths) = waiting(inner);
    let tiers: Vec<TierMetrics> = (0..inner.groups.len()).flat_map(|group| tiers(inner, group)).collect();
    let of_device = |figure: fn(&TierMetrics) -> u64| {
        tiers.iter().filter(|of| of.tier == Tier::Device).map(figure).sum::<u64>()
    };
    let [blocks, available_blocks, inflight_blocks] =
        [|of: &TierMetrics| of.blocks, |of: &TierMetrics| of.available, TierMetrics::inflight].map(of_device);
    let lower = inner.groups.iter().flat_map(|group| group.lower.iter().map(move |lower| (group, lower)));
    let lower = lower.filter(|_| !inner.is_inherited()).filter_map(|(group, lower)| {
        let stats = lower.port.stats()?;
        Some(LowerMetrics { tier: lower.name.clone(), group: group.name.clone(), stats })
    });
    let lower: Vec<LowerMetrics> = lower.collect();
    let groups: Vec<GroupMetrics> = (inner.groups.iter().enumerate())
        .map(|(index, group)| GroupMetrics { group: group.name.clone(), lookups: inner.watch.lookups(index) })
        .collect();
    let utilisation = crate::metrics::ratio(inflight_blocks, blocks);
    Metrics {
        version: env!("CARGO_PKG_VERSION"),
        uptime: inner.elapsed(),
        available_blocks,
        inflight_blocks,
        utilisation,
        tier_names: inner.tier_names.all().to_vec(),
        verification_failures: verification_failures(inner, &stats, &lower),
        stats,
        paths,
        calls: calls(inner),
        lower,
        waiting,
        tenants: tenants(inner),
        worker: worker(inner, waiting.requests, &tiers, &groups),
        tiers,
        groups,
    }
}

fn tiers(inner: &Inner, group: usize) -> impl Iterator<Item = TierMetrics> {
    let group = &inner.groups[group];
    inner.tiers().filter_map(move |tier| {
        let pool = group.pool(tier)?;
        let (stats, blocks) = (pool.stats(), pool.capacity() as u64);
        // The counts are read one after the other while others change them. Excess is cut off, so that
        // the states add up to the whole.
        let free = (pool.free() as u64).min(blocks);
        let inactive = (pool.inactive() as u64).min(blocks - free);
        let registered = stats.stored.saturating_sub(stats.removed);
        let active = registered.saturating_sub(inactive).min(blocks - free - inactive);
        Some(TierMetrics {
            tier,
            group: group.name.clone(),
            blocks,
            free,
            inactive,
            active,
            owned: blocks - free - inactive - active,
            available: (pool.available() as u64).min(free + inactive),
            stored: stats.stored,
            evicted: stats.evicted,
            deduplicated: stats.deduplicated,
            reuse: pool.reuse_stats().map(Into::into),
        })
    })
}

/// Returns waiting work and paths. Counters are read first, and queues under the lock, by one pass over
/// the waiters.
fn waiting(inner: &Inner) -> (Waiting, Vec<PathMetrics>) {
    let paths = Path::all(inner.tier_names.below()).map(|path| (path, inner.watch.path(path)));
    if inner.is_inherited() {
        // A thread of the parent may have held the lock at the fork.
        let paths = paths.map(|(path, [wait, transfer])| PathMetrics {
            path,
            name: inner.tier_names.path(path),
            queued: [0; Class::ALL.len()],
            inflight: 0,
            inflight_bytes: 0,
            dropping: false,
            wait,
            transfer,
        });
        return (Waiting::default(), paths.collect());
    }
    let paths: Vec<_> = paths.collect();
    let traffic = inner.look();
    let paths = paths.into_iter().map(|(path, [wait, transfer])| {
        let queue = &traffic.queues[path];
        PathMetrics {
            path,
            name: inner.tier_names.path(path),
            queued: Class::ALL.map(|class| u64::from(queue.waiting_of(class))),
            inflight: u64::from(queue.in_flight()),
            inflight_bytes: queue.in_flight_bytes(),
            dropping: traffic.paces[path.index()].is_dropping(),
            wait,
            transfer,
        }
    });
    let paths: Vec<PathMetrics> = paths.collect();
    let mut waiting = Waiting {
        requests: traffic.waiting_for_quota.requests() as u64,
        onboardings: traffic.onboardings.iter().filter(|of| !of.is_done()).count() as u64,
        waiting_for_queue: traffic.ups.iter().filter(|(_, up)| up.waits_for_queue()).count() as u64,
        waiting_for_host: traffic.groups.iter().map(|of| of.waiting_for_host.len()).sum::<usize>() as u64,
        gated: traffic.iterations.waiters().filter(|waiter: &&Waiter| waiter.marked() == 0).count() as u64,
        purges: traffic.purges.len() as u64,
    };
    let in_queue = traffic.groups.iter().flat_map(|of| of.queue.iter()).map(Entry::request);
    let in_queue: Vec<u64> = in_queue.collect();
    drop(traffic);
    // A request in the queues of several groups waits once.
    waiting.requests += in_queue.into_iter().collect::<HashSet<u64>>().len() as u64;
    (waiting, paths)
}

fn calls(inner: &Inner) -> Option<[CallMetrics; Call::ALL.len()]> {
    let of = |call| Some(CallMetrics { call, latency: inner.watch.call(call)? });
    let all: Option<Vec<CallMetrics>> = Call::ALL.into_iter().map(of).collect();
    all?.try_into().ok()
}

/// Returns sums that differ in memory, and reads that disks rejected, by cause where their ports tell.
fn verification_failures(
    inner: &Inner,
    stats: &ManagerStats,
    lower: &[LowerMetrics],
) -> Vec<VerificationFailures> {
    let by_path = |tier, cause: Cause| {
        let paths = Path::all(inner.tier_names.below()).filter(|path| path.from() == tier);
        paths.map(|path| stats.path(path).failed_by(cause)).sum()
    };
    let of =
        |tier, cause: Cause| VerificationFailures { tier, cause: cause.name(), count: by_path(tier, cause) };
    let mut all: Vec<_> = inner.tiers().map(|tier| of(tier, Cause::Mismatch)).collect();
    for tier in inner.tiers().skip(Tier::Below(0).index()) {
        let of_tier = || lower.iter().filter(|of| of.tier == inner.tier_names.tier(tier));
        if of_tier().next().is_none() {
            all.push(of(tier, Cause::Rejected));
            continue;
        }
        for (index, (cause, _)) in RejectedReads::default().causes().into_iter().enumerate() {
            let count = of_tier().map(|of| of.stats.rejected_reads.causes()[index].1).sum();
            all.push(VerificationFailures { tier, cause, count });
        }
    }
    all
}

fn tenants(inner: &Inner) -> Vec<TenantMetrics> {
    let mut all = Vec::new();
    // Numbers follow the order of the settings, then of arrival.
    let shown = |number: &TenantId| u32::from(number.0) <= inner.rules.tenants_shown;
    if inner.rules.tenants_shown == 0 || inner.is_inherited() {
        return all;
    }
    for (name, number) in inner.tenants.names.known().into_iter().filter(|(_, number)| shown(number)) {
        for tier in inner.tiers() {
            if inner.groups.iter().any(|group| group.owners(tier).is_some()) {
                let used = inner.usage(number, tier);
                all.push(TenantMetrics {
                    tenant: label(&name, inner.tenants.names.id(number)),
                    tier,
                    blocks: used.blocks as u64,
                    quota: used.quota.map(|quota| quota as u64),
                });
            }
        }
    }
    all
}

/// Returns a name, or the beginning of a long name with the id that tells it from others.
fn label(name: &str, id: OwnerId) -> String {
    match name.char_indices().nth(MOST_OF_NAME) {
        None => name.to_owned(),
        Some((end, _)) => format!("{}…{:016x}", &name[..end], id.0),
    }
}

/// Returns a worker's figures for one group. A router counts pages of prompts, so this is the first
/// group that needs all pages, or the first group if none does.
fn worker(inner: &Inner, in_queue: u64, tiers: &[TierMetrics], groups: &[GroupMetrics]) -> WorkerMetrics {
    let told = inner.watch.told();
    let requests = told.unwrap_or_default();
    let group =
        inner.groups.iter().position(|group| matches!(group.needs, Needs::All { .. })).unwrap_or_default();
    let device = tiers.iter().filter(|of| of.tier == Tier::Device).nth(group);
    let lookups = groups.get(group).map(|of| of.lookups.clone()).unwrap_or_default();
    WorkerMetrics {
        request_active_slots: requests.active_slots,
        request_total_slots: requests.total_slots,
        kv_active_blocks: device.map_or(0, TierMetrics::inflight),
        kv_total_blocks: device.map_or(0, |of| of.blocks),
        num_requests_waiting: told.map_or(in_queue, |told| told.waiting),
        gpu_cache_usage_perc: device.map_or(0.0, TierMetrics::utilisation),
        gpu_prefix_cache_hit_rate: crate::metrics::ratio(
            lookups.found_by(Found::Tier(Tier::Device)),
            lookups.blocks,
        ),
    }
}

#[cfg(test)]
mod tests {
    use crate::ground::Ground;
    use crate::transfer::Path;
    use kvstrata_testing::virtual_time;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    /// Counters, latencies and current busy times are read while another thread makes a change.
    #[test]
    fn counts_are_read_beside_the_lock() {
        virtual_time::run(async {
            let manager = Ground { host: 8, ..Ground::new(8) }.tiers();
            // By then the attendant has made its first change, which finds no path busy.
            virtual_time::pass(Duration::from_secs(1)).await;
            manager.inner().counts.busy(Path::HostToDevice, true, || Duration::ZERO);
            let changing = manager.inner().look();
            let (tell, told) = mpsc::channel();
            let reader = manager.clone();
            thread::spawn(move || {
                // This thread has no virtual clock.
                let stats = reader.inner().counts.snapshot(Duration::from_secs(1));
                let busy = !stats.path(Path::HostToDevice).busy.is_zero();
                let counted =
                    reader.inner().watch.path(Path::HostToDevice).map(|seen| seen.map(|seen| seen.count()));
                tell.send((busy, counted)).is_ok()
            });
            let told = told.recv_timeout(Duration::from_secs(10));
            assert_eq!(told, Ok((true, [Some(0), Some(0)])), "it waits for the lock, if it was not told");
            drop(changing);
        });
    }
}
