//! Tiers of all sizes, all policies, and several workers: no wrong byte.

mod common;

use kvstrata::backend::disk::AdmissionPolicy;
use kvstrata::config::DiskFill;
use kvstrata_cli::replay::{Replay, Report, Settings};
use kvstrata_cli::trace::{TraceReader, TraceSource};
use kvstrata_core::Policy;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

fn settings(requests: u64, device_blocks: u32, host_blocks: u32, disk_blocks: u32) -> Settings {
    let requests = Some(requests);
    Settings { requests, device_blocks, host_blocks, disk_blocks, block_bytes: 4096, ..Settings::default() }
}

fn assert_sound(report: &Report, what: &str) {
    assert_eq!(
        (report.wrong_bytes, report.wrong_blocks, report.failures.total()),
        (0, 0, 0),
        "{what}: {report}"
    );
    assert_eq!(report.verified_blocks, report.hit_blocks, "{what}");
    assert_eq!(report.hits.device + report.hits.host + report.hits.disk, report.hit_blocks, "{what}");
}

#[test]
fn any_tier_may_be_left_out_or_tiny() {
    for (device, host, disk) in [
        (300, 0, 0),
        (300, 600, 0),
        (300, 0, 3000),
        (300, 1, 0),
        (300, 1, 1),
        (300, 3, 2000),
        (300, 0, 1),
        (1, 1, 1),
        (5, 40, 3000),
        (16_384, 10, 10),
    ] {
        let report = common::replay(settings(250, device, host, disk));
        assert_sound(&report, &format!("{device} {host} {disk}"));
        assert_eq!(report.requests, 250);
    }
}

#[test]
fn lower_tier_only_adds_hits() {
    let hits = |host, disk| common::replay(settings(1000, 300, host, disk)).hit_blocks;
    let (device, host, both, disk) = (hits(0, 0), hits(4000, 0), hits(4000, 20_000), hits(0, 20_000));
    assert!(device < host && host < both && device < disk, "{device} {host} {both} {disk}");
}

#[test]
fn blocks_of_odd_sizes_arrive_whole() {
    for block_bytes in [64, 100, 511, 4097, 70_001] {
        let report = common::replay(Settings { block_bytes, ..settings(400, 300, 3000, 9000) });
        assert_sound(&report, &format!("{block_bytes} bytes"));
        assert!(report.hits.host > 0 && report.hits.disk > 0, "{report}");
    }
}

#[test]
fn every_policy_serves_every_tier() {
    for policy in Policy::ALL {
        let of = Settings { policy, policy_below: policy, ..settings(600, 300, 600, 9000) };
        let report = common::replay(of);
        assert_sound(&report, policy.name());
        assert!(report.hits.disk > 0 && report.uncached_blocks == 0, "{report}");
    }
}

#[test]
fn lower_tiers_use_the_policy_below() {
    let hits = |policy, policy_below| {
        let report = common::replay(Settings { policy, policy_below, ..settings(600, 300, 600, 9000) });
        assert_sound(&report, policy.name());
        (report.settings.policy_below, report.hits.device, report.hits.host)
    };
    let (lru, sieve) = (hits(Policy::Lru, Policy::Lru), hits(Policy::Lru, Policy::Sieve));
    assert_eq!((lru.0, sieve.0), ("lru", "sieve"));
    assert_eq!(lru.1, sieve.1, "the device's own");
    assert_ne!(lru.2, sieve.2, "others stay in the host");
}

#[test]
fn host_tier_smaller_than_a_request_loses_no_block() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let group = |number: u64| (40 * number..40 * number + 40).collect::<Vec<u64>>();
    let requests: Vec<_> = (0..16).map(|number| group(number % 8)).collect();
    let settings = Settings { requests: None, ..settings(0, 40, 3, 1000) };
    let device = common::device(&settings);
    let report = common::run(settings, device, common::trace_file(folder.path(), &requests), &|_| {});
    assert_sound(&report, "40 device blocks, 3 host blocks");
    // While three blocks are read from the host, the host cannot evict them for others.
    assert_eq!(
        (report.hit_blocks + report.dropped_blocks, report.dropped_blocks <= 3),
        (320, true),
        "{report}"
    );
}

