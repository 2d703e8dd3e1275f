//! Damaged volumes: the replay continues, counts rejected blocks by cause, and serves no wrong byte. A
//! file that is not its volume stays unchanged.

mod common;

use common::volume::Reading;
use common::{Random, volume};
use kvstrata::backend::disk::Rejected;
use kvstrata_cli::replay::{Replay, ReplayError, Report, Settings};
use kvstrata_cli::trace::{TraceReader, TraceSource};
use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tempfile::TempDir;

const SLOTS: u64 = 4096;

fn settings(path: &Path) -> Settings {
    Settings {
        requests: Some(120),
        device_blocks: 64,
        host_blocks: 64,
        disk_blocks: SLOTS as u32,
        disk: vec![path.to_owned()],
        block_bytes: 4096,
        ..Settings::default()
    }
}

fn try_replay(settings: Settings) -> Result<Report, ReplayError> {
    let device = common::device(&settings);
    let trace = TraceReader::open(TraceSource::Bundled).expect("the bundled trace");
    Replay::new(settings, device)?.run(trace, &|_| {})
}

fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// The bytes of a volume after a replay, and its contents.
static FILLED: LazyLock<(Vec<u8>, Reading)> = LazyLock::new(|| {
    let folder = folder();
    let path = folder.path().join("volume");
    let report = try_replay(settings(&path)).expect("a replay");
    volume::settle(&path);
    let reading = volume::read(&path).expect("a volume");
    assert_eq!(reading.blocks.len() as u64, report.disk.expect("a disk tier").written_blocks);
    (std::fs::read(&path).expect("there"), reading)
});

/// Replays over a damaged copy of the volume, and once more over the result. Both must succeed.
fn replay_over(damage: impl FnOnce(&File, &Reading)) -> Report {
    let (bytes, reading) = &*FILLED;
    let folder = folder();
    let path = folder.path().join("volume");
    std::fs::write(&path, bytes).expect("written");
    damage(&File::options().read(true).write(true).open(&path).expect("there"), reading);
    let reports = [(); 2].map(|()| try_replay(settings(&path)).expect("a cache: never an error"));
    for report in &reports {
        assert_eq!((report.wrong_bytes, report.failures.total()), (0, 0), "{report}");
        assert_eq!(report.verified_blocks, report.hit_blocks);
    }
    let [first, second] = reports;
    let second = second.disk.expect("a disk tier");
    let Rejected { empty, other_hash, payload, .. } = second.rejected;
    assert_eq!(second.rejected.total(), payload, "what was rejected at opening is gone: {second:?}");
    assert_eq!((empty, other_hash), (0, 0));
    assert!(second.clean && !second.created);
    first
}

fn disk(report: &Report) -> &kvstrata_cli::replay::Disk {
    report.disk.as_ref().expect("a disk tier")
}

fn swap(file: &File, a: u64, b: u64, bytes: usize) {
    let (mut one, mut other) = (vec![0; bytes], vec![0; bytes]);
    file.read_exact_at(&mut one, a).expect("within the file");
    file.read_exact_at(&mut other, b).expect("within the file");
    file.write_all_at(&one, b).expect("within the file");
    file.write_all_at(&other, a).expect("within the file");
}

fn flip(file: &File, offset: u64, bit: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("within the file");
    file.write_all_at(&[byte[0] ^ 1 << bit], offset).expect("within the file");
}

fn random_bytes(random: &mut Random, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.next() as u8).collect()
}

#[test]
fn undamaged_volume_is_found_whole() {
    let report = replay_over(|_, _| {});
    let reading = &FILLED.1;
    assert_eq!(disk(&report).recovered_blocks, reading.blocks.len() as u64);
    assert!(
        disk(&report).clean && disk(&report).rejected.total() == 0 && report.hits.disk > 1000,
        "{report}"
    );
}

