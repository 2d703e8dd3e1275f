//! Classes for eviction, which go with their blocks from tier to tier.

use super::flying::look;
use super::ground::{build, check, compute, hashes, rest, settings};
use crate::gated::Ground;
use kvstrata::config::ManagerConfigBuilder;
use kvstrata::manager::{OnboardOptions, Tiers};
use kvstrata::tier::Tier;
use kvstrata_core::Priority;

/// Computes a sequence of a class, and pushes it out of the device.
async fn below(manager: &Tiers, sequence: u64, blocks: u64, class: Priority) {
    let computed = compute(manager, &hashes(sequence, blocks), None).await;
    computed.set_priority(class);
    drop(computed);
    let device = manager.default_group().capacity(Tier::Device);
    drop(manager.default_group().allocate(device).await.expect("all of them"));
    rest(manager).await;
}

/// Blocks of high priority outlive later ones in the tier below and, brought up, in the device again.
async fn class_goes_along(settings: ManagerConfigBuilder, tier: Tier) {
    let manager = build(settings);
    let group = manager.default_group();
    let dear = hashes(1, 2);
    below(&manager, 1, 2, Priority::High).await;
    below(&manager, 2, 2, Priority::Normal).await;
    below(&manager, 3, 2, Priority::Normal).await;
    assert_eq!(group.match_prefix(&hashes(2, 2)).len(), 0, "{tier}: those of no class leave first");
    let found = group.match_prefix(&dear);
    assert_eq!(found.in_tier(tier), 2, "{tier}");
    let up = group.onboard(found, OnboardOptions::default()).expect("fits").await;
    check(&manager, &up.blocks, &dear);
    drop(up);
    drop(compute(&manager, &hashes(4, 2), None).await);
    drop(group.allocate(2).await.expect("blocks"));
    assert_eq!(group.match_device(&dear).len(), 2, "{tier}: its class came up with it");
    assert_eq!(group.match_device(&hashes(4, 2)).len(), 0);
}

#[tokio::test]
async fn class_goes_down_and_up_with_its_block() {
    class_goes_along(settings(4, 4), Tier::Host).await;
    let directory = tempfile::tempdir().expect("a directory");
    let disk = settings(4, 0).disk_paths(vec![directory.path().join("volume")]).disk_blocks(4);
    class_goes_along(disk, Tier::DISK).await;
}

#[tokio::test]
async fn copy_below_takes_the_last_class_of_its_block() {
    let manager = build(settings(4, 4));
    let group = manager.default_group();
    let all = hashes(1, 2);
    below(&manager, 1, 2, Priority::High).await;
    let up = group.onboard(group.match_prefix(&all), OnboardOptions::default()).expect("fits").await;
    up.blocks.set_priority(Priority::Low);
    drop(up);
    below(&manager, 2, 2, Priority::Normal).await;
    below(&manager, 3, 2, Priority::Normal).await;
    assert_eq!((group.match_prefix(&all).len(), group.match_prefix(&hashes(2, 2)).len()), (0, 2));
}

#[tokio::test]
async fn pinned_device_block_is_evictable_below() {
    let manager = build(settings(4, 2));
    let pinned = compute(&manager, &hashes(1, 2), None).await;
    pinned.set_priority(Priority::Pinned);
    assert_eq!(manager.default_group().offload(&pinned, Default::default()).await.copied, 2);
    // No caller could give the copies another class while they are below: they must not stay for ever.
    let other = compute(&manager, &hashes(2, 2), None).await;
    assert_eq!(manager.default_group().offload(&other, Default::default()).await.copied, 2);
}

#[tokio::test]
async fn block_matched_on_its_way_down_keeps_its_class() {
    let ground = Ground::new(4, 8);
    let (manager, dear) = (&ground.manager, hashes(1, 2));
    let group = manager.default_group();
    let blocks = compute(manager, &dear, None).await;
    blocks.set_priority(Priority::High);
    drop(blocks);
    ground.mover.close();
    assert!(look(group.allocate(4).into_future()).is_pending());
    let found = group.match_prefix(&dear);
    assert_eq!(found.in_tier(Tier::Device), 2, "with the bytes that they still have");
    drop(found);
    ground.mover.open();
    rest(manager).await;
    drop(compute(manager, &hashes(2, 2), None).await);
    drop(group.allocate(2).await.expect("blocks"));
    assert_eq!(group.match_device(&dear).len(), 2);
}
