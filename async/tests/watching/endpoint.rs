//! The endpoint: what it answers, to whom, and that nobody keeps others from it.

use crate::exposition::{read, value};
use crate::ground::{build, compute, hashes, settings};
use kvstrata::ffi::device::SimDevice;
use kvstrata::manager::KvBlockManager;
use kvstrata::replay::{Device, Replay, Settings};
use kvstrata::trace::{TraceReader, TraceSource};
use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

const ANYWHERE: &str = "127.0.0.1:0";

fn listening() -> (KvBlockManager, SocketAddr) {
    let manager = build(settings(4, 16).metrics_listen(Some(ANYWHERE.parse().expect("an address"))));
    let address = manager.metrics_address().expect("it listens");
    (manager, address)
}

/// Head and body of an answer.
fn ask(address: SocketAddr, request: &str) -> (String, String) {
    let mut connection = TcpStream::connect(address).expect("it listens");
    connection.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{request:?}: {answer:?}"));
    (head.to_owned(), body.to_owned())
}

fn get(address: SocketAddr, path: &str) -> (String, String) {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: here\r\nAccept: */*\r\n\r\n"))
}

#[tokio::test]
async fn a_scrape_has_the_figures_of_now() {
    let (manager, address) = listening();
    let group = manager.metrics().tiers[0].group.clone();
    let inflight = |address| {
        let (head, body) = get(address, "/metrics");
        assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
        value(&read(&body), "kvstrata_inflight_blocks", &[("tier", "device"), ("group", &group)])
    };
    let held = compute(&manager, &hashes(1, 3), None).await;
    assert_eq!(inflight(address), 3.0);
    drop(held);
    assert_eq!(inflight(address), 0.0);
}

#[tokio::test]
async fn whatever_else_is_asked_for_is_refused() {
    let (_manager, address) = listening();
    assert_eq!(get(address, "/healthz").1, "ok\n");
    assert!(get(address, "/metrics?name[]=up").0.starts_with("HTTP/1.0 200 "));
    assert!(get(address, "/").0.starts_with("HTTP/1.0 404 "));
    assert!(ask(address, "POST /metrics HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.0 405 "));
    let (head, body) = ask(address, "HEAD /healthz HTTP/1.0\n\n");
    assert!(head.contains("200 OK") && head.contains("Content-Length: 3") && body.is_empty(), "{head}{body}");
    // Too long a head: no answer, and no more of it is read.
    let mut connection = TcpStream::connect(address).expect("it listens");
    let sent = connection.write_all(format!("GET /{} HTTP/1.1\r\n", "x".repeat(1 << 16)).as_bytes());
    let mut answer = Vec::new();
    let answered = sent.and_then(|()| connection.read_to_end(&mut answer));
    assert!(answered.is_err() || answer.is_empty(), "{answer:?}");
}

#[tokio::test]
async fn who_says_nothing_keeps_nobody_waiting() {
    let (_manager, address) = listening();
    let silent = TcpStream::connect(address).expect("it listens");
    for _ in 0..3 {
        assert_eq!(get(address, "/healthz").1, "ok\n");
    }
    // Answered beside it, not after it was given up.
    silent.set_nonblocking(true).expect("a socket");
    let told = (&silent).read(&mut [0]);
    assert!(told.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{told:?}");
}

#[tokio::test]
async fn after_a_shutdown_it_says_so_and_without_a_manager_nobody_listens() {
    let (manager, address) = listening();
    assert!(manager.shutdown().await);
    let (head, body) = get(address, "/healthz");
    assert!(head.starts_with("HTTP/1.0 503 ") && body == "out of service\n", "{head} {body}");
    assert!(get(address, "/metrics").0.starts_with("HTTP/1.0 503 "));
    drop(manager);
    // Its threads end by themselves.
    let refused =
        || TcpStream::connect(address).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    while !refused() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn what_a_replay_serves_is_what_it_reports() {
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
    let report = replay.run(trace, &|_| *last.borrow_mut() = get(address, "/metrics").1).expect("it goes");
    let families = read(&last.into_inner());
    let hits = ["device", "host", "disk"]
        .map(|tier| value(&families, "kvstrata_hit_blocks_total", &[("tier", tier)]) as u64);
    assert_eq!(hits, [report.hits.device, report.hits.host, report.hits.disk]);
    assert!(hits.iter().sum::<u64>() > 0, "{hits:?}");
    let looked_up = value(&families, "kvstrata_lookup_blocks_total", &[]) as u64;
    assert_eq!(
        looked_up,
        report.blocks - report.uncached_blocks,
        "as much of each request as the device has blocks"
    );
    for slots in ["kvstrata_worker_request_active_slots", "kvstrata_worker_request_total_slots"] {
        assert_eq!(value(&families, slots, &[]), 1.0, "{slots}");
    }
}

#[tokio::test]
async fn an_address_that_is_taken_is_named_with_its_setting() {
    let (_manager, address) = listening();
    let config = settings(4, 16).metrics_listen(Some(address)).build().expect("a configuration");
    let error = KvBlockManager::new(&config).expect_err("taken").to_string();
    assert!(error.starts_with(&format!("metrics.listen = {address} (")), "{error}");
    assert!(error.contains("nothing can be served there (") && error.contains("choose another"), "{error}");
}
