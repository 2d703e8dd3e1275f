//! Waiting calls are answered at their deadline, whether their futures are polled or not.

use crate::gated::Ground;
use crate::ground::{BYTES, build, check, compute, hashes, rest, settings};
use crate::sim::{ALWAYS, Plan, SimDisk};
use kvstrata::manager::{
    AllocateError, BuildError, KvBlockManager, OffloadOptions, Offloaded, OnboardOptions, Refusal, Tiers,
};
use kvstrata::tier::Tier;
use kvstrata::transfer::{Cause, Path};
use kvstrata_core::SequenceHash;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const SOON: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(5);

fn look<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits for a call that only its deadline ends.
async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("answered by its deadline")
}

/// Leaves these blocks in the host alone.
async fn below(manager: &Tiers, hashes: &[SequenceHash]) {
    drop(compute(manager, hashes, None).await);
    drop(
        manager
            .default_group()
            .allocate(manager.default_group().capacity(Tier::Device))
            .await
            .expect("blocks"),
    );
    rest(manager).await;
}

#[tokio::test]
async fn unpolled_onboard_leaves_the_queue_at_its_deadline() {
    let manager = build(settings(4, 16));
    let group = manager.default_group();
    let all = hashes(1, 4);
    below(&manager, &all).await;
    let [held, kept] = [2, 2].map(|count| group.try_allocate(count).expect("free ones"));
    let options = OnboardOptions::default().deadline(SOON);
    let up = group.onboard(group.match_prefix(&all), options).expect("fits");
    drop(held);
    assert_eq!(manager.census().gathered, 2);
    let behind = group.allocate(2).deadline(PATIENCE).await.expect("what it had gathered");
    assert_eq!(up.layer_ready(0).await, Err(Cause::Deadline));
    drop((behind, kept));
    let up = up.await;
    assert_eq!((up.blocks.len(), up.missed), (0, Some(Cause::Deadline)));
    let up = group.onboard(group.match_prefix(&all), OnboardOptions::default()).expect("fits").await;
    check(&manager, &up.blocks, &all);
}

#[tokio::test]
async fn unpolled_allocation_leaves_the_queue_at_its_deadline() {
    let manager = build(settings(4, 16));
    let group = manager.default_group();
    let [held, _kept] = [2, 2].map(|count| group.try_allocate(count).expect("free ones"));
    let mut first = pin!(group.allocate(4).deadline(SOON).into_future());
    assert!(look(first.as_mut()).is_pending());
    drop(held);
    let behind = group.allocate(2).deadline(PATIENCE).await.expect("what it had gathered");
    let late = first.await.expect_err("there were never four");
    let AllocateError::Deadline { requested, waited, available, capacity, ahead, .. } = late else {
        panic!("{late:?}")
    };
    assert_eq!((requested, waited, available, capacity, ahead), (4, SOON, 2, 4, 0));
    drop(behind);
    assert_eq!(manager.census().tiers[0][0].free, 2);
}

/// A whole hit leaves nothing to allocate, and a preemption for a waiting caller may have no partial block.
#[tokio::test]
async fn allocation_of_no_blocks_is_answered_at_once() {
    let manager = build(settings(4, 16));
    let group = manager.default_group();
    let blocks = compute(&manager, &hashes(1, 4), None).await;
    let mut waits = pin!(group.allocate(1).deadline(PATIENCE).into_future());
    assert!(look(waits.as_mut()).is_pending());
    let none = look(pin!(group.allocate(0).into_future()));
    assert!(matches!(&none, Poll::Ready(Ok(none)) if none.is_empty()), "{none:?}");
    let partial = group.try_allocate(0).expect("nobody needs them");
    let preempted = group.preempt(blocks, partial, 1).expect("one manager");
    assert_eq!(waits.await.expect("what was given up").len(), 1);
    let up = group.resume(preempted, OnboardOptions::default()).await.expect("fits");
    check(&manager, &up.blocks, &hashes(1, 4));
    assert!(manager.shutdown().await && group.try_allocate(0).is_some());
    assert!(matches!(group.allocate(0).await, Err(AllocateError::Closed)));
}

#[tokio::test]
async fn deadline_of_max_is_without_end() {
    let manager = build(settings(4, 16));
    let group = manager.default_group();
    let all = hashes(1, 4);
    below(&manager, &all).await;
    let held = group.try_allocate(4).expect("free ones");
    let options = OnboardOptions::default().deadline(Duration::MAX);
    let up = group.onboard(group.match_prefix(&all), options).expect("fits");
    let mut behind = pin!(group.allocate(1).deadline(Duration::MAX).into_future());
    assert!(look(behind.as_mut()).is_pending());
    drop(held);
    let up = up.await;
    check(&manager, &up.blocks, &all);
    drop(up);
    assert_eq!(behind.await.expect("a block").len(), 1);
}

