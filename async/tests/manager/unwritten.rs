//! Blocks registered ahead of the pass that writes them: other callers find them, no copy reads them
//! before they are written, and none is kept if it never is.

use super::flying::look;
use super::ground::{BYTES, bytes_of, check, compute, hashes, rest, settings, still};
use crate::gated::Ground;
use kvstrata::OriginalNames;
use kvstrata::config::{ManagerConfigBuilder, WriteMode};
use kvstrata::manager::{Ahead, Blocks, Iteration, OffloadOptions, Offloaded, OnboardOptions, Tiers};
use kvstrata::scheduler::Gate;
use kvstrata::tier::Tier;
use kvstrata::transfer::{Cause, Path};
use kvstrata_core::{DevicePort, SequenceHash};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

pub fn ground(settings: ManagerConfigBuilder) -> Ground {
    Ground::of(settings, 8, 16)
}

/// Registers blocks ahead of an iteration, with bytes that no pass computed.
pub async fn ahead(ground: &Ground, hashes: &[SequenceHash], iteration: u64) -> (Blocks, Ahead) {
    let blocks = ground.manager.default_group().allocate(hashes.len()).await.expect("blocks");
    for block in blocks.ids() {
        ground.device.copy_in(block.0, 0, &[0xEE; BYTES]).expect("in range");
    }
    blocks.register_ahead(hashes, None, iteration).expect("registered")
}

/// Writes the blocks, as the pass does.
pub fn write(ground: &Ground, blocks: &Blocks, hashes: &[SequenceHash]) {
    for (block, hash) in blocks.ids().zip(hashes) {
        ground.device.copy_in(block.0, 0, &bytes_of(*hash)).expect("nobody copies it");
    }
}

/// Pushes the blocks out of the device, brings them up again, and checks their bytes.
pub async fn back(manager: &Tiers, hashes: &[SequenceHash]) {
    let group = manager.default_group();
    drop(group.allocate(group.capacity(Tier::Device)).await.expect("all of them"));
    rest(manager).await;
    let up = group.restore_to_gpu(hashes).await.expect("fits");
    check(manager, &up.blocks, hashes);
}

pub fn down(manager: &Tiers) -> u64 {
    manager.stats().path(Path::DeviceToHost).transfers
}

#[tokio::test]
async fn unwritten_block_is_written_through_after_its_pass() {
    let ground = ground(settings(8, 16).offload_mode(WriteMode::Through));
    let manager = &ground.manager;
    let pass = manager.begin_iteration().expect("none runs");
    let iteration = pass.number();
    let hashes = hashes(1, 3);
    let (blocks, _) = ahead(&ground, &hashes, iteration).await;
    assert_eq!((manager.census().unwritten, manager.census().gated), (3, 0));
    still(manager).await;
    assert_eq!((down(manager), manager.census().down), (0, 0));
    write(&ground, &blocks, &hashes);
    pass.end().expect("one runs");
    rest(manager).await;
    assert_eq!((down(manager), manager.census().unwritten), (3, 0));
    drop(blocks);
    back(manager, &hashes).await;
}

#[tokio::test]
async fn unwritten_block_is_found_in_the_device_and_copied_later() {
    let ground = ground(settings(8, 16).offload_mode(WriteMode::SecondUse));
    let manager = &ground.manager;
    let hashes = hashes(1, 3);
    // Of the next iteration, which has not begun.
    let (blocks, _) = ahead(&ground, &hashes, 1).await;
    let others = manager.default_group().match_prefix(&hashes);
    assert_eq!(others.in_tier(Tier::Device), 3);
    let mut persist = pin!(manager.default_group().persist(&hashes));
    assert!(look(persist.as_mut()).is_pending());
    still(manager).await;
    assert_eq!((down(manager), manager.census().down), (0, 0), "their second use copies nothing");
    write(&ground, &blocks, &hashes);
    drop((blocks, others));
    manager.step().expect("none runs");
    assert_eq!(persist.await.failed, 0);
    rest(manager).await;
    assert_eq!(down(manager), 3);
    back(manager, &hashes).await;
}

