//! Copies ahead of need reach each block that is due, in each tier. A copy that a full queue refuses is
//! made later.

use crate::gated::Ground;
use crate::ground::{BYTES, build, bytes_of, check, compute, hashes, rest, settings, still};
use kvstrata::OriginalNames;
use kvstrata::config::{ManagerConfigBuilder, WriteMode};
use kvstrata::manager::{Blocks, OffloadOptions, OnboardOptions, Tiers};
use kvstrata::tier::Tier;
use kvstrata::transfer::Cause;
use kvstrata_core::SequenceHash;
use std::time::Duration;

/// Runs iterations, and lets the copies of each finish.
async fn iterate(manager: &Tiers, times: usize) {
    for _ in 0..times {
        manager.step().expect("no iteration runs");
        rest(manager).await;
    }
}

/// Settings with a disk, and with no room kept free for evictions.
fn with_disk(settings: ManagerConfigBuilder) -> (tempfile::TempDir, ManagerConfigBuilder) {
    let directory = tempfile::tempdir().expect("a directory");
    let volume = directory.path().join("volume");
    let settings = settings.disk_paths(vec![volume]).disk_bytes(Some(4 << 20)).host_headroom(0);
    (directory, settings)
}

/// Registers blocks whose bytes do not matter.
async fn register(manager: &Tiers, hashes: &[SequenceHash]) -> Blocks {
    let blocks = manager.default_group().allocate(hashes.len()).await.expect("blocks");
    blocks.register(hashes, None).expect("registered")
}

#[tokio::test]
async fn idle_blocks_past_limit_are_all_copied() {
    let manager = build(settings(600, 1400).idle_host_after(Some(3)));
    drop(register(&manager, &hashes(1, 600)).await);
    iterate(&manager, 12).await;
    assert_eq!(manager.stats().offloaded[0], 600);
}

#[tokio::test]
async fn idle_copy_reaches_blocks_past_used_ones_and_reused_slots() {
    let manager = build(settings(900, 2000).idle_host_after(Some(3)));
    drop(register(&manager, &hashes(1, 900)).await);
    drop(manager.default_group().allocate(900).await.expect("blocks"));
    rest(&manager).await;
    assert_eq!(manager.stats().offloaded[0], 900);
    // The slots of these had other blocks before, which were not copied ahead.
    let held = register(&manager, &hashes(2, 300)).await;
    // These were released, and are in use again.
    drop(register(&manager, &hashes(3, 300)).await);
    let used = manager.default_group().match_prefix(&hashes(3, 300));
    iterate(&manager, 1).await;
    drop(register(&manager, &hashes(4, 300)).await);
    iterate(&manager, 12).await;
    assert_eq!(manager.stats().offloaded[0], 1200);
    drop((held, used));
}

#[tokio::test]
async fn watermark_copies_all_blocks_above_it() {
    const BLOCKS: u32 = 9500;
    let settings = settings(BLOCKS, BLOCKS).geometry_block_bytes(Some(64));
    let manager = build(settings.watermark_device(0.5).watermark_device_low(0.0));
    drop(register(&manager, &hashes(1, u64::from(BLOCKS))).await);
    iterate(&manager, 16).await;
    assert_eq!(manager.stats().offloaded[0], u64::from(BLOCKS));
}

#[tokio::test]
async fn host_watermark_copies_next_victims_to_disk_and_keeps_them() {
    let (_directory, settings) = with_disk(settings(20, 20));
    let manager = build(settings.watermark_host(0.9).watermark_host_low(0.5));
    let blocks = compute(&manager, &hashes(1, 17), None).await;
    assert_eq!(manager.default_group().offload(&blocks, OffloadOptions::default()).await.copied, 17);
    iterate(&manager, 1).await;
    assert_eq!(manager.stats().offloaded[1], 0, "3 of 20 are free: below the mark");
    let more = compute(&manager, &hashes(2, 2), None).await;
    assert_eq!(manager.default_group().offload(&more, OffloadOptions::default()).await.copied, 2);
    iterate(&manager, 1).await;
    assert_eq!(manager.stats().offloaded[1], 9, "half of 20, but the one that is free");
    assert_eq!(manager.census().tiers[0][1].inactive, 19, "copied is not evicted");
}

