//! Blocks copied ahead leave first, even when the policy would now choose others. Blocks used since
//! their copy do not.

use crate::gated::Ground;
use crate::ground::{check, compute, hashes, rest, settings};
use kvstrata::config::ManagerConfigBuilder;
use kvstrata::manager::Tiers;
use kvstrata::tier::Tier;
use kvstrata_core::{Policy, Priority, SequenceHash};

/// Eight blocks over thirty-two; all idle blocks are copied ahead.
fn all_ahead(policy: Policy) -> ManagerConfigBuilder {
    settings(8, 32).device_policy(policy).watermark_device(0.3).watermark_device_low(0.0)
}

/// Four blocks that were used three times and are copied ahead; then four more that were not asked for
/// again, which LFU would choose.
async fn copied_and_cold(ground: &Ground) -> [Vec<SequenceHash>; 2] {
    let (manager, runs) = (&ground.manager, [hashes(1, 4), hashes(2, 4)]);
    drop(compute(manager, &runs[0], None).await);
    (0..2).for_each(|_| drop(manager.default_group().match_prefix(&runs[0]).into_device()));
    manager.step().expect("none runs");
    rest(manager).await;
    assert_eq!(manager.stats().offloaded[0], 4);
    drop(compute(manager, &runs[1], None).await);
    runs
}

fn in_device(manager: &Tiers, run: &[SequenceHash]) -> usize {
    manager.default_group().match_prefix(run).device().len()
}

#[tokio::test]
async fn blocks_copied_ahead_leave_first_without_a_wait() {
    let ground = Ground::of(all_ahead(Policy::Lfu), 8, 32);
    let group = ground.manager.default_group();
    let [copied, cold] = copied_and_cold(&ground).await;
    ground.mover.close();
    let blocks = group.try_allocate(4).expect("four that need no copy");
    assert_eq!(ground.mover.waiting(), 0, "none is copied for it");
    assert_eq!((in_device(&ground.manager, &copied), in_device(&ground.manager, &cold)), (0, 4));
    assert_eq!(group.match_prefix(&copied).in_tier(Tier::Host), 4);
    assert_eq!(group.pool_stats(Tier::Device).evicted, 4);
    drop(blocks);
}

#[tokio::test]
async fn block_used_since_its_copy_ahead_stays() {
    let ground = Ground::of(all_ahead(Policy::Lfu), 8, 32);
    let group = ground.manager.default_group();
    let [copied, cold] = copied_and_cold(&ground).await;
    drop(group.match_prefix(&copied).into_device());
    drop(group.allocate(4).await.expect("four are idle"));
    assert_eq!((in_device(&ground.manager, &copied), in_device(&ground.manager, &cold)), (4, 0));
    // The next iteration finds them again, and they are ready once more.
    ground.manager.step().expect("none runs");
    rest(&ground.manager).await;
    drop(compute(&ground.manager, &hashes(3, 4), None).await);
    ground.mover.close();
    assert!(group.try_allocate(4).is_some());
    assert_eq!(in_device(&ground.manager, &copied), 0);
}

#[tokio::test]
async fn parent_of_a_used_child_stays() {
    let ground = Ground::of(all_ahead(Policy::Lfu), 8, 32);
    let (manager, run, cold) = (&ground.manager, hashes(1, 4), hashes(2, 4));
    let mut leaf = compute(manager, &run, None).await;
    leaf.drop_first(3);
    manager.step().expect("none runs");
    rest(manager).await;
    assert_eq!(manager.stats().offloaded[0], 3);
    drop(compute(manager, &cold, None).await);
    drop(manager.default_group().allocate(3).await.expect("the cold ones"));
    assert_eq!((in_device(manager, &run), in_device(manager, &cold)), (4, 1));
    drop(leaf);
}

/// The host has let go of their copies, so they would have to be copied again: other blocks leave.
#[tokio::test]
async fn block_without_its_copy_below_is_not_ready() {
    let ground = Ground::of(all_ahead(Policy::Lfu).host_headroom(0).host_blocks(4), 8, 4);
    let manager = &ground.manager;
    let group = manager.default_group();
    let [copied, cold] = copied_and_cold(&ground).await;
    let held = group.match_prefix(&cold).into_device();
    assert_eq!(group.offload(&held, Default::default()).await.copied, 4, "in the others' places");
    drop(held);
    ground.mover.close();
    assert!(group.try_allocate(4).is_some(), "four that need no copy");
    assert_eq!((in_device(manager, &copied), in_device(manager, &cold)), (4, 0));
    // Those are copied when they leave.
    ground.mover.open();
    drop(group.allocate(8).await.expect("idle"));
    rest(manager).await;
    let up = group.onboard(group.match_prefix(&copied), Default::default()).expect("fits").await;
    check(manager, &up.blocks, &copied);
}

/// Blocks that the engine does not expect to ask for leave before all that are ready.
#[tokio::test]
async fn low_priority_leaves_before_blocks_copied_ahead() {
    let ground = Ground::of(all_ahead(Policy::Lfu), 8, 32);
    let manager = &ground.manager;
    let group = manager.default_group();
    let [copied, cold] = copied_and_cold(&ground).await;
    let held = group.match_prefix(&cold[2..]).into_device();
    held.set_priority(Priority::Low);
    drop(held);
    drop(group.allocate(2).await.expect("idle"));
    assert_eq!(in_device(manager, &cold), 2);
    drop(group.allocate(4).await.expect("two are free"));
    assert_eq!((in_device(manager, &copied), in_device(manager, &cold)), (2, 2));
}

/// The same for the host, over a disk.
#[tokio::test]
async fn host_blocks_copied_ahead_leave_first() {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = settings(12, 8).device_policy(Policy::Lfu).host_policy(Policy::Lfu).host_headroom(0);
    let settings = settings.watermark_host(0.3).watermark_host_low(0.0);
    let volume = vec![directory.path().join("volume")];
    let manager = crate::ground::build(settings.disk_paths(volume).disk_bytes(Some(4 << 20)));
    let group = manager.default_group();
    let copied = hashes(1, 4);
    for run in [&copied, &hashes(2, 4)] {
        let blocks = compute(&manager, run, None).await;
        assert_eq!(group.offload(&blocks, Default::default()).await.copied, 4);
        if run == &copied {
            manager.step().expect("none runs");
            rest(&manager).await;
            assert_eq!(manager.stats().offloaded[1], 4);
        }
    }
    // More than the host has room for.
    let blocks = compute(&manager, &hashes(3, 4), None).await;
    assert_eq!(group.offload(&blocks, Default::default()).await.copied, 4);
    assert_eq!(manager.stats().offloaded[1], 4, "none is written for it");
    assert_eq!(group.pool_stats(Tier::Host).evicted, 4);
    drop(blocks);
}
