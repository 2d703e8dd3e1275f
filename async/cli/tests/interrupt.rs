//! `kvstrata replay` and signals: the first ends it in order, with a report of the requests
//! served; the second kills it.
//!
//! Requests come through a pipe that stays open, or at a time that never comes, so that only the signal
//! ends a replay. Its metrics show when it has served all requests so far.

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

/// Longer than any step of these tests.
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

/// A running replay.
struct AtWork {
    child: Child,
    errors: BufReader<ChildStderr>,
    metrics: String,
}

impl AtWork {
    /// Starts a replay with these requests in its pipe, which stays open. It handles signals and
    /// serves metrics on return.
    fn begin(folder: &Path, arguments: &[&str], lines: &[String], stdout: Stdio) -> AtWork {
        // Tests in the background may ignore SIGINT, and the replay would inherit that.
        AtWork::under("--default-signal=INT,TERM", folder, arguments, lines, stdout)
    }

    /// The same, with a signal ignored.
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
        let said = until(&mut errors, "metrics at ");
        let metrics = said.trim().trim_start_matches("metrics at http://").trim_end_matches("/metrics");
        AtWork { child, errors, metrics: metrics.to_owned() }
    }

    /// Waits until the replay has looked up `blocks` blocks and serves no request.
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

    /// Waits for the end of the replay.
    fn end(mut self) -> Output {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        if let Some(output) = &mut self.child.stdout {
            output.read_to_end(&mut stdout).expect("a pipe");
        }
        self.errors.read_to_end(&mut stderr).expect("a pipe");
        // After the outputs: `wait` closes the pipe of the requests.
        let status = self.child.wait().expect("ended");
        Output { status, stdout, stderr }
    }
}

impl Drop for AtWork {
    /// Kills the replay of a failed test, which would wait for ever.
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Reads up to the next line that contains `what`.
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
fn sigint_ends_a_waiting_replay_with_a_clean_volume() {
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

    // This replay ends with its trace, and finds the blocks of the last one.
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
fn sigterm_between_requests_ends_with_a_picture() {
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
    assert!(table.contains("\ninterrupted      before the end of the trace"), "{table}");
    assert!(table.contains("\nrequests                    3\n"), "{table}");
    let picture = std::fs::read_to_string(folder.path().join("p.svg")).expect("drawn");
    assert!(picture.contains("3 requests (interrupted), "), "{picture}");
}

#[test]
fn wrong_byte_decides_the_exit_code_after_a_signal() {
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

/// Nobody reads the report, so the replay hangs after the first signal.
#[test]
fn second_signal_kills_at_once() {
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

/// As under `nohup`, or after a shell's `&`.
#[test]
fn ignored_signal_stays_ignored() {
    let folder = folder();
    let arguments = [&PIPE[..], &["--disk-blocks", "0"]].concat();
    let mut replay = AtWork::ignoring("INT", folder.path(), &arguments, &[line(0, 0)]);
    replay.signal("INT");
    drop(replay.child.stdin.take());
    let output = replay.end();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}
