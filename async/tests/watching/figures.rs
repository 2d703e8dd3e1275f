//! Figures match the events.

use crate::exposition::{read, value};
use crate::gated::Ground;
use crate::ground::{BYTES, HYBRID, build, compute, hashes, rest, settings};
use kvstrata::OriginalNames;
use kvstrata::config::{ManagerConfig, TenantSettings};
use kvstrata::manager::{KvBlockManager, OffloadOptions, OnboardOptions};
use kvstrata::metrics::{Call, Found, Requests, SIZES, TierMetrics};
use kvstrata::tier::Tier;
use kvstrata::transfer::Path;
use kvstrata_core::SequenceHash;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

/// A manager of three tiers and a tenant, with transfers on every path.
pub async fn busy() -> KvBlockManager {
    let acme = TenantSettings { name: "ac\"me\\".to_owned(), device: Some(0.5), ..TenantSettings::default() };
    let manager = build(settings(8, 8).disk_blocks(64).tenants([acme]).metrics_tenants(1));
    let group = manager.default_group();
    for sequence in 1..=6 {
        drop(compute(&manager, &hashes(sequence, 4), None).await);
        rest(&manager).await;
    }
    let last = group.match_device(&hashes(6, 4));
    let _ = group.offload(&last, OffloadOptions::default()).await;
    drop(last);
    rest(&manager).await;
    for sequence in 1..=3 {
        drop(group.restore_to_gpu(&hashes(sequence, 4)).await.expect("it fits"));
        rest(&manager).await;
    }
    let tenant = manager.tenant("ac\"me\\").expect("a name");
    manager.tenant("who comes later").expect("a name");
    drop(compute(&tenant, &hashes(9, 2), None).await);
    rest(&manager).await;
    manager
}

#[tokio::test]
async fn lookups_of_requests_are_counted_in_blocks() {
    let manager = build(settings(4, 16));
    let asked = || manager.metrics().groups[0].lookups.clone();
    drop(compute(&manager, &hashes(1, 4), None).await);
    assert_eq!(asked().blocks, 0, "to register is to look up nothing");
    assert_eq!(manager.default_group().match_prefix(&hashes(1, 6)).len(), 4);
    assert_eq!((asked().blocks, asked().found), (6, vec![4, 0, 0, 0]));
    assert_eq!(manager.default_group().match_device(&hashes(1, 2)).len(), 2);
    assert_eq!((asked().blocks, asked().found), (8, vec![6, 0, 0, 0]));

    assert!(manager.default_group().touch(hashes(1, 1)[0]));
    let group = manager.group(0).expect("one");
    assert!(group.touch(hashes(1, 1)[0]));
    assert_eq!(asked().blocks, 8, "an access is no look-up");
    let held = manager.default_group().match_device(&hashes(1, 4));
    let before = asked();
    let none = manager.default_group().try_allocate(0).expect("never refused");
    let preempted = manager.default_group().preempt(held, none, 7).expect("of one manager");
    rest(&manager).await;
    drop(manager.default_group().resume(preempted, OnboardOptions::default()).await.expect("it fits"));
    assert_eq!(asked(), before, "what comes back was asked for before");

    drop(manager.default_group().allocate(4).await.expect("blocks"));
    rest(&manager).await;
    let before = asked();
    drop(manager.default_group().restore_to_gpu(&hashes(1, 4)).await.expect("it fits"));
    let after = asked();
    assert_eq!(after.blocks - before.blocks, 4, "matched and brought up is asked for once");
    assert_eq!(after.found_by(Found::Tier(Tier::Host)) - before.found_by(Found::Tier(Tier::Host)), 4);
    assert!(after.hit_ratio() <= 1.0);

    let found = group.match_prefix(&hashes(1, 4));
    assert_eq!((found.len(), asked().blocks - after.blocks), (4, 4));
    let groups = manager.match_groups(&[&hashes(1, 5)]);
    assert_eq!((groups.tokens(), asked().blocks - after.blocks), (4 * group.page_size(), 9));
    assert_eq!(asked().found_by(Found::Tier(Tier::Device)) - after.found_by(Found::Tier(Tier::Device)), 8);
}

