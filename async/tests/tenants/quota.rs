//! A tenant's quota of each tier, and the blocks that it gives up for new ones.

use crate::gated::Ground;
use crate::ground::{build, check, compute, rest, settings};
use crate::sequence;
use kvstrata::OriginalNames;
use kvstrata::config::{TenantSettings, WriteMode};
use kvstrata::manager::{AllocateError, OffloadOptions, OnboardError, OnboardOptions, Tiers};
use kvstrata::tier::Tier;
use kvstrata_core::{Policy, Priority, SequenceHash};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How many of a tenant's hashes the tier has.
fn there(tenant: &Tiers, tier: Tier, hashes: &[SequenceHash]) -> usize {
    hashes.iter().map(|hash| tenant.default_group().match_prefix(&[*hash]).in_tier(tier)).sum()
}

#[tokio::test]
async fn tenant_at_its_quota_evicts_only_its_own_oldest_blocks() {
    let manager = build(settings(16, 32).quota_device(0.5));
    let [a, b] = ["a", "b"].map(|name| manager.tenant(name).expect("few tenants"));
    let group = a.default_group();
    let of_b = sequence(&b, 1, 4);
    // The oldest of all.
    drop(compute(&b, &of_b, None).await);
    let (first, second) = (sequence(&a, 1, 5), sequence(&a, 2, 5));
    drop(compute(&a, &first, None).await);
    drop(compute(&a, &second, None).await);
    rest(&manager).await;
    assert_eq!((a.usage(Tier::Device).blocks, a.usage(Tier::Device).quota), (8, Some(8)));
    assert_eq!(there(&a, Tier::Device, &second), 5);
    // The first run's tail went: a tail is evicted first.
    assert_eq!(group.match_prefix(&first).device().len(), 3);
    assert_eq!((there(&a, Tier::Host, &first), there(&b, Tier::Device, &of_b)), (2, 4));
    // Onboarded blocks need the tenant's own room, too.
    let found = group.match_prefix(&first);
    let up = group.onboard(found, OnboardOptions::default()).expect("fits").await;
    assert_eq!(up.missed, None);
    check(&a, &up.blocks, &first);
    assert_eq!((a.usage(Tier::Device).blocks, there(&b, Tier::Device, &of_b)), (8, 4));
    let more = group.try_allocate(3).expect("its own are evictable");
    assert_eq!(a.usage(Tier::Device).blocks, 8);
    assert!(group.try_allocate(1).is_none(), "all of it is held");
    rest(&manager).await;
    assert_eq!(b.default_group().try_allocate(4).expect("free ones").len(), 4);
    drop((more, up));
    rest(&manager).await;
    assert!(a.usage(Tier::Device).blocks <= 8);
}

#[tokio::test]
async fn allocation_at_a_quota_delays_no_other_tenant() {
    let manager = build(settings(16, 16).quota_device(0.25));
    let [a, b] = ["a", "b"].map(|name| manager.tenant(name).expect("few tenants"));
    let error = a.default_group().allocate(5).await.expect_err("more than its quota");
    assert_eq!(
        error.to_string(),
        "5 requested, but the tenant's quota is 4 of 16 device blocks; request fewer, or raise its quota: \
         [[tenant]] device, else quota.device"
    );
    let all = a.default_group().allocate(4).await.expect("its quota");
    let error =
        a.default_group().allocate(1).deadline(Duration::from_millis(5)).await.expect_err("at its quota");
    assert!(matches!(error, AllocateError::Deadline { available: 12, ahead: 0, .. }), "{error}");
    // The text does not say that twelve are left for the one that was refused.
    assert_eq!(
        error.to_string(),
        "block allocation timed out after 5ms: 1 requested, tenant's quota 4 of 4 used, 12 of 16 available, \
         0 ahead in the queue; release blocks or preempt a request"
    );
    let waits = tokio::spawn({
        let a = a.clone();
        async move { a.default_group().allocate(2).await.map(|blocks| blocks.len()) }
    });
    while manager.census().waiting == 0 {
        tokio::task::yield_now().await;
    }
    // Others pass, with and without a tenant.
    assert_eq!(b.default_group().allocate(4).deadline(Duration::ZERO).await.expect("free").len(), 4);
    assert_eq!(manager.default_group().allocate(8).deadline(Duration::ZERO).await.expect("free").len(), 8);
    assert!(!waits.is_finished());
    drop(all);
    assert_eq!(waits.await.expect("no panic").expect("in time"), 2);
    assert_eq!((a.usage(Tier::Device).blocks, manager.census().is_idle()), (0, true));
}

