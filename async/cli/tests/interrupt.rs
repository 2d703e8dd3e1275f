//! `kvstrata replay` and signals: the first ends it in order, with a report of what was served; the second at once.
//!
//! Requests come through a pipe that stays open, or at a time that does not come, so that only the signal ends a replay; when it has served what
//! there is, its metrics say.

mod common;

use common::volume;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
const TIERS: [&str; 6] = ["--device-blocks", "8", "--host-blocks", "8", "--block-bytes", "4K"];
const PIPE: [&str; 2] = ["--trace", "-"];

fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// A request of four blocks.
fn line(time: u64, first: u64) -> String {
    let ids: Vec<u64> = (first..first + 4).collect();
    format!(
        "{{\"timestamp\": {time}, \"input_length\": 2048, \"output_length\": 1, \"hash_ids\": {ids:?}}}\n"
    )
}

/// A replay at work.
struct AtWork {
    child: Child,
    errors: BufReader<ChildStderr>,
    metrics: String,
}

impl AtWork {
    /// Once it listens to signals, and serves metrics; these requests are in its pipe, which stays open.
    fn begin(folder: &Path, arguments: &[&str], lines: &[String], stdout: Stdio) -> AtWork {
        // Whoever runs the tests in the background may have them ignore SIGINT, and then the replay does.
        AtWork::under("--default-signal=INT,TERM", folder, arguments, lines, stdout)
    }

    /// The same, and it ignores one.
    fn ignoring(signal: &str, folder: &Path, arguments: &[&str], lines: &[String]) -> AtWork {
        AtWork::under(&format!("--ignore-signal={signal}"), folder, arguments, lines, Stdio::null())
    }

    fn under(signals: &str, folder: &Path, arguments: &[&str], lines: &[String], stdout: Stdio) -> AtWork {
        let mut child = Command::new("env")
            .arg(signals)
            .arg(env!("CARGO_BIN_EXE_kvstrata"))
            .args(["replay", "--metrics", "127.0.0.1:0"])
            .args(TIERS)
            .args(arguments)
            .env_remove("KVSTRATA_LOG")
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command runs");
        let pipe = child.stdin.as_mut().expect("piped");
        pipe.write_all(lines.concat().as_bytes()).expect("a pipe has room for them");
        let mut errors = BufReader::new(child.stderr.take().expect("piped"));
        let said = until(&mut errors, "figures at ");
        let metrics = said.trim().trim_start_matches("figures at http://").trim_end_matches("/metrics");
        AtWork { child, errors, metrics: metrics.to_owned() }
    }

    /// Waits until it has looked up so many blocks, and serves nobody.
    fn settle(&self, blocks: f64) {
        let since = Instant::now();
        loop {
            let mut connection = TcpStream::connect(&self.metrics).expect("it listens");
            connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("asked");
            let mut text = String::new();
            connection.read_to_string(&mut text).expect("answered");
            let value = |name: &str| {
                let line = text.lines().find(|line| line.starts_with(name)).unwrap_or("0");
                line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number")
            };
            let looked_up = value("kvstrata_lookup_blocks_total{");
            if looked_up == blocks && value("kvstrata_worker_request_active_slots ") == 0.0 {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "{looked_up} of {blocks} blocks: {text}");
        }
    }

    fn signal(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
    }

    /// Its end.
    fn end(mut self) -> Output {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        if let Some(output) = &mut self.child.stdout {
            output.read_to_end(&mut stdout).expect("a pipe");
        }
        self.errors.read_to_end(&mut stderr).expect("a pipe");
        // Behind its end: it closes the pipe that requests come through.
        let status = self.child.wait().expect("ended");
        Output { status, stdout, stderr }
    }
}

