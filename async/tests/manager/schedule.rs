//! When copies down start: watermarks, idle blocks, write modes, gates, budgets of iterations.

use super::ground::{BYTES, build, check, compute, hashes, rest, settings};
use crate::gated::Ground;
use kvstrata::config::WriteMode;
use kvstrata::manager::{OffloadOptions, OnboardOptions};
use kvstrata::scheduler::Gate;
use kvstrata::tier::Tier;
use kvstrata::transfer::{Cause, Path};
use std::time::Duration;

#[tokio::test]
async fn watermark_copies_next_victims_for_evictions_without_wait() {
    let manager = build(settings(20, 64).watermark_device(0.9).watermark_device_low(0.5));
    let group = manager.default_group();
    let all = hashes(1, 20);
    drop(compute(&manager, &all[..17], None).await);
    manager.step().expect("no iteration runs");
    rest(&manager).await;
    assert_eq!(manager.stats().offloaded[0], 0, "3 of 20 are free: below the mark");
    drop(compute(&manager, &hashes(2, 2), None).await);
    manager.step().expect("no iteration runs");
    rest(&manager).await;
    assert_eq!(manager.stats().offloaded[0], 9, "half of 20, but the one that is free");
    // Copied is not evicted.
    let found = group.match_prefix(&all[..17]);
    assert_eq!(found.in_tier(Tier::Device), 17);
    drop(found);
    manager.step().expect("no iteration runs");
    rest(&manager).await;
    // The match above made others the next victims: those of the second sequence, then the first one's tail.
    let before = manager.stats().path(Path::DeviceToHost).transfers;
    let taken = group.try_allocate(8).expect("nothing to wait for");
    assert_eq!(taken.len(), 8);
    rest(&manager).await;
    assert_eq!(manager.stats().path(Path::DeviceToHost).transfers, before);
    drop(taken);
    let found = group.match_prefix(&all[..17]);
    assert_eq!((found.len(), found.in_tier(Tier::Host)), (17, 5));
    let up = group.onboard(found, OnboardOptions::default()).expect("fits").await;
    check(&manager, &up.blocks, &all[..17]);
}

#[tokio::test]
async fn blocks_idle_for_long_enough_are_copied() {
    let manager = build(settings(20, 64).idle_host_after(Some(3)));
    drop(compute(&manager, &hashes(1, 4), None).await);
    for _ in 0..2 {
        manager.step().expect("no iteration runs");
    }
    drop(compute(&manager, &hashes(2, 3), None).await);
    rest(&manager).await;
    assert_eq!(manager.stats().offloaded[0], 0);
    manager.step().expect("no iteration runs");
    rest(&manager).await;
    assert_eq!(manager.stats().offloaded[0], 4);
    for _ in 0..5 {
        manager.step().expect("no iteration runs");
    }
    rest(&manager).await;
    assert_eq!(manager.stats().offloaded[0], 7, "each once");
}

#[tokio::test]
async fn write_modes_copy_at_the_first_or_second_use() {
    let manager = build(settings(8, 64).offload_mode(WriteMode::Through));
    let held = compute(&manager, &hashes(1, 4), None).await;
    rest(&manager).await;
    assert_eq!(manager.stats().offloaded[0], 4);
    drop(held);
    let taken = manager.default_group().try_allocate(8).expect("nothing to wait for");
    drop(taken);
    assert_eq!(manager.default_group().match_prefix(&hashes(1, 4)).in_tier(Tier::Host), 4);

    let manager = build(settings(8, 64).offload_mode(WriteMode::SecondUse));
    drop(compute(&manager, &hashes(1, 4), None).await);
    drop(compute(&manager, &hashes(2, 4), None).await);
    rest(&manager).await;
    assert_eq!(manager.stats().offloaded[0], 0);
    drop(manager.default_group().match_prefix(&hashes(1, 2)));
    rest(&manager).await;
    assert_eq!(manager.stats().offloaded[0], 2);
    drop(manager.default_group().match_prefix(&hashes(1, 2)));
    let taken = manager.default_group().allocate(8).await.expect("blocks");
    rest(&manager).await;
    assert_eq!(manager.stats().offloaded[0], 2, "what was used once is not worth a copy");
    drop(taken);
    assert_eq!(manager.default_group().match_prefix(&hashes(1, 4)).len(), 2);
    assert_eq!(manager.default_group().match_prefix(&hashes(2, 4)).len(), 0);
}