#[tokio::test]
async fn tenant_at_its_host_quota_replaces_its_own_copies() {
    let manager = build(settings(8, 16).tenants([TenantSettings {
        name: "a".to_owned(),
        host: Some(0.25),
        ..TenantSettings::default()
    }]));
    let [a, b] = ["a", "b"].map(|name| manager.tenant(name).expect("few tenants"));
    let of_b = sequence(&b, 1, 4);
    drop(compute(&b, &of_b, None).await);
    let of_a: Vec<_> = (0..5).flat_map(|number| sequence(&a, number, 8)).collect();
    for run in of_a.chunks(8) {
        drop(compute(&a, run, None).await);
        rest(&manager).await;
        assert!(a.usage(Tier::Host).blocks <= 4);
    }
    assert_eq!((a.usage(Tier::Host).blocks, there(&a, Tier::Host, &of_a)), (4, 4));
    assert_eq!((b.usage(Tier::Host).quota, there(&b, Tier::Host, &of_b)), (None, 4));
    // A run that is longer than the quota of the device is refused at once.
    let small = build(settings(8, 16).quota_device(0.25));
    let a = small.tenant("a").expect("few tenants");
    let run = sequence(&a, 1, 3);
    drop(compute(&small, &run, None).await);
    drop(small.default_group().allocate(8).await.expect("others need the room"));
    rest(&small).await;
    let found = a.default_group().match_prefix(&run);
    assert_eq!(found.in_tier(Tier::Host), 3);
    let error = a.default_group().onboard(found, OnboardOptions::default()).expect_err("too long");
    assert_eq!(error, OnboardError::Quota { blocks: 3, quota: 2, capacity: 8 });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn quota_is_exact_under_many_tasks() {
    let manager = build(settings(24, 32).quota_device(0.5).quota_host(0.25));
    let a = manager.tenant("a").expect("few tenants");
    let over = Arc::new(AtomicBool::new(false));
    let task = |number: u32, tenant: Tiers| {
        let over = Arc::clone(&over);
        async move {
            let mut all = Vec::new();
            for round in 0..100 {
                let hashes = sequence(&tenant, number << 8 | round, 1 + (round + number) % 4);
                let Ok(blocks) = tenant.default_group().allocate(hashes.len()).await else {
                    panic!("in time")
                };
                let (device, host) = (tenant.usage(Tier::Device), tenant.usage(Tier::Host));
                let above = |usage: kvstrata::manager::TenantUse| {
                    usage.quota.is_some_and(|quota| usage.blocks > quota)
                };
                over.fetch_or(above(device) || above(host), Relaxed);
                if round % 5 > 0 {
                    let held = blocks.register(&hashes, None).expect("registered");
                    if round % 7 == 0 && round > 7 {
                        drop(held);
                        drop(tenant.default_group().restore_to_gpu(&all[all.len() - 3..]).await);
                    }
                    all.extend(hashes);
                }
            }
            all
        }
    };
    let other = tokio::spawn(task(9, manager.tenant("b").expect("few tenants")));
    let tasks: Vec<_> = (0..4).map(|number| tokio::spawn(task(number, a.clone()))).collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.expect("no panic"));
    }
    other.await.expect("no panic");
    rest(&manager).await;
    assert!(!over.load(Relaxed), "never above its quota");
    // At rest the counts are those of the blocks that are there.
    assert_eq!(there(&a, Tier::Device, &all), a.usage(Tier::Device).blocks);
    let of_host = |hash: &&SequenceHash| a.default_group().match_prefix(&[**hash]).in_tier(Tier::Host) > 0;
    assert!(all.iter().filter(of_host).count() <= a.usage(Tier::Host).blocks);
    assert!(a.usage(Tier::Device).blocks > 0 && a.usage(Tier::Host).blocks > 0);
    let census = manager.census().tiers[0][0];
    assert_eq!((census.owned, census.active), (0, 0));
}

