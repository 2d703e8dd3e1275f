//! The life of blocks: computed, found, evicted, brought back.

use super::flying::look;
use super::ground::{BYTES, rest};
use super::ground::{build, check, compute, hashes, settings};
use crate::gated::Ground;
use kvstrata::manager::{AllocateError, OffloadOptions, OnboardOptions};
use kvstrata::tier::Tier;
use kvstrata_core::Priority;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

#[tokio::test]
async fn registered_blocks_are_found_and_evicted_ones_come_back() {
    let manager = build(settings(8, 32));
    let group = manager.default_group();
    let first = hashes(1, 6);
    drop(compute(&manager, &first, None).await);
    let found = group.match_prefix(&first);
    assert_eq!((found.len(), found.is_ready()), (6, true));
    check(&manager, found.device(), &first);
    drop(found);
    // Others need the room.
    for sequence in 2..5 {
        drop(compute(&manager, &hashes(sequence, 8), None).await);
    }
    let found = group.match_prefix(&first);
    assert_eq!((found.in_tier(Tier::Device), found.in_tier(Tier::Host)), (0, 6));
    let up = group.onboard(found, OnboardOptions::default()).expect("fits").await;
    assert_eq!(up.missed, None);
    check(&manager, &up.blocks, &first);
    drop(up);
    let census = manager.census();
    assert!(census.is_idle(), "{census:?}");
    let [device, host] = census.tiers[0];
    assert_eq!((device.active, device.owned, host.active, host.owned), (0, 0, 0, 0));
}

#[tokio::test]
async fn allocation_beyond_capacity_is_refused_and_others_wait() {
    let manager = build(settings(4, 8));
    let error = manager.default_group().allocate(5).await.expect_err("more than there are");
    assert_eq!(error.to_string(), "5 blocks requested, but the device has 4; request fewer");
    let all = manager.default_group().allocate(4).await.expect("all of them");
    let error =
        manager.default_group().allocate(1).deadline(Duration::from_millis(5)).await.expect_err("none");
    assert!(
        matches!(error, AllocateError::Deadline { requested: 1, available: 0, capacity: 4, .. }),
        "{error}"
    );
    let waits = tokio::spawn({
        let manager = manager.clone();
        async move { manager.default_group().allocate(2).await.map(|blocks| blocks.len()) }
    });
    tokio::task::yield_now().await;
    drop(all);
    assert_eq!(waits.await.expect("no panic").expect("in time"), 2);
    assert!(manager.census().is_idle());
}

#[tokio::test]
async fn preempted_request_gets_full_and_partial_blocks_back() {
    let manager = build(settings(8, 32));
    let group = manager.default_group();
    let full = hashes(1, 5);
    let blocks = compute(&manager, &full, None).await;
    let partial = group.allocate(1).await.expect("a block");
    let port = group.device_port().expect("a simulated device").clone();
    port.copy_in(partial.ids()[0].0, 0, &[7; 100]).expect("in range");
    let mut preempted = group.preempt(blocks, partial, 1).expect("one manager");
    assert_eq!(preempted.settled().await.copied, 6);
    // Others take the whole device, more than once.
    for sequence in 2..4 {
        drop(compute(&manager, &hashes(sequence, 8), None).await);
    }
    rest(&manager).await;
    let resumed = group.resume(preempted, OnboardOptions::default()).await.expect("fits");
    assert_eq!(resumed.missed, None);
    check(&manager, &resumed.blocks, &full);
    let partial = resumed.partial.expect("with its bytes");
    let mut bytes = vec![0; BYTES];
    port.copy_out(partial.ids()[0].0, 0, &mut bytes).expect("in range");
    assert_eq!((partial.len(), &bytes[..100], bytes[100]), (1, &[7; 100][..], 0));
    drop((partial, resumed.blocks));
    assert!(manager.census().is_idle());
    assert_eq!(group.match_prefix(&full).len(), 5);
}

#[tokio::test]
async fn pinned_blocks_stay_and_high_priority_leaves_last() {
    let manager = build(settings(8, 0));
    let group = manager.default_group();
    let kept = compute(&manager, &hashes(1, 3), None).await;
    kept.set_priority(Priority::Pinned);
    drop(kept);
    let high = compute(&manager, &hashes(2, 2), None).await;
    high.set_priority(Priority::High);
    drop(high);
    drop(compute(&manager, &hashes(3, 3), None).await);
    let there = |sequence, blocks| group.match_device(&hashes(sequence, blocks)).len();
    drop(group.allocate(3).await.expect("those of no class"));
    assert_eq!((there(1, 3), there(2, 2), there(3, 3)), (3, 2, 0));
    drop(group.allocate(5).await.expect("all that are not pinned"));
    assert_eq!((there(1, 3), there(2, 2)), (3, 0));
    let error = group.allocate(6).deadline(Duration::from_millis(5)).await.expect_err("three are pinned");
    assert!(matches!(error, AllocateError::Deadline { available: 5, .. }), "{error}");
    let kept = group.match_device(&hashes(1, 3));
    kept.set_priority(Priority::Normal);
    drop(kept);
    assert_eq!(group.allocate(8).await.expect("all").len(), 8);
}