#[tokio::test]
async fn offload_waits_for_its_gate() {
    let manager = build(settings(8, 16));
    let blocks = compute(&manager, &hashes(1, 4), None).await;
    let pass = manager.begin_iteration().expect("none runs");
    let iteration = pass.number();
    let gated = |gate| OffloadOptions::default().gate(gate);
    let offload = manager.default_group().offload(&blocks, gated(Gate::Iteration(iteration)));
    assert_eq!((manager.census().gated, manager.census().down), (4, 0), "the iteration still writes them");
    pass.end().expect("one runs");
    assert_eq!(offload.await.copied, 4);
    assert_eq!(manager.default_group().offload(&blocks, OffloadOptions::default()).await.there, 4);
}

#[tokio::test]
async fn offload_with_shut_gate_fails_at_its_deadline() {
    let manager = build(settings(8, 16).deadline_offload(Duration::from_millis(20)));
    let group = manager.default_group();
    let blocks = compute(&manager, &hashes(1, 4), None).await;
    let gated = OffloadOptions::default().gate(Gate::Iteration(5));
    let down = tokio::time::timeout(Duration::from_secs(20), group.offload(&blocks, gated)).await;
    let down = down.expect("answered, though no iteration begins");
    assert_eq!((down.failed, down.copied, down.cause), (4, 0, Some(Cause::Deadline)));
    // The gates may be looked at a moment after the answer.
    let counted = || manager.stats().path(Path::DeviceToHost).failed_by(Cause::Deadline);
    let all = async {
        while counted() < 4 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("counted");
    // An offload that its caller dropped keeps no block either.
    drop(group.offload(&blocks, gated));
    drop(blocks);
    let all = group.allocate(8).deadline(Duration::from_secs(20)).await;
    assert_eq!(all.expect("nobody holds them").len(), 8);
    assert!(manager.census().is_idle());
}

#[tokio::test]
async fn unawaited_copies_keep_to_the_iteration_budget() {
    let bytes = super::ground::BYTES as u64;
    let manager = build(settings(8, 16).iteration_bytes(Some(3 * bytes)));
    let blocks = compute(&manager, &hashes(1, 8), None).await;
    let pass = manager.begin_iteration().expect("none runs");
    let offload = manager.default_group().offload(&blocks, OffloadOptions::default());
    while manager.census().moving > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!((manager.stats().offloaded[0], manager.census().queued), (3, 5));
    pass.end().expect("one runs");
    for _ in 0..2 {
        manager.step().expect("none runs");
    }
    assert_eq!(offload.await.copied, 8);
}

/// A copy that a caller awaits moves on while the engine is idle. An engine that iterates, or is within
/// an iteration, has its budget kept.
#[tokio::test]
async fn budget_of_an_idle_engine_delays_no_caller() {
    let budget = |idle| settings(8, 16).iteration_bytes(Some(BYTES as u64)).iteration_idle(Some(idle));
    let (soon, late) = (Duration::from_millis(1), Duration::from_secs(3600));
    let manager = build(budget(soon).deadline_offload(Duration::from_secs(20)));
    let blocks = compute(&manager, &hashes(1, 8), None).await;
    let offload = manager.default_group().offload(&blocks, OffloadOptions::default()).await;
    assert_eq!((offload.copied, offload.cause), (8, None));
    drop(blocks);
    // Within an iteration the budget is kept, however long that takes, and so it is before the engine
    // counts as idle.
    for (idle, runs) in [(soon, true), (late, false)] {
        let manager = build(budget(idle));
        let blocks = compute(&manager, &hashes(1, 8), None).await;
        let _pass = runs.then(|| manager.begin_iteration().expect("none runs"));
        let mut offload = manager.default_group().offload(&blocks, OffloadOptions::default());
        let for_a_while = tokio::time::timeout(20 * soon, &mut offload).await;
        assert!(for_a_while.is_err(), "{runs}");
        assert_eq!((manager.stats().offloaded[0], manager.census().queued), (1, 7), "{runs}");
    }
}

/// The budget is kept between two iterations, however long the first one was.
#[tokio::test(start_paused = true)]
async fn engine_is_idle_from_the_end_of_its_last_iteration() {
    let idle = Duration::from_millis(100);
    let ground =
        Ground::of(settings(8, 16).iteration_bytes(Some(BYTES as u64)).iteration_idle(Some(idle)), 8, 16);
    let manager = &ground.manager;
    let blocks = compute(manager, &hashes(1, 8), None).await;
    ground.mover.close();
    let mut pass = Some(manager.begin_iteration().expect("none runs"));
    let _offload = manager.default_group().offload(&blocks, OffloadOptions::default());
    for (after, at_work) in [(99, 1), (2, 1), (97, 1), (5, 8)] {
        tokio::time::advance(Duration::from_millis(after)).await;
        if after == 99 {
            pass.take().expect("once").end().expect("one runs");
        }
        // The manager's task has its turn.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(manager.census().moving, at_work, "after {after} more");
    }
    ground.mover.open();
    drop(blocks);
}