#[tokio::test]
async fn preempted_and_prefetched_blocks_count_for_the_tenant() {
    let manager = build(settings(8, 16).quota_device(0.5));
    let a = manager.tenant("a").expect("few tenants");
    let group = a.default_group();
    let run = sequence(&a, 1, 3);
    let blocks = compute(&a, &run, None).await;
    let partial = group.allocate(1).await.expect("its quota");
    let mut away = group.preempt(blocks, partial, 1).expect("of one manager");
    assert_eq!(away.settled().await.copied, 4);
    assert_eq!((a.usage(Tier::Device).blocks, a.usage(Tier::Host).blocks), (4, 4));
    drop(manager.default_group().allocate(8).await.expect("others need the room"));
    assert_eq!(a.usage(Tier::Device).blocks, 0);
    let back = group.resume(away, OnboardOptions::default()).await.expect("fits");
    let partial = back.partial.expect("its bytes are there");
    assert_eq!((back.blocks.len(), partial.len(), a.usage(Tier::Device).blocks), (3, 1, 4));
    drop(partial);
    assert_eq!(a.usage(Tier::Device).blocks, 3);
    drop(back.blocks);
    // A prefetch is brought up as far as there are credits.
    drop(manager.default_group().allocate(8).await.expect("others need the room"));
    drop(compute(&a, &sequence(&a, 2, 2), None).await);
    group.prefetch(&run).detach();
    rest(&manager).await;
    assert_eq!((a.usage(Tier::Device).blocks, there(&a, Tier::Device, &run)), (4, 2));
}

#[tokio::test]
async fn allocation_at_a_quota_passes_blocks_being_copied() {
    let settings = settings(8, 8).quota_device(0.5).idle_host_after(Some(1));
    let ground = Ground::of(settings, 8, 8);
    let a = ground.manager.tenant("a").expect("few tenants");
    drop(compute(&a, &sequence(&a, 1, 4), None).await);
    ground.mover.close();
    for _ in 0..3 {
        a.step().expect("none runs");
    }
    assert!(a.census().down > 0, "some are being copied");
    let (ended, when) = std::sync::mpsc::channel();
    std::thread::spawn(move || ended.send(a.default_group().try_allocate(4).map(|blocks| blocks.len())));
    assert_eq!(when.recv_timeout(Duration::from_secs(20)), Ok(None));
    ground.mover.open();
}

/// The tenant has its quota of the host: two blocks, which are being copied.
#[tokio::test]
async fn copy_without_host_credit_is_made_later() {
    let settings = settings(8, 16).watermark_device(0.3).watermark_device_low(0.0).quota_host(0.125);
    let ground = Ground::of(settings, 8, 16);
    let a = ground.manager.tenant("a").expect("few tenants");
    let held = compute(&a, &sequence(&a, 1, 2), None).await;
    drop(compute(&a, &sequence(&a, 2, 4), None).await);
    ground.mover.close();
    let offload = a.default_group().offload(&held, OffloadOptions::default());
    a.check_watermark();
    assert_eq!((a.census().down, a.usage(Tier::Host).blocks), (2, 2));
    ground.mover.open();
    assert_eq!(offload.await.copied, 2);
    for _ in 0..4 {
        a.check_watermark();
        rest(&a).await;
    }
    assert_eq!((a.stats().offloaded[0], a.usage(Tier::Host).blocks), (6, 2));
}

#[tokio::test]
async fn tenant_at_its_quota_gets_parents_passed_by_eviction() {
    for policy in Policy::ALL {
        let manager = build(settings(8, 0).device_policy(policy).quota_device(0.5));
        let group = manager.default_group();
        let [a, b] = ["a", "b"].map(|name| manager.tenant(name).expect("few tenants"));
        let mut own = compute(&a, &sequence(&a, 1, 4), None).await;
        own.drop_first(2);
        drop(compute(&b, &sequence(&b, 1, 4), None).await);
        // Under policies that keep parents for their children, the other's blocks leave, and these are
        // out of the order.
        let theirs = group.try_allocate(4).expect("evictable ones");
        let before = group.pool_stats(Tier::Device).evicted;
        let kept = policy != Policy::Lru;
        assert_eq!(a.usage(Tier::Device).blocks, if kept { 4 } else { 2 }, "{policy}");
        let two =
            a.default_group().allocate(2).deadline(Duration::ZERO).await.expect("nobody holds its parents");
        assert_eq!((two.len(), a.usage(Tier::Device).blocks), (2, 4), "{policy}");
        assert_eq!(group.pool_stats(Tier::Device).evicted - before, 2, "{policy}");
        drop(theirs);
    }
}

