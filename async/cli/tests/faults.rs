//! Faults are noticed: wrong bytes are counted, failed transfers are misses.

mod common;

use kvstrata_cli::replay::{Device, FlippingPort, Report, Settings};
use kvstrata_core::storage::{DeviceError, DevicePort, Storage, StorageKind};
use kvstrata_ffi::device::SimDevice;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const SERVED: u64 = 500;

fn settings(folder: &Path) -> Settings {
    Settings {
        requests: Some(SERVED),
        device_blocks: 300,
        host_blocks: 300,
        disk_blocks: 20_000,
        disk: vec![folder.join("volume")],
        block_bytes: 4096,
        ..Settings::default()
    }
}

#[test]
fn flipped_bit_on_the_device_is_found() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let settings = settings(folder.path());
    let device = Device::of_port("sim", FlippingPort::new(common::sim(&settings), 100));
    let report = common::replay_on(settings, device, &|_| {});
    assert!(report.wrong_blocks > 0, "{report}");
    // A damaged block stays damaged in other tiers, and may be damaged again.
    assert!((report.wrong_blocks..report.wrong_blocks * 8).contains(&report.wrong_bytes));
    let first = report.first_wrong.as_ref().expect("named");
    assert!(first.line > 1 && first.bytes == 1 && first.first_offset < 4096);
    assert!(report.to_string().contains("first of them    line "));
}

fn volume_file(folder: &Path) -> File {
    File::options().read(true).write(true).open(folder.join("volume")).expect("open a second time")
}

/// Flips a bit in each slot after half the requests. With one worker, no transfer is in
/// flight between two requests.
fn replay_with_flipped_slots(skip_verification: bool) -> Report {
    let origin = 4096 + (20_000u64 * 64).next_multiple_of(4096);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let settings = Settings { skip_verification, ..settings(folder.path()) };
    let device = common::device(&settings);
    common::replay_on(settings, device, &|progress| {
        if progress.requests == SERVED / 2 {
            let file = volume_file(folder.path());
            let mut byte = [0];
            for slot in 0..20_000 {
                file.read_exact_at(&mut byte, origin + slot * 4096 + 1234).expect("within the file");
                file.write_all_at(&[byte[0] ^ 0x10], origin + slot * 4096 + 1234).expect("within the file");
            }
        }
    })
}

#[test]
fn flipped_bit_on_the_disk_is_a_miss() {
    let report = replay_with_flipped_slots(false);
    let disk = report.disk.as_ref().expect("a disk tier");
    assert!(disk.rejected.payload > 0, "{report}");
    assert_eq!((report.wrong_bytes, report.failures.total()), (0, 0));
    assert_eq!(disk.rejected.total(), disk.rejected.payload);
    assert!(report.to_string().contains(" payload; each is a miss\n"), "{report}");
}

#[test]
fn unverified_flipped_bit_on_the_disk_is_served() {
    let report = replay_with_flipped_slots(true);
    assert!(report.wrong_blocks > 0, "{report}");
    let first = report.first_wrong.as_ref().expect("named");
    assert_eq!((first.first_offset, first.bytes), (1234, 1));
    assert!(first.line > SERVED / 2);
    assert_eq!((report.failures.total(), report.disk.expect("a disk tier").rejected.total()), (0, 0));
}

#[test]
fn failed_disk_reads_are_misses() {
    let group = |number: u64| (4 * number..4 * number + 4).collect::<Vec<u64>>();
    // The groups come twice, so that all of them are on disk and no write is pending
    // when the first group returns.
    let mut requests: Vec<_> = (0..20).map(|number| group(number % 10)).collect();
    requests.push(group(0));
    let served = requests.len() as u64;
    let replay = |truncated_after: u64| {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let settings =
            Settings { requests: None, device_blocks: 4, host_blocks: 4, ..settings(folder.path()) };
        let device = common::device(&settings);
        common::run(settings, device, common::trace_file(folder.path(), &requests), &|progress| {
            if progress.requests == truncated_after {
                volume_file(folder.path()).set_len(0).expect("truncated");
            }
        })
    };
    let whole = replay(served);
    assert_eq!((whole.hits.disk, whole.hit_blocks, whole.failures.disk_read), (44, 44, 0), "{whole}");
    let report = replay(served - 1);
    assert_eq!((report.hits.disk, report.failures.disk_read), (40, 4), "{report}");
    assert_eq!((report.wrong_bytes, report.verified_blocks, report.requests), (0, 40, served));
    assert_eq!(report.bytes.filled, whole.bytes.filled + 4 * 4096);
    assert!(report.to_string().contains("failed transfers 4 disk reads; each is a miss"), "{report}");
}

