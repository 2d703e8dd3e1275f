//! The endpoint: its answers, and that no connection keeps others from theirs.

use crate::exposition::{read, value};
use crate::gated::Ground;
use crate::ground::{build, compute, hashes, settings};
use kvstrata::manager::{KvBlockManager, OffloadOptions};
use kvstrata::metrics::Bound;
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

const ANYWHERE: &str = "127.0.0.1:0";
/// Connections that have a thread each.
const PLACES: usize = 16;

fn listening() -> (KvBlockManager, SocketAddr) {
    let manager = build(settings(4, 16).metrics_listen(Some(ANYWHERE.parse().expect("an address"))));
    let address = manager.metrics_address().expect("it listens");
    (manager, address)
}

fn say(address: SocketAddr, request: &str) -> TcpStream {
    let mut connection = TcpStream::connect(address).expect("it listens");
    connection.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    connection.write_all(request.as_bytes()).expect("it reads");
    connection
}

/// Head and body.
fn answer(mut connection: TcpStream) -> (String, String) {
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    (head.to_owned(), body.to_owned())
}

fn ask(address: SocketAddr, request: &str) -> (String, String) {
    answer(say(address, request))
}

fn question(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: here\r\nAccept: */*\r\n\r\n")
}

fn get(address: SocketAddr, path: &str) -> (String, String) {
    ask(address, &question(path))
}

#[tokio::test]
async fn scrape_has_the_current_figures() {
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
async fn unknown_requests_are_refused() {
    let (_manager, address) = listening();
    assert_eq!(get(address, "/healthz").1, "ok\n");
    assert!(get(address, "/metrics?name[]=up").0.starts_with("HTTP/1.0 200 "));
    assert!(get(address, "/").0.starts_with("HTTP/1.0 404 "));
    assert!(get(address, "http://here/metrics").0.starts_with("HTTP/1.0 200 "), "as a proxy is asked");
    assert!(ask(address, "\r\n\r\n").0.starts_with("HTTP/1.0 400 "));
    assert!(ask(address, "GET\r\n\r\n").0.starts_with("HTTP/1.0 400 "));
    // A request with a body is answered, too.
    let post = format!("POST /metrics HTTP/1.1\r\nContent-Length: 3000\r\n\r\n{}", "x".repeat(3000));
    let (head, _) = ask(address, &post);
    assert!(head.starts_with("HTTP/1.0 405 ") && head.contains("\r\nAllow: GET, HEAD\r\n"), "{head}");
    let (head, body) = ask(address, "HEAD /healthz HTTP/1.0\n\n");
    assert!(head.contains("200 OK") && head.contains("Content-Length: 3") && body.is_empty(), "{head}{body}");
    // The rest of a head that is too long is not awaited.
    let (head, _) = ask(address, &format!("GET /{} HTTP/1.1\r\n", "x".repeat(10_000)));
    assert!(head.starts_with("HTTP/1.0 431 "), "{head}");
}

/// A dozen, like connections that a browser opens ahead, or a balancer's checks.
#[tokio::test]
async fn silent_connections_delay_no_answer() {
    let (_manager, address) = listening();
    // Answered beside them, not after they were given up: shown once, since they are given up soon.
    let beside = || {
        let silent: Vec<TcpStream> =
            (0..12).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        for path in ["/healthz", "/metrics", "/healthz"] {
            assert!(get(address, path).0.starts_with("HTTP/1.0 200 "), "{path}");
        }
        silent.into_iter().all(|mut silent| {
            silent.set_nonblocking(true).expect("a socket");
            silent.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        })
    };
    assert!((0..20).any(|_| beside()), "they are waited for");
}

#[tokio::test]
async fn silent_connections_beyond_the_places_are_given_up() {
    let (_manager, address) = listening();
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    assert_eq!(get(address, "/healthz").1, "ok\n");
    for mut silent in silent {
        silent.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        assert_eq!(silent.read(&mut [0]).expect("closed"), 0);
    }
}

#[test]
fn health_is_answered_while_figures_hang() {
    let (go_on, hang) = mpsc::channel::<()>();
    let (hang, (asked, asks)) = (Mutex::new(hang), mpsc::channel());
    let figures = move || {
        asked.send(()).expect("the test goes on");
        let _ = hang.lock().unwrap_or_else(PoisonError::into_inner).recv();
        Some("figures 1\n".to_owned())
    };
    let bound = Bound::at(ANYWHERE.parse().expect("an address")).expect("free");
    let endpoint = bound.serve(figures, || true).expect("a thread");
    let address = endpoint.address();
    thread::scope(|scope| {
        let scrapes: Vec<_> = (0..4).map(|_| scope.spawn(|| get(address, "/metrics").1)).collect();
        (0..4).for_each(|_| asks.recv().expect("asked for"));
        assert_eq!(get(address, "/healthz").1, "ok\n");
        assert!(get(address, "/metrics").0.starts_with("HTTP/1.0 503 "), "a fifth would hang as well");
        drop(go_on);
        for scrape in scrapes {
            assert_eq!(scrape.join().expect("no panic"), "figures 1\n");
        }
    });
}

/// Connections that have sent one letter, and send no more.
fn slow(address: SocketAddr, connections: usize) -> Vec<TcpStream> {
    (0..connections).map(|_| say(address, "G")).collect()
}

#[tokio::test]
async fn unfinished_request_is_given_up_soon() {
    let (_manager, address) = listening();
    let began = Instant::now();
    for mut slow in slow(address, 40) {
        let end = slow.read(&mut [0]).map_err(|error| error.kind());
        assert!([Ok(0), Err(ErrorKind::ConnectionReset)].contains(&end), "{end:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(get(address, "/healthz").1, "ok\n");
}

/// Ten times as many as have a thread: neither a probe nor a scrape waits until they are given up.
#[tokio::test]
async fn slow_connections_delay_no_answer() {
    let (_manager, address) = listening();
    // Answered beside them, not after they were given up: shown once, since they are given up soon.
    let beside = || {
        let slow = slow(address, 146);
        for path in ["/healthz", "/metrics", "/healthz"] {
            assert!(get(address, path).0.starts_with("HTTP/1.0 200 "), "{path}");
        }
        slow.into_iter().all(|mut slow| {
            slow.set_nonblocking(true).expect("a socket");
            slow.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        })
    };
    assert!((0..20).any(|_| beside()), "they are waited for");
}

/// More than wait at a time: the oldest give their places up, and the next is answered.
#[tokio::test]
async fn heads_beyond_the_waiting_limit_end_the_oldest() {
    let (_manager, address) = listening();
    let mut slow = slow(address, 300);
    assert_eq!(get(address, "/healthz").1, "ok\n");
    let end = slow[0].read(&mut [0]).map_err(|error| error.kind());
    assert!([Ok(0), Err(ErrorKind::ConnectionReset)].contains(&end), "{end:?}");
}

/// Byte by byte, as no client does: the same answer.
#[tokio::test]
async fn head_in_pieces_is_answered_as_a_whole_one() {
    let (_manager, address) = listening();
    let mut connection = say(address, "");
    connection.set_nodelay(true).expect("a socket");
    for byte in question("/healthz").as_bytes() {
        connection.write_all(&[*byte]).expect("it reads");
    }
    assert_eq!(answer(connection).1, "ok\n");
}

#[test]
fn health_alone_is_answered_when_all_places_are_taken() {
    let (go_on, hang) = mpsc::channel::<()>();
    let (hang, (asked, asks)) = (Mutex::new(hang), mpsc::channel());
    let hanging = AtomicUsize::new(0);
    // The first to ask have the places until they are let go.
    let alive = move || {
        if hanging.fetch_add(1, Relaxed) < PLACES {
            asked.send(()).expect("the test goes on");
            let _ = hang.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
        true
    };
    let scrapes = Arc::new(AtomicUsize::new(0));
    let scraped = Arc::clone(&scrapes);
    let figures = move || {
        scraped.fetch_add(1, Relaxed);
        Some("figures 1\n".to_owned())
    };
    let bound = Bound::at(ANYWHERE.parse().expect("an address")).expect("free");
    let endpoint = bound.serve(figures, alive).expect("a thread");
    let address = endpoint.address();
    thread::scope(|scope| {
        let first: Vec<_> = (0..PLACES).map(|_| scope.spawn(|| get(address, "/healthz").1)).collect();
        (0..PLACES).for_each(|_| asks.recv().expect("asked for"));
        let began = Instant::now();
        let slow = slow(address, 20);
        // These ask while those before them are looked at: the endpoint has little patience for an
        // absent request.
        let [health, figures] = ["/healthz", "/metrics"].map(|path| say(address, &question(path)));
        assert_eq!(answer(health).1, "ok\n");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert!(answer(figures).0.starts_with("HTTP/1.0 503 "));
        assert_eq!(scrapes.load(Relaxed), 0, "who takes connections must not hang there, or panic");
        drop((slow, go_on));
        for first in first {
            assert_eq!(first.join().expect("no panic"), "ok\n");
        }
    });
    // A place is free again when its thread has ended, a moment after the answer.
    while !get(address, "/metrics").0.starts_with("HTTP/1.0 200 ") {}
    assert_eq!(scrapes.load(Relaxed), 1);
}

fn refused(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[tokio::test]
async fn endpoint_answers_until_the_shutdown_is_over() {
    let address: SocketAddr = ANYWHERE.parse().expect("an address");
    let Ground { manager, mover, .. } = Ground::of(settings(4, 16).metrics_listen(Some(address)), 4, 16);
    let address = manager.metrics_address().expect("it listens");
    let held = compute(&manager, &hashes(1, 2), None).await;
    mover.close();
    let offload = manager.default_group().offload(&held, OffloadOptions::default());
    let mut end = Box::pin(manager.shutdown());
    assert!(poll_fn(|context| Poll::Ready(end.as_mut().poll(context).is_pending())).await, "two copies move");
    // An operator wants to see the drain while it lasts.
    let healthy = |address| get(address, "/healthz");
    assert!(healthy(address).0.starts_with("HTTP/1.0 503 ") && healthy(address).1 == "out of service\n");
    let (head, body) = get(address, "/metrics");
    assert!(head.starts_with("HTTP/1.0 200 "), "{head}");
    let inflight =
        |body: &str| value(&read(body), "kvstrata_inflight_transfers", &[("path", "device_to_host")]);
    assert_eq!(inflight(&body), 2.0);
    mover.open();
    assert!(end.await);
    assert_eq!(offload.await.copied, 2);
    assert!(refused(address) && manager.metrics_address().is_none());
    // The last counts are for callers with a handle.
    let body = manager.metrics().to_prometheus();
    assert_eq!(inflight(&body), 0.0);
    assert_eq!(value(&read(&body), "kvstrata_offloaded_blocks_total", &[("tier", "device")]), 2.0);
}

#[tokio::test]
async fn endpoint_answers_after_a_late_shutdown_to_the_last_handle() {
    let listen = settings(4, 16).metrics_listen(Some(ANYWHERE.parse().expect("an address")));
    let Ground { manager, mover, .. } = Ground::of(listen.deadline_shutdown(Duration::from_millis(5)), 4, 16);
    let address = manager.metrics_address().expect("it listens");
    let held = compute(&manager, &hashes(1, 2), None).await;
    mover.close();
    drop(manager.default_group().offload(&held, OffloadOptions::default()));
    assert!(!manager.shutdown().await, "two copies move");
    assert!(get(address, "/metrics").0.starts_with("HTTP/1.0 200 "));
    drop(held);
    drop(manager);
    assert!(refused(address));
    mover.open();
}

#[tokio::test]
async fn address_is_free_after_shutdown_or_last_handle() {
    let (first, address) = listening();
    let again = settings(4, 16).metrics_listen(Some(address)).build().expect("a configuration");
    let waits = TcpStream::connect(address).expect("it listens");
    assert!(first.shutdown().await);
    for _ in 0..20 {
        let next = KvBlockManager::open(&again).expect("the address is free");
        assert_eq!(get(address, "/healthz").1, "ok\n");
        drop(next);
    }
    drop((waits, first));
}

#[tokio::test]
async fn taken_address_is_refused_with_its_setting() {
    let (_manager, address) = listening();
    let config = settings(4, 16).metrics_listen(Some(address)).build().expect("a configuration");
    let error = KvBlockManager::open(&config).expect_err("taken").to_string();
    assert!(error.starts_with(&format!("metrics.listen = {address} (")), "{error}");
    assert!(error.contains("cannot listen there: ") && error.contains("choose another"), "{error}");
}
