//! Blocks that are brought up before a request asks for them.

use super::flying::look;
use super::ground::{BYTES, build, check, compute, hashes, rest, settings};
use crate::gated::Ground;
use kvstrata::config::WriteMode;
use kvstrata::manager::OnboardOptions;
use kvstrata::tier::Tier;
use std::pin::pin;

#[tokio::test]
async fn hint_brings_blocks_up_and_keeps_device_blocks() {
    let manager = build(settings(8, 32).prefetch_blocks(3));
    let group = manager.default_group();
    let wanted = hashes(1, 6);
    drop(compute(&manager, &wanted, None).await);
    drop(compute(&manager, &hashes(2, 5), None).await);
    rest(&manager).await;
    let found = group.match_prefix(&wanted);
    assert_eq!((found.in_tier(Tier::Device), found.in_tier(Tier::Host)), (3, 3));
    drop(found);
    group.prefetch(&wanted).detach();
    rest(&manager).await;
    let found = group.match_prefix(&wanted);
    assert_eq!(found.in_tier(Tier::Device), 6);
    check(&manager, found.device(), &wanted);
    assert_eq!(manager.stats().onboarded[0], 3);
}

/// A hint keeps no more memory than the device's blocks need.
#[tokio::test]
async fn hint_longer_than_the_device_is_cut_and_counted() {
    let manager = build(settings(4, 32));
    let group = manager.default_group();
    let wanted = hashes(1, 12);
    for part in wanted.chunks(4) {
        drop(compute(&manager, part, None).await);
    }
    drop(group.allocate(4).await.expect("blocks"));
    rest(&manager).await;
    assert_eq!(group.match_prefix(&wanted).in_tier(Tier::Host), 12);
    group.prefetch(&wanted[..4]).detach();
    rest(&manager).await;
    assert_eq!((manager.stats().hints_cut, manager.stats().onboarded[0]), (0, 4));
    group.prefetch(&wanted).detach();
    rest(&manager).await;
    let found = group.match_prefix(&wanted);
    assert_eq!((found.in_tier(Tier::Device), found.in_tier(Tier::Host)), (4, 8));
    assert_eq!((manager.stats().hints_cut, manager.stats().onboarded[0]), (8, 4));
}

#[tokio::test]
async fn allocation_gets_blocks_before_a_prefetch() {
    let manager = build(settings(8, 32).prefetch_blocks(8));
    let group = manager.default_group();
    let wanted = hashes(1, 8);
    drop(compute(&manager, &wanted, None).await);
    let all = group.allocate(8).await.expect("blocks");
    let hint = group.prefetch(&wanted);
    rest(&manager).await;
    assert_eq!(manager.stats().onboarded[0], 0, "there is no block for it");
    drop(hint);
    drop(all);
    rest(&manager).await;
    assert_eq!(manager.stats().onboarded[0], 0, "the hint was withdrawn");
    let hint = group.prefetch(&wanted);
    let eight = group.allocate(8).await.expect("all of them, whatever was guessed");
    drop((hint, eight));
    rest(&manager).await;
    let up = group.onboard(group.match_prefix(&wanted), OnboardOptions::default()).expect("fits").await;
    check(&manager, &up.blocks, &wanted);
}

#[tokio::test]
async fn hot_blocks_come_back_when_there_is_room() {
    let manager = build(settings(8, 32).prefetch_threshold(0.2));
    let group = manager.default_group();
    let (hot, cold) = (hashes(1, 4), hashes(2, 4));
    drop(compute(&manager, &hot, None).await);
    drop(compute(&manager, &cold, None).await);
    for _ in 0..4 {
        drop(group.match_prefix(&hot));
    }
    let all = group.allocate(8).await.expect("blocks");
    rest(&manager).await;
    drop(all);
    rest(&manager).await;
    manager.step().expect("none runs");
    rest(&manager).await;
    let there = |hashes: &[_]| group.match_device(hashes).len();
    assert_eq!((there(&hot), there(&cold)), (4, 0));
}

/// A serving device is full. A hot block takes the place of a cold one that is below already, and of no
/// other.
#[tokio::test]
async fn hot_blocks_replace_cold_ones_that_are_below() {
    for (mode, back) in [(WriteMode::Through, 4), (WriteMode::Back, 0)] {
        let manager = build(settings(8, 32).prefetch_threshold(0.2).offload_mode(mode));
        let hot = hashes(1, 4);
        drop(compute(&manager, &hot, None).await);
        for _ in 0..4 {
            drop(manager.default_group().match_prefix(&hot));
        }
        drop(compute(&manager, &hashes(2, 8), None).await);
        rest(&manager).await;
        manager.step().expect("none runs");
        rest(&manager).await;
        assert_eq!(manager.default_group().match_device(&hot).len(), back, "{mode:?}");
    }
}

