//! A replay stopped by its flag: requests in progress are served, no other begins, and the
//! report covers those served.

mod common;

use kvstrata_cli::replay::{Replay, Report, Settings};
use kvstrata_cli::trace::{TraceReader, TraceSource};
use std::cell::Cell;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Release};

const WORKERS: u64 = 4;

/// Settings with a volume in `folder`, and tiers small enough that blocks reach it.
fn settings(folder: &Path) -> Settings {
    Settings {
        device_blocks: 256,
        host_blocks: 64,
        disk_blocks: 4096,
        disk: vec![folder.join("volume")],
        block_bytes: 4096,
        concurrency: WORKERS as usize,
        ..Settings::default()
    }
}

/// Runs a replay that is stopped after `after` requests; 0 stops it before it begins.
fn stopped(settings: Settings, trace: TraceReader, after: u64) -> Report {
    let (stop, served) = (Arc::new(AtomicBool::new(after == 0)), Cell::new(0));
    let device = common::device(&settings);
    let replay = Replay::new(settings, device).expect("possible settings").stopped_by(Arc::clone(&stop));
    let observe = |_| {
        served.set(served.get() + 1);
        stop.fetch_or(served.get() == after, Release);
    };
    let report = replay.run(trace, &observe).expect("a replay");
    assert_eq!(report.requests, served.get(), "each of those that were served is observed");
    assert_eq!((report.hit_blocks, report.wrong_bytes), (report.verified_blocks, 0));
    report
}

fn bundled() -> TraceReader {
    TraceReader::open(TraceSource::Bundled).expect("the bundled trace")
}

#[test]
fn stop_serves_requests_in_progress_and_closes_the_volume() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let report = stopped(settings(folder.path()), bundled(), 40);
    assert!(report.interrupted);
    assert!((40..40 + WORKERS).contains(&report.requests), "{} requests", report.requests);
    assert!(report.to_string().contains("\ninterrupted      before the end of the trace"), "{report}");
    let written = report.disk.expect("a disk").written_blocks;
    let whole = stopped(Settings { requests: Some(40), ..settings(folder.path()) }, bundled(), u64::MAX);
    assert!(!whole.interrupted && whole.requests == 40, "{whole}");
    assert!(!whole.to_string().contains("interrupted"), "{whole}");
    let found = whole.disk.expect("a disk");
    assert!(found.clean && !found.created);
    assert!(written > 0 && found.recovered_blocks == written, "{} of {written}", found.recovered_blocks);
}

#[test]
fn stop_before_the_beginning_serves_no_request() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let report = stopped(settings(folder.path()), bundled(), 0);
    assert!(report.interrupted && report.requests == 0, "{report}");
}

/// The last request is due in a thousand years.
#[test]
fn stop_does_not_wait_for_the_time_of_the_next_request() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (path, mut lines) = (folder.path().join("t.jsonl"), String::new());
    for (time, id) in [("0", 1), ("1", 2), ("2", 3), ("3e13", 4)] {
        let request = format!("\"timestamp\": {time}, \"input_length\": 512, \"output_length\": 1");
        writeln!(lines, "{{{request}, \"hash_ids\": [{id}]}}").expect("in memory");
    }
    std::fs::write(&path, lines).expect("written");
    for concurrency in [1, WORKERS as usize] {
        let settings =
            Settings { speed: 1.0, concurrency, disk_blocks: 0, disk: Vec::new(), ..settings(folder.path()) };
        let trace = TraceReader::open(TraceSource::File(path.clone())).expect("a trace");
        let report = stopped(settings, trace, 3);
        assert!(report.interrupted && report.requests == 3, "{report}");
    }
}