#[test]
fn flipped_bits_anywhere_are_misses() {
    let mut random = Random(3);
    let mut rejected = 0;
    // Many flips would damage every superblock, so they spare the first one.
    for (flips, start) in [(1, 0), (10, 0), (100, 0), (1000, 4096), (20_000, 4096)] {
        let report = replay_over(|file, _| {
            let length = file.metadata().expect("there").len() - start;
            (0..flips).for_each(|_| flip(file, start + random.below(length), random.below(8)));
        });
        rejected += disk(&report).rejected.total();
    }
    assert!(rejected > 100, "{rejected}");
}

#[test]
fn flipped_bit_in_a_record_loses_that_record() {
    let report = replay_over(|file, reading| {
        let slots: Vec<u64> = reading.blocks.values().copied().take(50).collect();
        for (slot, offset) in slots.iter().zip((0..64).cycle()) {
            flip(file, reading.table_offset + slot * 64 + offset, slot % 8);
        }
    });
    let (found, rejected) = (disk(&report).recovered_blocks, disk(&report).rejected);
    assert_eq!((found, rejected.record), (FILLED.1.blocks.len() as u64 - 50, 50), "{rejected:?}");
}

#[test]
fn zeroed_and_random_ranges_are_misses() {
    let mut random = Random(4);
    for kind in 0..2 {
        for _ in 0..3 {
            let report = replay_over(|file, _| {
                let length = file.metadata().expect("there").len();
                let start = random.below(length);
                let bytes = (random.below(4 << 20)).min(length - start) as usize;
                let garbage = if kind == 0 { vec![0; bytes] } else { random_bytes(&mut random, bytes) };
                file.write_all_at(&garbage, start).expect("within the file");
            });
            assert!(disk(&report).recovered_blocks <= FILLED.1.blocks.len() as u64);
        }
    }
    let emptied = replay_over(|file, reading| {
        let table = vec![0; (reading.origin - reading.table_offset) as usize];
        file.write_all_at(&table, reading.table_offset).expect("within the file");
    });
    assert_eq!((disk(&emptied).recovered_blocks, disk(&emptied).rejected.total()), (0, 0));
}

#[test]
fn file_of_random_bytes_is_started_over() {
    let report = replay_over(|file, _| {
        let length = file.metadata().expect("there").len() as usize;
        file.write_all_at(&random_bytes(&mut Random(5), length), 0).expect("within the file");
    });
    let disk = disk(&report);
    assert_eq!((disk.recovered_blocks, disk.created, disk.rejected.superblock), (0, true, 2), "{disk:?}");
    assert!(disk.notes.iter().any(|note| note.contains("started over")), "{disk:?}");
}

#[test]
fn volume_with_one_superblock_is_recovered() {
    let garbage = random_bytes(&mut Random(6), 4096);
    for first in [true, false] {
        let report = replay_over(|file, _| {
            let last = file.metadata().expect("there").len() - 4096;
            file.write_all_at(&garbage, if first { 0 } else { last }).expect("within the file");
        });
        let disk = disk(&report);
        assert_eq!((disk.recovered_blocks, disk.rejected.superblock), (FILLED.1.blocks.len() as u64, 1));
        assert_eq!(disk.rejected.total(), 1);
    }
}

#[test]
fn shortened_volume_keeps_the_remaining_blocks() {
    let reading = &FILLED.1;
    for slots in [0, 1, 100, 1000] {
        let cut = reading.origin + slots * reading.stride;
        let report = replay_over(|file, _| file.set_len(cut + 1234).expect("truncated"));
        let kept = reading.blocks.values().filter(|slot| **slot < slots).count() as u64;
        let disk = disk(&report);
        assert_eq!(disk.recovered_blocks, kept, "{slots} slots");
        assert_eq!(disk.rejected.truncated, reading.blocks.len() as u64 - kept);
        assert_eq!(disk.rejected.superblock, 1, "the second lay at the end");
    }
}

