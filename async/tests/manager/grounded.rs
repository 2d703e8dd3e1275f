//! Transfers that wait for host memory: victims and urgent reads go before copies by choice, and the
//! number of waiting copies by choice is bounded.

use crate::flying::look;
use crate::gated::Ground;
use crate::ground::{BYTES, check, compute, hashes, rest, settings};
use crate::sim::{Asked, Plan, SimDisk};
use crate::staged;
use kvstrata::config::{ManagerConfigBuilder, WriteMode};
use kvstrata::manager::{OffloadOptions, OnboardOptions, Refusal, Tiers};
use kvstrata::tier::Tier;
use kvstrata::transfer::{Cause, Class, Path, TierPort};
use kvstrata_core::Policy;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::yield_now;

const PATIENCE: Duration = Duration::from_secs(5);
pub const HEADROOM: u32 = 2;
/// Blocks of the host, which the disk lacks.
pub const INACTIVE: u64 = 6;
pub const HOST: u32 = HEADROOM + INACTIVE as u32;

pub fn disk() -> Arc<SimDisk> {
    let quick = Plan { latency: Duration::ZERO..Duration::from_millis(1), ..Plan::calm(1) };
    Arc::new(SimDisk::new(64, BYTES, quick))
}

/// A device full of `hashes(2, 16)` over a host that is full except for its headroom. The disk below has
/// nothing, writes one block at a time, and from now on finishes no write until the test lets it.
pub async fn full(settings: ManagerConfigBuilder) -> (Arc<SimDisk>, Ground) {
    let disk = disk();
    let port = Arc::<SimDisk>::clone(&disk) as Arc<dyn TierPort>;
    let settings = settings.host_headroom(HEADROOM).transfer_in_flight_host_to_disk(Some(BYTES as u64));
    let ground = Ground::over(settings, 16, HOST, Some(port));
    let manager = &ground.manager;
    drop(compute(manager, &hashes(1, INACTIVE), None).await);
    drop(manager.default_group().allocate(16).await.expect("blocks"));
    rest(manager).await;
    assert_eq!((free(manager), disk.counts().written), (HEADROOM as usize, 0));
    drop(compute(manager, &hashes(2, 16), None).await);
    disk.gate().hold();
    (disk, ground)
}

/// Free blocks of the host.
fn free(manager: &Tiers) -> usize {
    manager.census().tiers[0][1].free
}

/// Waits until `is_so`.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let all = async {
        while !is_so() {
            yield_now().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, all).await.is_ok(), "{what}");
}

#[tokio::test]
async fn urgent_read_gets_staging_before_earlier_copies_by_choice() {
    let disk = disk();
    let port = Arc::<SimDisk>::clone(&disk) as Arc<dyn TierPort>;
    let (manager, _) = staged::over(port, 12, 2);
    let group = manager.default_group();
    let urgent = hashes(1, 1);
    drop(compute(&manager, &urgent, None).await);
    assert_eq!(group.persist(&urgent).await.copied, 1);
    drop(group.allocate(12).await.expect("blocks"));
    rest(&manager).await;
    let held = compute(&manager, &hashes(2, 8), None).await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    disk.listen(move |what| noted.lock().expect("no panic").push(what));
    let asked = || asked.lock().expect("no panic").clone();
    disk.gate().hold();
    let offload = group.offload(&held, OffloadOptions::default());
    until("written as far as there is staging", || asked().len() == 2).await;
    let up = group.onboard(group.match_prefix(&urgent), OnboardOptions::default()).expect("fits");
    assert_eq!(manager.census().grounded, 6);
    disk.gate().let_go(1);
    until("a block of staging is used again", || asked().len() == 3).await;
    assert_eq!(asked(), [Asked::Write, Asked::Write, Asked::Read]);
    disk.gate().open();
    check(&manager, &up.await.blocks, &urgent);
    assert_eq!(offload.await.copied, 8);
}

#[tokio::test]
async fn victims_get_host_blocks_before_earlier_copies_by_choice() {
    // Under LRU a block may leave before those computed from it, so the victims are not the blocks being
    // copied.
    let settings = settings(16, HOST).device_policy(Policy::Lru);
    let (disk, ground) = full(settings.watermark_device(0.6).watermark_device_low(0.5)).await;
    let manager = &ground.manager;
    manager.step().expect("none runs");
    assert_eq!((manager.census().grounded, free(manager)), (8, HEADROOM as usize));
    let mut blocks =
        pin!(manager.default_group().allocate(HEADROOM as usize + 2).deadline(PATIENCE).into_future());
    assert!(look(blocks.as_mut()).is_pending());
    assert_eq!((manager.census().grounded, free(manager)), (10, 0));
    disk.gate().let_go(2);
    assert_eq!(blocks.await.expect("in time").len(), HEADROOM as usize + 2);
    assert_eq!(disk.counts().written, 2);
    disk.gate().open();
    rest(manager).await;
}

