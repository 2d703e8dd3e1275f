//! The manager and a disk's limits: no more requests at once than the disk takes, no call under the lock
//! that may be a system call, and a task that gives others their turn.

use crate::gated::Ground;
use crate::ground::{BYTES, check, compute, hashes, rest, settings};
use crate::sim::{Asked, Plan, SimDisk};
use crate::staged;
use kvstrata::manager::{OffloadOptions, OnboardOptions};
use kvstrata::transfer::TierPort;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tokio::task::yield_now;

const BLOCKS: u32 = 8;
/// Far more than the test takes.
const PATIENCE: Duration = Duration::from_secs(10);

fn disk(at_once: u32) -> Arc<SimDisk> {
    let quick = Plan { latency: Duration::ZERO..Duration::from_millis(1), ..Plan::calm(1) };
    Arc::new(SimDisk::with_at_once(2 * BLOCKS, BYTES, quick, at_once))
}

#[tokio::test]
async fn disk_gets_no_more_requests_at_once_than_it_takes() {
    let disk = disk(2);
    let (manager, _) = staged::over(Arc::<SimDisk>::clone(&disk) as Arc<dyn TierPort>, BLOCKS, 8);
    let group = manager.default_group();
    let all = hashes(1, u64::from(BLOCKS));
    drop(compute(&manager, &all, None).await);
    assert_eq!(group.persist(&all).await.copied, all.len());
    drop(group.allocate(all.len()).await.expect("blocks"));
    let up = group.onboard(group.match_prefix(&all), OnboardOptions::default()).expect("fits").await;
    check(&manager, &up.blocks, &all);
    let counts = disk.counts();
    assert_eq!((counts.written, counts.read), (8, 8));
    assert_eq!(counts.violations, [""; 0]);
}

#[tokio::test]
async fn freed_slot_is_forgotten_outside_the_lock() {
    let disk = disk(u32::MAX);
    let (manager, _) = staged::over(Arc::<SimDisk>::clone(&disk) as Arc<dyn TierPort>, BLOCKS, 8);
    let (heard, hears) = mpsc::channel();
    let asks = manager.clone();
    disk.listen(move |asked| {
        if asked == Asked::Forget {
            let (looked, looks) = mpsc::channel();
            let manager = asks.clone();
            // Another caller that needs the lock.
            std::thread::spawn(move || looked.send(manager.census().is_idle()));
            let _ = heard.send(looks.recv_timeout(PATIENCE).is_ok());
        }
    });
    let blocks = compute(&manager, &hashes(1, 3), None).await;
    let partial = manager.default_group().allocate(1).await.expect("a block");
    let mut preempted = manager.default_group().preempt(blocks, partial, 1).expect("one manager");
    assert_eq!(preempted.settled().await.copied, 4);
    // No caller knows its name now, and its slot is free.
    drop(preempted);
    assert_eq!(hears.try_recv(), Ok(true), "asked to forget, and nobody waited for it");
    rest(&manager).await;
    let census = disk.pool().census();
    assert_eq!((census.owned, census.inactive), (0, 3));
}

#[tokio::test]
async fn byte_comparison_yields_after_each_block() {
    let disk = disk(u32::MAX);
    let port = Arc::<SimDisk>::clone(&disk) as Arc<dyn TierPort>;
    let ground = Ground::over(settings(BLOCKS, 2 * BLOCKS), BLOCKS, 2 * BLOCKS, Some(port));
    let (manager, all) = (&ground.manager, hashes(1, u64::from(BLOCKS)));
    let held = compute(manager, &all, None).await;
    assert_eq!(manager.default_group().offload(&held, OffloadOptions::default()).await.copied, all.len());
    let (turns, at) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (counted, noted) = (Arc::clone(&turns), Arc::clone(&at));
    disk.listen(move |_| noted.lock().expect("no panic").push(counted.load(Relaxed)));
    let other = tokio::spawn(async move {
        loop {
            turns.fetch_add(1, Relaxed);
            yield_now().await;
        }
    });
    assert_eq!(manager.default_group().persist(&all).await.copied, all.len());
    other.abort();
    let at = at.lock().expect("no panic");
    // Two turns of one task may follow each other when both tasks have yielded.
    assert!(at.len() == all.len() && at.windows(3).all(|some| some[0] < some[2]), "{at:?}");
}
