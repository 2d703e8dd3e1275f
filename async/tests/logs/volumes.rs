//! Lines about volumes and other disks: each failure is logged once, with its file. The manager
//! logs it for a disk that does not.

use crate::ears::{Heard, check_complaints, listen};
use crate::gated::Ground;
use crate::ground::{BYTES, settings};
use crate::sim::{ALWAYS, Plan, SimDisk};
use crate::{directory, fill, over_a_volume, use_all};
use kvstrata::backend::disk::{DiskMover, DiskTier, TierOptions};
use kvstrata::backend::transfer::Cause;
use kvstrata::tier::Tier;
use kvstrata_core::{BlockId, PoolConfig};
use kvstrata_ffi::disk::{Direction, FailureCause, IoFailure, VolumeOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;

#[tokio::test]
async fn volume_out_of_service_is_logged_once_with_its_file() {
    let (ears, _turn) = listen().await;
    let folder = directory();
    let (ground, tier) = over_a_volume(folder.path());
    fill(&ground, 5).await;
    assert!(tier.pool().inactive() > 0, "something is on the disk");
    assert!(ears.complaints().is_empty(), "{:?}", ears.complaints());
    tier.volumes().volumes()[0].retire();
    // Reads and writes until the loss is noticed, and after that.
    use_all(&ground, &[1, 2, 1, 2], 10..14).await;
    assert_eq!(tier.stats().lost_volumes, 1);
    let lost = ears.said("out of service");
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!((lost[0].level, lost[0].field("tier")), (Level::ERROR, "disk"));
    assert_eq!(Path::new(lost[0].field("file")), folder.path().join("volume"));
    check_complaints(&ears);
}

#[tokio::test]
async fn rotten_blocks_of_a_disk_are_logged_once() {
    let (ears, _turn) = listen().await;
    let folder = directory();
    let (ground, tier) = over_a_volume(folder.path());
    fill(&ground, 5).await;
    let file = std::fs::File::options().write(true).open(folder.path().join("volume")).expect("there");
    let stride = tier.volumes().descriptions().next().expect("a volume").stride as u64;
    // All of the slots: see docs/disk-format.md.
    (0..32).for_each(|slot| file.write_all_at(b"rot", 8192 + slot * stride + 99).expect("within the file"));
    use_all(&ground, &[1, 2], 0..0).await;
    assert!(tier.stats().rejected.payload > 1, "{:?}", tier.stats());
    let complaints = ears.complaints();
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert_eq!((complaints[0].level, complaints[0].field("tier")), (Level::ERROR, "disk"));
    check_complaints(&ears);
    // The figures count all of them, by cause.
    let rotten = ground.manager.metrics().verification_failures;
    let rotten = rotten.into_iter().filter(|of| of.count > 0).map(|of| (of.tier, of.cause, of.count));
    assert_eq!(rotten.collect::<Vec<_>>(), [(Tier::DISK, "payload", tier.stats().rejected_reads.payload)]);
}

#[tokio::test]
async fn broken_drive_after_full_file_system_is_logged() {
    let (ears, _turn) = listen().await;
    let folder = directory();
    let (_ground, tier) = over_a_volume(folder.path());
    // ENOSPC, EDQUOT, EIO, then ENOSPC and EIO again.
    for errno in [28, 122, 5, 28, 5] {
        let (path, cause) = (Arc::from(folder.path()), FailureCause::Os { errno });
        let failure = IoFailure { path, slot: 0, direction: Direction::Read, cause };
        tier.rejected_slot(BlockId(0), &failure);
    }
    let complaints = ears.complaints();
    let remedies: Vec<&str> = complaints.iter().map(|line| line.field("remedy")).collect();
    assert_eq!(remedies.len(), 2, "{complaints:?}");
    assert!(remedies[0].contains("make room") && remedies[1].contains("smartctl"), "{remedies:?}");
}

#[tokio::test]
async fn panicking_subscriber_stops_neither_tier_nor_manager() {
    let (ears, _turn) = listen().await;
    let folder = directory();
    let (ground, tier) = over_a_volume(folder.path());
    fill(&ground, 5).await;
    tier.volumes().volumes()[0].retire();
    ears.panic_at(Level::ERROR);
    // The task that serves the disk notices the loss and logs it. It goes on after the panic, and so
    // does the manager.
    use_all(&ground, &[1, 2, 1, 2], 10..14).await;
    assert!(ears.panicked() > 0, "it was called");
    let stats = ground.manager.stats();
    let up = stats.path(kvstrata::backend::transfer::Path::DISK_TO_DEVICE);
    assert_eq!(up.failed_by(Cause::Abandoned), 0, "the task that answers is there");
    // Each slot that was taken is free, quarantined with its volume, or holds a block: none is lost.
    let stats = tier.stats();
    assert_eq!(stats.lost_volumes, 1);
    let pool = tier.pool();
    assert_eq!(pool.free() as u64 + pool.inactive() as u64 + stats.quarantined, 32, "{stats:?}");
}

/// A disk of another implementation logs nothing, so the manager does, once for each cause.
#[tokio::test]
async fn failures_of_a_foreign_disk_are_logged_by_the_manager() {
    for (cause, level, words) in [
        (Cause::Tier, Level::WARN, "failed a transfer"),
        (Cause::Rejected, Level::ERROR, "returned wrong data"),
        (Cause::Lost, Level::ERROR, "out of service"),
    ] {
        let (ears, _turn) = listen().await;
        let quick = Plan { latency: Duration::ZERO..Duration::from_millis(1), ..Plan::calm(1) };
        let disk = Arc::new(SimDisk::new(32, BYTES, quick));
        let ground = Ground::over(settings(4, 4).disk_blocks(32), 4, 4, Some(Arc::<SimDisk>::clone(&disk)));
        fill(&ground, 5).await;
        assert!(ears.complaints().is_empty(), "{:?}", ears.complaints());
        disk.change(|plan| match cause {
            Cause::Tier => plan.fail = ALWAYS,
            Cause::Rejected => plan.damage = ALWAYS,
            _ => plan.lose = ALWAYS,
        });
        use_all(&ground, &[1, 2], 0..0).await;
        let failed =
            ground.manager.stats().path(kvstrata::backend::transfer::Path::DISK_TO_DEVICE).failed_by(cause);
        assert!(failed > 1 || cause == Cause::Lost && failed > 0, "{cause:?} {failed}");
        let said = ears.said(words);
        let of_reads = said.iter().filter(|line| line.field("path") == "disk_to_device").count();
        assert_eq!(of_reads, 1, "{said:?}");
        let told = |line: &Heard| line.field("tier") == "disk" && line.field("group") == "gated";
        assert!(said.iter().all(|line| line.level == level && told(line)), "{said:?}");
        check_complaints(&ears);
        disk.shutdown();
    }
}

/// The file is unlinked while the volume is open: the volume goes on.
#[tokio::test]
async fn removed_volume_file_is_logged_once() {
    let (ears, _turn) = listen().await;
    let folder = directory();
    let (ground, tier) = over_a_volume(folder.path());
    fill(&ground, 5).await;
    std::fs::remove_file(folder.path().join("volume")).expect("there");
    assert!(ears.complaints().is_empty(), "{:?}", ears.complaints());
    // The tier looks for the file's name every few seconds.
    while tier.stats().removed_files == 0 {
        use_all(&ground, &[1, 2, 3], 0..0).await;
    }
    use_all(&ground, &[1, 2, 3], 10..14).await;
    let said = ears.said("was removed");
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!((said[0].level, said[0].field("tier")), (Level::WARN, "disk"));
    assert!(said[0].field("remedy").contains("start the process again"), "{said:?}");
    assert_eq!(ears.complaints().len(), 1);
    check_complaints(&ears);
}

#[tokio::test]
async fn unopenable_volume_is_logged_and_left_out() {
    let (ears, _turn) = listen().await;
    let folder = directory();
    std::fs::write(folder.path().join("bad"), "no volume").expect("written");
    let volumes =
        ["good", "bad"].map(|file| VolumeOptions::new(folder.path().join(file), 16, BYTES).keep(true));
    let (tier, _) =
        DiskTier::open(volumes.into(), PoolConfig::new(32), TierOptions::default()).expect("a tier");
    let tier = Arc::new(tier);
    let said = ears.said("cannot be opened");
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(said[0].level, Level::WARN);
    assert!(
        said[0].field("cause").contains("no sign of a volume") && said[0].field("file").ends_with("bad"),
        "{said:?}"
    );
    check_complaints(&ears);
    let disk = Arc::new(DiskMover::new(Arc::clone(&tier), &tokio::runtime::Handle::current()));
    let ground = Ground::over(settings(4, 4).disk_blocks(32), 4, 4, Some(disk));
    fill(&ground, 8).await;
    assert!(tier.pool().inactive() > 8, "on the other one");
    let volumes = tier.stats().volumes;
    assert_eq!((volumes.serving, volumes.retired, tier.stats().lost_volumes), (1, 1, 1));
    assert_eq!(ears.complaints().len(), 1, "{:?}", ears.complaints());
}