#[tokio::test]
async fn block_in_flight_for_another_is_found_as_pending() {
    let manager = build(settings(4, 16));
    let group = manager.default_group();
    drop(compute(&manager, &hashes(1, 4), None).await);
    drop(group.allocate(4).await.expect("blocks"));
    rest(&manager).await;
    let held = group.allocate(4).await.expect("blocks");
    let up = group.onboard(group.match_prefix(&hashes(1, 4)), OnboardOptions::default()).expect("it fits");
    let before = manager.metrics().groups[0].lookups.clone();
    assert_eq!(group.match_prefix(&hashes(1, 4)).pending(), 4, "no block is free for it");
    let after = manager.metrics().groups[0].lookups.clone();
    assert_eq!(after.found_by(Found::Pending) - before.found_by(Found::Pending), 4);
    drop(held);
    assert_eq!(up.await.blocks.len(), 4);
}

#[tokio::test]
async fn free_and_inactive_blocks_are_no_utilisation() {
    let manager = build(settings(4, 16));
    let of_device = || manager.metrics().tiers.swap_remove(0);
    let states = || {
        let of = of_device();
        [of.free, of.inactive, of.active, of.owned]
    };
    let empty = manager.metrics();
    assert_eq!((empty.available_blocks, empty.inflight_blocks, empty.utilisation), (4, 0, 0.0));
    assert_eq!((states(), of_device().fill()), ([4, 0, 0, 0], 0.0));
    let filling = manager.default_group().allocate(1).await.expect("a block");
    assert_eq!((states(), manager.metrics().utilisation, of_device().fill()), ([3, 0, 0, 1], 0.25, 0.0));
    drop(filling);
    assert_eq!((states(), manager.metrics().utilisation), ([4, 0, 0, 0], 0.0));
    let held = compute(&manager, &hashes(1, 2), None).await;
    assert_eq!((states(), manager.metrics().utilisation, of_device().fill()), ([2, 0, 2, 0], 0.5, 0.5));
    drop(held);
    let kept = manager.metrics();
    assert_eq!((states(), of_device().fill()), ([2, 2, 0, 0], 0.5));
    assert_eq!((kept.available_blocks, kept.inflight_blocks, kept.utilisation), (4, 0, 0.0));
    let worker = kept.worker;
    assert_eq!((worker.kv_active_blocks, worker.kv_total_blocks, worker.gpu_cache_usage_perc), (0, 4, 0.0));
}

#[tokio::test]
async fn transfers_and_calls_are_in_their_histograms() {
    let manager = busy().await;
    let metrics = manager.metrics();
    for of in &metrics.paths {
        let (wait, transfer) = (of.wait.expect("counted"), of.transfer.expect("counted"));
        let stats = metrics.stats.path(of.path);
        let (transfers, sizes) = (stats.transfers, stats.sizes);
        assert!(transfers > 0, "{}", of.path);
        // None has failed, and each is smaller than the first bucket's end.
        assert!(BYTES as u64 <= SIZES[0]);
        assert_eq!((sizes.buckets[0], sizes.buckets.iter().sum()), (transfers, transfers), "{}", of.path);
        assert_eq!((sizes.sum, stats.bytes), (stats.bytes, transfers * BYTES as u64), "{}", of.path);
        assert_eq!((wait.count(), transfer.count()), (transfers, transfers), "{}", of.path);
        assert!(!transfer.sum.is_zero(), "{}", of.path);
    }
    let calls = metrics.calls.expect("counted");
    let count = |call: Call| calls[call as usize].latency.count();
    // See `busy`: seven lists are computed; one is matched alone, three are brought up.
    assert_eq!(Call::ALL.map(count), [4, 7, 3, 1, 11]);
    let under_way = metrics.paths.iter().map(|of| (of.queued, of.inflight, of.inflight_bytes));
    assert_eq!(under_way.collect::<Vec<_>>(), [([0; 4], 0, 0); 4]);
    manager.shutdown().await;
}