#[tokio::test]
async fn idle_blocks_reach_disk_counted_from_the_same_use() {
    let (_directory, settings) = with_disk(settings(20, 20));
    let manager = build(settings.idle_host_after(Some(3)).idle_disk_after(Some(5)));
    drop(compute(&manager, &hashes(1, 4), None).await);
    iterate(&manager, 2).await;
    assert_eq!(manager.stats().offloaded, [0, 0]);
    iterate(&manager, 2).await;
    assert_eq!(manager.stats().offloaded, [4, 0]);
    iterate(&manager, 1).await;
    assert_eq!(
        manager.stats().offloaded,
        [4, 4],
        "5 iterations after the use, whenever they have come to the host"
    );
    // A victim of the device brings its last use along, too.
    drop(compute(&manager, &hashes(2, 4), None).await);
    iterate(&manager, 2).await;
    drop(manager.default_group().allocate(20).await.expect("blocks"));
    iterate(&manager, 2).await;
    assert_eq!(manager.stats().offloaded, [8, 4]);
    iterate(&manager, 1).await;
    assert_eq!(manager.stats().offloaded, [8, 8]);
}

#[tokio::test]
async fn write_through_goes_on_to_the_disk() {
    let (_directory, settings) = with_disk(settings(8, 16));
    let manager = build(settings.offload_mode(WriteMode::Through));
    let held = compute(&manager, &hashes(1, 4), None).await;
    rest(&manager).await;
    assert_eq!(manager.stats().offloaded, [4, 4]);
    assert_eq!(manager.default_group().pool_stats(Tier::DISK).stored, 4);
    drop(held);
}

#[tokio::test]
async fn second_use_on_the_device_writes_through() {
    let manager = build(settings(8, 16).offload_mode(WriteMode::SecondUse));
    let all = hashes(1, 2);
    let held = compute(&manager, &all, None).await;
    assert!(manager.default_group().touch(all[1]));
    rest(&manager).await;
    assert_eq!(manager.stats().offloaded[0], 1);
    drop(manager.default_group().match_device(&all));
    rest(&manager).await;
    assert_eq!(manager.stats().offloaded[0], 2);
    drop(held);
}

#[tokio::test]
async fn write_through_refused_by_full_queue_is_made_later() {
    for mode in [WriteMode::Through, WriteMode::SecondUse] {
        let bytes = Some(BYTES as u64);
        let settings = settings(8, 16).offload_mode(mode).transfer_queue(2).iteration_bytes(bytes);
        let manager = build(settings);
        let held = compute(&manager, &hashes(1, 8), None).await;
        drop(manager.default_group().match_prefix(&hashes(1, 8)));
        let all = async {
            while manager.stats().offloaded[0] < 8 {
                manager.step().expect("no iteration runs");
                tokio::task::yield_now().await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(5), all).await.is_ok(), "{mode:?}");
        drop(held);
    }
}

#[tokio::test]
async fn write_through_refused_is_made_without_iterations() {
    for mode in [WriteMode::Through, WriteMode::SecondUse] {
        let one_at_a_time = settings(8, 16).transfer_queue(2).transfer_in_flight(BYTES as u64);
        let (_directory, settings) = with_disk(one_at_a_time.offload_mode(mode));
        let manager = build(settings);
        let held = compute(&manager, &hashes(1, 8), None).await;
        drop(manager.default_group().match_prefix(&hashes(1, 8)));
        rest(&manager).await;
        let below = if mode == WriteMode::Through { 8 } else { 0 };
        assert_eq!(manager.stats().offloaded, [8, below], "{mode:?}");
        drop(held);
    }
}

