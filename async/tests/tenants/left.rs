//! A purge reports the truth about disks: slots that others have taken, slots given up before, and disks
//! that fail.

use crate::common::volume;
use crate::gated::Ground;
use crate::ground::{BYTES, compute, rest, settings, stepping};
use crate::sequence;
use crate::sim::{ALWAYS, Asked, Plan, SimDisk};
use kvstrata::config::ManagerConfigBuilder;
use kvstrata::disk::{DiskMover, DiskTier, TierOptions};
use kvstrata::manager::{Offloaded, OnboardOptions, Purge, Purged, Tiers};
use kvstrata::tier::Tier;
use kvstrata::transfer::{Cause, Path};
use kvstrata_core::{PoolConfig, SequenceHash};
use kvstrata_ffi::disk::VolumeOptions;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tempfile::TempDir;
use tokio::task::{JoinHandle, yield_now};

const SOON: Duration = Duration::from_secs(20);
const ZERO: Purge = Purge::new().zero(true).deadline(Duration::from_secs(60));

/// Volumes that write their tables when they are told to, or closed, and not before.
struct Disks {
    _folder: TempDir,
    files: Vec<PathBuf>,
    slots: u32,
}

impl Disks {
    fn new(volumes: usize, slots: u32) -> Disks {
        let folder = tempfile::tempdir().expect("a folder");
        let files = (0..volumes).map(|number| folder.path().join(number.to_string())).collect();
        Disks { _folder: folder, files, slots }
    }

    fn open(&self) -> Arc<DiskTier> {
        let volume = |file: &PathBuf| {
            VolumeOptions::new(file, self.slots, BYTES).keep(true).table_delay(Duration::from_secs(1000))
        };
        let blocks = PoolConfig::new(self.slots * self.files.len() as u32);
        let volumes = self.files.iter().map(volume).collect();
        Arc::new(DiskTier::open(volumes, blocks, TierOptions::default()).expect("a tier").0)
    }

    /// Hashes that the next opening of the first volume would find after a crash at this moment.
    fn left(&self) -> Vec<SequenceHash> {
        let blocks = volume::read(&self.files[0]).expect("a superblock").blocks;
        blocks.into_keys().map(SequenceHash::from_u128).collect()
    }
}

fn over(settings: ManagerConfigBuilder, host: u32, tier: &Arc<DiskTier>) -> Ground {
    let port = DiskMover::new(Arc::clone(tier), &tokio::runtime::Handle::current());
    let settings = settings.disk_blocks(tier.pool().capacity() as u32).host_headroom(0);
    Ground::over(settings, 4, host, Some(Arc::new(port)))
}

fn flush(tier: &DiskTier) {
    tier.volumes().flush().into_iter().for_each(|flush| flush.wait().expect("flushed"));
}

/// Computes a run, and persists it to the disk.
async fn persist(manager: &Tiers, run: &[SequenceHash]) {
    drop(compute(manager, run, None).await);
    assert_eq!(stepping(manager, manager.default_group().persist(run)).await.copied, run.len());
    stepping(manager, rest(manager)).await;
}

fn nothing_is_left(purged: Purged) {
    assert_eq!((purged.complete, purged.failed, purged.still_found), (true, 0, 0), "{purged:?}");
}

/// Another tenant's copy has reserved the slot of a tenant's block, and has not written it: the block is
/// still there whole, with its record.
#[tokio::test]
async fn purged_block_in_a_slot_reserved_by_another_is_gone() {
    for zero in [false, true] {
        let disks = Disks::new(1, 6);
        let tier = disks.open();
        let ground = over(settings(4, 4).iteration_bytes(Some(BYTES as u64)), 4, &tier);
        let [a, b] = ["a", "b"].map(|name| ground.manager.tenant(name).expect("few tenants"));
        let (of_a, of_b, of_nobody) = (sequence(&a, 1, 4), sequence(&b, 1, 1), sequence(&b, 2, 2));
        persist(&a, &of_a).await;
        persist(&ground.manager, &of_nobody).await;
        flush(&tier);
        assert_eq!((a.usage(Tier::DISK).blocks, disks.left().len(), tier.pool().free()), (4, 6, 0));
        drop(compute(&b, &of_b, None).await);
        // The iteration has bytes for the way to the host, and none for the way to the disk.
        ground.manager.step().expect("none runs");
        let persisted = tokio::spawn({
            let (b, of_b) = (b.clone(), of_b.clone());
            async move { b.default_group().persist(&of_b).await }
        });
        let taken = async {
            while a.usage(Tier::DISK).blocks == 4 {
                yield_now().await;
            }
        };
        tokio::time::timeout(SOON, taken).await.expect("of the block that was used least of late");
        assert_eq!(disks.left().len(), 6, "nothing was written");
        let purged = a.purge(ZERO.zero(zero)).await.expect("open");
        nothing_is_left(purged);
        assert!(disks.left().iter().all(|hash| of_nobody.contains(hash)), "found after a crash");
        assert_eq!(purged.of(Tier::DISK).found, 3, "the fourth was not registered any more");
        let bytes = std::fs::read(&disks.files[0]).expect("there");
        let there = |hash: &&SequenceHash| {
            let its = crate::ground::bytes_of(**hash);
            bytes.chunks(64).any(|some| some == &its[..64])
        };
        assert_eq!(of_a.iter().filter(there).count(), if zero { 0 } else { 4 });
        let persisted = stepping(&b, persisted).await.expect("no panic");
        assert_eq!((persisted.copied, persisted.failed), (1, 0), "{persisted:?}");
        assert_eq!([&a, &b].map(|tenant| tenant.usage(Tier::DISK).blocks), [0, 1]);
        assert_eq!((tier.pool().census().free, tier.pool().census().owned), (4, 0));
    }
}

