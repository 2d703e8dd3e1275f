//! Copies by choice without a host block are deferred: they are neither started again and again, nor
//! forgotten.

use crate::flying::look;
use crate::gated::Ground;
use crate::ground::{BYTES, compute, hashes, rest, settings, still};
use crate::grounded::{HEADROOM, HOST, INACTIVE, disk, full, until};
use crate::sim::SimDisk;
use kvstrata::config::WriteMode;
use kvstrata::manager::{Iteration, Offload, OffloadOptions, Refusal, Tiers};
use kvstrata::scheduler::Gate;
use kvstrata::tier::Tier;
use kvstrata::transfer::{Cause, Path, TierPort};
use std::pin::pin;
use std::sync::Arc;

const LAYERS: u64 = 8;

fn called_off(manager: &Tiers) -> u64 {
    manager.stats().path(Path::DeviceToHost).failed_by(Cause::Cancelled)
}

/// Offloads blocks of a pass by layers, two layers a step, behind the first step, which is done.
async fn begin_by_layers(ground: &Ground, blocks: &kvstrata::manager::Blocks, pass: &Iteration) -> Offload {
    let manager = &ground.manager;
    pass.layer_done(1).expect("in turn");
    let gate = Gate::Layer { iteration: pass.number(), layer: 1 };
    let offload = manager.default_group().offload(blocks, OffloadOptions::default().gate(gate));
    still(manager).await;
    assert_eq!(manager.census().gated, blocks.len(), "they wait for the next step");
    offload
}

/// All host blocks are being copied to the disk, and none leaves the host.
#[tokio::test]
async fn write_through_waits_for_host_blocks_being_written() {
    let disk = disk();
    let port = Arc::<SimDisk>::clone(&disk) as Arc<dyn TierPort>;
    let settings = settings(16, HOST).host_headroom(HEADROOM).offload_mode(WriteMode::Through);
    let ground =
        Ground::over(settings.transfer_in_flight_host_to_disk(Some(BYTES as u64)), 16, HOST, Some(port));
    let manager = &ground.manager;
    disk.gate().hold();
    let held = compute(manager, &hashes(1, 16), None).await;
    until("as many are there as may be", || {
        manager.default_group().pool_stats(Tier::Host).stored == INACTIVE
    })
    .await;
    assert_eq!((manager.census().grounded, called_off(manager)), (16 - INACTIVE as usize, 0));
    disk.gate().open();
    rest(manager).await;
    assert_eq!((disk.counts().written, called_off(manager)), (16, 0));
    drop(held);
}

/// A match holds all host blocks, so copies into the host wait. Copies from the host to the disk do not.
#[tokio::test]
async fn deferred_copy_without_host_block_is_made_at_shutdown() {
    let disk = disk();
    let port = Arc::<SimDisk>::clone(&disk) as Arc<dyn TierPort>;
    let settings =
        settings(16, HOST).host_headroom(HEADROOM).offload_mode(WriteMode::Through).transfer_queue(2);
    let settings = settings.transfer_in_flight_host_to_disk(Some(BYTES as u64));
    let ground = Ground::over(settings, 16, HOST, Some(port));
    let manager = &ground.manager;
    let group = manager.default_group();
    disk.gate().hold();
    let all = hashes(1, 16);
    let mut held = compute(manager, &all, None).await;
    until("as many are there as may be", || group.pool_stats(Tier::Host).stored == INACTIVE).await;
    held.drop_first(INACTIVE as usize);
    drop(group.allocate(INACTIVE as usize).await.expect("the host has them"));
    let found = group.match_prefix(&all[..INACTIVE as usize]);
    assert_eq!(found.in_tier(Tier::Host), INACTIVE as usize);
    disk.gate().let_go(INACTIVE as usize);
    until("on the disk", || disk.counts().written == INACTIVE).await;
    rest(manager).await;
    drop(found);
    disk.gate().open();
    assert!(manager.shutdown().await, "a clean end");
    assert_eq!(disk.counts().written, 16);
    drop(held);
}

