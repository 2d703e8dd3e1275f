//! The edges of a purge: transfers that move while it begins, its ends, and what it leaves on the disk.

use crate::gated::Ground;
use crate::ground::{BYTES, build, compute, rest, settings};
use crate::sequence;
use kvstrata::manager::{OffloadOptions, OnboardOptions, Purge, PurgeError};
use kvstrata::tier::Tier;
use kvstrata::transfer::Cause;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const ZERO: Purge = Purge::new().zero(true).deadline(Duration::from_secs(60));

/// The host has to keep some blocks free. The purge cancels the copies to the disk that make this room,
/// so other host blocks have to leave at that moment, and they are the tenant's, too.
#[tokio::test]
async fn purge_erases_next_victims_of_the_host() {
    let one_an_iteration = settings(8, 8).iteration_bytes(Some(BYTES as u64));
    let manager = build(one_an_iteration.disk_blocks(64).host_headroom(4));
    let [a, b] = ["a", "b"].map(|name| manager.tenant(name).expect("few tenants"));
    drop(compute(&a, &sequence(&a, 1, 8), None).await);
    let held = compute(&b, &sequence(&b, 1, 8), None).await;
    while !manager.census().is_idle() {
        manager.step().expect("none runs");
        tokio::task::yield_now().await;
    }
    assert_eq!((a.usage(Tier::Host).blocks, a.usage(Tier::DISK).blocks), (4, 4));
    // Three more for the host: as many of the tenant's blocks have to leave, and the iteration has bytes
    // for one.
    let mut first = held.clone();
    first.truncate(3);
    drop(manager.default_group().offload(&first, OffloadOptions::default()));
    while manager.census().moving > 0 {
        tokio::task::yield_now().await;
    }
    assert!(manager.census().queued > 0, "some wait for the next iteration");
    let purged = a.purge(ZERO).await.expect("open");
    assert!(purged.complete);
    assert_eq!((purged.zeroed_bytes, purged.failed), (8 * BYTES as u64, 0), "{purged:?}");
    assert_eq!(purged.host.found + purged.of(Tier::DISK).found + purged.in_flight, 8, "{purged:?}");
    assert_eq!((a.usage(Tier::Host).blocks, a.usage(Tier::DISK).blocks), (0, 0));
}

#[tokio::test]
async fn purge_deadline_of_max_is_allowed() {
    let manager = build(settings(4, 4));
    let a = manager.tenant("a").expect("few tenants");
    drop(compute(&a, &sequence(&a, 1, 3), None).await);
    let purged = a.purge(Purge::default().deadline(Duration::MAX)).await.expect("open");
    assert_eq!((purged.complete, purged.device.purged), (true, 3));
    drop(compute(&a, &sequence(&a, 1, 3), None).await);
}

/// Blocks behind a purged block are no prefix.
#[tokio::test]
async fn preempted_request_without_its_first_block_has_nothing() {
    let manager = build(settings(8, 8));
    let group = manager.default_group();
    let [a, b] = ["a", "b"].map(|name| manager.tenant(name).expect("few tenants"));
    let mut held = compute(&a, &sequence(&a, 1, 1), None).await;
    held.append(compute(&b, &sequence(&b, 1, 2), None).await).expect("of one manager");
    let mut purge = pin!(a.purge(Purge::default()));
    assert!(purge.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "it is held");
    let none = group.allocate(0).await.expect("nothing");
    let preempted = group.preempt(held, none, 1).expect("of one manager");
    assert!(purge.await.expect("open").complete);
    let resumed = group.resume(preempted, OnboardOptions::default()).await.expect("fits");
    assert_eq!((resumed.blocks.len(), resumed.missed), (0, Some(Cause::Cancelled)));
}

fn of_this_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// A failure of the device is retried after a pause that does not end.
#[test]
fn runtime_end_during_a_retry_pause_ends_the_purge() {
    let runtime = of_this_thread();
    let ground = runtime.block_on(async {
        let ground = Ground::of(settings(4, 4).transfer_retry_after(Duration::from_secs(3600)), 4, 4);
        let a = ground.manager.tenant("a").expect("few tenants");
        drop(compute(&a, &sequence(&a, 1, 3), None).await);
        ground.mover.close();
        let mut purge = pin!(a.purge(ZERO));
        while ground.mover.waiting() == 0 {
            assert!(purge.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            tokio::task::yield_now().await;
        }
        ground.mover.fail();
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
        ground
    });
    assert_eq!((ground.manager.census().purges, ground.mover.waiting()), (1, 0), "it pauses");
    drop(runtime);
    assert_eq!(ground.manager.census().purges, 0);
}

/// At whatever point it is: the purge is over, and the blocks that it had in hand are unowned.
#[test]
fn runtime_end_at_any_point_of_a_purge_ends_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut polls = 0;
    loop {
        let runtime = of_this_thread();
        let file = folder.path().join(polls.to_string());
        let (manager, a) = runtime.block_on(async {
            let manager = build(settings(4, 4).disk_blocks(16).disk_paths(vec![file]));
            let a = manager.tenant("a").expect("few tenants");
            for first in 1..=3 {
                drop(compute(&a, &sequence(&a, first, 4), None).await);
            }
            rest(&manager).await;
            (manager, a)
        });
        assert!([Tier::Device, Tier::Host, Tier::DISK].iter().all(|tier| a.usage(*tier).blocks == 4));
        let mut purge = Box::pin(a.purge(ZERO));
        let over = runtime.block_on(async {
            for _ in 0..polls {
                if purge.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    return true;
                }
                tokio::task::yield_now().await;
            }
            false
        });
        drop((purge, runtime));
        assert_eq!(manager.census().purges, 0, "after {polls}");
        let found = manager.default_group().match_prefix(&sequence(&a, 3, 4)).len();
        assert!(found == 0 || polls == 0, "{found} after {polls}");
        if over {
            assert!(polls > 8, "some of it takes several");
            break;
        }
        polls += 1 + polls / 8;
    }
}