/// Of four credits that a request waits for, there are two. They are given once the other two are not
/// wanted any more.
#[tokio::test]
async fn held_onboard_is_served_when_fewer_credits_suffice() {
    let ground = Ground::of(settings(8, 8).quota_device(0.5), 8, 8);
    let a = ground.manager.tenant("a").expect("few tenants");
    let group = a.default_group();
    let run = sequence(&a, 1, 4);
    drop(compute(&a, &run, None).await);
    drop(ground.manager.default_group().allocate(8).await.expect("evictable ones"));
    rest(&ground.manager).await;
    let own = compute(&a, &sequence(&a, 2, 2), None).await;
    let four = group.onboard(group.match_prefix(&run), OnboardOptions::default()).expect("fits");
    let options = OnboardOptions::default().deadline(Duration::from_secs(5));
    let two = group.onboard(group.match_prefix(&run[..2]), options).expect("fits");
    assert_eq!(a.usage(Tier::Device).blocks, 2, "both wait for credits");
    drop(four);
    let two = two.await;
    assert_eq!((two.blocks.len(), two.missed), (2, None));
    check(&a, &two.blocks, &run[..2]);
    drop(own);
}

#[tokio::test]
async fn copies_of_others_keep_no_parents_at_a_quota() {
    for policy in [Policy::Sieve, Policy::S3Fifo, Policy::Lfu] {
        let settings = settings(12, 24).device_policy(policy).quota_device(1.0 / 3.0);
        let ground = Ground::of(settings.offload_mode(WriteMode::Through), 12, 24);
        let [a, b] = ["a", "b"].map(|name| ground.manager.tenant(name).expect("few tenants"));
        let mut own = compute(&a, &sequence(&a, 1, 4), None).await;
        own.drop_first(2);
        drop(compute(&b, &sequence(&b, 1, 4), None).await);
        rest(&ground.manager).await;
        // The search for the other's blocks has passed the parents.
        let theirs = ground.manager.default_group().allocate(8).await.expect("evictable ones");
        assert_eq!(a.usage(Tier::Device).blocks, 4, "{policy}");
        ground.mover.close();
        drop(theirs.register(&sequence(&b, 2, 8), None).expect("registered"));
        assert!(a.census().down > 0, "{policy}: theirs are being copied");
        assert_eq!(
            a.default_group().try_allocate(2).map(|two| two.len()),
            Some(2),
            "{policy}: nobody holds its parents"
        );
        ground.mover.open();
    }
}

#[tokio::test]
async fn tenant_at_its_quota_gets_low_priority_parents_first() {
    let manager = build(settings(8, 0).device_policy(Policy::Sieve).quota_device(0.5));
    let [a, b] = ["a", "b"].map(|name| manager.tenant(name).expect("few tenants"));
    let run = sequence(&a, 1, 4);
    let mut own = compute(&a, &run, None).await;
    let mut cheap = own.clone();
    cheap.drop_first(1);
    cheap.truncate(1);
    cheap.set_priority(Priority::Low);
    drop(cheap);
    own.drop_first(3);
    // Eviction passes them, and takes the other's blocks.
    drop(compute(&b, &sequence(&b, 1, 4), None).await);
    let _theirs = manager.default_group().try_allocate(4).expect("evictable ones");
    assert_eq!(a.usage(Tier::Device).blocks, 4);
    let _one =
        a.default_group().allocate(1).deadline(Duration::ZERO).await.expect("nobody holds its parents");
    assert_eq!(a.default_group().match_device(&run[..3]).len(), 1, "the second is gone");
}

/// As for one group: a run without an owner that a tenant brings up counts for the tenant.
#[tokio::test]
async fn onboard_of_all_groups_counts_for_the_asking_tenant() {
    let manager = build(settings(16, 16).quota_device(0.25));
    let run = sequence(&manager, 1, 5);
    drop(compute(&manager, &run, None).await);
    rest(&manager).await;
    drop(manager.default_group().allocate(16).await.expect("all of the device"));
    rest(&manager).await;
    let tenant = manager.tenant("a").expect("few tenants");
    let options = OnboardOptions::default();
    let of_all = || tenant.match_groups(&[&run]);
    assert_eq!(of_all().groups()[0].found.in_tier(Tier::Host), 5);
    let error = tenant.onboard_groups(of_all(), options).err();
    assert!(matches!(error, Some(OnboardError::Quota { .. })), "{error:?}");
    let short = || tenant.match_groups(&[&run[..3]]);
    let up = tenant.onboard_groups(short(), options).expect("it fits").await;
    assert_eq!((up.tokens, tenant.usage(Tier::Device).blocks), (3 * 16, 3));
}
