//! Urgent work waits for no transfer that itself waits for an iteration, and for no full queue: no test
//! here begins an iteration while an urgent caller waits.

use crate::flying::look;
use crate::gated::Ground;
use crate::ground::{BYTES, build, check, compute, hashes, rest, settings, stepping, still};
use kvstrata::config::ManagerConfigBuilder;
use kvstrata::manager::{KvBlockManager, OffloadOptions, Onboard, OnboardOptions, Tiers};
use kvstrata::tier::Tier;
use kvstrata::transfer::Class;
use kvstrata_core::SequenceHash;
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(5);

/// With a disk, no host tier, and a budget of so many blocks.
fn on_disk(settings: ManagerConfigBuilder, budget: u64) -> (TempDir, KvBlockManager) {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = settings
        .iteration_bytes(Some(budget * BYTES as u64))
        .disk_paths(vec![directory.path().join("volume")])
        .disk_bytes(Some(64 << 20));
    (directory, build(settings))
}

/// Leaves these blocks in the tier below alone.
async fn below(manager: &Tiers, hashes: &[SequenceHash], capacity: usize) {
    drop(compute(manager, hashes, None).await);
    let persisted = stepping(manager, manager.default_group().persist(hashes)).await;
    assert_eq!(persisted.copied, hashes.len());
    drop(manager.default_group().allocate(capacity).await.expect("blocks"));
    rest(manager).await;
    manager.step().expect("none runs");
}

fn up(manager: &Tiers, hashes: &[SequenceHash], class: Class) -> Onboard {
    let found = manager.default_group().match_prefix(hashes);
    assert_eq!(found.len(), hashes.len());
    let options = OnboardOptions::default().class(class).deadline(PATIENCE);
    manager.default_group().onboard(found, options).expect("fits")
}

#[tokio::test]
async fn staged_prefetch_gives_way_to_an_allocation() {
    let (_directory, manager) = on_disk(settings(4, 0), 1);
    let wanted = hashes(1, 1);
    below(&manager, &wanted, 4).await;
    manager.default_group().prefetch(&wanted).detach();
    assert_eq!(manager.census().moving, 1, "the read has the whole budget");
    let blocks = manager.default_group().allocate(4).deadline(PATIENCE).await.expect("in time");
    assert_eq!(manager.census().staged, 0);
    drop(blocks);
    // The dropped block can still be brought up.
    let up = up(&manager, &wanted, Class::Urgent).await;
    check(&manager, &up.blocks, &wanted);
}

#[tokio::test]
async fn urgent_read_takes_staging_of_reads_awaiting_an_iteration() {
    let (_directory, manager) = on_disk(settings(8, 0).disk_staging(Some(2)), 2);
    let [slow, urgent] = [1, 2].map(|sequence| hashes(sequence, if sequence == 1 { 2 } else { 1 }));
    below(&manager, &slow, 8).await;
    below(&manager, &urgent, 8).await;
    let behind = up(&manager, &slow, Class::Background);
    still(&manager).await;
    assert_eq!(manager.census().staged, 2, "all of it, and no budget is left");
    let first = up(&manager, &urgent, Class::Urgent).await;
    assert_eq!(first.missed, None);
    check(&manager, &first.blocks, &urgent);
    check(&manager, &behind.await.blocks, &slow);
}

#[tokio::test]
async fn urgent_read_takes_staging_of_copies_awaiting_an_iteration() {
    let (_directory, manager) = on_disk(settings(8, 0).disk_staging(Some(2)), 2);
    let urgent = hashes(1, 1);
    below(&manager, &urgent, 8).await;
    let held = compute(&manager, &hashes(2, 2), None).await;
    let offload = manager.default_group().offload(&held, OffloadOptions::default());
    still(&manager).await;
    assert_eq!(manager.census().staged, 2, "all of it, and no budget is left");
    let first = up(&manager, &urgent, Class::Urgent).await;
    assert_eq!(first.missed, None);
    check(&manager, &first.blocks, &urgent);
    assert_eq!(offload.await.copied, 2);
}

#[tokio::test]
async fn victim_takes_staging_of_reads_awaiting_an_iteration() {
    let (_directory, manager) = on_disk(settings(4, 0).disk_staging(Some(2)), 2);
    let slow = hashes(1, 2);
    below(&manager, &slow, 4).await;
    drop(compute(&manager, &hashes(2, 2), None).await);
    let behind = up(&manager, &slow, Class::Background);
    still(&manager).await;
    assert_eq!(manager.census().staged, 2);
    assert_eq!(manager.default_group().allocate(2).deadline(PATIENCE).await.expect("in time").len(), 2);
    check(&manager, &behind.await.blocks, &slow);
}

#[tokio::test]
async fn victim_passes_host_copies_awaiting_an_iteration() {
    let manager = build(settings(8, 4).host_headroom(0).iteration_bytes(Some(BYTES as u64)));
    let group = manager.default_group();
    let spent = compute(&manager, &hashes(3, 1), None).await;
    assert_eq!(group.offload(&spent, OffloadOptions::default()).await.copied, 1);
    drop(spent);
    let held = compute(&manager, &hashes(1, 4), None).await;
    drop(compute(&manager, &hashes(2, 3), None).await);
    let offload = group.offload(&held, OffloadOptions::default());
    assert_eq!((manager.census().tiers[0][1].owned, manager.census().moving), (4, 0));
    assert_eq!(group.allocate(4).deadline(PATIENCE).await.expect("in time").len(), 4);
    assert_eq!(offload.await.copied, 4);
}