/// As victims, they would have bytes that no pass computed.
#[tokio::test]
async fn unwritten_block_without_holders_is_no_victim() {
    let ground = ground(settings(8, 16));
    let manager = &ground.manager;
    let pass = manager.begin_iteration().expect("none runs");
    let iteration = pass.number();
    let hashes = hashes(1, 3);
    let (blocks, _) = ahead(&ground, &hashes, iteration).await;
    let places: Vec<_> = blocks.ids().collect();
    drop(blocks);
    assert!(manager.default_group().try_allocate(6).is_none(), "five are free");
    drop(manager.default_group().try_allocate(5).expect("those"));
    for (block, hash) in places.iter().zip(&hashes) {
        ground.device.copy_in(block.0, 0, &bytes_of(*hash)).expect("nobody copies it");
    }
    pass.end().expect("one runs");
    back(manager, &hashes).await;
}

#[tokio::test]
async fn offload_waits_for_its_gate_and_for_the_writing_pass() {
    let ground = ground(settings(8, 16));
    let manager = &ground.manager;
    let (first, second) = (hashes(1, 2), hashes(2, 2));
    let ((blocks, _), (others, _)) = (ahead(&ground, &first, 2).await, ahead(&ground, &second, 1).await);
    let behind = |iteration| OffloadOptions::default().gate(Gate::Iteration(iteration));
    let early = manager.default_group().offload(&blocks, behind(1));
    let late = manager.default_group().offload(&others, behind(2));
    write(&ground, &others, &second);
    manager.step().expect("none runs");
    assert_eq!((manager.census().gated, manager.census().down), (4, 0));
    write(&ground, &blocks, &first);
    manager.step().expect("none runs");
    assert_eq!((early.await.copied, late.await.copied), (2, 2));
    drop((blocks, others));
    back(manager, &first).await;
    back(manager, &second).await;
}

/// Advances the time by so much, and lets the manager's tasks run.
async fn later(time: Duration) {
    for advance in [Duration::ZERO, time] {
        tokio::time::advance(advance).await;
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
    }
}

/// The blocks stay for as long as the engine reports layers, and are given up when it stops.
#[tokio::test(start_paused = true)]
async fn engine_stopped_within_its_pass_leaves_no_blocks_found() {
    let patience = Duration::from_millis(100);
    let ground = ground(settings(8, 16).deadline_offload(patience).offload_mode(WriteMode::Through));
    let manager = &ground.manager;
    let group = manager.default_group();
    let hashes = hashes(1, 3);
    let pass = manager.begin_iteration().expect("none runs");
    let iteration = pass.number();
    let (blocks, _) = ahead(&ground, &hashes, iteration).await;
    let mut offload = pin!(group.offload(&blocks, OffloadOptions::default().deadline(PATIENCE)));
    later(patience * 3 / 4).await;
    pass.layer_done(0).expect("one runs");
    later(patience * 3 / 4).await;
    assert_eq!((manager.census().unwritten, group.match_prefix(&hashes).len()), (3, 3));
    assert!(look(offload.as_mut()).is_ready(), "a copy waits as long as any");
    later(patience).await;
    assert_eq!((manager.census().unwritten, group.match_prefix(&hashes).len()), (0, 0));
    assert_eq!(manager.stats().unwritten, 3);
    pass.end().expect("one runs");
    drop(blocks);
    drop(group.allocate(8).await.expect("nobody holds them"));
    rest(manager).await;
    assert_eq!((manager.stats().offloaded[0], group.pool_stats(Tier::Host).stored), (0, 0));
}

