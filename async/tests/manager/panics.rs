//! Movers and disks may be callers' code. If one panics at a request, that request has failed, and
//! nothing else with it.

use super::gated::Ground;
use super::ground::{BYTES, check, compute, hashes, rest, settings};
use super::staged;
use crate::sim::{Asked, Plan, SimDisk};
use kvstrata::config::Verify;
use kvstrata::manager::{AllocateError, OffloadOptions, OnboardOptions};
use kvstrata::transfer::{Cause, TierPort};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(10);
/// Far more than the test takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// A disk that panics, once told to, at the next request of this kind.
fn disk(at: Asked) -> (Arc<SimDisk>, Arc<AtomicBool>) {
    let quick = Plan { latency: Duration::ZERO..Duration::from_millis(1), ..Plan::calm(1) };
    let (disk, panics) = (Arc::new(SimDisk::new(16, BYTES, quick)), Arc::new(AtomicBool::new(false)));
    let told = Arc::clone(&panics);
    disk.listen(move |asked| assert!(asked != at || !told.swap(false, Relaxed), "a disk of a test panics"));
    (disk, panics)
}

#[tokio::test]
async fn read_with_panicking_disk_is_a_miss_and_later_reads_go_on() {
    let (disk, panics) = disk(Asked::Read);
    let (manager, _) = staged::over(Arc::<SimDisk>::clone(&disk) as Arc<dyn TierPort>, 8, 2);
    let group = manager.default_group();
    let all = hashes(1, 2);
    drop(compute(&manager, &all, None).await);
    assert_eq!(group.persist(&all).await.copied, 2);
    drop(group.allocate(8).await.expect("blocks"));
    rest(&manager).await;
    panics.store(true, Relaxed);
    let up = group.onboard(group.match_prefix(&all), OnboardOptions::default()).expect("fits");
    let up = tokio::time::timeout(PATIENCE, up).await.expect("answered");
    assert_eq!((up.blocks.len(), up.missed), (0, Some(Cause::Abandoned)));
    rest(&manager).await;
    assert_eq!(disk.counts().read, 1);
    // The dropped block can still be brought up.
    let up = group.onboard(group.match_prefix(&all), OnboardOptions::default()).expect("fits").await;
    check(&manager, &up.blocks, &all);
}

#[tokio::test]
async fn write_with_panicking_disk_fails_and_later_writes_go_on() {
    for verify in [Verify::All, Verify::Disk] {
        let (disk, panics) = disk(Asked::Write);
        let port = disk as Arc<dyn TierPort>;
        let ground = Ground::over(settings(4, 8).onboard_verify(verify), 4, 8, Some(port));
        let (manager, all) = (&ground.manager, hashes(1, 3));
        let group = manager.default_group();
        let held = compute(manager, &all, None).await;
        assert_eq!(group.offload(&held, OffloadOptions::default()).await.copied, 3);
        panics.store(true, Relaxed);
        let persisted = tokio::time::timeout(PATIENCE, group.persist(&all)).await.expect("answered");
        assert_eq!((persisted.copied, persisted.failed), (2, 1), "{verify:?}");
        assert_eq!(persisted.cause, Some(Cause::Abandoned));
        assert_eq!(group.persist(&all).await.copied, 1, "{verify:?}");
        rest(manager).await;
    }
}

#[tokio::test]
async fn copy_with_panicking_mover_fails_and_later_copies_go_on() {
    let ground = Ground::new(4, 8);
    let manager = &ground.manager;
    let held = compute(manager, &hashes(1, 3), None).await;
    ground.mover.panic_once();
    let offload = manager.default_group().offload(&held, OffloadOptions::default());
    let down = tokio::time::timeout(PATIENCE, offload).await.expect("answered");
    assert_eq!((down.copied, down.failed, down.cause), (2, 1, Some(Cause::Abandoned)));
    rest(manager).await;
}

/// The task of the deadlines starts the transfers that go on when a deadline has passed.
#[tokio::test]
async fn mover_panic_at_a_deadline_keeps_later_deadlines() {
    let ground = Ground::new(4, 8);
    let (manager, all) = (&ground.manager, hashes(1, 1));
    drop(compute(manager, &all, None).await);
    drop(manager.default_group().allocate(4).await.expect("blocks"));
    rest(manager).await;
    let held = manager.default_group().allocate(2).await.expect("blocks");
    let first = tokio::spawn({
        let manager = manager.clone();
        async move { manager.default_group().allocate(3).deadline(SHORT).await }
    });
    while manager.census().waiting == 0 {
        tokio::task::yield_now().await;
    }
    let up = manager
        .default_group()
        .onboard(manager.default_group().match_prefix(&all), OnboardOptions::default())
        .expect("fits");
    ground.mover.panic_once();
    let first = tokio::time::timeout(PATIENCE, first).await.expect("in time").expect("no panic");
    assert!(matches!(first, Err(AllocateError::Deadline { .. })), "{first:?}");
    let up = tokio::time::timeout(PATIENCE, up).await.expect("answered");
    assert_eq!(up.missed, Some(Cause::Abandoned), "its copy began when the first had given up");
    let next = tokio::time::timeout(PATIENCE, manager.default_group().allocate(3).deadline(SHORT))
        .await
        .expect("in time");
    assert!(matches!(next, Err(AllocateError::Deadline { .. })), "{next:?}");
    drop(held);
    rest(manager).await;
}
