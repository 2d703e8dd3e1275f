//! Calls about blocks in flight: their layers, their device blocks and their end.

use crate::gated::Ground;
use crate::ground::{BYTES, build, check, compute, hashes, rest, settings};
use kvstrata::config::WriteMode;
use kvstrata::manager::{
    AllocateError, KvBlockManager, OffloadOptions, OnboardError, OnboardOptions, Purge, Tiers,
};
use kvstrata::tier::Tier;
use kvstrata::transfer::{Class, Path};
use kvstrata_core::{BlockId, SequenceHash};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Polls a future once.
pub fn look<F: IntoFuture>(future: F) -> Poll<F::Output> {
    pin!(future.into_future()).poll(&mut Context::from_waker(Waker::noop()))
}

/// A manager with a sequence of four that its host tier has and its device lacks. Copies wait.
async fn below() -> (Ground, Vec<SequenceHash>) {
    let ground = Ground::new(4, 16);
    let all = below_of(&ground).await;
    (ground, all)
}

async fn below_of(ground: &Ground) -> Vec<SequenceHash> {
    let all = hashes(1, 4);
    drop(compute(&ground.manager, &all, None).await);
    drop(ground.manager.default_group().allocate(4).await.expect("blocks"));
    rest(&ground.manager).await;
    ground.mover.close();
    all
}

#[tokio::test]
async fn layer_of_any_onboard_is_ready_after_its_bytes_arrive() {
    for layers in [None, Some(1)] {
        let (ground, all) = below().await;
        let found = ground.manager.default_group().match_prefix(&all);
        let options = OnboardOptions::default().layers(layers);
        let up = ground.manager.default_group().onboard(found, options).expect("fits");
        assert!(look(up.layer_ready(0)).is_pending(), "{layers:?}: nothing has been copied");
        ground.mover.open();
        up.layer_ready(1).await.expect("copied");
        let ids: Vec<BlockId> = up.ids().expect("all have places");
        let up = up.await;
        assert_eq!(up.blocks.ids().collect::<Vec<_>>(), ids);
        check(&ground.manager, &up.blocks, &all);
    }
}

#[tokio::test]
async fn layers_joining_a_whole_onboard_split_it_unless_it_is_queued() {
    // Transfers of four blocks of two layers. So many are in the queue when layers are asked for.
    for (queued, transfers) in [(0, 8), (3, 4)] {
        let ground = Ground::of(settings(4, 16).transfer_in_flight(BYTES as u64), 4, 16);
        let (manager, all) = (&ground.manager, below_of(&ground).await);
        let group = manager.default_group();
        let held = group.try_allocate(if queued == 0 { 4 } else { 0 }).expect("free ones");
        let begin = |layers| {
            let options = OnboardOptions::default().layers(layers);
            group.onboard(group.match_prefix(&all), options).expect("fits")
        };
        let (whole, layered) = (begin(None), begin(Some(1)));
        assert_eq!(manager.census().queued, queued);
        drop(held);
        ground.mover.open();
        layered.layer_ready(1).await.expect("copied");
        for up in [whole.await, layered.await] {
            check(manager, &up.blocks, &all);
        }
        let up = manager.stats().path(Path::HostToDevice).transfers;
        assert_eq!(up, transfers, "{queued} were queued");
    }
}

/// Blocks of the device are ready at once: their layers, their ids, and the run.
#[tokio::test]
async fn onboard_of_device_blocks_waits_for_nothing() {
    let manager = build(settings(4, 16));
    let all = hashes(1, 4);
    let held = compute(&manager, &all, None).await;
    let options = OnboardOptions::default().layers(1);
    let up =
        manager.default_group().onboard(manager.default_group().match_prefix(&all), options).expect("fits");
    assert!(matches!(look(up.layer_ready(1)), Poll::Ready(Ok(()))));
    assert_eq!(up.ids(), Some(held.ids().collect()));
    let Poll::Ready(up) = look(up) else { panic!("it waits") };
    assert_eq!((up.blocks.ids().collect::<Vec<_>>(), up.missed), (held.ids().collect(), None));
}

#[tokio::test]
async fn onboard_of_a_foreign_match_is_refused() {
    let (one, other) = (build(settings(4, 16)), build(settings(4, 16)));
    for (manager, sequence) in [(&one, 1), (&other, 2)] {
        drop(compute(manager, &hashes(sequence, 4), None).await);
        drop(manager.default_group().allocate(4).await.expect("blocks"));
        rest(manager).await;
    }
    let found = one.default_group().match_prefix(&hashes(1, 4));
    let error = other.default_group().onboard(found, OnboardOptions::default()).expect_err("not its own");
    assert_eq!(error, OnboardError::Foreign);
    rest(&one).await;
    assert_eq!(one.census().tiers[0][1].active, 0, "released where it was found");
    assert_eq!(other.default_group().match_prefix(&hashes(1, 4)).len(), 0);
}