#[test]
fn ids_with_changing_predecessors_are_served() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut random = common::Random(5);
    let mut distinct = || {
        let mut ids: Vec<u64> = (0..1 + random.below(6)).map(|_| random.below(60)).collect();
        ids.sort_unstable();
        ids.dedup();
        let by = random.below(3) as usize % ids.len();
        ids.rotate_left(by);
        ids
    };
    let requests: Vec<_> = (0..100).map(|_| distinct()).collect();
    let cases = Policy::ALL.into_iter().flat_map(|policy| [(policy, 0, 1), (policy, 12, 1), (policy, 12, 3)]);
    for (policy, host, concurrency) in cases {
        let settings =
            Settings { policy, policy_below: policy, concurrency, requests: None, ..settings(0, 6, host, 0) };
        let device = common::device(&settings);
        let report = common::run(settings, device, common::trace_file(folder.path(), &requests), &|_| {});
        assert_sound(&report, policy.name());
        assert_eq!((report.requests, report.uncached_blocks), (100, 0), "{report}");
    }
}

#[test]
fn requests_come_at_their_times_and_lateness_is_reported() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = folder.path().join("trace.jsonl");
    // Times count from the first request, at 5,000 ms; the last but one is earlier.
    let times = [5000.0, 5100.0, 5150.0, 10.0, 5200.0];
    let lines = times.iter().enumerate().map(|(id, time)| {
        format!("{{\"timestamp\":{time},\"input_length\":1,\"output_length\":1,\"hash_ids\":[{id}]}}\n")
    });
    std::fs::write(&path, lines.collect::<String>()).expect("written");
    for (speed, concurrency) in [(0.0, 1), (2.0, 1), (2.0, 3)] {
        let settings = Settings { speed, concurrency, requests: None, ..settings(0, 8, 0, 0) };
        let device = common::device(&settings);
        let trace = TraceReader::open(TraceSource::File(path.clone())).expect("there");
        let report = common::run(settings, device, trace, &|_| {});
        assert_eq!(report.requests, 5);
        let late = report.lateness_ns.map(|late| (late.count, late.max >= 75_000_000));
        // The fourth request was due 75 ms before the third began.
        assert_eq!(late, (speed > 0.0).then_some((5, true)), "{report}");
        assert!(speed == 0.0 || report.wall_seconds >= 0.1, "{} s", report.wall_seconds);
        assert_eq!(report.to_string().contains("lateness"), speed > 0.0, "{report}");
    }
}

#[test]
fn one_worker_counts_the_same_every_time() {
    let counts = || {
        let report = common::replay(settings(400, 300, 700, 4000));
        let Report { hits, evicted, bytes, verified_blocks, .. } = report;
        (hits, evicted, bytes.host_to_disk, bytes.filled, verified_blocks)
    };
    assert_eq!(counts(), counts());
}

#[test]
fn several_workers_share_the_tiers_without_a_wrong_byte() {
    for (concurrency, device) in [(4, 500), (8, 247), (3, 20)] {
        let report = common::replay(Settings { concurrency, ..settings(700, device, 900, 5000) });
        assert_sound(&report, &format!("{concurrency} workers"));
        assert_eq!(report.requests, 700);
        let alone = common::replay(settings(700, device, 900, 5000));
        assert_eq!(report.blocks, alone.blocks);
        assert_eq!(report.uncached_blocks, alone.uncached_blocks);
    }
}