#[tokio::test]
async fn urgent_onboard_passes_a_queue_full_of_background_reads() {
    let manager = build(settings(16, 32).transfer_queue(2).iteration_bytes(Some(BYTES as u64)));
    let [slow, urgent] = [1, 2].map(|sequence| hashes(sequence, 6 - 2 * (sequence - 1)));
    for sequence in [&slow, &urgent] {
        drop(compute(&manager, sequence, None).await);
    }
    drop(manager.default_group().allocate(16).await.expect("blocks"));
    rest(&manager).await;
    let behind = up(&manager, &slow[..4], Class::Background);
    still(&manager).await;
    assert!(manager.census().queued > 0);
    let first = up(&manager, &urgent[..2], Class::Urgent);
    let free = manager.default_group().allocate(1).deadline(PATIENCE).await.expect("in time");
    let first = first.await;
    assert_eq!((first.missed, free.len()), (None, 1));
    check(&manager, &first.blocks, &urgent[..2]);
    // A join makes transfers beside the queue as urgent as the joining call.
    let joined = up(&manager, &slow[..4], Class::Urgent).await;
    check(&manager, &joined.blocks, &slow[..4]);
    check(&manager, &behind.await.blocks, &slow[..4]);
}

#[tokio::test]
async fn free_blocks_are_given_beside_onboards_at_a_full_queue() {
    let ground = Ground::of(settings(16, 32).transfer_queue(2).transfer_in_flight(BYTES as u64), 16, 32);
    let (manager, all) = (&ground.manager, hashes(1, 12));
    drop(compute(manager, &all, None).await);
    drop(manager.default_group().allocate(16).await.expect("blocks"));
    rest(manager).await;
    ground.mover.close();
    let first = up(manager, &all[..4], Class::Urgent);
    let second = up(manager, &all[4..12], Class::Urgent);
    let census = manager.census();
    assert_eq!((census.moving, census.queued, census.up), (1, 2, 12), "no more than may wait do");
    assert_eq!(manager.default_group().allocate(4).deadline(PATIENCE).await.expect("in time").len(), 4);
    // Dropped while it waits beside the queue, and asked for again.
    drop(first);
    let first = up(manager, &all[..4], Class::Urgent);
    ground.mover.open();
    check(manager, &second.await.blocks, &all[4..12]);
    check(manager, &first.await.blocks, &all[..4]);
    rest(manager).await;
}

#[tokio::test]
async fn copies_by_choice_leave_the_host_headroom_to_victims() {
    let ground = Ground::of(settings(16, 8).host_headroom(4), 16, 8);
    let manager = &ground.manager;
    let group = manager.default_group();
    let held = compute(manager, &hashes(1, 8), None).await;
    drop(compute(manager, &hashes(2, 4), None).await);
    ground.mover.close();
    let offload = group.offload(&held, OffloadOptions::default().class(Class::Urgent));
    assert_eq!(manager.census().tiers[0][1].owned, 4, "of 8, whatever its class");
    let blocks = group.allocate(8).deadline(PATIENCE).into_future();
    tokio::pin!(blocks);
    assert!(look(blocks.as_mut()).is_pending());
    assert_eq!(manager.census().tiers[0][1].owned, 8, "four victims have it");
    ground.mover.open();
    assert_eq!(blocks.await.expect("in time").len(), 8);
    let offloaded = offload.await;
    assert_eq!((offloaded.copied, offloaded.refused), (4, 4));
    rest(manager).await;
    assert_eq!(group.match_prefix(&hashes(2, 4)).in_tier(Tier::Host), 4);
}

#[tokio::test]
async fn onboard_beside_a_full_queue_keeps_its_turn_for_reused_keys() {
    let manager = build(settings(16, 32).transfer_queue(2).iteration_bytes(Some(BYTES as u64)));
    let all = hashes(1, 7);
    drop(compute(&manager, &all, None).await);
    drop(manager.default_group().allocate(16).await.expect("blocks"));
    rest(&manager).await;
    let one = |block: usize| up(&manager, &all[block..=block], Class::Background);
    let first = one(0);
    still(&manager).await;
    // Two fill the queue, and three are beside it.
    let [_second, _third, _fourth, left, mut before] = [1, 2, 3, 4, 5].map(one);
    drop(left);
    let mut behind = one(6);
    assert_eq!((manager.census().queued, manager.census().up), (2, 5));
    while look(&mut before).is_pending() {
        assert!(look(&mut behind).is_pending(), "it came later");
        manager.step().expect("none runs");
        still(&manager).await;
    }
    assert!(look(&mut behind).is_pending(), "an iteration has bytes for one");
    manager.step().expect("none runs");
    check(&manager, &behind.await.blocks, &all[6..]);
    drop(first);
}