#[test]
fn swapped_payloads_and_swapped_records_are_misses() {
    let mut slots: Vec<u64> = FILLED.1.blocks.values().copied().collect();
    slots.sort_unstable();
    let pairs: Vec<_> = slots.as_chunks::<2>().0.to_vec();
    let payloads = replay_over(|file, reading| {
        for [a, b] in &pairs {
            let [a, b] = [a, b].map(|slot| reading.origin + slot * reading.stride);
            swap(file, a, b, 4096);
        }
    });
    assert!(disk(&payloads).rejected.payload > 100 && disk(&payloads).recovered_blocks > 1000, "{payloads}");
    let records = replay_over(|file, reading| {
        for [a, b] in &pairs {
            let [a, b] = [a, b].map(|slot| reading.table_offset + slot * 64);
            swap(file, a, b, 64);
        }
    });
    assert_eq!(disk(&records).rejected.record, 2 * pairs.len() as u64, "{records}");
}

#[test]
fn records_of_another_volume_are_rejected() {
    let other = folder();
    let path = other.path().join("volume");
    try_replay(settings(&path)).expect("a replay");
    volume::settle(&path);
    let stranger = std::fs::read(&path).expect("there");
    let report = replay_over(|file, reading| {
        // The same blocks are in the same slots; only the volume differs.
        let table = &stranger[reading.table_offset as usize..reading.origin as usize];
        file.write_all_at(table, reading.table_offset).expect("within the file");
    });
    let disk = disk(&report);
    assert_eq!((disk.recovered_blocks, disk.rejected.record), (0, FILLED.1.blocks.len() as u64), "{disk:?}");
}

/// Either file may be missing; the report names it.
#[test]
fn missing_file_of_a_set_loses_its_own_blocks() {
    for gone in [0, 1] {
        let folder = folder();
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        let striped = || Settings { disk: paths.to_vec(), ..settings(&paths[0]) };
        let first = try_replay(striped()).expect("a replay");
        let written = disk(&first).written_blocks;
        std::fs::remove_file(&paths[gone]).expect("there");
        let report = try_replay(striped()).expect("a cache: never an error");
        assert_eq!((report.wrong_bytes, report.failures.total()), (0, 0), "{report}");
        let found = disk(&report);
        assert!(
            !found.created && found.recovered_blocks > 0 && found.recovered_blocks < written,
            "{found:?}"
        );
        let said = format!("{}: the file was not there", paths[gone].display());
        assert!(found.notes.iter().any(|note| note.starts_with(&said)), "{:?}", found.notes);
        let again = try_replay(striped()).expect("one set again");
        assert!(disk(&again).clean && disk(&again).notes.len() < found.notes.len(), "{again}");
    }
}

#[test]
fn file_that_is_no_volume_is_refused_and_unchanged() {
    let folder = folder();
    let path: PathBuf = folder.path().join("precious");
    let mut random = Random(7);
    for content in [b"data".to_vec(), vec![0; 1], random_bytes(&mut random, 5000), vec![0; 1 << 20]] {
        std::fs::write(&path, &content).expect("written");
        let error = try_replay(settings(&path)).expect_err("refused").to_string();
        assert!(error.contains("--disk") && error.contains("shows no sign of a volume"), "{error}");
        assert!(std::fs::read(&path).expect("there") == content, "as it was");
    }
}

#[test]
fn open_volume_is_refused_to_a_second_owner() {
    let folder = folder();
    let path = folder.path().join("volume");
    let first = Replay::new(settings(&path), common::device(&settings(&path))).expect("a replay");
    let mode = std::fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
    let error = try_replay(settings(&path)).expect_err("in use").to_string();
    assert!(
        error.contains("--disk") && error.contains("another volume of this process has the file open"),
        "{error}"
    );
    drop(first);
    let report = try_replay(settings(&path)).expect("free again");
    assert!(disk(&report).clean, "{report}");
}