/// Under policies that know parents, the blocks being copied hold back the others. They become the
/// victims, and get the host blocks that victims may have.
#[tokio::test]
async fn copies_by_choice_holding_victims_back_become_victims() {
    let settings = settings(16, HOST).device_policy(Policy::Reuse);
    let (disk, ground) = full(settings.watermark_device(0.6).watermark_device_low(0.5)).await;
    let manager = &ground.manager;
    manager.step().expect("none runs");
    assert_eq!((manager.census().grounded, free(manager)), (8, HEADROOM as usize));
    let mut blocks =
        pin!(manager.default_group().allocate(HEADROOM as usize + 2).deadline(PATIENCE).into_future());
    assert!(look(blocks.as_mut()).is_pending());
    assert_eq!((manager.census().grounded, free(manager)), (8 - HEADROOM as usize, 0));
    disk.gate().open();
    assert_eq!(blocks.await.expect("in time").len(), HEADROOM as usize + 2);
    rest(manager).await;
}

#[tokio::test]
async fn host_writes_for_victims_go_before_unawaited_ones() {
    let (disk, ground) = full(settings(16, HOST).watermark_device(0.6).watermark_device_low(0.5)).await;
    let manager = &ground.manager;
    let first = hashes(1, INACTIVE / 2);
    let mut persisted = pin!(manager.default_group().persist(&first));
    assert!(look(persisted.as_mut()).is_pending());
    manager.step().expect("none runs");
    let mut blocks =
        pin!(manager.default_group().allocate(HEADROOM as usize + 2).deadline(PATIENCE).into_future());
    assert!(look(blocks.as_mut()).is_pending());
    // The write that had begun, and two for the victims.
    disk.gate().let_go(3);
    assert_eq!(blocks.await.expect("in time").len(), HEADROOM as usize + 2);
    assert_eq!(disk.counts().written, 3);
    disk.gate().open();
    assert_eq!(persisted.await.copied, first.len());
    rest(manager).await;
}

#[tokio::test]
async fn headroom_is_made_again_while_victims_wait() {
    let (disk, ground) = full(settings(16, HOST)).await;
    let manager = &ground.manager;
    let mut blocks =
        pin!(manager.default_group().allocate(HEADROOM as usize + 1).deadline(PATIENCE).into_future());
    assert!(look(blocks.as_mut()).is_pending());
    until("the headroom was had", || manager.census().moving == 1).await;
    let census = manager.census();
    assert_eq!((census.grounded, census.moving, census.queued), (1, 1, HEADROOM as usize));
    disk.gate().open();
    assert_eq!(blocks.await.expect("in time").len(), HEADROOM as usize + 1);
    rest(manager).await;
}

#[tokio::test]
async fn copies_by_choice_leave_the_headroom_to_victims() {
    let (disk, ground) = full(settings(16, HOST)).await;
    let manager = &ground.manager;
    let group = manager.default_group();
    let held = group.match_device(&hashes(2, 8));
    let urgent = OffloadOptions::default().class(Class::Urgent);
    let offload = group.offload(&held, urgent);
    assert_eq!((manager.census().grounded, free(manager)), (8, HEADROOM as usize));
    // Victims get it.
    let blocks = group.allocate(HEADROOM as usize).deadline(PATIENCE).await.expect("in time");
    assert_eq!((manager.census().grounded, free(manager)), (8, 0));
    disk.gate().let_go(HEADROOM as usize);
    until("written", || disk.counts().written == u64::from(HEADROOM)).await;
    until("and given back", || manager.census().tiers[0][1].free == HEADROOM as usize).await;
    assert_eq!(manager.census().grounded, 8);
    // Victims get it again, at once.
    let again = group.allocate(HEADROOM as usize).deadline(PATIENCE).await.expect("in time");
    assert_eq!((disk.counts().written, manager.census().grounded), (u64::from(HEADROOM), 8));
    disk.gate().open();
    assert_eq!(offload.await.copied, 8);
    drop((blocks, again));
    rest(manager).await;
}