#[test]
fn purge_after_runtime_end_is_closed() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build();
    let runtime = runtime.expect("a runtime");
    let (manager, a) = runtime.block_on(async {
        let manager = build(settings(4, 4));
        let a = manager.tenant("a").expect("few tenants");
        drop(compute(&a, &sequence(&a, 1, 3), None).await);
        (manager, a)
    });
    drop(runtime);
    {
        let mut purge = pin!(a.purge(Purge::default()));
        let ended = purge.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(ended, Poll::Ready(Err(PurgeError::Closed))), "{ended:?}");
    }
    assert_eq!(manager.census().purges, 0);
    assert!(a.default_group().try_allocate(1).is_none(), "the end of its runtime has closed the manager");
}

/// The purge waits for a holder, or for the device that overwrites. Blocks that the device had then are
/// never used again, and all others are.
#[test]
fn runtime_end_during_a_waiting_purge_closes_it() {
    for erases in [false, true] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let (ground, a, held, mut purge) = runtime.block_on(async {
            let ground = Ground::new(4, 4);
            let a = ground.manager.tenant("a").expect("few tenants");
            let mut held = Some(compute(&a, &sequence(&a, 1, 3), None).await);
            if erases {
                held = None;
                ground.mover.close();
            }
            let mut purge = Box::pin({
                let a = a.clone();
                async move { a.purge(ZERO).await }
            });
            for _ in 0..16 {
                let ended = purge.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(ended.is_pending(), "{ended:?}");
                tokio::task::yield_now().await;
            }
            assert_eq!(ground.manager.census().purges, 1);
            (ground, a, held, purge)
        });
        drop(runtime);
        let ended = purge.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(ended, Poll::Ready(Err(PurgeError::Closed))), "{ended:?}");
        assert_eq!(ground.manager.census().purges, 0);
        ground.mover.open();
        drop(held);
        let device = ground.manager.census().tiers[0][0];
        let kept = if erases { (3, 0) } else { (0, 3) };
        assert_eq!((device.free, (device.owned, device.active)), (1, kept), "{erases}: {device:?}");
        assert!(a.default_group().try_allocate(1).is_none(), "the end of its runtime has closed the manager");
        assert!(ground.manager.default_group().match_prefix(&sequence(&a, 1, 3)).is_empty());
    }
}

/// A copy has reserved the slot of a tenant's block, and has not written it.
#[tokio::test]
async fn purged_block_in_a_reserved_slot_survives_no_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volume");
    let manager = || {
        let settings = settings(4, 4).iteration_bytes(Some(BYTES as u64)).host_headroom(0);
        build(settings.disk_blocks(8).disk_paths(vec![file.clone()]))
    };
    let of_a;
    {
        let first = manager();
        let [a, b] = ["a", "b"].map(|name| first.tenant(name).expect("few tenants"));
        of_a = [1, 2].map(|number| sequence(&a, number, 4));
        for run in &of_a {
            drop(compute(&a, run, None).await);
            let persisted = tokio::spawn({
                let (a, run) = (a.clone(), run.clone());
                async move { a.default_group().persist(&run).await }
            });
            while !persisted.is_finished() {
                first.step().expect("none runs");
                tokio::task::yield_now().await;
            }
            rest(&first).await;
        }
        assert_eq!(a.usage(Tier::DISK).blocks, 8, "all of it");
        let of_b = sequence(&b, 1, 1);
        drop(compute(&b, &of_b, None).await);
        // The iteration has bytes for the way to the host, and none for the way to the disk.
        first.step().expect("none runs");
        let persisted = tokio::spawn({
            let b = b.clone();
            async move { b.default_group().persist(&of_b).await }
        });
        while a.usage(Tier::DISK).blocks == 8 {
            tokio::task::yield_now().await;
        }
        assert!(b.purge(Purge::default()).await.expect("open").complete);
        assert_eq!(persisted.await.expect("no panic").failed, 1, "called back");
        let purged = a.purge(ZERO).await.expect("open");
        assert_eq!((purged.complete, purged.of(Tier::DISK).purged), (true, 7));
        assert!(first.shutdown().await);
    }
    let second = manager();
    let found =
        of_a.iter().flatten().filter(|hash| !second.default_group().match_prefix(&[**hash]).is_empty());
    assert_eq!(found.count(), 0, "found after a restart");
}