#[tokio::test]
async fn withdrawn_blocks_are_not_found_and_can_be_registered_anew() {
    for moves in [false, true] {
        let ground = ground(settings(8, 16));
        let manager = &ground.manager;
        let group = manager.default_group();
        let hashes = hashes(1, 3);
        let pass = manager.begin_iteration().expect("none runs");
        let iteration = pass.number();
        let (blocks, ahead) = ahead(&ground, &hashes, iteration).await;
        assert_eq!(blocks.written_in(), Some(iteration));
        let gate = Gate::Layer { iteration, layer: 0 };
        let offload = group.offload(&blocks, OffloadOptions::default().gate(gate));
        ground.mover.close();
        if moves {
            // Its first layer.
            pass.layer_done(0).expect("one runs");
            assert_eq!(manager.census().moving, 3);
        }
        assert_eq!((ahead.withdraw(), blocks.registered()), (3, 0));
        drop(blocks);
        assert!(group.match_prefix(&hashes).is_empty());
        // Until the pass is over it may still write them.
        let left = if moves { 3 } else { 0 };
        assert_eq!(
            (manager.census().down, manager.census().unwritten, manager.stats().unwritten),
            (left, 3, 3)
        );
        assert!(group.try_allocate(6).is_none());
        // The next pass does it again, while the copies that began for the first still move.
        let (again, _) = self::ahead(&ground, &hashes, iteration + 1).await;
        let second = group.offload(&again, OffloadOptions::default());
        pass.end().expect("one runs");
        assert_eq!((again.written_in(), manager.census().gated), (Some(iteration + 1), 3));
        write(&ground, &again, &hashes);
        manager.step().expect("none runs");
        assert_eq!(again.written_in(), None);
        ground.mover.open();
        let (ended, second) = (offload.await, second.await);
        assert_eq!((ended.copied, ended.failed, ended.cause), (0, 3, Some(Cause::Cancelled)));
        assert_eq!((second.copied, second.failed), (3, 0), "{moves}");
        rest(manager).await;
        drop(again);
        assert_eq!(group.match_prefix(&hashes).in_tier(Tier::Device), 3);
        back(manager, &hashes).await;
    }
}

/// The copy of the failed pass ends beside that of the next pass. Later callers join the second.
#[tokio::test]
async fn withdrawn_copy_leaves_the_next_one_of_its_hash_alone() {
    let ground = ground(settings(8, 16));
    let manager = &ground.manager;
    let hashes = hashes(1, 3);
    let begun = |blocks: &Blocks, pass: &Iteration| {
        let gate = Gate::Layer { iteration: pass.number(), layer: 0 };
        let asked = manager.default_group().offload(blocks, OffloadOptions::default().gate(gate));
        pass.layer_done(0).expect("one runs");
        asked
    };
    ground.mover.close();
    let pass = manager.begin_iteration().expect("none runs");
    let iteration = pass.number();
    let (blocks, ahead) = ahead(&ground, &hashes, iteration).await;
    let first = begun(&blocks, &pass);
    assert_eq!((ahead.withdraw(), manager.census().moving), (3, 3));
    drop(blocks);
    pass.end().expect("one runs");
    let pass = manager.begin_iteration().expect("none runs");
    let iteration = pass.number();
    let (again, _) = self::ahead(&ground, &hashes, iteration).await;
    write(&ground, &again, &hashes);
    let second = begun(&again, &pass);
    assert_eq!(manager.census().down, 6);
    ground.mover.open();
    still(manager).await;
    assert_eq!((manager.census().down, manager.census().gated), (3, 3), "behind their last layer");
    let third = manager.default_group().offload(&again, OffloadOptions::default());
    assert_eq!((manager.census().down, manager.census().gated), (3, 3));
    pass.end().expect("one runs");
    assert_eq!((first.await.failed, second.await.copied, third.await.copied), (3, 3, 3));
    drop(again);
    back(manager, &hashes).await;
}

/// A list may have blocks that were there before, and blocks that its pass has written: both stay.
#[tokio::test]
async fn written_blocks_stay_when_the_rest_is_withdrawn() {
    let ground = ground(settings(8, 16));
    let manager = &ground.manager;
    let (all, late) = (hashes(1, 4), hashes(2, 1));
    drop(compute(manager, &all[..2], None).await);
    let (blocks, first) = ahead(&ground, &all, 1).await;
    assert_eq!(manager.census().unwritten, 2);
    assert_eq!((first.withdraw(), blocks.registered()), (2, 2));
    drop(blocks);
    assert_eq!(manager.default_group().match_prefix(&all).in_tier(Tier::Device), 2);
    manager.step().expect("none runs");
    assert_eq!(manager.census().unwritten, 0);
    back(manager, &all[..2]).await;
    let pass = manager.begin_iteration().expect("none runs");
    let iteration = pass.number();
    let (blocks, second) = ahead(&ground, &late, iteration).await;
    write(&ground, &blocks, &late);
    pass.layer_done(1).expect("the last");
    assert_eq!((second.withdraw(), blocks.registered()), (0, 1), "too late");
    pass.end().expect("one runs");
    assert_eq!(manager.default_group().match_prefix(&late).len(), 1);
}

