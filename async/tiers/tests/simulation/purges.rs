//! Purges beside a device that fails: a purge does not wait for blocks that the device keeps, blocks
//! that cannot be overwritten are not used again, and a device that does not answer does not delay the
//! purge's answer.

use crate::content::bytes_of;
use crate::directed::play;
use crate::drops::{compute, grounds, sequence};
use crate::patience::pass;
use crate::settings::Settings;
use crate::sim::ALWAYS;
use crate::world::World;
use kvstrata_core::BlockId;
use kvstrata_tiers::OriginalNames;
use kvstrata_tiers::Tier;
use kvstrata_tiers::{OffloadOptions, OnboardOptions, Purge, Purged, Tiers};
use std::rc::Rc;
use std::time::Duration;

const ZERO: Purge = Purge::new().zero(true).deadline(Duration::from_secs(60));

/// Checks that nothing of the tenant is left except blocks that are counted as failed.
fn gone(world: &World, tenant: &Tiers, purged: Purged, which: u64) {
    let tiers = purged.tiers();
    let adds_up = tiers.iter().all(|tier| tier.busy == 0 && tier.found == tier.purged);
    assert!(purged.complete && adds_up && purged.still_found == 0, "{purged:?}");
    let kept = world.mover.kept();
    assert_eq!((purged.failed, kept.is_empty()), (2 * kept.len(), false), "here and there: {kept:?}");
    assert!(tenant.default_group().match_prefix(&sequence(which, 1)).is_empty());
    assert_eq!(Tier::OF_SETTINGS.map(|tier| tenant.usage(tier).blocks), [0; 3], "credits");
    assert_eq!(world.manager().census().purges, 0);
}

/// Runs `body` with a device that has failed before the purge, and with one that fails meanwhile.
fn each_time(body: impl AsyncFn(Rc<World>, Tiers, bool)) {
    for (settings, before) in grounds().flat_map(|settings| [(settings.clone(), true), (settings, false)]) {
        play(settings, |world, _| {
            let tenant = world.tenant(1);
            world.mover.change(|plan| plan.keep = true);
            body(world, tenant, before)
        });
    }
}

#[test]
fn purge_passes_offloads_kept_by_a_failed_device() {
    each_time(async |world, tenant, before| {
        let blocks = compute(&world, &tenant, &sequence(1, 3)).await;
        world.mover.change(|plan| plan.lose = ALWAYS);
        let offload = tenant.default_group().offload(&blocks, OffloadOptions::default());
        if before {
            assert_eq!(offload.await.copied, 0);
        }
        drop(blocks);
        let purged = tenant.purge(Purge::default()).await.expect("open");
        gone(&world, &tenant, purged, 1);
    });
}

#[test]
fn purge_passes_victims_kept_by_a_failed_device() {
    each_time(async |world, tenant, before| {
        drop(compute(&world, &tenant, &sequence(1, 6)).await);
        world.mover.change(|plan| plan.lose = ALWAYS);
        let manager = world.manager();
        let allocation = kvstrata_testing::virtual_time::spawn_local(async move {
            manager.default_group().allocate(6).deadline(Duration::from_secs(2)).await.is_err()
        });
        // In flight, or over.
        pass(Duration::from_millis(if before { 3000 } else { 1 })).await;
        let purged = tenant.purge(Purge::default()).await.expect("open");
        gone(&world, &tenant, purged, 1);
        assert!(allocation.await.expect("no panic"), "some of the six are nobody's any more");
    });
}