#[tokio::test]
async fn deferred_copies_are_made_in_parts() {
    // Copies at a time, under the lock.
    const PART: usize = 64;
    const QUEUE: u32 = 2 * PART as u32;
    const BLOCKS: u32 = 4 * QUEUE;
    let bytes = u64::from(QUEUE) * BYTES as u64;
    let settings = settings(BLOCKS, BLOCKS).offload_mode(WriteMode::Through).transfer_queue(QUEUE);
    let ground = Ground::of(settings.iteration_bytes(Some(bytes)), BLOCKS, BLOCKS);
    let manager = &ground.manager;
    ground.mover.close();
    let held = register(manager, &hashes(1, u64::from(BLOCKS))).await;
    let census = manager.census();
    // The queue was full, and all of it began: the iteration had bytes for it.
    assert_eq!((census.moving, census.queued), (QUEUE as usize, PART));
    ground.mover.open();
    still(manager).await;
    assert_eq!(manager.census().queued, QUEUE as usize, "each that ends brings on others");
    let all = async {
        while manager.stats().offloaded[0] < u64::from(BLOCKS) {
            manager.step().expect("no iteration runs");
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(5), all).await.is_ok());
    drop(held);
}

#[tokio::test]
async fn hot_blocks_brought_up_meanwhile_are_not_prefetched() {
    let manager = build(settings(8, 32).prefetch_threshold(0.2));
    let group = manager.default_group();
    let (hot, cold) = (hashes(1, 4), hashes(2, 4));
    drop(compute(&manager, &hot, None).await);
    drop(compute(&manager, &cold, None).await);
    for _ in 0..4 {
        drop(group.match_prefix(&hot));
    }
    let mut all = group.allocate(8).await.expect("blocks");
    rest(&manager).await;
    let four = all.split_to(4);
    drop(four);
    let up = group.restore_to_gpu(&hot).await.expect("fits");
    assert_eq!(up.blocks.len(), 4);
    drop(all);
    iterate(&manager, 2).await;
    assert_eq!(manager.stats().onboarded[0], 4);
}

#[tokio::test]
async fn rotten_host_block_with_two_readers_is_replaced() {
    let ground = Ground::new(4, 16);
    let (manager, all) = (&ground.manager, hashes(1, 1));
    let group = manager.default_group();
    drop(compute(manager, &all, None).await);
    drop(group.allocate(4).await.expect("blocks"));
    rest(manager).await;
    for block in 0..16 {
        ground.memory.write(block).expect("nobody has it")[7] ^= 1;
    }
    ground.mover.close();
    let bring = || group.onboard(group.match_prefix(&all), OnboardOptions::default()).expect("fits");
    let (one, other) = (bring(), bring());
    ground.mover.open();
    for up in [one.await, other.await] {
        assert_eq!((up.blocks.len(), up.missed), (0, Some(Cause::Mismatch)));
    }
    assert_eq!(group.match_prefix(&all).len(), 0);
    drop(compute(manager, &all, None).await);
    drop(group.allocate(4).await.expect("blocks"));
    rest(manager).await;
    let up = group.restore_to_gpu(&all).await.expect("fits");
    check(manager, &up.blocks, &all);
}

#[tokio::test]
async fn rejected_disk_block_with_two_holders_is_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let volume = directory.path().join("volume");
    let manager = build(settings(4, 0).disk_paths(vec![volume.clone()]).disk_bytes(Some(4 << 20)));
    let group = manager.default_group();
    let all = hashes(1, 1);
    drop(compute(&manager, &all, None).await);
    drop(group.allocate(4).await.expect("blocks"));
    rest(&manager).await;
    let file = std::fs::read(&volume).expect("a volume");
    let good = bytes_of(all[0]);
    let place = file.windows(BYTES).position(|window| window == good).expect("it is on the disk");
    let volume = std::fs::OpenOptions::new().write(true).open(&volume).expect("a volume");
    std::os::unix::fs::FileExt::write_at(&volume, &[!good[0]], place as u64).expect("written");
    let (one, other) = (group.match_prefix(&all), group.match_prefix(&all));
    for found in [one, other] {
        let up = group.onboard(found, OnboardOptions::default()).expect("fits").await;
        assert_eq!((up.blocks.len(), up.missed), (0, Some(Cause::Rejected)));
    }
    assert_eq!(group.match_prefix(&all).len(), 0);
    drop(compute(&manager, &all, None).await);
    drop(group.allocate(4).await.expect("blocks"));
    rest(&manager).await;
    let up = group.restore_to_gpu(&all).await.expect("fits");
    check(&manager, &up.blocks, &all);
}
