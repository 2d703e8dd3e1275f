//! The rule of calls: each begins when it is made, before its future is polled. A dropped call leaves
//! nothing behind, whether it was polled or not.

use super::flying::look;
use super::gated::Ground;
use super::ground::{HYBRID, build, check, compute, hashes, rest, settings};
use kvstrata::config::ManagerConfig;
use kvstrata::manager::{Census, KvBlockManager, OffloadOptions, OnboardOptions, Preempted, Purge};
use kvstrata::tier::Tier;
use kvstrata::{OriginalNames, SequenceHash};
use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::Duration;

/// How often a future is polled before it is dropped.
const POLLS: [u32; 2] = [0, 1];

/// Polls a call that has begun `polls` times, and drops it.
fn drop_after<T>(polls: u32, call: impl Future<Output = T>) {
    let mut call = pin!(call);
    for _ in 0..polls {
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
}

/// A ground whose mover keeps its copies waiting.
fn closed(device: u32, host: u32) -> Ground {
    let ground = Ground::new(device, host);
    ground.mover.close();
    ground
}

/// The same, with a sequence of four blocks that the host tier has and the device lacks.
async fn below() -> (Ground, Vec<SequenceHash>) {
    let (ground, all) = (Ground::new(4, 16), hashes(1, 4));
    drop(compute(&ground.manager, &all, None).await);
    drop(ground.manager.default_group().allocate(4).await.expect("free ones and victims"));
    rest(&ground.manager).await;
    ground.mover.close();
    (ground, all)
}

/// Checks that no block is in flight or held, and that the whole device can be allocated.
async fn is_whole(ground: &Ground) {
    ground.mover.open();
    rest(&ground.manager).await;
    let Census { tiers, inside, .. } = ground.manager.census();
    assert!(tiers[0].iter().all(|of| (of.active, of.owned) == (0, 0)), "{tiers:?}");
    assert_eq!(inside, [[0, 0]]);
    let group = ground.manager.default_group();
    drop(group.allocate(group.capacity(Tier::Device)).await.expect("all of them"));
    rest(&ground.manager).await;
}

#[tokio::test]
async fn allocate_takes_its_place_at_the_call() {
    let manager = build(settings(4, 0));
    let group = manager.default_group();
    let held = group.allocate(4).await.expect("all of them");
    let built = group.allocate(3);
    assert_eq!(manager.census().waiting, 0, "it is only built");
    let first = built.into_future();
    let second = group.allocate(1).into_future();
    assert_eq!(manager.census().waiting, 2);
    let mut second = Box::pin(second);
    assert!(look(second.as_mut()).is_pending());
    drop(held);
    // Calls are served in the order in which they were made, not polled.
    assert_eq!(second.await.expect("in time").len(), 1);
    assert_eq!(first.await.expect("in time").len(), 3);
}

#[tokio::test]
async fn allocate_holds_free_blocks_before_it_is_polled() {
    let manager = build(settings(4, 0));
    let group = manager.default_group();
    let blocks = group.allocate(3).into_future();
    assert_eq!(group.available(Tier::Device), 1);
    drop(blocks);
    assert_eq!(group.available(Tier::Device), 4);
}

#[tokio::test]
async fn allocate_dropped_leaves_queue_and_grant() {
    for polls in POLLS {
        let ground = closed(4, 4);
        let group = ground.manager.default_group();
        let mut held = group.allocate(4).await.expect("all of them");
        let behind = {
            let waits = group.allocate(2).into_future();
            let behind = group.allocate(1).into_future();
            drop(held.split_to(1));
            assert_eq!(ground.manager.census().gathered, 1);
            drop_after(polls, waits);
            behind
        };
        assert_eq!(behind.await.expect("what the first had gathered").len(), 1);
        // A grant that the future has not taken.
        let granted = group.allocate(2).into_future();
        drop(held);
        assert_eq!(ground.manager.census().waiting, 0);
        drop(granted);
        is_whole(&ground).await;
    }
}

#[tokio::test]
async fn allocate_groups_takes_a_place_in_each_queue() {
    for polls in POLLS {
        let manager = build(ManagerConfig::builder().toml("hybrid.toml", HYBRID));
        let all = |group| {
            let group = manager.group(group).expect("two");
            group.try_allocate(group.capacity(Tier::Device)).expect("all of them")
        };
        let held = [all(0), all(1)];
        let waits = manager.allocate_groups(&[1, 1]).into_future();
        assert_eq!(manager.census().waiting, 2);
        drop_after(polls, waits);
        assert_eq!(manager.census().waiting, 0);
        drop(held);
        drop((all(0), all(1)));
    }
}

#[tokio::test]
async fn acquire_holds_and_onboards_before_it_is_polled() {
    for polls in POLLS {
        let (ground, all) = below().await;
        let call = ground.manager.default_group().acquire(&all);
        assert_eq!(ground.manager.census().up, 0, "it is only built");
        let acquiring = call.into_future();
        assert_eq!(ground.manager.census().up, 4);
        drop_after(polls, acquiring);
        is_whole(&ground).await;
    }
    let (ground, all) = below().await;
    let acquiring = ground.manager.default_group().acquire(&all).into_future();
    ground.mover.open();
    let acquired = acquiring.await.expect("it fits");
    check(&ground.manager, &acquired.held, &all);
}

#[tokio::test]
async fn acquire_of_device_blocks_is_answered_at_once() {
    let ground = closed(4, 4);
    let all = hashes(1, 2);
    drop(compute(&ground.manager, &all, None).await);
    let group = ground.manager.default_group();
    let acquiring = group.acquire(&all).more(1).into_future();
    assert_eq!(group.available(Tier::Device), 1, "two are held, and one is to be filled");
    drop(acquiring);
    assert_eq!(group.available(Tier::Device), 4);
    // The rest waits, and the call holds the blocks that it found.
    let held = group.allocate(2).await.expect("two are free");
    let acquiring = group.acquire(&all).more(1).into_future();
    assert_eq!((ground.manager.census().waiting, group.available(Tier::Device)), (1, 0));
    drop(acquiring);
    drop(held);
    is_whole(&ground).await;
}

#[tokio::test]
async fn onboard_and_restore_start_before_they_are_polled() {
    for polls in POLLS {
        let (ground, all) = below().await;
        let group = ground.manager.default_group();
        let onboard = group.onboard(group.match_prefix(&all), OnboardOptions::default()).expect("it fits");
        assert_eq!(ground.manager.census().up, 4);
        drop_after(polls, onboard);
        is_whole(&ground).await;
        let (ground, all) = below().await;
        let restore = ground.manager.default_group().restore_to_gpu(&all);
        assert_eq!(ground.manager.census().up, 4);
        drop_after(polls, restore);
        is_whole(&ground).await;
    }
}

#[tokio::test]
async fn offload_and_persist_start_at_the_call_and_go_on() {
    for polls in POLLS {
        for persists in [false, true] {
            let ground = closed(4, 16);
            let group = ground.manager.default_group();
            let all = hashes(1, 4);
            let held = compute(&ground.manager, &all, None).await;
            let before = ground.manager.census().down;
            match persists {
                true => drop_after(polls, group.persist(&all)),
                false => drop_after(polls, group.offload(&held, OffloadOptions::default())),
            }
            assert_eq!((before, ground.manager.census().down), (0, 4));
            drop(held);
            is_whole(&ground).await;
            assert_eq!(group.match_prefix(&all).in_tier(Tier::Host), 4, "the copies have gone on");
        }
    }
}

async fn preempted(manager: &KvBlockManager, all: &[SequenceHash]) -> Preempted {
    let group = manager.default_group();
    let full = compute(manager, &all[..3], None).await;
    let partial = group.allocate(1).await.expect("one is free");
    let mut preempted = group.preempt(full, partial, 1).expect("of one group");
    preempted.settled().await;
    drop(group.allocate(4).await.expect("victims"));
    rest(manager).await;
    preempted
}

#[tokio::test]
async fn resume_starts_before_it_is_polled() {
    let all = hashes(1, 4);
    for polls in POLLS {
        let ground = Ground::new(4, 16);
        let group = ground.manager.default_group();
        let preempted = preempted(&ground.manager, &all).await;
        ground.mover.close();
        let resume = group.resume(preempted, OnboardOptions::default());
        assert_eq!(ground.manager.census().up, 4);
        drop_after(polls, resume);
        is_whole(&ground).await;
        let found = group.match_prefix(&all[..3]).len();
        assert_eq!((found, ground.manager.census().tiers[0][1].inactive), (3, 3), "the one not full is lost");
    }
    let ground = Ground::new(4, 16);
    let preempted = preempted(&ground.manager, &all).await;
    let resumed = ground.manager.default_group().resume(preempted, OnboardOptions::default());
    assert!(resumed.await.expect("it fits").partial.is_some());
}

#[tokio::test]
async fn prefetch_starts_at_the_call() {
    let (ground, all) = below().await;
    let hint = ground.manager.default_group().prefetch(&all);
    assert_eq!(ground.manager.census().up, 4);
    drop(hint);
    is_whole(&ground).await;
}

#[tokio::test]
async fn purge_starts_at_the_call_and_goes_on() {
    for polls in POLLS {
        let ground = Ground::new(4, 4);
        let tenant = ground.manager.tenant("a").expect("few tenants");
        let all = hashes(1, 3);
        let held = compute(&tenant, &all, None).await;
        let purge = tenant.purge(Purge::default());
        assert_eq!(ground.manager.census().purges, 1);
        assert!(tenant.default_group().match_prefix(&all).is_empty());
        drop_after(polls, purge);
        drop(held);
        is_whole(&ground).await;
        assert_eq!((ground.manager.census().purges, tenant.usage(Tier::Device).blocks), (0, 0));
    }
}

#[tokio::test]
async fn shutdown_refuses_from_the_call_on() {
    for polls in POLLS {
        let ground = closed(4, 4);
        let group = ground.manager.default_group();
        let held = compute(&ground.manager, &hashes(1, 2), None).await;
        let down = group.offload(&held, OffloadOptions::default());
        let shutdown = ground.manager.shutdown();
        assert!(ground.manager.is_refusing());
        assert!(group.try_allocate(1).is_none());
        drop_after(polls, shutdown);
        // The shutdown ends no transfer in flight.
        ground.mover.open();
        assert_eq!(down.await.copied, 2);
        assert!(ground.manager.shutdown().await);
    }
}

/// A waiting request outlives the handle that made it, and is answered when the last handle goes.
#[tokio::test]
async fn waiter_outliving_the_last_handle_is_answered() {
    let manager = build(settings(2, 0));
    let held = manager.default_group().allocate(2).await.expect("all of them");
    let waits: Pin<Box<dyn Future<Output = _> + Send + 'static>> =
        Box::pin(manager.default_group().allocate(1).deadline(Duration::from_secs(3600)).into_future());
    drop(manager);
    let closed = waits.await.expect_err("nothing is given any more");
    assert_eq!(closed.to_string(), "the manager is shut down");
    drop(held);
}