#[tokio::test]
async fn copy_without_host_block_starts_once_there_is_one() {
    let (disk, ground) = full(settings(16, HOST).watermark_device(0.6).watermark_device_low(0.5)).await;
    let manager = &ground.manager;
    let group = manager.default_group();
    let below = hashes(1, INACTIVE);
    let found = group.match_prefix(&below);
    assert_eq!(found.in_tier(Tier::Host), INACTIVE as usize, "nobody else has those of the host");
    {
        let mut persisted = pin!(group.persist(&below[..1]));
        assert!(look(persisted.as_mut()).is_pending());
        manager.step().expect("none runs");
        assert_eq!(manager.census().grounded, 8, "one may be had when it is written");
        disk.gate().let_go(1);
        assert_eq!(persisted.await.copied, 1);
    }
    until("it is held", || manager.census().grounded == 0).await;
    assert_eq!(called_off(manager), 8);
    let mut persisted = pin!(group.persist(&below[1..2]));
    assert!(look(persisted.as_mut()).is_pending());
    for _ in 0..3 {
        manager.step().expect("none runs");
        assert_eq!((manager.census().grounded, called_off(manager)), (0, 8), "nothing has changed");
    }
    drop(found);
    manager.step().expect("none runs");
    assert_eq!(manager.census().grounded, 7, "one has the block that the disk has, too");
    disk.gate().open();
    assert_eq!(persisted.await.copied, 1);
    rest(manager).await;
    assert_eq!((manager.stats().offloaded[0], called_off(manager)), (INACTIVE + 8, 8));
}

/// By then host blocks can be freed, and blocks that need no copy are not copied.
#[tokio::test]
async fn copy_into_host_full_of_gated_copies_starts_after_the_pass() {
    let settings = settings(8, 2).watermark_device(0.3).watermark_device_low(0.0);
    let ground = Ground::with_layers(settings, (8, 2), LAYERS as usize, None);
    let manager = &ground.manager;
    let running = manager.begin_iteration().expect("none runs");
    drop(compute(manager, &hashes(1, 4), None).await);
    let pass = compute(manager, &hashes(2, 2), None).await;
    let offload = begin_by_layers(&ground, &pass, &running).await;
    manager.check_watermark();
    assert_eq!((manager.census().down, called_off(manager)), (2, 0));
    running.end().expect("one runs");
    assert_eq!(offload.await.copied, 2);
    for _ in 0..4 {
        manager.check_watermark();
        rest(manager).await;
    }
    assert_eq!(manager.stats().offloaded[0], 6);
}

/// They move nothing meanwhile, and each has a host block. When their next step opens, they may
/// be more than the queue's bound.
#[tokio::test]
async fn gated_copies_take_no_room_of_the_queue() {
    const BOUND: u32 = 2;
    let one = settings(16, 16).transfer_in_flight_device_to_host(Some(BYTES as u64));
    let ground = Ground::with_layers(one.transfer_queue(BOUND), (16, 16), LAYERS as usize, None);
    let manager = &ground.manager;
    let others = compute(manager, &hashes(1, 2), None).await;
    let running = manager.begin_iteration().expect("none runs");
    let pass = compute(manager, &hashes(2, 8), None).await;
    let offload = begin_by_layers(&ground, &pass, &running).await;
    let mut first = others.clone();
    first.truncate(1);
    let whole = manager.default_group().offload(&first, OffloadOptions::default()).await;
    assert_eq!((whole.copied, whole.refused), (1, 0), "who goes whole finds room");
    ground.mover.close();
    running.layer_done(3).expect("in turn");
    assert_eq!((manager.census().queued, manager.census().moving), (4, 4), "more than may wait");
    let mut second = others.clone();
    second.drop_first(1);
    assert_eq!(manager.default_group().offload(&second, OffloadOptions::default()).await.refused, 1);
    assert_eq!(manager.stats().refused_by(Refusal::Queue), 1);
    ground.mover.open();
    running.end().expect("one runs");
    assert_eq!(offload.await.copied, 8);
}