#[test]
fn purge_passes_onboards_kept_by_a_failed_device() {
    each_time(async |world, tenant, before| {
        drop(compute(&world, &tenant, &sequence(1, 3)).await);
        // All of it goes down, and blocks without a tenant take its place.
        drop(world.manager().default_group().allocate(6).await.expect("blocks"));
        world.rest_of_manager().await;
        world.mover.change(|plan| plan.lose = ALWAYS);
        let onboard = tenant
            .default_group()
            .onboard(tenant.default_group().match_prefix(&sequence(1, 3)), OnboardOptions::default());
        let onboard = onboard.expect("fits");
        if before {
            assert!(onboard.await.missed.is_some());
        } else {
            // Read from the disk, where the disk is below.
            while world.manager().census().moving == 0 || world.mover.under_way() == 0 {
                pass(Duration::from_millis(1)).await;
            }
            drop(onboard);
        }
        let purged = tenant.purge(Purge::default()).await.expect("open");
        gone(&world, &tenant, purged, 1);
    });
}

/// The partial block has a name that is forgotten: so it is withdrawn, and the device keeps it.
#[test]
fn purge_passes_a_preemption_kept_by_a_failed_device() {
    each_time(async |world, tenant, before| {
        let blocks = compute(&world, &tenant, &sequence(1, 1)).await;
        let partial = tenant.default_group().allocate(1).await.expect("six");
        world.mover.change(|plan| plan.lose = ALWAYS);
        let mut preempted = tenant.default_group().preempt(blocks, partial, 1).expect("one manager");
        if before {
            assert_eq!(preempted.settled().await.copied, 0);
        }
        drop(preempted);
        let purged = tenant.purge(Purge::default()).await.expect("open");
        gone(&world, &tenant, purged, 1);
        if before {
            assert_eq!((purged.device.found, purged.failed), (2, 4), "{purged:?}");
        }
    });
}

/// Over host memory, or over a disk.
fn either(settings: impl Fn(&mut Settings), body: impl AsyncFn(Rc<World>, Tiers)) {
    for mut ground in grounds() {
        settings(&mut ground);
        play(ground, |world, _| {
            let tenant = world.tenant(1);
            body(world, tenant)
        });
    }
}

#[test]
fn block_not_overwritten_is_never_used_again() {
    let settings = |settings: &mut Settings| settings.retries = 1;
    either(settings, async |world, tenant| {
        drop(compute(&world, &tenant, &sequence(1, 2)).await);
        world.mover.change(|plan| plan.fail = ALWAYS);
        let purged = tenant.purge(ZERO).await.expect("open");
        assert!(purged.complete && purged.still_found == 0, "{purged:?}");
        assert_eq!((purged.device.purged, purged.failed, purged.zeroed_bytes), (2, 2, 0));
        assert_eq!(tenant.usage(Tier::Device).blocks, 0);
        world.mover.change(|plan| plan.fail = 0);
        let manager = world.manager();
        assert_eq!(manager.default_group().allocate(4).await.expect("four are left").len(), 4);
        assert!(manager.default_group().allocate(5).deadline(Duration::from_secs(1)).await.is_err());
        // Each purge reports it: the bytes are still there.
        assert_eq!(tenant.purge(ZERO).await.expect("open").failed, 2);
    });
}

#[test]
fn disk_slot_not_overwritten_is_never_used_again() {
    let calm = |_: &mut Settings| {};
    either(calm, async |world, tenant| {
        let Some(disk) = &world.disk else { return };
        drop(compute(&world, &tenant, &sequence(1, 2)).await);
        assert_eq!(tenant.default_group().persist(&sequence(1, 2)).await.copied, 2);
        assert_eq!(tenant.usage(Tier::DISK).blocks, 2);
        disk.change(|plan| plan.fail = ALWAYS);
        let purged = tenant.purge(ZERO).await.expect("open");
        // The disk cannot record either that blocks given up before are forgotten.
        assert_eq!((purged.complete, purged.of(Tier::DISK).purged, purged.failed), (true, 2, 2 + 1));
        assert_eq!(tenant.usage(Tier::DISK).blocks, 0, "credits");
    });
}