#[test]
fn admitted_writes_give_more_hits_each() {
    let with = |disk_admission, disk_write_budget| {
        let report =
            common::replay(Settings { disk_admission, disk_write_budget, ..settings(1500, 300, 900, 4000) });
        assert_sound(&report, &format!("{disk_admission:?} {disk_write_budget:?}"));
        let disk = report.disk.expect("a disk tier");
        assert_eq!(report.bytes.host_to_disk, disk.written_blocks * 4096);
        assert_eq!(report.dropped_blocks, 0, "what is not worth a write is not dropped for lack of room");
        (disk.written_blocks, report.hits.disk)
    };
    let (all, most_hits) = with(AdmissionPolicy::Always, None);
    for policy in [AdmissionPolicy::SecondUse, AdmissionPolicy::TinyLfu] {
        let (written, hits) = with(policy, None);
        let worth = |hits: u64, written: u64| hits as f64 / written as f64;
        assert!(written < all / 2, "{policy:?}: {written} of {all}");
        assert!(worth(hits, written) > 2.0 * worth(most_hits, all), "{policy:?}: {hits} for {written}");
    }
    // With 5,000 blocks a day: the share of the trace's minutes, and the ten
    // minutes that the bucket holds.
    let minutes = common::bundled(1500).last().expect("a request").timestamp / 60_000.0;
    let (written, _) = with(AdmissionPolicy::Always, Some(5000 * 4096));
    let worth = (10.0 + minutes) * 5000.0 / 1440.0;
    assert!((worth - 2.0..=worth).contains(&(written as f64)), "{written}, and {worth} in {minutes} minutes");
}

#[test]
fn blocks_on_disk_name_their_parents() {
    // 1 ─ 2 ┬ 3 ─ 4 and a chain of eight, which evicts the others.
    //       └ 5 ─ 6
    let requests = [vec![1, 2, 3, 4], vec![1, 2, 5, 6], (11..19).collect(), (11..19).collect()];
    for host_blocks in [0, 3] {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let disk = vec![folder.path().join("volume")];
        let settings = Settings { disk, requests: None, ..settings(0, 8, host_blocks, 64) };
        let device = common::device(&settings);
        common::run(settings, device, common::trace_file(folder.path(), &requests), &|_| {});
        common::volume::settle(&folder.path().join("volume"));
        let volume = common::volume::read(&folder.path().join("volume")).expect("a volume");
        let by_key: HashMap<u64, u128> =
            volume.blocks.keys().map(|hash| (common::volume::key(*hash), *hash)).collect();
        let parent = |hash: &u128| volume.parents.get(hash).map(|key| by_key.get(key).copied().unwrap_or(0));
        let depth = |hash: &u128| std::iter::successors(Some(*hash), parent).take(100).count();
        let mut depths: Vec<_> = volume.blocks.keys().map(depth).collect();
        depths.sort_unstable();
        // With a host tier, only the first three victims reached the disk: 4
        // after 3, 3 after 2, 6 after 5.
        let expected: &[usize] = if host_blocks == 0 { &[1, 2, 3, 3, 4, 4] } else { &[2, 2, 3] };
        assert_eq!(depths, expected, "{host_blocks} host blocks: {volume:?}");
    }
}

#[test]
fn new_file_is_filled_only_as_asked() {
    for disk_fill in [DiskFill::First, DiskFill::Background, DiskFill::No] {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let settings =
            Settings { disk: vec![folder.path().join("v")], disk_fill, ..settings(1, 64, 64, 1000) };
        let last = Arc::new(Mutex::new((0, 1)));
        let told = Arc::clone(&last);
        let filled = Arc::new(move |done, bytes| *told.lock().expect("no panic") = (done, bytes));
        let device = common::device(&settings);
        let replay = Replay::with_progress(settings, device, filled).expect("a replay");
        let (done, bytes) = *last.lock().expect("no panic");
        let first = done == bytes && bytes > 1000 * 4096;
        assert_eq!(first, disk_fill == DiskFill::First, "{disk_fill:?}: {done} of {bytes}");
        let trace = TraceReader::open(TraceSource::Bundled).expect("the bundled trace");
        let disk = replay.run(trace, &|_| {}).expect("a replay").disk.expect("a disk tier");
        let later = disk.notes.iter().any(|note| note.contains("through in the background"));
        assert_eq!(later, disk_fill == DiskFill::Background, "{disk_fill:?}: {:?}", disk.notes);
    }
}