/// Device blocks after a failed disk read are hits, so that each block is either a hit or filled.
#[test]
fn device_blocks_after_a_failed_read_are_hits() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let settings = Settings { requests: None, device_blocks: 4, host_blocks: 4, ..settings(folder.path()) };
    let mut requests: Vec<Vec<u64>> = vec![vec![0]];
    // The first block is offloaded to the disk.
    requests.extend((1..6).map(|number| (10 * number..10 * number + 4).collect()));
    requests.extend([vec![70, 71], vec![0, 70, 71]]);
    let (served, blocks) = (requests.len() as u64, requests.iter().map(Vec::len).sum::<usize>() as u64);
    let device = common::device(&settings);
    let report = common::run(settings, device, common::trace_file(folder.path(), &requests), &|progress| {
        if progress.requests == served - 1 {
            volume_file(folder.path()).set_len(0).expect("truncated");
        }
    });
    let rejected = report.disk.as_ref().map(|disk| disk.rejected.total());
    assert_eq!((report.hits.device, report.hits.disk, report.wrong_bytes), (2, 0, 0), "{report}");
    assert_eq!(report.failures.disk_read + rejected.expect("a disk tier"), 1, "{report}");
    assert_eq!(report.hit_blocks + report.bytes.filled / 4096, blocks, "{report}");
}

/// A device that fails every `every`th copy, in either direction.
#[derive(Debug)]
struct FailingPort {
    device: SimDevice,
    every: u64,
    copies: AtomicU64,
}

impl FailingPort {
    fn try_one(&self) -> Result<(), DeviceError> {
        // Relaxed: only the count matters.
        let copy = self.copies.fetch_add(1, Ordering::Relaxed) + 1;
        if copy.is_multiple_of(self.every) {
            Err(DeviceError::Failed { code: 719, retryable: false })
        } else {
            Ok(())
        }
    }
}

impl Storage for FailingPort {
    fn kind(&self) -> StorageKind {
        self.device.kind()
    }

    fn base_address(&self) -> u64 {
        self.device.base_address()
    }

    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }
}

impl DevicePort for FailingPort {
    fn block_bytes(&self) -> usize {
        self.device.block_bytes()
    }

    fn copy_in(&self, block: u32, offset: usize, src: &[u8]) -> Result<(), DeviceError> {
        self.try_one()?;
        self.device.copy_in(block, offset, src)
    }

    fn copy_out(&self, block: u32, offset: usize, dst: &mut [u8]) -> Result<(), DeviceError> {
        self.try_one()?;
        self.device.copy_out(block, offset, dst)
    }
}

#[test]
fn failing_device_gives_misses_and_no_wrong_byte() {
    for (every, concurrency) in [(50, 1), (7, 1), (2, 1), (1, 1), (20, 3)] {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let settings = Settings { concurrency, ..settings(folder.path()) };
        let device = FailingPort { device: common::sim(&settings), every, copies: AtomicU64::new(0) };
        let device = Device::of_port("sim", device);
        let report = common::replay_on(settings, device, &|_| {});
        assert_eq!((report.wrong_bytes, report.requests), (0, SERVED), "every {every}");
        assert!(report.failures.device_write > 0);
        assert!(report.failures.device_read > 0 || every <= 2, "every {every}: {report}");
    }
}