/// One transfer moves, one is in its queue, and two are beside that. Each waits from the moment it has
/// its block, and is in a figure as long as it waits.
#[tokio::test]
async fn transfer_beside_a_full_queue_counts_as_waiting() {
    let one_at_a_time = settings(4, 16).transfer_queue(1).transfer_in_flight(BYTES as u64);
    let Ground { manager, mover, .. } = Ground::of(one_at_a_time, 4, 16);
    let group = manager.default_group();
    let of = hashes(1, 4);
    for part in [&of[..2], &of[2..]] {
        drop(compute(&manager, part, None).await);
        drop(group.allocate(4).await.expect("blocks"));
        rest(&manager).await;
    }
    let figures = || {
        let metrics = manager.metrics();
        let families = read(&metrics.to_prometheus());
        assert_eq!(value(&families, "kvstrata_aside_transfers", &[]), metrics.waiting.aside as f64);
        let up = &metrics.paths[Path::HostToDevice.index()];
        (metrics.waiting.aside, up.queued.iter().sum::<u64>(), up.inflight, up.wait.expect("counted"))
    };
    mover.close();
    let up = group.onboard(group.match_prefix(&of), OnboardOptions::default()).expect("it fits");
    let asked = Instant::now();
    let (aside, queued, inflight, before) = figures();
    assert_eq!((aside, queued, inflight, before.count()), (2, 1, 1, 1));
    // For as long as some figures take; three transfers have waited for that time.
    (0..100).for_each(|_| _ = figures());
    let waited = asked.elapsed();
    mover.open();
    assert_eq!(up.await.blocks.len(), 4);
    rest(&manager).await;
    let (aside, queued, inflight, after) = figures();
    assert_eq!((aside, queued, inflight, after.count()), (0, 0, 0, 4));
    assert!(after.sum - before.sum >= 3 * waited, "{:?} of {waited:?}", after.sum - before.sum);
}

#[tokio::test]
async fn path_is_busy_before_the_first_landing() {
    let Ground { manager, mover, .. } = Ground::new(4, 16);
    let held = compute(&manager, &hashes(1, 2), None).await;
    mover.close();
    let offload = manager.default_group().offload(&held, OffloadOptions::default());
    let now = manager.metrics();
    let down = &now.paths[Path::DeviceToHost.index()];
    assert_eq!((down.inflight, down.inflight_bytes), (2, 2 * BYTES as u64));
    assert!(!now.stats.path(Path::DeviceToHost).busy.is_zero());
    assert!(manager.metrics().stats.path(Path::DeviceToHost).busy >= now.stats.path(Path::DeviceToHost).busy);
    mover.open();
    assert_eq!(offload.await.copied, 2);
}

#[tokio::test]
async fn histograms_switched_off_leave_other_figures() {
    let manager = build(settings(4, 16).metrics_histograms(false));
    drop(compute(&manager, &hashes(1, 4), None).await);
    drop(manager.default_group().allocate(4).await.expect("blocks"));
    rest(&manager).await;
    let metrics = manager.metrics();
    assert_eq!(metrics.calls, None);
    assert!(metrics.paths.iter().all(|of| of.wait.is_none() && of.transfer.is_none()));
    let families = read(&metrics.to_prometheus());
    assert!(families.values().all(|family| family.kind != "histogram"));
    assert_eq!(value(&families, "kvstrata_transfers_total", &[("path", "device_to_host")]), 4.0);
}