#[tokio::test]
async fn heat_is_kept_while_a_block_is_on_its_way_down() {
    let ground = Ground::of(settings(8, 32).prefetch_threshold(0.2), 8, 32);
    let group = ground.manager.default_group();
    let hot = hashes(1, 4);
    drop(compute(&ground.manager, &hot, None).await);
    // Uses in the device alone count, too.
    for _ in 0..2 {
        drop(group.match_device(&hot));
        hot.iter().for_each(|hash| assert!(group.touch(*hash)));
    }
    let others = group.try_allocate(4).expect("free ones");
    ground.mover.close();
    assert!(look(group.allocate(4).into_future()).is_pending(), "the hot ones are on their way");
    drop(others);
    // There is room, and the blocks are not below yet.
    ground.manager.check_watermark();
    ground.mover.open();
    rest(&ground.manager).await;
    assert_eq!(group.match_device(&hot).len(), 4);
}

#[tokio::test]
async fn prefetch_waits_for_callers_held_at_a_quota() {
    let ground = Ground::of(settings(8, 32).prefetch_blocks(8).quota_device(0.25), 8, 32);
    let manager = &ground.manager;
    let a = manager.tenant("a").expect("few tenants");
    let wanted = hashes(1, 4);
    drop(compute(manager, &wanted, None).await);
    drop(manager.default_group().allocate(8).await.expect("blocks"));
    rest(manager).await;
    let all = a.default_group().try_allocate(2).expect("its quota");
    let mut held = pin!(a.default_group().allocate(1).into_future());
    assert!(look(held.as_mut()).is_pending());
    ground.mover.close();
    manager.default_group().prefetch(&wanted).detach();
    assert_eq!(manager.census().up, 0, "six blocks are free, and somebody waits");
    drop(all);
    ground.mover.open();
    drop(held.await.expect("it has credits now"));
    rest(manager).await;
    assert_eq!(manager.stats().onboarded[0], 4);
}

#[tokio::test]
async fn queued_prefetches_give_way_to_callers_held_at_a_quota() {
    let one_at_a_time = settings(8, 32).transfer_in_flight(BYTES as u64);
    let ground = Ground::of(one_at_a_time.prefetch_blocks(8).quota_device(0.25), 8, 32);
    let manager = &ground.manager;
    let a = manager.tenant("a").expect("few tenants");
    let wanted = hashes(1, 4);
    drop(compute(manager, &wanted, None).await);
    drop(manager.default_group().allocate(8).await.expect("blocks"));
    rest(manager).await;
    let _all = a.default_group().try_allocate(2).expect("its quota");
    ground.mover.close();
    manager.default_group().prefetch(&wanted).detach();
    assert_eq!((manager.census().up, manager.census().moving), (4, 1));
    let mut held = pin!(a.default_group().allocate(1).into_future());
    assert!(look(held.as_mut()).is_pending());
    assert_eq!((manager.census().up, manager.census().moving), (1, 1));
    ground.mover.open();
}

#[tokio::test]
async fn queued_prefetch_gives_its_block_before_any_eviction() {
    let one_at_a_time = settings(8, 32).transfer_in_flight(BYTES as u64);
    let ground = Ground::of(one_at_a_time.prefetch_blocks(8).offload_mode(WriteMode::Through), 8, 32);
    let manager = &ground.manager;
    let group = manager.default_group();
    let (wanted, kept) = (hashes(1, 4), hashes(2, 4));
    drop(compute(manager, &wanted, None).await);
    drop(compute(manager, &kept, None).await);
    rest(manager).await;
    drop(group.allocate(4).await.expect("those of the wanted ones"));
    rest(manager).await;
    ground.mover.close();
    group.prefetch(&wanted).detach();
    assert_eq!((manager.census().up, manager.census().moving, group.available(Tier::Device)), (4, 1, 4));
    let three = group.allocate(3).await.expect("of guesses");
    assert_eq!((manager.census().up, group.match_device(&kept).len()), (1, 4));
    ground.mover.open();
    drop(three);
}