/// An iteration that is over has written its blocks, so blocks registered ahead of it count as registered.
#[tokio::test]
async fn unwritten_blocks_give_way_to_those_of_an_ended_pass() {
    let ground = ground(settings(8, 16));
    let manager = &ground.manager;
    let hashes = hashes(1, 2);
    let (blocks, first) = ahead(&ground, &hashes, 3).await;
    manager.step().expect("none runs");
    let computed = manager.default_group().allocate(2).await.expect("blocks");
    for (block, hash) in computed.ids().iter().zip(&hashes) {
        ground.device.copy_in(block.0, 0, &bytes_of(*hash)).expect("in range");
    }
    let (computed, _) = computed.register_ahead(&hashes, None, 1).expect("registered");
    assert_eq!((blocks.registered(), computed.registered(), computed.written_in()), (0, 2, None));
    assert_eq!((first.withdraw(), computed.registered()), (0, 2));
    check(manager, &computed, &hashes);
}

/// An iteration that cannot have begun writes nothing, so waiting callers get the blocks at once. An
/// engine may report no begin, so the next iteration may be running already.
#[tokio::test]
async fn blocks_withdrawn_before_their_pass_begins_are_free_at_once() {
    for iteration in [1, 2] {
        let ground = ground(settings(8, 16));
        let manager = &ground.manager;
        let hashes = hashes(1, 8);
        let (blocks, ahead) = ahead(&ground, &hashes, iteration).await;
        let offload = manager.default_group().offload(&blocks, OffloadOptions::default());
        let mut waits = pin!(manager.default_group().allocate(8).into_future());
        assert!(look(waits.as_mut()).is_pending());
        assert_eq!((ahead.withdraw(), manager.census().unwritten), (8, if iteration == 1 { 8 } else { 0 }));
        assert!(look(waits.as_mut()).is_pending(), "they are held");
        drop(blocks);
        if iteration == 1 {
            assert!(look(waits.as_mut()).is_pending(), "the pass may write them");
            manager.step().expect("none runs");
        }
        assert!(look(waits).is_ready());
        assert!(matches!(
            look(offload),
            Poll::Ready(Offloaded { failed: 8, cause: Some(Cause::Cancelled), .. })
        ));
    }
}

/// A copy counted as late is not counted once more when it is withdrawn.
#[tokio::test(start_paused = true)]
async fn late_copy_withdrawn_later_counts_once() {
    let ground = ground(settings(8, 16).deadline_offload(PATIENCE));
    let manager = &ground.manager;
    let pass = manager.begin_iteration().expect("none runs");
    let iteration = pass.number();
    for (sequence, gate) in [(1, Gate::Open), (2, Gate::Layer { iteration, layer: 0 })] {
        let hashes = hashes(sequence, 2);
        let (blocks, ahead) = ahead(&ground, &hashes, iteration).await;
        let deadline = Some(Duration::from_millis(100));
        let asked =
            manager.default_group().offload(&blocks, OffloadOptions::default().gate(gate).deadline(deadline));
        if gate != Gate::Open {
            pass.layer_done(0).expect("one runs");
            still(manager).await;
        }
        later(Duration::from_millis(150)).await;
        assert_eq!(asked.await.failed, 2);
        assert_eq!(ahead.withdraw(), 2);
    }
    pass.end().expect("one runs");
    rest(manager).await;
    let stats = manager.stats();
    let failed = |cause| stats.path(Path::DeviceToHost).failed_by(cause);
    assert_eq!((failed(Cause::Deadline), failed(Cause::Cancelled)), (4, 0));
}

