//! A preempted request's blocks go down whole, and are back at once if they have not left.

use crate::gated::Ground;
use crate::ground::{BYTES, build, check, compute, hashes, rest, settings};
use kvstrata::config::WriteMode;
use kvstrata::manager::{OffloadOptions, OnboardOptions, Preempted, Refusal, Tiers};
use kvstrata::tier::Tier;
use std::time::Duration;

/// A preempted request of so many full blocks and one that is not full.
async fn preempted(manager: &Tiers, full: u64) -> Preempted {
    let group = manager.default_group();
    let blocks = compute(manager, &hashes(1, full), None).await;
    let partial = group.allocate(1).await.expect("a block");
    let port = group.device_port().expect("a simulated device");
    port.copy_in(partial.ids()[0].0, 0, &[7; BYTES]).expect("in range");
    group.preempt(blocks, partial, 1).expect("one manager")
}

#[tokio::test]
async fn preempted_request_goes_down_whole_past_a_full_queue() {
    for mode in [WriteMode::Back, WriteMode::SecondUse] {
        let bytes = Some(BYTES as u64);
        let manager = build(settings(8, 16).transfer_queue(2).iteration_bytes(bytes).offload_mode(mode));
        let mut preempted = preempted(&manager, 6).await;
        // No iteration runs: callers that need the blocks do not wait for one, and no block is lost.
        let all = manager.default_group().allocate(8).deadline(Duration::from_secs(5)).await.expect("blocks");
        let down = preempted.settled().await;
        assert_eq!((down.copied, down.refused), (7, 0), "{mode:?}");
        drop(all);
        rest(&manager).await;
        let resumed = manager.default_group().resume(preempted, OnboardOptions::default());
        let resumed =
            tokio::time::timeout(Duration::from_secs(5), resumed).await.expect("in time").expect("fits");
        check(&manager, &resumed.blocks, &hashes(1, 6));
        assert_eq!((resumed.partial.map(|of| of.len()), resumed.missed), (Some(1), None), "{mode:?}");
    }
}

#[tokio::test]
async fn preempted_blocks_without_room_below_go_down_at_eviction() {
    let manager = build(settings(4, 4).offload_mode(WriteMode::SecondUse));
    let group = manager.default_group();
    let other = compute(&manager, &hashes(2, 4), None).await;
    assert_eq!(group.offload(&other, OffloadOptions::default()).await.copied, 4);
    drop(other);
    drop(group.allocate(4).await.expect("blocks"));
    let below = group.match_prefix(&hashes(2, 4));
    assert_eq!(below.in_tier(Tier::Host), 4, "held");
    let mut preempted = preempted(&manager, 3).await;
    assert_eq!(preempted.settled().await.refused, 4);
    assert_eq!(manager.stats().refused_by(Refusal::Room), 4);
    drop(below);
    drop(group.allocate(4).await.expect("blocks"));
    rest(&manager).await;
    let resumed = group.resume(preempted, OnboardOptions::default()).await.expect("fits");
    check(&manager, &resumed.blocks, &hashes(1, 3));
    assert_eq!((resumed.partial.map(|of| of.len()), resumed.missed), (Some(1), None));
}

#[tokio::test]
async fn resume_at_once_waits_for_the_copy_in_flight() {
    let ground = Ground::new(8, 16);
    ground.mover.close();
    let preempted = preempted(&ground.manager, 2).await;
    assert_eq!(ground.mover.waiting(), 3);
    let resume = ground.manager.default_group().resume(preempted, OnboardOptions::default());
    tokio::pin!(resume);
    let early =
        std::future::poll_fn(|context| std::task::Poll::Ready(resume.as_mut().poll(context).is_ready()))
            .await;
    assert!(!early, "the copy reads the block");
    ground.mover.open();
    let resumed = resume.await.expect("fits");
    assert_eq!((resumed.blocks.len(), resumed.missed), (2, None));
    let partial = resumed.partial.expect("it never left");
    assert!(ground.anywhere(&[7; BYTES]));
    drop(partial);
    rest(&ground.manager).await;
}

#[tokio::test]
async fn resume_at_once_cancels_the_copy_awaiting_an_iteration() {
    let manager = build(settings(8, 16).iteration_bytes(Some(BYTES as u64)));
    let preempted = preempted(&manager, 2).await;
    let resumed = manager.default_group().resume(preempted, OnboardOptions::default());
    let resumed =
        tokio::time::timeout(Duration::from_secs(5), resumed).await.expect("in time").expect("fits");
    assert_eq!((resumed.partial.map(|of| of.len()), resumed.missed), (Some(1), None));
}