/// No caller knows the name of a partial block once its request gives it up. Its slot is given up then.
#[tokio::test]
async fn partial_block_given_up_before_a_purge_is_forgotten() {
    let disks = Disks::new(1, 4);
    let tier = disks.open();
    // Without a host tier: preempted blocks go to the disk.
    let Ground { manager, .. } = over(settings(4, 0), 0, &tier);
    let a = manager.tenant("a").expect("few tenants");
    let none = compute(&a, &[], None).await;
    let partial = a.default_group().allocate(1).await.expect("free");
    let mut preempted = a.default_group().preempt(none, partial, 1).expect("one manager");
    assert_eq!(preempted.settled().await.copied, 1);
    flush(&tier);
    assert_eq!(disks.left().len(), 1);
    drop(preempted);
    rest(&manager).await;
    assert_eq!((tier.pool().census().inactive, disks.left().len()), (0, 1), "not on the device yet");
    let purged = a.purge(Purge::default()).await.expect("open");
    nothing_is_left(purged);
    assert_eq!((purged.of(Tier::DISK).found, disks.left()), (0, vec![]));
}

/// A volume is out of service: the next opening finds its blocks, also those of purged tenants.
#[tokio::test]
async fn purge_counts_blocks_of_an_out_of_service_volume() {
    for noticed in [false, true] {
        let disks = Disks::new(2, 8);
        let tier = disks.open();
        let ground = over(settings(4, 4), 4, &tier);
        let a = ground.manager.tenant("a").expect("few tenants");
        let group = a.default_group();
        let runs = [1, 2].map(|number| sequence(&a, number, 4));
        persist(&a, &runs[0]).await;
        persist(&a, &runs[1]).await;
        flush(&tier);
        let all: Vec<SequenceHash> = runs.concat();
        let of_second = |hash: &&SequenceHash| {
            let slot = tier.lookup(**hash).map_or(0, |block| block.id().0);
            slot % 2 == 1
        };
        let lost: Vec<SequenceHash> = all.iter().filter(of_second).copied().collect();
        assert!(!lost.is_empty() && lost.len() < all.len(), "{} on the second", lost.len());
        tier.volumes().volumes()[1].retire();
        if noticed {
            // Neither device nor host has them.
            drop(group.allocate(4).await.expect("evictable"));
            for number in 10..14 {
                drop(compute(&ground.manager, &sequence(&a, number, 4), None).await);
                rest(&a).await;
            }
            drop(
                group.onboard(group.match_prefix(&lost[..1]), OnboardOptions::default()).expect("fits").await,
            );
            assert!(lost.iter().all(|hash| group.match_prefix(&[*hash]).is_empty()), "looked up in vain");
        }
        let purged = a.purge(Purge::default()).await.expect("open");
        assert_eq!((purged.complete, purged.failed), (true, lost.len()), "{noticed}: {purged:?}");
        assert_eq!(a.usage(Tier::DISK).blocks, 0);
        let again = a.purge(Purge::default()).await.expect("open");
        assert_eq!((again.failed, again.of(Tier::DISK).found), (lost.len(), 0), "it says so each time");
        drop((a, ground, tier));
        let tier = disks.open();
        let found: Vec<SequenceHash> = all.into_iter().filter(|hash| tier.lookup(*hash).is_some()).collect();
        assert_eq!(found, lost, "so it is");
    }
}