#[test]
fn unreadable_slot_is_erased_at_its_last_release() {
    let calm = |_: &mut Settings| {};
    either(calm, async |world, tenant| {
        let Some(disk) = world.disk.as_ref().filter(|_| world.settings.host == 0) else { return };
        drop(compute(&world, &tenant, &sequence(1, 1)).await);
        assert_eq!(tenant.default_group().persist(&sequence(1, 1)).await.copied, 1);
        drop(world.manager().default_group().allocate(6).await.expect("all that the device has"));
        let holds = tenant.default_group().match_prefix(&sequence(1, 1));
        assert_eq!(holds.in_tier(Tier::DISK), 1);
        disk.change(|plan| plan.fail = ALWAYS);
        let up = tenant.default_group().restore_to_gpu(&sequence(1, 1)).await.expect("fits");
        assert!(up.missed.is_some() && tenant.default_group().match_prefix(&sequence(1, 1)).is_empty());
        assert_eq!(tenant.usage(Tier::DISK).blocks, 0, "credits");
        disk.change(|plan| plan.fail = 0);
        let purge = kvstrata_testing::virtual_time::spawn_local({
            let tenant = tenant.clone();
            async move { tenant.purge(ZERO).await }
        });
        pass(Duration::from_millis(700)).await;
        assert!(!purge.is_finished(), "it is held");
        drop(holds);
        let purged = purge.await.expect("no panic").expect("open");
        let bytes = world.settings.block_bytes() as u64;
        assert_eq!((purged.complete, purged.failed, purged.zeroed_bytes), (true, 0, bytes), "{purged:?}");
        assert_eq!((purged.of(Tier::DISK).found, purged.of(Tier::DISK).purged), (1, 1));
    });
}

#[test]
fn failed_overwrite_is_retried() {
    let settings = |settings: &mut Settings| {
        (settings.retries, settings.retry_after) = (1, Duration::from_millis(500));
    };
    either(settings, async |world, tenant| {
        drop(compute(&world, &tenant, &sequence(1, 2)).await);
        world.mover.change(|plan| plan.fail = ALWAYS);
        let purge = kvstrata_testing::virtual_time::spawn_local({
            let tenant = tenant.clone();
            async move { tenant.purge(ZERO).await }
        });
        pass(Duration::from_millis(1)).await;
        world.mover.change(|plan| plan.fail = 0);
        let purged = purge.await.expect("no panic").expect("open");
        let bytes = world.settings.block_bytes() as u64;
        assert_eq!((purged.device.purged, purged.failed, purged.zeroed_bytes), (2, 0, 2 * bytes));
    });
}

#[test]
fn purge_with_a_hanging_device_answers_at_its_deadline() {
    let calm = |_: &mut Settings| {};
    either(calm, async |world, tenant| {
        let ids: Vec<_> = compute(&world, &tenant, &sequence(1, 2)).await.ids().collect();
        world.mover.change(|plan| plan.hang = ALWAYS);
        let deadline = Duration::from_millis(700);
        let began = kvstrata_testing::virtual_time::Instant::now();
        let purged = tenant.purge(ZERO.deadline(deadline)).await.expect("open");
        assert!(began.elapsed() <= deadline + Duration::from_millis(2), "{:?}", began.elapsed());
        assert_eq!((purged.complete, purged.failed, purged.zeroed_bytes), (false, 0, 0));
        assert_eq!((purged.device.found, purged.device.purged, purged.device.busy), (2, 0, 2));
        assert!(tenant.default_group().allocate(1).await.is_err(), "it goes on");
        world.mover.shutdown();
        world.rest_of_manager().await;
        assert_eq!(world.manager().default_group().allocate(4).await.expect("four are left").len(), 4);
        let again = tenant.purge(ZERO).await.expect("open");
        assert_eq!((again.device.found, again.failed), (0, 2));
        let bytes = world.settings.block_bytes();
        let left = |BlockId(block): &BlockId| {
            let found = crate::content::read(&world.device, *block, 0..bytes);
            sequence(1, 2).iter().any(|hash| found == bytes_of(*hash, bytes))
        };
        // They hold rubbish, as after any copy that was begun, and not the tenant's bytes.
        assert!(!ids.iter().any(left));
    });
}