#[tokio::test]
async fn copies_by_choice_beyond_the_queue_are_deferred_or_refused() {
    const BOUND: u32 = 3;
    let marks = settings(16, HOST).watermark_device(0.6).watermark_device_low(0.0);
    let (disk, ground) = full(marks.transfer_queue(BOUND)).await;
    let manager = &ground.manager;
    for _ in 0..3 {
        manager.step().expect("none runs");
        let census = manager.census();
        assert_eq!(census.grounded, BOUND as usize);
        // The copies of host blocks to the disk, and one being written.
        assert!(census.queued + census.moving <= BOUND as usize + 1, "{census:?}");
    }
    // A caller's copies are refused, and counted.
    let held = manager.default_group().match_device(&hashes(2, 16));
    let offload = manager.default_group().offload(&held, OffloadOptions::default());
    assert_eq!(manager.stats().refused_by(Refusal::Queue), 16 - u64::from(BOUND));
    disk.gate().open();
    assert_eq!(offload.await.refused, 16 - BOUND as usize);
    drop(held);
    let all = async {
        while manager.stats().offloaded[0] < 16 + INACTIVE {
            manager.step().expect("none runs");
            yield_now().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, all).await.is_ok(), "{:?}", manager.stats());
}

#[tokio::test]
async fn copies_by_choice_fill_the_disk_queue_to_its_bound_only() {
    let marks = settings(16, HOST).watermark_device(0.6).watermark_device_low(0.0);
    let (disk, ground) = full(marks.transfer_queue(3)).await;
    let manager = &ground.manager;
    let first = hashes(1, INACTIVE / 2);
    let mut persisted = pin!(manager.default_group().persist(&first));
    assert!(look(persisted.as_mut()).is_pending());
    for _ in 0..3 {
        manager.step().expect("none runs");
        let census = manager.census();
        assert_eq!((census.grounded, census.moving, census.queued), (1, 1, 3));
    }
    disk.gate().open();
    assert_eq!(persisted.await.copied, first.len());
    rest(manager).await;
}

/// Cancelling those would free nothing.
#[tokio::test]
async fn copies_of_held_blocks_are_not_cancelled_for_waiters() {
    let disk = disk();
    let port = Arc::<SimDisk>::clone(&disk) as Arc<dyn TierPort>;
    // Two blocks of staging, and no host tier.
    let ground = Ground::over(settings(4, 0).offload_mode(WriteMode::Through), 4, 0, Some(port));
    let manager = &ground.manager;
    disk.gate().hold();
    let held = compute(manager, &hashes(1, 4), None).await;
    assert_eq!(manager.census().grounded, 2);
    {
        let waits = pin!(manager.default_group().allocate(1).into_future());
        assert!(look(waits).is_pending(), "all are held");
        let called_off = manager.stats().path(Path::DeviceToHost).failed_by(Cause::Cancelled);
        assert_eq!((manager.census().grounded, called_off), (2, 0));
    }
    disk.gate().open();
    rest(manager).await;
    assert_eq!(disk.counts().written, 4);
    drop(held);
}

#[tokio::test]
async fn allocation_cancels_copies_by_choice_that_wait() {
    let (disk, ground) = full(settings(16, HOST).watermark_device(0.6).watermark_device_low(0.0)).await;
    let manager = &ground.manager;
    manager.step().expect("none runs");
    assert_eq!(manager.census().grounded, 16, "they keep all blocks of the device");
    let blocks =
        manager.default_group().allocate(HEADROOM as usize).deadline(PATIENCE).await.expect("in time");
    assert_eq!((disk.counts().written, manager.census().grounded), (0, 16 - HEADROOM as usize));
    drop(blocks);
    disk.gate().open();
    rest(manager).await;
    // The copies of the next victims were cancelled.
    assert_eq!(manager.default_group().match_device(&hashes(2, 16)).len(), 14);
}

/// A host block is about to be freed for the victim, when a caller finds and holds that block.
/// The victim is lost, and counted.
#[tokio::test]
async fn victim_waiting_for_a_held_host_block_is_dropped() {
    let disk = disk();
    let port = Arc::<SimDisk>::clone(&disk) as Arc<dyn TierPort>;
    let ground = Ground::over(settings(1, 1).host_headroom(0), 1, 1, Some(port));
    let manager = &ground.manager;
    let group = manager.default_group();
    let (first, second) = (hashes(1, 1), hashes(2, 1));
    drop(compute(manager, &first, None).await);
    drop(group.allocate(1).await.expect("idle"));
    rest(manager).await;
    drop(compute(manager, &second, None).await);
    disk.gate().hold();
    let mut blocks = pin!(group.allocate(1).deadline(PATIENCE).into_future());
    assert!(look(blocks.as_mut()).is_pending());
    assert_eq!(manager.census().grounded, 1);
    let found = group.match_prefix(&first);
    assert_eq!(found.in_tier(Tier::Host), 1);
    drop(blocks.await.expect("the victim is given up"));
    disk.gate().open();
    drop(found);
    rest(manager).await;
    assert_eq!((group.match_prefix(&second).len(), manager.stats().dropped), (0, [1, 0]));
}