#[tokio::test]
async fn figures_have_tenants_worker_and_disk() {
    let manager = busy().await;
    let metrics = manager.metrics();
    let of = |tier| metrics.tenants.iter().find(|of| of.tier == tier).expect("it has a name");
    assert_eq!((of(Tier::Device).blocks, of(Tier::Device).quota), (2, Some(4)));
    assert_eq!((of(Tier::Host).blocks, of(Tier::Host).quota), (0, None));
    assert!(metrics.tenants.iter().all(|of| of.tenant == "ac\"me\\"), "one has figures, the first");
    let disk = &metrics.lower[0].stats;
    assert_eq!(disk.written * BYTES as u64, metrics.stats.path(Path::HOST_TO_DISK).bytes);
    assert!(disk.written > 0 && disk.offered >= disk.written);
    assert!(metrics.verification_failures.iter().all(|of| of.count == 0));
    let worker = metrics.worker;
    assert_eq!((worker.request_total_slots, worker.num_requests_waiting), (0, 0), "nobody has told");
    let lookups = metrics.groups[0].lookups.clone();
    let found = lookups.found_by(Found::Tier(Tier::Device)) as f64 / lookups.blocks as f64;
    assert_eq!(worker.gpu_prefix_cache_hit_rate, found);
    manager.tell_requests(Requests { active_slots: 3, total_slots: 8, waiting: 5 });
    let worker = manager.metrics().worker;
    let told = (worker.request_active_slots, worker.request_total_slots, worker.num_requests_waiting);
    assert_eq!(told, (3, 8, 5));
    manager.shutdown().await;
}

/// Eight conversations in turn, more than the device has room for, and between two of them blocks that are
/// never asked for again. The policy gets ahead of LRU, and the blocks that LRU would have are ghosts.
#[tokio::test]
async fn figures_compare_reuse_with_lru() {
    let manager = build(settings(200, 0));
    let hash = |number: u64| u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let (mut hits, mut with_ghosts) = (0, 0);
    for round in 0..8_000u64 {
        let of = if round.is_multiple_of(4) { round / 4 % 8 } else { 100 + round };
        let hashes: Vec<SequenceHash> =
            (0..10).map(|block| SequenceHash::from_u128(hash(of * 10 + block))).collect();
        let found = manager.default_group().match_device(&hashes);
        hits += found.len();
        let blocks =
            manager.default_group().try_allocate(hashes.len() - found.len()).expect("nobody has any");
        drop(blocks.register(&hashes[found.len()..], Some(&found)).expect("they are new"));
        if round.is_multiple_of(256) {
            let device = manager.metrics().tiers[0].reuse.expect("the device's default");
            with_ghosts += u64::from(device.ghosts > 0 && device.ghosts_allowed > 0);
        }
    }
    let metrics = manager.metrics();
    let reuse = metrics.tiers[0].reuse.expect("the device's default");
    // LRU has no hit at all here.
    assert!(hits > 5_000 && reuse.ahead > hits as i64 / 2, "{hits} hits, {reuse:?}");
    assert!(with_ghosts > 10, "{with_ghosts}");
    let families = read(&metrics.to_prometheus());
    let told =
        |name: &str| value(&families, name, &[("tier", "device"), ("group", &metrics.groups[0].group)]);
    for (name, value) in [
        ("kvstrata_reuse_ahead_blocks", reuse.ahead as f64),
        ("kvstrata_reuse_ghost_blocks", reuse.ghosts as f64),
        ("kvstrata_reuse_ghost_allowed_blocks", reuse.ghosts_allowed as f64),
        ("kvstrata_reuse_setbacks_total", reuse.setbacks as f64),
        ("kvstrata_reuse_unheard_blocks_total", reuse.unheard as f64),
    ] {
        assert!((told(name) - value).abs() < 0.5, "{name}: {} is not {value}", told(name));
    }
}