impl Drop for AtWork {
    /// One whose test has failed would wait for ever.
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The next line that has this in it.
fn until(errors: &mut impl BufRead, what: &str) -> String {
    let mut said = String::new();
    loop {
        let from = said.len();
        assert!(errors.read_line(&mut said).expect("a pipe") > 0, "no {what:?} in {said}");
        if said[from..].contains(what) {
            return said.split_off(from);
        }
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn sigint_ends_a_replay_that_waits_for_its_pipe_and_the_volume_is_clean() {
    let folder = folder();
    let arguments = [&PIPE[..], &["--disk", "volume", "--disk-blocks", "64", "--json", "-"]].concat();
    let lines: Vec<String> = (0..20).map(|number| line(number, number * 4)).collect();
    let mut replay = AtWork::begin(folder.path(), &arguments, &lines, Stdio::piped());
    replay.settle(80.0);
    replay.signal("INT");
    let said = until(&mut replay.errors, "SIGINT");
    assert!(said.starts_with("kvstrata: SIGINT: ") && said.contains("a second signal kills"), "{said}");
    let output = replay.end();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("\ninterrupted  "), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let told = (&report["interrupted"], &report["requests"], &report["wrong_bytes"]);
    assert_eq!(told, (&true.into(), &20.into(), &0.into()));
    assert!(volume::read(&folder.path().join("volume")).expect("a volume").clean);

    // Its end is the trace's, and what the one before it left is there.
    let mut replay = AtWork::begin(folder.path(), &arguments, &lines[..2], Stdio::piped());
    drop(replay.child.stdin.take());
    let output = replay.end();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let again: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&again["interrupted"], &again["disk"]["clean"]), (&false.into(), &true.into()));
    assert_eq!(again["disk"]["recovered_blocks"], report["disk"]["written_blocks"]);
    assert_eq!(again["hits"]["disk"], 8);
}

#[test]
fn sigterm_ends_one_that_waits_for_a_requests_time_with_its_picture() {
    let folder = folder();
    let trace: String = [line(0, 0), line(0, 4), line(1, 0), line(36_000_000, 0)].concat();
    std::fs::write(folder.path().join("t.jsonl"), trace).expect("written");
    let arguments = ["--trace", "t.jsonl", "--speed", "1", "--concurrency", "2", "--disk-blocks", "0"];
    let arguments = [&arguments[..], &["--plot", "p.svg"]].concat();
    let mut replay = AtWork::begin(folder.path(), &arguments, &[], Stdio::piped());
    replay.settle(12.0);
    replay.signal("TERM");
    until(&mut replay.errors, "kvstrata: SIGTERM: ");
    let output = replay.end();
    assert_eq!(output.status.code(), Some(143), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("\ninterrupted      before the trace's end"), "{table}");
    assert!(table.contains("\nrequests                    3\n"), "{table}");
    let picture = std::fs::read_to_string(folder.path().join("p.svg")).expect("drawn");
    assert!(picture.contains("3 requests (interrupted), "), "{picture}");
}

#[test]
fn a_wrong_byte_is_graver_than_a_signal() {
    let folder = folder();
    let arguments = [&PIPE[..], &["--disk-blocks", "0", "--flip-every", "1", "--json", "-"]].concat();
    let replay = AtWork::begin(folder.path(), &arguments, &[line(0, 0), line(1, 0)], Stdio::piped());
    replay.settle(8.0);
    replay.signal("INT");
    let output = replay.end();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(report["interrupted"] == true && report["wrong_bytes"].as_u64() > Some(0), "{report}");
}

/// Nobody reads its report, so that only the second signal ends it.
#[test]
fn a_second_signal_kills_at_once() {
    let folder = folder();
    let (mut full, _unread) = UnixStream::pair().expect("sockets");
    full.set_nonblocking(true).expect("set");
    for bytes in [4096, 1] {
        while full.write(&[b'.'; 4096][..bytes]).is_ok() {}
    }
    full.set_nonblocking(false).expect("set");
    let arguments = [&PIPE[..], &["--disk-blocks", "0"]].concat();
    for second in ["INT", "TERM"] {
        let stdout = OwnedFd::from(full.try_clone().expect("a socket"));
        let mut replay = AtWork::begin(folder.path(), &arguments, &[line(0, 0)], stdout.into());
        replay.signal("INT");
        until(&mut replay.errors, "a second signal kills");
        replay.signal(second);
        let ended = replay.end().status.signal();
        assert_eq!(ended, Some(if second == "INT" { 2 } else { 15 }));
    }
}

/// As `nohup` and a shell's `&` have it.
#[test]
fn what_is_ignored_stays_so() {
    let folder = folder();
    let arguments = [&PIPE[..], &["--disk-blocks", "0"]].concat();
    let mut replay = AtWork::ignoring("INT", folder.path(), &arguments, &[line(0, 0)]);
    replay.signal("INT");
    drop(replay.child.stdin.take());
    let output = replay.end();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}
