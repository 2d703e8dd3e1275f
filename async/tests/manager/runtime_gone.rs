//! The runtime that a manager was given ends while handles of the manager live. Waiting calls are
//! answered, and no block is given any more.

use super::gated::Ground;
use super::ground::{build, check, compute, hashes, settings};
use crate::common::volume;
use kvstrata::manager::{AllocateError, OffloadOptions, OnboardError, OnboardOptions, Purge, PurgeError};
use kvstrata::tier::Tier;
use kvstrata::transfer::Cause;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

const SOON: Duration = Duration::from_millis(100);

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_time().build().expect("a runtime")
}

/// Waits on another runtime than the manager's, for a limited time.
fn answer<F: IntoFuture>(future: F) -> F::Output {
    let other = Builder::new_current_thread().enable_time().build().expect("a runtime");
    other.block_on(async { timeout(Duration::from_secs(60), future.into_future()).await }).expect("an answer")
}

#[test]
fn allocation_after_runtime_end_is_answered_closed() {
    let own = runtime();
    let manager = own.block_on(async { build(settings(4, 4)) });
    let held = own.block_on(manager.default_group().allocate(4).into_future()).expect("all of them");
    let waiting = {
        let manager = manager.clone();
        std::thread::spawn(move || {
            answer(manager.default_group().allocate(1).deadline(Duration::from_secs(3600)))
        })
    };
    while manager.census().waiting == 0 {
        std::thread::yield_now();
    }
    drop(own);
    let told = waiting.join().expect("no panic");
    assert!(matches!(told, Err(AllocateError::Closed)), "{told:?}");
    // So are later calls.
    assert!(matches!(answer(manager.default_group().allocate(1).deadline(SOON)), Err(AllocateError::Closed)));
    drop(held);
    assert!(
        matches!(answer(manager.default_group().allocate(1)), Err(AllocateError::Closed))
            && manager.default_group().try_allocate(1).is_none()
    );
    let tenant = manager.tenant("acme").expect("a name");
    assert!(matches!(answer(tenant.purge(Purge::default())), Err(PurgeError::Closed)));
    assert!(answer(manager.shutdown()), "nothing is under way");
}

/// A mover does not answer. Calls that wait for it still have their deadline, and so has a shutdown.
#[test]
fn onboard_after_runtime_end_is_answered_at_its_deadline() {
    let own = runtime();
    let all = hashes(1, 4);
    let ground = own.block_on(async {
        let ground = Ground::of(settings(4, 16).deadline_shutdown(SOON), 4, 16);
        drop(compute(&ground.manager, &all, None).await);
        // These have copies below, so that they leave at once.
        let others = compute(&ground.manager, &hashes(2, 4), None).await;
        assert_eq!(
            ground.manager.default_group().offload(&others, OffloadOptions::default()).await.copied,
            4
        );
        drop(others);
        while !ground.manager.census().is_idle() {
            tokio::task::yield_now().await;
        }
        ground
    });
    ground.mover.close();
    let found = ground.manager.default_group().match_prefix(&all);
    assert_eq!((found.len(), found.in_tier(Tier::Device)), (4, 0));
    let options = OnboardOptions::default().deadline(SOON);
    let up = ground.manager.default_group().onboard(found, options).expect("it begins");
    while ground.mover.waiting() == 0 {
        std::thread::yield_now();
    }
    drop(own);
    let came = answer(up);
    assert_eq!((came.blocks.len(), came.missed), (0, Some(Cause::Deadline)));
    let began = Instant::now();
    assert!(!answer(ground.manager.shutdown()), "copies are under way");
    assert!(began.elapsed() >= SOON, "it waits for them");
    let found = ground.manager.default_group().match_prefix(&all);
    assert!(matches!(
        ground.manager.default_group().onboard(found, OnboardOptions::default()),
        Err(OnboardError::Closed)
    ));
    ground.mover.open();
    while !ground.manager.census().is_idle() {
        std::thread::yield_now();
    }
    assert!(answer(ground.manager.shutdown()));
}

#[test]
fn shutdown_after_runtime_end_leaves_a_clean_volume() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volume");
    let open = || build(settings(8, 8).disk_blocks(16).disk_paths(vec![file.clone()]));
    let (own, all) = (runtime(), hashes(1, 4));
    let manager = own.block_on(async { open() });
    let held = own.block_on(compute(&manager, &all, None));
    assert_eq!(own.block_on(manager.default_group().persist(&all)).copied, 4);
    drop(own);
    assert_eq!(answer(manager.default_group().persist(&hashes(3, 1))).copied, 0);
    assert!(answer(manager.shutdown()));
    assert!(volume::read(&file).expect("a superblock").clean);
    check(&manager, &held, &all);
    drop((held, manager));
    let again = runtime();
    let second = again.block_on(async { open() });
    assert_eq!(second.default_group().match_prefix(&all).in_tier(Tier::DISK), 4);
    assert!(again.block_on(second.shutdown()));
}
