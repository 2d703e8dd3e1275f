//! What is brought up before it is asked for.

use super::flying::look;
use super::ground::{build, check, compute, hashes, rest, settings};
use crate::gated::Ground;
use kvstrata::manager::OnboardOptions;
use kvstrata::tier::Tier;

#[tokio::test]
async fn a_hint_brings_blocks_up_and_keeps_what_is_there() {
    let manager = build(settings(8, 32).prefetch_blocks(3));
    let wanted = hashes(1, 6);
    drop(compute(&manager, &wanted, None).await);
    drop(compute(&manager, &hashes(2, 5), None).await);
    rest(&manager).await;
    let found = manager.match_prefix(&wanted);
    assert_eq!((found.in_tier(Tier::Device), found.in_tier(Tier::Host)), (3, 3));
    drop(found);
    manager.prefetch(&wanted).detach();
    rest(&manager).await;
    let found = manager.match_prefix(&wanted);
    assert_eq!(found.in_tier(Tier::Device), 6);
    check(&manager, found.device(), &wanted);
    assert_eq!(manager.stats().onboarded[0], 3);
}

#[tokio::test]
async fn whoever_waits_for_blocks_has_them_before_a_guess_has() {
    let manager = build(settings(8, 32).prefetch_blocks(8));
    let wanted = hashes(1, 8);
    drop(compute(&manager, &wanted, None).await);
    let all = manager.allocate(8).await.expect("blocks");
    let hint = manager.prefetch(&wanted);
    rest(&manager).await;
    assert_eq!(manager.stats().onboarded[0], 0, "there is no block for it");
    drop(hint);
    drop(all);
    rest(&manager).await;
    assert_eq!(manager.stats().onboarded[0], 0, "the hint was withdrawn");
    let hint = manager.prefetch(&wanted);
    let eight = manager.allocate(8).await.expect("all of them, whatever was guessed");
    drop((hint, eight));
    rest(&manager).await;
    let up = manager.onboard(manager.match_prefix(&wanted), OnboardOptions::default()).expect("fits").await;
    check(&manager, &up.blocks, &wanted);
}

#[tokio::test]
async fn blocks_that_are_used_often_come_back_when_there_is_room() {
    let manager = build(settings(8, 32).prefetch_threshold(0.2));
    let (hot, cold) = (hashes(1, 4), hashes(2, 4));
    drop(compute(&manager, &hot, None).await);
    drop(compute(&manager, &cold, None).await);
    for _ in 0..4 {
        drop(manager.match_prefix(&hot));
    }
    let all = manager.allocate(8).await.expect("blocks");
    rest(&manager).await;
    drop(all);
    rest(&manager).await;
    manager.step().expect("none runs");
    rest(&manager).await;
    let there = |hashes: &[_]| manager.match_sequence_hashes(hashes).len();
    assert_eq!((there(&hot), there(&cold)), (4, 0));
}

#[tokio::test]
async fn heat_is_not_forgotten_while_a_block_is_on_its_way_down() {
    let ground = Ground::of(settings(8, 32).prefetch_threshold(0.2), 8, 32);
    let hot = hashes(1, 4);
    drop(compute(&ground.manager, &hot, None).await);
    for _ in 0..4 {
        drop(ground.manager.match_prefix(&hot));
    }
    let others = ground.manager.try_allocate(4).expect("free ones");
    ground.mover.close();
    assert!(look(ground.manager.allocate(4)).is_pending(), "the hot ones are on their way");
    drop(others);
    // There is room, and they are not below yet.
    ground.manager.check_watermark();
    ground.mover.open();
    rest(&ground.manager).await;
    assert_eq!(ground.manager.match_sequence_hashes(&hot).len(), 4);
}
