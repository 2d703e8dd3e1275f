//! Lines at the opening and at the end of a disk tier: losses with their file, and unsuitable places of
//! volumes.

use crate::ears::{OF_FILE_SYSTEMS, check_complaints, listen};
use crate::ground::{BYTES, compute, hashes, rest};
use crate::{directory, fill, over_a_volume, use_all};
use kvstrata::disk::{DiskTier, TierOptions};
use kvstrata_core::{BlockId, PoolConfig};
use kvstrata_ffi::disk::{Urgency, VolumeOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use tempfile::tempdir_in;
use tracing::Level;

#[tokio::test]
async fn shutdown_logs_no_loss() {
    let (ears, _turn) = listen().await;
    let folder = directory();
    let (ground, tier) = over_a_volume(folder.path());
    fill(&ground, 5).await;
    assert!(ground.manager.shutdown().await);
    // A read after the shutdown fails as out of service. No operator has to act on that.
    let buffer = ground.memory.write(0).expect("nobody has it");
    let late = tier.read_slot(BlockId(0), hashes(1, 1)[0], Urgency::Ordinary, buffer).wait();
    tier.rejected_slot(BlockId(0), &late.map(drop).expect_err("closed"));
    drop((ground, tier));
    assert!(ears.complaints().is_empty(), "{:?}", ears.complaints());
    let spans = ears.spans("shutdown");
    assert_eq!((spans.len(), spans[0].field("clean")), (1, "true"));
    // Opened again: the line has its counts.
    let (_ground, _tier) = over_a_volume(folder.path());
    let open = ears.said("tier is open");
    let after: Vec<&str> = open.iter().map(|open| open.field("after")).collect();
    assert_eq!(after, ["creation", "a clean shutdown"]);
    assert!(open.iter().all(|open| Path::new(open.field("files")) == folder.path().join("volume")));
    assert!(
        open[0].field("blocks") == "0"
            && open[1].field("blocks").parse::<u64>().is_ok_and(|blocks| blocks > 0)
    );
    assert_eq!(ears.spans("recover").len(), 2);
}

#[tokio::test]
async fn open_with_lost_volumes_logs_each_file() {
    let (ears, _turn) = listen().await;
    let folder = directory();
    let files = ["a", "b", "c", "d"].map(|name| folder.path().join(name));
    let open = || {
        let volumes = files.iter().map(|file| VolumeOptions::new(file.clone(), 8, BYTES).keep(true));
        let opened = DiskTier::open(volumes.collect(), PoolConfig::new(32), TierOptions::default());
        opened.expect("a tier").0
    };
    drop(open());
    drop(open());
    assert!(ears.complaints().is_empty(), "{:?}", ears.complaints());
    std::fs::remove_file(&files[0]).expect("there");
    let [last, both] = [&files[1], &files[2]].map(|path| {
        let file = std::fs::File::options().write(true).open(path).expect("there");
        let end = file.metadata().expect("a length").len();
        (file, end)
    });
    last.0.write_all_at(&[0xff; 4096], last.1 - 4096).expect("within the file");
    both.0.write_all_at(&[0xff; 4096], 0).expect("within the file");
    both.0.write_all_at(&[0xff; 4096], both.1 - 4096).expect("within the file");
    drop(open());
    let complaints = ears.complaints();
    let told = |index: usize, what: &str| {
        let path = files[index].display().to_string();
        let of = complaints.iter().filter(|line| line.field("file") == path);
        let causes: Vec<&str> = of.map(|line| line.field("cause")).collect();
        assert!(causes.len() == 1 && causes[0].contains(what), "{what}: {complaints:?}");
    };
    told(0, "missing");
    told(1, "one superblock");
    told(2, "neither superblock");
    assert_eq!(complaints.len(), 3, "{complaints:?}");
    check_complaints(&ears);
    let opened = ears.said("tier is open");
    assert_eq!((opened.len(), opened[2].field("rejected")), (3, "superblock 3"));
    // The rejections of each volume are logged beside the sum.
    let of_volumes = ears.said("the opening rejected parts");
    let of_volumes = of_volumes.iter().map(|line| (Path::new(line.field("file")), line.field("rejected")));
    let wanted = [(files[1].as_path(), "superblock 1"), (files[2].as_path(), "superblock 2")];
    assert_eq!(of_volumes.collect::<Vec<_>>(), wanted);
}

#[tokio::test]
async fn volume_in_memory_is_logged() {
    let (ears, _turn) = listen().await;
    let Ok(folder) = tempdir_in("/dev/shm") else {
        return println!("SKIP tmpfs: there is no /dev/shm");
    };
    let volumes = ["a", "b"].map(|name| VolumeOptions::new(folder.path().join(name), 8, BYTES));
    let (tier, _) =
        DiskTier::open(volumes.into(), PoolConfig::new(16), TierOptions::default()).expect("a tier");
    let notes: Vec<&String> = tier.volumes().descriptions().flat_map(|found| &found.notes).collect();
    if !notes.iter().any(|note| note.contains("which is memory")) {
        return println!("SKIP tmpfs: /dev/shm is something else");
    }
    let said = ears.said(OF_FILE_SYSTEMS);
    let files: Vec<&Path> = said.iter().map(|line| Path::new(line.field("file"))).collect();
    assert_eq!(files, ["a", "b"].map(|name| folder.path().join(name)));
    for line in said {
        let told = |field, what| line.field(field).contains(what);
        assert!(
            line.level == Level::WARN && told("cause", "memory") && told("remedy", "disk.paths"),
            "{line:?}"
        );
    }
}

/// A crash leaves records of payloads that were not written. That is no fault of the drive,
/// unlike payloads that go bad later.
#[tokio::test]
async fn crash_leftovers_are_told_from_later_rot() {
    let (ears, _turn) = listen().await;
    let (folder, later) = (directory(), directory());
    let (ground, tier) = over_a_volume(folder.path());
    fill(&ground, 5).await;
    // The file as a kill would leave it, after the slot table has been written.
    tier.volumes().volumes().iter().for_each(|volume| volume.flush().wait().expect("written"));
    let file = later.path().join("volume");
    std::fs::copy(folder.path().join("volume"), &file).expect("a copy");
    let stride = tier.volumes().descriptions().next().expect("a volume").stride as u64;
    let rot = || {
        let file = std::fs::File::options().write(true).open(&file).expect("there");
        (0..32)
            .for_each(|slot| file.write_all_at(b"rot", 8192 + slot * stride + 99).expect("within the file"));
    };
    rot();
    let (ground, tier) = over_a_volume(later.path());
    use_all(&ground, &[1, 2], 0..0).await;
    let rejected = tier.stats().rejected_reads;
    assert!(rejected.after_crash > 0 && rejected.payload == 0, "{rejected:?}");
    assert!(ears.complaints().is_empty(), "{:?}", ears.complaints());
    let told = ears.said("from before the crash");
    assert_eq!((told.len(), told[0].level), (1, Level::INFO), "{told:?}");
    assert_eq!(ears.said("tier is open")[1].field("after"), "a crash or a kill");
    // Blocks that this process writes into the same slots.
    for sequence in 11..20 {
        drop(compute(&ground.manager, &hashes(sequence, 4), None).await);
        rest(&ground.manager).await;
    }
    rot();
    use_all(&ground, &[11, 12], 0..0).await;
    assert!(tier.stats().rejected_reads.payload > 0, "{:?}", tier.stats().rejected_reads);
    let complaints = ears.complaints();
    assert_eq!((complaints.len(), complaints[0].level), (1, Level::ERROR), "{complaints:?}");
    check_complaints(&ears);
}
