//! `kvstrata top`, end to end.

use crate::at_work;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvstrata"))
        .arg("top")
        .args(arguments)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .output()
        .expect("the command runs")
}

/// The message of a run that must end with exit code 2 and print nothing else.
fn refusal(arguments: &[&str]) -> String {
    let output = run(arguments);
    let message = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    message
}

/// Serves `answer` to two clients.
fn answering(answer: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (address, answer) = (listener.local_addr().expect("bound"), answer.to_owned());
    std::thread::spawn(move || {
        for connection in listener.incoming().take(2) {
            let mut connection = connection.expect("somebody asks");
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && connection.read(&mut byte).is_ok_and(|read| read > 0) {
                head.push(byte[0]);
            }
            // A client that has read enough closes the connection.
            let _ = connection.write_all(answer.as_bytes());
        }
    });
    address.to_string()
}

#[test]
fn once_and_json_print_one_view() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let anywhere = Some("127.0.0.1:0".parse().expect("an address"));
    let (manager, [_, after]) = runtime.block_on(at_work(anywhere));
    let address = manager.metrics_address().expect("it listens").to_string();
    for target in [address.clone(), format!("http://{address}/metrics")] {
        let output = run(&[&target, "--once", "--interval", "100ms"]);
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let title = format!("kvstrata {} at {address} ", after.version);
        assert!(text.starts_with(&title) && text.contains("\nTIER ") && text.contains("\nTROUBLE"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
    let output = run(&[&address, "--json", "-", "--interval", "100ms"]);
    let view: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(view["tiers"][0]["evicted"], after.tiers[0].evicted);
    let all = view["hits"].as_array().and_then(|hits| hits.last()).expect("all");
    assert_eq!(all["overall"], after.groups[0].lookups.hit_ratio());
    assert!(view["interval_seconds"].as_f64().is_some_and(|seconds| seconds >= 0.1), "{view}");
    // The manager serves its metrics until it is shut down.
    assert!(runtime.block_on(manager.shutdown()));
    let gone = refusal(&[&address, "--once", "--interval", "100ms"]);
    assert!(gone.contains(&format!("{address}: no process listens there")), "{gone}");
}

/// Prints why a test is skipped, or fails if `KVSTRATA_REQUIRE` names the missing feature.
fn skip(what: &str, why: &str) {
    let required = std::env::var("KVSTRATA_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name.trim() == what), "{what} is required: {why}");
    println!("SKIP {what}: {why}");
}

/// Starts a live view in a terminal of `script`, and waits for its first picture. Returns the output
/// so far and the process id.
fn in_a_terminal() -> Option<(Child, Vec<u8>, String)> {
    let command = format!("echo $$; exec '{}' top 127.0.0.1:1", env!("CARGO_BIN_EXE_kvstrata"));
    let script = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut script = script.ok()?;
    let (mut written, mut part) = (Vec::new(), [0; 4096]);
    let output = script.stdout.as_mut().expect("piped");
    let has = |written: &[u8], what: &str| written.windows(what.len()).any(|bytes| bytes == what.as_bytes());
    // The hidden cursor marks the first picture.
    while !has(&written, NO_CURSOR) {
        let read = output.read(&mut part).expect("a pipe");
        assert!(read > 0, "{}", String::from_utf8_lossy(&written));
        written.extend_from_slice(&part[..read]);
    }
    let text = String::from_utf8_lossy(&written).into_owned();
    let number = text.lines().next().expect("the shell's number").trim().to_owned();
    Some((script, written, number))
}

/// The output to the terminal of a live view that a signal ended, and the exit code.
fn ended_by(signal: &str) -> Option<(String, Option<i32>)> {
    let (mut script, mut written, number) = in_a_terminal()?;
    let kill = Command::new("sh").args(["-c", &format!("kill -{signal} {number}")]).status();
    assert!(kill.expect("a shell").success());
    script.stdout.as_mut().expect("piped").read_to_end(&mut written).expect("a pipe");
    let code = script.wait().expect("it ends").code();
    Some((String::from_utf8_lossy(&written).into_owned(), code))
}

const NO_CURSOR: &str = "\u{1b}[?25l";
const CURSOR: &str = "\u{1b}[?25h";
const USUAL_SCREEN: &str = "\u{1b}[?1049l";

#[test]
fn signal_ends_top_and_restores_the_terminal() {
    for (signal, number) in [("TERM", 15), ("HUP", 1), ("INT", 2)] {
        let Some((written, code)) = ended_by(signal) else {
            return skip("script", "there is no such command (util-linux)");
        };
        assert!(written.contains(USUAL_SCREEN), "{signal}: {written:?}");
        assert!(written.rfind(CURSOR) > written.rfind(NO_CURSOR), "{signal}: no cursor: {written:?}");
        assert_eq!(code, Some(128 + number), "{signal}: who sent it sees that it has ended by it");
    }
}

/// The terminal emulator is killed, so the terminal disappears.
#[test]
fn top_ends_with_its_terminal() {
    let Some((mut script, _, number)) = in_a_terminal() else {
        return skip("script", "there is no such command (util-linux)");
    };
    script.kill().expect("it is ours");
    script.wait().expect("it ends");
    let process = format!("/proc/{number}/stat");
    // A zombie has ended too.
    let is_there = || std::fs::read_to_string(&process).is_ok_and(|stat| !stat.contains(") Z "));
    let begun = Instant::now();
    while is_there() {
        if begun.elapsed() > Duration::from_secs(10) {
            _ = Command::new("sh").args(["-c", &format!("kill -9 {number}")]).status();
            panic!("it goes on without a terminal");
        }
        std::thread::yield_now();
    }
}

#[test]
fn top_refuses_impossible_requests_with_a_remedy() {
    let piped = refusal(&[]);
    assert!(piped.contains("standard output is not a terminal") && piped.contains("--once"), "{piped}");
    let free =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let nobody = refusal(&[&free.to_string(), "--once"]);
    assert!(
        nobody.contains(&format!("{free}: no process listens there")) && nobody.contains("metrics.listen"),
        "{nobody}"
    );
    for target in ["9400", "worker-3", "worker-3:port", "::1:9400", "https://a:1", "a:1/x", ":9400"] {
        let message = refusal(&[target, "--once"]);
        assert!(message.contains("127.0.0.1:9400"), "{target}: {message}");
    }
    for interval in ["0s", "1", "2h", "soon"] {
        assert!(
            refusal(&["--interval", interval, "--once"]).contains("a time from 100ms to 1h"),
            "{interval}"
        );
    }
    let text = "kvstrata_tier_blocks{tier=\"device\"} 1\nkvstrata_blocks{ 1\n";
    let ok = "HTTP/1.0 200 OK\r\n";
    for (answer, why) in [
        (format!("{ok}\r\n{text}"), "its answer cannot be read: line 2: has a label without a name"),
        (format!("{ok}Content-Length: 999\r\n\r\n{text}"), "its answer is cut off"),
        (format!("{ok}\r\nup 1\n"), "it serves no metrics of a kvstrata manager"),
        ("HTTP/1.1 404 Not Found\r\n\r\n".to_owned(), "it answers 404, not metrics"),
        ("HTTP/1.0 503 Service Unavailable\r\n\r\n".to_owned(), "it answers 503"),
        ("HTTP/1.0 503 Not Now\r\n\r\nout of \u{1b}[2Jservice\nor so".to_owned(), "503: out of ?[2Jservice;"),
        ("SSH-2.0-OpenSSH\r\n".to_owned(), "does not speak HTTP"),
        (format!("{ok}\r\n{}", "#\n".repeat(5 << 20)), "longer than 8 MiB"),
    ] {
        let message = refusal(&[&answering(&answer), "--once"]);
        assert!(message.contains(why), "{why}: {message}");
    }
}