#[tokio::test]
async fn prefetch_onboard_joined_by_an_urgent_one_serves_both() {
    let (ground, all) = below().await;
    let options = OnboardOptions::default().class(Class::Prefetch);
    let guess = ground
        .manager
        .default_group()
        .onboard(ground.manager.default_group().match_prefix(&all), options)
        .expect("fits");
    let urgent = ground
        .manager
        .default_group()
        .onboard(ground.manager.default_group().match_prefix(&all), OnboardOptions::default());
    ground.mover.open();
    for up in [guess, urgent.expect("fits")] {
        let up = up.await;
        assert_eq!((up.missed, up.blocks.len()), (None, 4));
        check(&ground.manager, &up.blocks, &all);
    }
}

#[tokio::test]
async fn prefetch_onboard_dropped_stops_queued_copies() {
    let ground = Ground::of(settings(4, 16).transfer_in_flight(BYTES as u64), 4, 16);
    let all = hashes(1, 4);
    drop(compute(&ground.manager, &all, None).await);
    drop(ground.manager.default_group().allocate(4).await.expect("blocks"));
    rest(&ground.manager).await;
    ground.mover.close();
    let options = OnboardOptions::default().class(Class::Prefetch);
    let guess = ground
        .manager
        .default_group()
        .onboard(ground.manager.default_group().match_prefix(&all), options)
        .expect("fits");
    assert_eq!((ground.manager.census().up, ground.manager.census().moving), (4, 1));
    drop(guess);
    assert_eq!(ground.manager.census().up, 1, "what moves");
    ground.mover.open();
    rest(&ground.manager).await;
}

#[tokio::test]
async fn device_blocks_once_told_are_kept_over_computed_twins() {
    let (ground, all) = below().await;
    let group = ground.manager.default_group();
    let found = || group.match_prefix(&all[..2]);
    let whole = group.onboard(found(), OnboardOptions::default()).expect("fits");
    let options = OnboardOptions::default().layers(1);
    let layered = group.onboard(found(), options).expect("fits");
    let told = layered.ids().expect("they have places");
    // A late engine has computed the blocks itself.
    let twin = compute(&ground.manager, &all[..2], None).await;
    ground.mover.open();
    let whole = whole.await;
    layered.layer_ready(1).await.expect("copied");
    drop((whole, twin));
    let taken = group.try_allocate(2);
    let taken: Vec<BlockId> = taken.iter().flat_map(|taken| taken.ids().to_vec()).collect();
    assert!(taken.iter().all(|block| !told.contains(block)), "{taken:?} of {told:?}: it computes with them");
    let up = layered.await;
    check(&ground.manager, &up.blocks, &all[..2]);
    assert_eq!(up.blocks.ids().collect::<Vec<_>>(), told, "its kernels still read these");
}

/// A device block that no caller was told of gives way to a block computed meanwhile.
#[tokio::test]
async fn whole_onboard_of_blocks_computed_meanwhile_keeps_one_copy() {
    let (ground, all) = below().await;
    let tenant = ground.manager.tenant("a").expect("few tenants");
    let found = tenant.default_group().match_prefix(&all[..2]);
    let up = tenant.default_group().onboard(found, OnboardOptions::default()).expect("fits");
    let twin = compute(&tenant, &all[..2], None).await;
    ground.mover.open();
    let up = up.await;
    assert_eq!(up.blocks.ids().collect::<Vec<_>>(), twin.ids().collect::<Vec<_>>());
    let device = ground.manager.census().tiers[0][0];
    assert_eq!((device.active, device.free, tenant.usage(Tier::Device).blocks), (2, 2, 2));
    check(&ground.manager, &up.blocks, &all[..2]);
}

/// Uses the manager when the last reference to it is dropped.
struct Forgotten(Tiers);

impl Wake for Forgotten {
    fn wake(self: Arc<Forgotten>) {}
}

impl Drop for Forgotten {
    fn drop(&mut self) {
        self.0.check_watermark();
    }
}

#[tokio::test]
async fn dropped_waker_may_use_the_manager() {
    let (ground, all) = below().await;
    let down = Ground::new(4, 16);
    let blocks = compute(&down.manager, &all, None).await;
    down.mover.close();
    let (manager, below) = (ground.manager.clone(), down.manager.clone());
    in_time("no deadlock", move || {
        let waker = |of: &Tiers| Waker::from(Arc::new(Forgotten(of.clone())));
        let options = OnboardOptions::default().layers(1);
        let up = manager
            .default_group()
            .onboard(manager.default_group().match_prefix(&all), options)
            .expect("fits");
        assert!(pin!(up.layer_ready(0)).poll(&mut Context::from_waker(&waker(&manager))).is_pending());
        drop(up);
        let mut offload = below.default_group().offload(&blocks, OffloadOptions::default());
        for _ in 0..2 {
            assert!(Pin::new(&mut offload).poll(&mut Context::from_waker(&waker(&below))).is_pending());
        }
    });
    ground.mover.open();
    down.mover.open();
}

