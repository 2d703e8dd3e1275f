//! `kill -9` of a busy replay at random moments: the next replay finds exactly the blocks of the file's
//! table, and no wrong byte.
//!
//!   cargo test -p kvstrata-cli --test crash                          8 kills
//!   KVSTRATA_CRASHES=200 cargo test -p kvstrata-cli --test crash     200 kills
//!   KVSTRATA_CRASH_SEED=7 …                                          other moments
//!
//! The trace comes through a pipe, in long lines. The kill comes after a random number of
//! lines. Some dozens of them are then still in the pipe and in buffers, so the replay is
//! busy, or has not even begun.

mod common;

use common::volume::Reading;
use common::{Random, volume};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Requests of a trace that is served to its end.
const REQUESTS: u64 = 400;
/// Requests of the replay after a kill.
const AFTER: usize = 100;
/// Length of a line.
const LINE_BYTES: usize = 4096;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect(name))
}

fn command(folder: &Path, block_bytes: &str, concurrency: u64) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvstrata"));
    let tiers = ["--device-blocks", "64", "--host-blocks", "128", "--disk-blocks", "2048"];
    command
        .args([
            "replay",
            "--patience",
            "1h",
            "--trace",
            "-",
            "--disk",
            "volume",
            "--block-bytes",
            block_bytes,
            "--json",
            "-",
        ])
        .args(tiers)
        .args(["--concurrency", &concurrency.to_string()])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Kills a replay after `lines` have been written to its pipe.
fn crash(folder: &Path, block_bytes: &str, concurrency: u64, lines: &[String]) {
    let mut child = command(folder, block_bytes, concurrency).spawn().expect("the command runs");
    let mut pipe = child.stdin.take().expect("piped");
    for line in lines {
        pipe.write_all(line.as_bytes()).expect("taken: it ends only by the kill");
    }
    child.kill().expect("SIGKILL");
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), None, "killed: {}", String::from_utf8_lossy(&output.stderr));
}

/// The JSON of a replay that must succeed.
fn replay(folder: &Path, block_bytes: &str, lines: &[String]) -> serde_json::Value {
    let mut child = command(folder, block_bytes, 1).spawn().expect("the command runs");
    let mut pipe = child.stdin.take().expect("piped");
    let (folder_of_output, trace) = (folder.to_owned(), lines.concat());
    let feeder = std::thread::spawn(move || pipe.write_all(trace.as_bytes()));
    let output = child.wait_with_output().expect("ended");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{}: {message}", folder_of_output.display());
    feeder.join().expect("no panic").expect("taken");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn assert_found(report: &serde_json::Value, reading: &Reading) {
    let disk = &report["disk"];
    assert_eq!(disk["recovered_blocks"], reading.blocks.len(), "{disk}");
    let Reading { record, length, duplicate, truncated, superblock, .. } = *reading;
    for (cause, count) in [
        ("record", record),
        ("length", length),
        ("duplicate", duplicate),
        ("truncated", truncated),
        ("superblock", superblock),
    ] {
        assert_eq!(disk["rejected"][cause], count, "{cause}: {disk}");
    }
    assert_eq!(disk["clean"], reading.clean);
    assert_eq!((&report["wrong_bytes"], &report["failures"]["disk_read"]), (&0.into(), &0.into()));
}

#[test]
fn killed_replay_loses_no_written_block() {
    let (crashes, seed) = (setting("KVSTRATA_CRASHES", 8), setting("KVSTRATA_CRASH_SEED", 1));
    let mut random = Random(seed);
    let trace: Vec<String> = common::bundled(REQUESTS as usize)
        .iter()
        .map(|request| {
            let line = format!(
                "{{\"timestamp\":{},\"input_length\":1,\"output_length\":1,\"hash_ids\":{:?}}}",
                request.timestamp, request.hash_ids
            );
            format!("{line:<LINE_BYTES$}\n")
        })
        .collect();
    let folders = ["4K", "16K"].map(|block_bytes| {
        (block_bytes, tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory"))
    });
    let (mut recovered, mut hits, mut rejected, mut torn) = (0, 0, 0, 0);
    for number in 0..crashes {
        let (block_bytes, folder) = &folders[(number % 2) as usize];
        let (lines, concurrency) = (random.below(REQUESTS) as usize, 1 + random.below(3));
        println!("crash {number} of seed {seed}: {block_bytes}, concurrency {concurrency}, {lines} lines");
        crash(folder.path(), block_bytes, concurrency, &trace[..lines]);
        let path = folder.path().join("volume");
        // A replay killed before it had a file, or before the file had a superblock, leaves
        // nothing to find.
        let reading = match path.exists() {
            true => {
                volume::settle(&path);
                volume::read(&path).unwrap_or_default()
            }
            false => Reading::default(),
        };
        // The requests served last have their blocks on disk.
        let start = lines.saturating_sub(2 * AFTER);
        let report = replay(folder.path(), block_bytes, &trace[start..start + AFTER]);
        if report["disk"]["created"] == true {
            assert!(reading.blocks.is_empty(), "{report}");
            continue;
        }
        assert_found(&report, &reading);
        recovered += reading.blocks.len();
        hits += report["hits"]["disk"].as_u64().expect("a number");
        let at_reads: u64 = ["empty", "other_hash", "payload", "after_crash"]
            .iter()
            .map(|cause| report["disk"]["rejected"][cause].as_u64().expect("a number"))
            .sum();
        rejected += at_reads;
        torn += u64::from(!reading.clean);
    }
    println!(
        "{crashes} crashes: {recovered} blocks recovered, {hits} hits on disk, {rejected} reads rejected"
    );
    assert!(torn > 0 && recovered > 0 && hits > 0, "the kills came while it was busy");
}