/// Another caller has computed the blocks. They are found from then on, whatever becomes of the pass.
#[tokio::test]
async fn unwritten_blocks_give_way_to_computed_ones() {
    let ground = ground(settings(8, 16));
    let manager = &ground.manager;
    let hashes = hashes(1, 2);
    let (blocks, _ahead) = ahead(&ground, &hashes, 1).await;
    let offload = manager.default_group().offload(&blocks, OffloadOptions::default());
    let computed = compute(manager, &hashes, None).await;
    assert_eq!((blocks.registered(), computed.registered(), computed.written_in()), (0, 2, None));
    check(manager, &manager.default_group().match_device(&hashes), &hashes);
    drop(blocks);
    manager.step().expect("none runs");
    assert_eq!(offload.await.failed, 2);
    drop(computed);
    back(manager, &hashes).await;
}

/// Bytes that are there, or nearly, are not exchanged for bytes that a pass has still to write.
#[tokio::test]
async fn onboarded_blocks_are_not_exchanged_for_unwritten_ones() {
    for begun in [false, true] {
        let ground = ground(settings(8, 16));
        let manager = &ground.manager;
        let group = manager.default_group();
        let hashes = hashes(1, 2);
        drop(compute(manager, &hashes, None).await);
        drop(group.allocate(8).await.expect("all of them"));
        rest(manager).await;
        let found = group.match_prefix(&hashes);
        assert_eq!(found.in_tier(Tier::Host), 2);
        ground.mover.close();
        let begin = |found| group.onboard(found, OnboardOptions::default()).expect("fits");
        let (up, (blocks, ahead)) = if begun {
            let up = begin(found);
            (up, ahead(&ground, &hashes, 1).await)
        } else {
            let list = ahead(&ground, &hashes, 1).await;
            (begin(found), list)
        };
        ground.mover.open();
        let up = up.await;
        assert_eq!((up.missed, up.blocks.len(), up.blocks.written_in()), (None, 2, None), "{begun}");
        check(manager, &up.blocks, &hashes);
        assert_eq!((ahead.withdraw(), up.blocks.registered()), (2, 2));
        drop(blocks);
        manager.step().expect("none runs");
        check(manager, &group.match_device(&hashes), &hashes);
    }
}

#[tokio::test]
async fn written_blocks_stay_when_registered_ahead_again() {
    let ground = ground(settings(8, 16));
    let manager = &ground.manager;
    let hashes = hashes(1, 2);
    let written = compute(manager, &hashes, None).await;
    let (again, _) = ahead(&ground, &hashes, 1).await;
    assert_eq!(manager.census().unwritten, 0, "they have given way");
    assert_eq!(manager.default_group().offload(&again, OffloadOptions::default()).await.copied, 2);
    drop((written, again));
    back(manager, &hashes).await;
    // An iteration that is over writes nothing either.
    manager.step().expect("none runs");
    let (over, _) = ahead(&ground, &super::ground::hashes(2, 2), 1).await;
    assert_eq!(manager.census().unwritten, 0);
    drop(over);
}

#[tokio::test]
async fn shutdown_withdraws_unwritten_blocks() {
    let ground = ground(settings(8, 16).offload_mode(WriteMode::Through));
    let manager = &ground.manager;
    let hashes = hashes(1, 3);
    let pass = manager.begin_iteration().expect("none runs");
    let (blocks, _) = ahead(&ground, &hashes, 1).await;
    let offload = manager.default_group().offload(&blocks, OffloadOptions::default());
    assert!(manager.shutdown().await);
    assert_eq!((manager.census().unwritten, manager.default_group().match_prefix(&hashes).len()), (0, 0));
    let ended = offload.await;
    assert_eq!((ended.copied, ended.failed + ended.refused), (0, 3), "{:?}", ended.cause);
    assert_ne!(ended.cause, Some(Cause::Deadline));
    pass.end().expect("one runs");
    assert_eq!(manager.stats().offloaded[0], 0);
}

/// An engine that counts its iterations differently, and goes on.
#[tokio::test(start_paused = true)]
async fn unwritten_blocks_of_a_far_pass_end_at_the_deadline() {
    let patience = Duration::from_millis(100);
    let ground = ground(settings(8, 16).deadline_offload(patience));
    let (blocks, _) = ahead(&ground, &hashes(1, 3), u64::MAX).await;
    for _ in 0..3 {
        later(patience / 2).await;
        ground.manager.step().expect("none runs");
    }
    assert_eq!((ground.manager.census().unwritten, ground.manager.stats().unwritten), (0, 3));
    drop(blocks);
}