/// A tenant's block whose write to the disk has begun.
struct Written {
    _ground: Ground,
    a: Tiers,
    persisted: JoinHandle<Offloaded>,
    /// Writes to the disk so far.
    writes: Arc<AtomicUsize>,
}

async fn write_one(disk: &Arc<SimDisk>) -> Written {
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&writes);
    disk.listen(move |asked| _ = counted.fetch_add(usize::from(asked == Asked::Write), Relaxed));
    let port = Arc::<SimDisk>::clone(disk);
    let ground = Ground::over(settings(4, 4).disk_blocks(8).host_headroom(0), 4, 4, Some(port));
    let a = ground.manager.tenant("a").expect("few tenants");
    let run = sequence(&a, 1, 1);
    drop(compute(&a, &run, None).await);
    let persisted = tokio::spawn({
        let a = a.clone();
        async move { a.default_group().persist(&run).await }
    });
    let begun = async {
        while writes.load(Relaxed) == 0 {
            yield_now().await;
        }
    };
    tokio::time::timeout(SOON, begun).await.expect("written");
    Written { _ground: ground, a, persisted, writes }
}

/// The port frees the slot, with the part of the block that was written, and the bytes that were there
/// before.
#[tokio::test]
async fn zeroing_purge_counts_bytes_left_by_a_failed_write() {
    for (zero, left) in [(true, 1), (false, 0)] {
        let plan = Plan { fail: ALWAYS, ..Plan::calm(1) };
        let disk = Arc::new(SimDisk::new(8, BYTES, plan));
        let Written { _ground, a, persisted, .. } = write_one(&disk).await;
        disk.change(|plan| plan.fail = 0);
        let purged = a.purge(ZERO.zero(zero)).await.expect("open");
        assert_eq!(persisted.await.expect("no panic").cause, Some(Cause::Tier), "it was under way");
        assert_eq!((purged.complete, purged.in_flight, purged.failed), (true, 1, left), "{purged:?}");
    }
}

/// Another slot would do for the block, but it is not wanted any more.
#[tokio::test]
async fn lost_write_of_a_purged_tenant_is_not_retried() {
    for purges in [false, true] {
        let plan = Plan { lose: ALWAYS, ..Plan::calm(1) };
        let disk = Arc::new(SimDisk::striped(8, BYTES, plan, u32::MAX, 2));
        let Written { _ground, a, persisted, writes } = write_one(&disk).await;
        disk.change(|plan| plan.lose = 0);
        if purges {
            let purged = a.purge(Purge::default()).await.expect("open");
            assert_eq!(
                (purged.complete, purged.in_flight, purged.of(Tier::DISK).found),
                (true, 1, 0),
                "{purged:?}"
            );
        }
        assert_eq!(persisted.await.expect("no panic").copied, usize::from(!purges));
        assert_eq!(writes.load(Relaxed), 2 - usize::from(purges));
    }
}

/// Victims have reserved slots that still have a purged tenant's blocks, and there are no others.
/// Waiting victims are lost, which is no failure.
#[tokio::test]
async fn victims_losing_slots_to_a_purge_are_dropped() {
    let disks = Disks::new(1, 4);
    let tier = disks.open();
    // Without a host tier, and one copy at a time.
    let ground = over(settings(4, 0).transfer_in_flight(BYTES as u64), 0, &tier);
    let [a, b] = ["a", "b"].map(|name| ground.manager.tenant(name).expect("few tenants"));
    persist(&a, &sequence(&a, 1, 4)).await;
    drop(compute(&b, &sequence(&b, 1, 4), None).await);
    ground.mover.close();
    let late = ground.manager.default_group().allocate(4).deadline(Duration::from_millis(5)).await;
    assert!(late.is_err(), "its victims are on their way");
    assert_eq!([&a, &b].map(|tenant| tenant.usage(Tier::DISK).blocks), [0, 4], "nothing is written");
    let before = ground.manager.stats();
    let purged = a.purge(ZERO).await.expect("open");
    nothing_is_left(purged);
    ground.mover.open();
    stepping(&b, rest(&b)).await;
    let stats = ground.manager.stats();
    let failed = |cause| Path::OF_SETTINGS.map(|path| stats.path(path).failed_by(cause)).iter().sum::<u64>();
    // The moving copy has landed after the purge, when there were slots again.
    assert_eq!((stats.dropped[0] - before.dropped[0], failed(Cause::Busy)), (3, 0), "{stats:?}");
    assert_eq!((failed(Cause::Cancelled), b.usage(Tier::DISK).blocks), (3, 1), "{stats:?}");
}