#[tokio::test]
async fn waiting_requests_are_counted_without_the_engine() {
    let manager = build(settings(4, 0));
    let held = manager.default_group().allocate(4).await.expect("blocks");
    let waits = tokio::spawn({
        let manager = manager.clone();
        async move { manager.default_group().allocate(2).await.map(|blocks| blocks.len()).ok() }
    });
    while manager.metrics().waiting.requests == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(manager.metrics().worker.num_requests_waiting, 1);
    drop(held);
    assert_eq!(waits.await.expect("no panic"), Some(2));
    assert_eq!(manager.metrics().waiting.requests, 0);
}

#[tokio::test]
async fn tenant_names_are_shown_on_demand_and_cut() {
    let long = |end: &str| format!("{}{end}", "ä".repeat(1 << 16));
    let seen = |shown| {
        let manager = build(settings(4, 16).metrics_tenants(shown));
        for name in ["short", &long("1"), &long("2"), "one too many"] {
            manager.tenant(name).expect("a name");
        }
        let text = manager.metrics().to_prometheus();
        let mut names: Vec<String> = manager.metrics().tenants.into_iter().map(|of| of.tenant).collect();
        names.dedup();
        (text, names)
    };
    let (text, names) = seen(0);
    assert!(names.is_empty() && !text.contains("tenant=\"") && text.len() < 64 << 10);
    let (text, names) = seen(3);
    let families = read(&text);
    assert_eq!((names.len(), names[0].as_str()), (3, "short"));
    assert!(names[1..].iter().all(|name| name.chars().count() == 64 + 1 + 16), "{names:?}");
    for name in &names {
        assert_eq!(value(&families, "kvstrata_tenant_blocks", &[("tenant", name), ("tier", "host")]), 0.0);
    }
}

/// A model of two groups.
fn hybrid() -> KvBlockManager {
    build(ManagerConfig::builder().toml("hybrid.toml", format!("{HYBRID}[geometry]\nlayers = 2")))
}

#[tokio::test]
async fn window_lookups_count_blocks_that_the_sequence_needs() {
    let manager = hybrid();
    let of = |name: &str| {
        let metrics = manager.metrics();
        let of = metrics.groups.iter().find(|of| of.group == name).expect("a group of that name");
        (of.lookups.blocks, of.lookups.found_by(Found::Tier(Tier::Device)))
    };
    let [full, window] = [hashes(1, 10), hashes(2, 10)];
    for (group, hashes) in [(0, &full[..4]), (1, &window[..4])] {
        let blocks = manager.group(group).expect("a group").allocate(hashes.len()).await.expect("blocks");
        drop(blocks.register(hashes, None).expect("registered"));
    }
    let found = manager.match_groups(&[&full, &window]);
    assert_eq!(found.tokens(), 4 * 16);
    assert_eq!(found.groups()[1].found.len(), 2, "held, for so many tokens");
    assert_eq!((of("full"), of("window")), ((10, 4), (2, 0)), "the last two of ten are not those");
    let _ = manager.match_groups(&[&full[..5], &window[..5]]);
    assert_eq!((of("full"), of("window")), ((15, 8), (4, 1)), "one of the last two of five");
    let _ = manager.match_groups(&[&full[..4], &window[..4]]);
    assert_eq!((of("full"), of("window")), ((19, 12), (6, 3)));
    // A block of the window is not worth one of all tokens, and a router means pages of all tokens.
    drop(found);
    let held = manager.allocate_groups(&[3, 9]).await.expect("blocks");
    let metrics = manager.metrics();
    let full = &metrics.tiers[0];
    assert_eq!((full.tier, full.group.as_str(), full.inflight()), (Tier::Device, "full", 3));
    let worker = metrics.worker;
    assert_eq!((worker.kv_active_blocks, worker.kv_total_blocks), (3, full.blocks));
    assert_eq!(worker.gpu_cache_usage_perc, full.utilisation());
    assert_eq!(worker.gpu_prefix_cache_hit_rate, 12.0 / 19.0);
    drop(held);
    let families = read(&metrics.to_prometheus());
    for (group, asked, hits) in [("full", 19.0, 12.0), ("window", 6.0, 3.0)] {
        assert_eq!(value(&families, "kvstrata_lookup_blocks_total", &[("group", group)]), asked);
        let labels = [("group", group), ("tier", "device")];
        assert_eq!(value(&families, "kvstrata_hit_blocks_total", &labels), hits);
    }
}

