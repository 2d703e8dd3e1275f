//! The metrics of a running replay, and the command that lists them.

use kvstrata::metrics;
use kvstrata::store::metrics_markdown;
use kvstrata_cli::replay::{Device, Replay, Settings};
use kvstrata_cli::trace::{TraceReader, TraceSource};
use kvstrata_ffi::device::SimDevice;
use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ANYWHERE: &str = "127.0.0.1:0";

/// The body of an answer.
fn get(address: SocketAddr, path: &str) -> String {
    let mut connection = TcpStream::connect(address).expect("it listens");
    connection.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    connection.write_all(format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").as_bytes()).expect("it reads");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("it answers");
    answer.split_once("\r\n\r\n").expect("a head, and a body").1.to_owned()
}

/// The value of the only sample with this name and with `label` among its labels.
fn value(text: &str, name: &str, label: &str) -> f64 {
    let is_it = |line: &&str| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']));
        rest.is_some_and(|rest| rest.contains(label))
    };
    let lines: Vec<&str> = text.lines().filter(is_it).collect();
    let [line] = lines[..] else { panic!("{name} {label}: {lines:?}") };
    line.rsplit_once(' ').expect("a value").1.parse().expect("a number")
}

#[test]
fn metrics_of_a_replay_equal_its_report() {
    let settings = Settings {
        requests: Some(40),
        device_blocks: 64,
        host_blocks: 64,
        disk_blocks: 256,
        block_bytes: 4096,
        metrics: Some(ANYWHERE.parse().expect("an address")),
        ..Settings::default()
    };
    let device = SimDevice::new(64, 4096).expect("memory");
    let replay = Replay::new(settings, Device::simulated(device)).expect("possible");
    let address = replay.metrics_address().expect("it listens");
    let (last, trace) =
        (RefCell::new(String::new()), TraceReader::open(TraceSource::Bundled).expect("built in"));
    let report = replay.run(trace, &|_| *last.borrow_mut() = get(address, "/metrics")).expect("it goes");
    let text = last.into_inner();
    let hits = ["device", "host", "disk"]
        .map(|tier| value(&text, "kvstrata_hit_blocks_total", &format!("tier=\"{tier}\"")) as u64);
    assert_eq!(hits, [report.hits.device, report.hits.host, report.hits.disk]);
    assert!(hits.iter().sum::<u64>() > 0, "{hits:?}");
    let looked_up = value(&text, "kvstrata_lookup_blocks_total", "group=") as u64;
    assert_eq!(
        looked_up,
        report.blocks - report.uncached_blocks,
        "as much of each request as the device has blocks"
    );
    let slots = ["active", "total"].map(|what| format!("kvstrata_worker_request_{what}_slots"));
    assert_eq!(slots.map(|slots| value(&text, &slots, "")), [0.0, 1.0], "the last one has ended");
}

/// Two requests come at once, and a third two seconds later. The metrics in between show no active request.
#[test]
fn replay_between_requests_shows_no_active_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = |at: u64| {
        format!(
            "{{\"timestamp\": {at}, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [{at}]}}\n"
        )
    };
    let path = folder.path().join("t.jsonl");
    std::fs::write(&path, [0, 1, 1000].map(line).concat()).expect("a file");
    let settings = Settings {
        device_blocks: 8,
        host_blocks: 8,
        disk_blocks: 0,
        block_bytes: 4096,
        concurrency: 2,
        speed: 0.5,
        metrics: Some(ANYWHERE.parse().expect("an address")),
        ..Settings::default()
    };
    let device = SimDevice::new(8, 4096).expect("memory");
    let replay = Replay::new(settings, Device::simulated(device)).expect("possible");
    let address = replay.metrics_address().expect("it listens");
    let (seen, began) = (RefCell::new(Vec::new()), Instant::now());
    let active = || value(&get(address, "/metrics"), "kvstrata_worker_request_active_slots", "");
    let observe = |_| seen.borrow_mut().push((active(), began.elapsed()));
    let trace = TraceReader::open(TraceSource::File(path)).expect("a trace");
    assert_eq!(replay.run(trace, &observe).expect("it goes").requests, 3);
    let seen = seen.into_inner();
    assert!(seen[1].0 == 0.0 && seen[2].0 == 0.0, "{seen:?}");
    assert!(seen[1].1 < Duration::from_secs(2), "told when it has ended, not when the next comes: {seen:?}");
}

fn printed(arguments: &[&str]) -> String {
    let command = Command::new(env!("CARGO_BIN_EXE_kvstrata"))
        .arg("metrics")
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let output = command.expect("the command runs");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn metrics_prints_each_metric_in_each_form() {
    let (text, markdown) = (printed(&[]), printed(&["--markdown"]));
    let json: Vec<serde_json::Value> = serde_json::from_str(&printed(&["--json"])).expect("JSON");
    assert_eq!(
        (markdown, json.len()),
        (metrics::markdown() + &metrics_markdown(), metrics::reference().len())
    );
    for (entry, json) in metrics::reference().iter().zip(&json) {
        assert!(text.lines().any(|line| line.starts_with(entry.name)), "{}", entry.name);
        assert_eq!((json["name"].as_str(), json["type"].as_str()), (Some(entry.name), Some(entry.kind)));
    }
}