#[tokio::test]
async fn persist_of_blocks_in_flight_to_host_reaches_the_disk() {
    let directory = tempfile::tempdir().expect("a directory");
    // Large ones, which take a while.
    let settings = settings(8, 16)
        .geometry_block_bytes(Some(4 << 20))
        .offload_mode(WriteMode::Through)
        .disk_paths(vec![directory.path().join("volume")])
        .disk_bytes(Some(64 << 20));
    let manager = build(settings);
    let all = hashes(1, 8);
    let blocks = compute(&manager, &all, None).await;
    let down = manager.default_group().persist(&all).await;
    assert_eq!(down.copied + down.there, 8, "{down:?}");
    drop(blocks);
    rest(&manager).await;
    assert_eq!(manager.default_group().pool_stats(Tier::DISK).stored, 8);
}

/// Uses the manager when it is woken.
struct Called(KvBlockManager);

impl Wake for Called {
    fn wake(self: Arc<Called>) {
        self.0.check_watermark();
    }
}

/// Fails if `work` has not ended after a while.
fn in_time(what: &str, work: impl FnOnce() + Send + 'static) {
    let (ended, when) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        work();
        ended.send(()).expect("the test waits");
    });
    if when.recv_timeout(Duration::from_secs(20)).is_err() {
        // Unwinding would wait for the lock, too.
        eprintln!("not in time: {what}");
        std::process::abort();
    }
}

#[tokio::test]
async fn woken_waker_may_use_the_manager_at_once() {
    let ground = Ground::new(4, 16);
    let tenant = ground.manager.tenant("a").expect("few tenants");
    let runtime = tokio::runtime::Handle::current();
    let manager = ground.manager.clone();
    in_time("dismissed from the line", move || {
        let _in = runtime.enter();
        let _all = manager.default_group().try_allocate(4).expect("free ones");
        let mut waits = pin!(tenant.default_group().allocate(1).into_future());
        let waker = Waker::from(Arc::new(Called(manager.clone())));
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(look(tenant.purge(Purge::default())).is_pending());
        let answer = waits.poll(&mut Context::from_waker(&waker));
        assert!(matches!(answer, Poll::Ready(Err(AllocateError::Purging))), "{answer:?}");
    });
    rest(&ground.manager).await;
    let blocks = compute(&ground.manager, &hashes(1, 2), None).await;
    ground.mover.close();
    let offload = ground.manager.default_group().offload(&blocks, OffloadOptions::default());
    let mut shutdown = pin!(ground.manager.shutdown());
    let waker = Waker::from(Arc::new(Called(ground.manager.clone())));
    assert!(shutdown.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let (mover, manager) = (Arc::clone(&ground.mover), ground.manager.clone());
    in_time("idle", move || {
        mover.open();
        while !manager.census().is_idle() {
            std::thread::yield_now();
        }
    });
    assert!(shutdown.await);
    assert_eq!(offload.await.copied, 2);
}

#[tokio::test]
async fn path_with_many_copies_leaves_budget_to_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = settings(16, 32)
        .iteration_bytes(Some(BYTES as u64))
        .disk_paths(vec![directory.path().join("volume")])
        .disk_bytes(Some(64 << 20));
    let manager = build(settings);
    let one = compute(&manager, &hashes(1, 1), None).await;
    assert_eq!(manager.default_group().offload(&one, OffloadOptions::default()).await.copied, 1);
    let many = compute(&manager, &hashes(2, 12), None).await;
    let offload = manager.default_group().offload(&many, OffloadOptions::default());
    let persist = tokio::spawn({
        let manager = manager.clone();
        async move { manager.default_group().persist(&hashes(1, 1)).await }
    });
    for _ in 0..8 {
        tokio::task::yield_now().await;
        manager.step().expect("none runs");
        while manager.census().moving > 0 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(manager.default_group().pool_stats(Tier::DISK).stored, 1, "its turn comes in four iterations");
    drop((offload, persist));
}

#[tokio::test]
async fn allocation_does_not_wait_for_the_iteration_budget() {
    let manager = build(settings(4, 16).iteration_bytes(Some(BYTES as u64)));
    let group = manager.default_group();
    let blocks = compute(&manager, &hashes(1, 4), None).await;
    let partial = group.try_allocate(0).expect("none");
    // The engine is idle: no iteration begins before there are blocks for one.
    let _preempted = group.preempt(blocks, partial, 1).expect("one manager");
    let blocks = group.allocate(4).deadline(Duration::from_secs(5)).await;
    assert_eq!(blocks.expect("in time").len(), 4);
}

#[tokio::test]
async fn blocks_that_cannot_be_copied_are_free_at_once() {
    let ground = Ground::new(4, 4);
    drop(compute(&ground.manager, &hashes(1, 4), None).await);
    // Readers hold the host's memory, so that nothing is written to it.
    let reads: Vec<_> = (0..4).map(|block| ground.memory.read(block).expect("nobody writes")).collect();
    let four = look(ground.manager.default_group().allocate(4).into_future());
    assert!(matches!(four, Poll::Ready(Ok(_))), "{four:?}: no event is to come that would serve it");
    drop(reads);
}