#[tokio::test]
async fn offload_past_deadline_is_answered_and_its_copies_go_on() {
    let ground = Ground::of(settings(8, 16).deadline_offload(SOON), 8, 16);
    let (manager, all) = (&ground.manager, hashes(1, 4));
    let group = manager.default_group();
    let blocks = compute(manager, &all, None).await;
    ground.mover.close();
    let options = OffloadOptions::default().deadline(Duration::from_millis(1));
    let offload = group.offload(&blocks, options);
    let unpolled = group.offload(&blocks, options);
    let late = in_time(offload).await;
    assert_eq!((late.copied, late.failed, late.cause), (0, 4, Some(Cause::Deadline)));
    let late = in_time(group.persist(&all)).await;
    assert_eq!((late.failed, late.cause), (4, Some(Cause::Deadline)));
    let partial = group.try_allocate(1).expect("a free one");
    let mut preempted = group.preempt(blocks, partial, 1).expect("one manager");
    let late = in_time(preempted.settled()).await;
    assert_eq!((late.copied, late.failed, late.cause), (0, 5, Some(Cause::Deadline)));
    ground.mover.open();
    rest(manager).await;
    assert_eq!((manager.stats().offloaded[0], group.pool_stats(Tier::Host).stored), (5, 5));
    // It was late, and then its copies were done before anyone polled it.
    assert_eq!((unpolled.await.failed, manager.census().up), (0, 0));
}

#[tokio::test]
async fn late_persist_counts_once_in_any_tier() {
    let quick = Plan { latency: Duration::ZERO..Duration::from_millis(1), ..Plan::calm(1) };
    let disk = Arc::new(SimDisk::new(16, BYTES, quick));
    let settings = settings(8, 16).deadline_offload(SOON);
    let ground = Ground::over(settings, 8, 16, Some(Arc::<SimDisk>::clone(&disk)));
    let (manager, all) = (&ground.manager, hashes(1, 6));
    let group = manager.default_group();
    let mut held = compute(manager, &all[..4], None).await;
    let patient = OffloadOptions::default().deadline(PATIENCE);
    assert_eq!(group.offload(&held, patient).await.copied, 4);
    // Two are on the disk, late or not; two in the host; two in the device alone.
    let mut there = 0;
    for _ in 0..100 {
        there = there.max(group.persist(&all[..2]).await.there);
    }
    assert_eq!(there, 2);
    let rest_of_all = compute(manager, &all[4..], Some(&held)).await;
    held.append(rest_of_all).expect("one manager");
    let cause = Some(Cause::Deadline);
    let late = Offloaded { there: 2, failed: 4, refused: 1, cause, ..Offloaded::default() };
    let all = [&all[..], &hashes(2, 1)].concat();
    let stats = || {
        let stats = manager.stats();
        let late = |path| stats.path(path).failed_by(Cause::Deadline);
        [late(Path::DeviceToHost), late(Path::HOST_TO_DISK), stats.refused_by(Refusal::Room)]
    };
    let before = stats();
    let counted = || std::array::from_fn(|of| stats()[of] - before[of]);
    ground.mover.close();
    assert_eq!(in_time(group.persist(&all)).await, late, "the copies to the host wait");
    assert_eq!(counted(), [2, 2, 1], "one is nowhere");
    ground.mover.open();
    rest(manager).await;
    disk.change(|plan| plan.hang = ALWAYS);
    assert_eq!(in_time(group.persist(&all)).await, late, "those to the disk do");
    assert_eq!(counted(), [2, 6, 2]);
    disk.shutdown();
    rest(manager).await;
    assert_eq!(group.pool_stats(Tier::DISK).stored, 2);
}

#[test]
fn runtime_without_timers_is_refused() {
    let bare = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let settings = || settings(4, 16).build().expect("a configuration");
    let error = bare.block_on(async { KvBlockManager::open(&settings()) }).expect_err("no timers");
    assert!(matches!(error, BuildError::Timers), "{error}");
    let manager = KvBlockManager::open(&settings()).expect("on its own runtime");
    let held = manager.default_group().try_allocate(4).expect("free ones");
    // Polled by a runtime without timers.
    let late = bare
        .block_on(manager.default_group().allocate(1).deadline(SOON).into_future())
        .expect_err("none is free");
    assert!(matches!(late, AllocateError::Deadline { .. }), "{late}");
    drop(held);
}

#[tokio::test]
async fn onboard_leaving_a_shared_transfer_leaves_the_others() {
    for leaver in 0..3 {
        let ground = Ground::new(4, 16);
        let all = hashes(1, 4);
        below(&ground.manager, &all).await;
        ground.mover.close();
        let begin = || {
            let found = ground.manager.default_group().match_prefix(&all);
            ground.manager.default_group().onboard(found, OnboardOptions::default()).expect("fits")
        };
        let mut ups = vec![begin(), begin(), begin()];
        drop(ups.remove(leaver));
        ground.mover.open();
        for up in ups {
            let up = up.await;
            check(&ground.manager, &up.blocks, &all);
        }
        assert_eq!(ground.manager.stats().onboarded[0], 4);
    }
}