/// Blocks that need no copy are taken at once, and no more leave than are asked for.
#[tokio::test]
async fn waiting_allocation_evicts_no_more_than_it_needs() {
    let ground = Ground::of(settings(8, 16), 8, 16);
    let manager = &ground.manager;
    let all = hashes(1, 8);
    let blocks = compute(manager, &all, None).await;
    let mut first = blocks.clone();
    // The next victim: the last of them, since a request's tail leaves first.
    first.drop_first(7);
    assert_eq!(manager.default_group().offload(&first, OffloadOptions::default()).await.copied, 1);
    drop((first, blocks));
    ground.mover.close();
    let mut three = pin!(manager.default_group().allocate(3).into_future());
    assert!(look(three.as_mut()).is_pending(), "two are to be copied");
    let census = manager.census();
    assert_eq!((census.tiers[0][0].inactive, census.down, census.gathered), (5, 2, 1));
    ground.mover.open();
    assert_eq!(three.await.expect("soon").len(), 3);
}

#[tokio::test]
async fn repeated_allocation_gets_victims_of_the_dropped_one() {
    let ground = Ground::of(settings(8, 16), 8, 16);
    let manager = &ground.manager;
    let group = manager.default_group();
    let all = hashes(1, 8);
    drop(compute(manager, &all, None).await);
    ground.mover.close();
    assert!(
        look(group.allocate(4).into_future()).is_pending(),
        "four are to be copied, and it waits no more"
    );
    let mut again = pin!(group.allocate(4).into_future());
    assert!(look(again.as_mut()).is_pending());
    assert_eq!(manager.census().down, 4);
    ground.mover.open();
    assert_eq!(again.await.expect("soon").len(), 4);
    rest(manager).await;
    assert_eq!(group.match_prefix(&all).in_tier(Tier::Device), 4);
}

/// The device hangs over victims of a caller that has gone. Blocks that need no copy are given all the same.
#[tokio::test]
async fn victims_of_a_dropped_call_do_not_block_clean_victims() {
    let ground = Ground::of(settings(8, 16), 8, 16);
    let manager = &ground.manager;
    let group = manager.default_group();
    let (dirty, clean) = (hashes(1, 2), hashes(2, 6));
    drop(compute(manager, &dirty, None).await);
    let blocks = compute(manager, &clean, None).await;
    assert_eq!(group.offload(&blocks, OffloadOptions::default()).await.copied, 6);
    drop(blocks);
    ground.mover.close();
    assert!(
        look(pin!(group.allocate(2).into_future())).is_pending(),
        "it goes, and its victims are on their way"
    );
    assert_eq!(manager.census().down, 2);
    let two = match look(pin!(group.allocate(2).into_future())) {
        Poll::Ready(blocks) => blocks.expect("those that are below already"),
        Poll::Pending => panic!("it waits for a device that hangs"),
    };
    assert!(group.try_allocate(5).is_none(), "there are four");
    assert_eq!(group.match_prefix(&clean).in_tier(Tier::Device), 4, "and for nothing none is evicted");
    assert_eq!(group.try_allocate(4).expect("four").len() + two.len(), 6);
    assert_eq!(manager.census().down, 2);
    ground.mover.open();
    rest(manager).await;
    assert_eq!(group.try_allocate(6).expect("nobody holds any").len(), 6);
}

#[tokio::test]
async fn repeated_try_allocate_evicts_no_more_blocks() {
    let ground = Ground::of(settings(8, 16), 8, 16);
    let manager = &ground.manager;
    let group = manager.default_group();
    let all = hashes(1, 8);
    drop(compute(manager, &all, None).await);
    ground.mover.close();
    for _ in 0..3 {
        assert!(group.try_allocate(2).is_none(), "two are to be copied");
        assert_eq!(manager.census().down, 2);
    }
    ground.mover.open();
    rest(manager).await;
    assert_eq!(group.try_allocate(2).expect("they have gone").len(), 2);
    assert_eq!(group.match_prefix(&all).in_tier(Tier::Device), 6);
}