/// A scraper never sees a counter go back, whatever begins and ends meanwhile.
#[test]
fn counters_only_grow() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.expect("threads");
    let manager = runtime.block_on(async { build(settings(8, 8).disk_blocks(64)) });
    let scrapes = AtomicUsize::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let scraper = scope.spawn(|| {
            let mut last = BTreeMap::<String, f64>::new();
            while !over.load(Relaxed) {
                for (name, family) in read(&manager.metrics().to_prometheus()) {
                    for sample in family.samples.into_iter().filter(|_| family.kind != "gauge") {
                        let name = format!("{name} {} {:?}", sample.name, sample.labels);
                        let before = last.insert(name.clone(), sample.value).unwrap_or(0.0);
                        assert!(sample.value >= before, "{name} went from {before} to {}", sample.value);
                    }
                }
                scrapes.fetch_add(1, Relaxed);
            }
        });
        // The path is busy and idle once in each round.
        let mut sequence = 0;
        while (scrapes.load(Relaxed) < 300 || sequence < 20) && !scraper.is_finished() {
            sequence += 1;
            runtime.block_on(async {
                let held = compute(&manager, &hashes(sequence, 4), None).await;
                let _ = manager.default_group().offload(&held, OffloadOptions::default()).await;
                drop(held);
                // Others have come since, so these come from below.
                let before = hashes(sequence.saturating_sub(3), 4);
                drop(manager.default_group().restore_to_gpu(&before).await.expect("it fits"));
            });
        }
        over.store(true, Relaxed);
        scraper.join().expect("they grow");
    });
    let stats = manager.stats();
    for path in Path::OF_SETTINGS {
        assert!(stats.path(path).bytes > 0, "{path:?}");
    }
    runtime.block_on(async { manager.shutdown().await });
}

/// A run of two groups is one request, wherever it waits and however it ends.
#[tokio::test]
async fn request_of_several_groups_is_counted_once() {
    let manager = hybrid();
    let lists = [hashes(1, 4), hashes(2, 4)];
    for (group, hashes) in (0..).zip(&lists) {
        let blocks = manager.group(group).expect("a group").allocate(hashes.len()).await.expect("blocks");
        let blocks = blocks.register(hashes, None).expect("registered");
        assert_eq!(manager.default_group().offload(&blocks, OffloadOptions::default()).await.copied, 4);
    }
    let of_device = |of: &TierMetrics| (of.tier == Tier::Device).then_some(of.blocks as usize);
    let all: Vec<usize> = manager.metrics().tiers.iter().filter_map(of_device).collect();
    let everything = || manager.allocate_groups(&all);
    let onboard = || {
        let found = manager.match_groups(&[&lists[0], &lists[1]]);
        assert!(found.groups().iter().all(|group| group.found.in_tier(Tier::Host) > 0), "{found:?}");
        manager.onboard_groups(found, OnboardOptions::default()).expect("it fits")
    };
    let figures = || {
        let metrics = manager.metrics();
        let calls = metrics.calls.expect("counted");
        let short: u64 = metrics.stats.missed.iter().sum();
        (metrics.waiting.requests, calls[Call::Onboard as usize].latency.count(), short)
    };
    let held = everything().await.expect("blocks");
    let up = onboard();
    assert_eq!(figures(), (1, 0, 0));
    drop(up);
    assert_eq!(figures(), (0, 0, 1), "dropped before its end");
    let up = onboard();
    drop(held);
    assert_eq!(up.await.tokens, 4 * 16);
    assert_eq!(figures(), (0, 1, 1));
    assert_eq!(manager.metrics().waiting.onboardings, 0);
}
