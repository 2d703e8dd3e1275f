//! The figures over HTTP: `GET /metrics` for Prometheus, `GET /healthz` for whoever watches over processes. Nothing else.
//!
//! A few threads of its own and blocking sockets: an engine's runtime need have no driver for sockets, and when it is stuck is when somebody wants to
//! see why. HTTP/1.0 is enough for a scrape: one answer a connection. There is no secret in it and no password to it, so it listens where it
//! is told and nowhere by default.
//!
//! Invariants
//! - I1: as many connections are served at a time as there are [`THREADS`]; others wait in the kernel's queue.
//! - I2: a connection ends by [`PATIENCE`], whatever its other side does, and no more than [`MOST_BYTES`] of a request are read.
//!
//! # Orderings
//! `stop` is Relaxed: who reads it late serves one connection more.

use super::text::CONTENT_TYPE;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const THREADS: usize = 2;
const PATIENCE: Duration = Duration::from_secs(5);
const MOST_BYTES: usize = 8 << 10;
/// After no connection could be taken: not to spin while the process has no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// A place where figures are served, until it is dropped.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Endpoint {
    /// Listens at an address; with port 0, at a free one. `figures` gives the text of a scrape; none when what it is of is out of service. It is
    /// called by threads of the endpoint's.
    ///
    /// # Errors
    /// The address is taken, or not this machine's; or no thread is to be had.
    pub fn listen(
        address: SocketAddr,
        figures: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> io::Result<Endpoint> {
        let listener = Arc::new(TcpListener::bind(address)?);
        let endpoint = Endpoint { address: listener.local_addr()?, stop: Arc::default() };
        let figures = Arc::new(figures);
        for _ in 0..THREADS {
            let (listener, figures) = (Arc::clone(&listener), Arc::clone(&figures));
            let stop = Arc::clone(&endpoint.stop);
            let name = thread::Builder::new().name("kvstrata-metrics".to_owned());
            // Dropped after a failure, the endpoint ends those that there are.
            name.spawn(move || serve(&listener, &stop, &*figures))?;
        }
        Ok(endpoint)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    /// Nobody waits for the threads: one of them may be who drops it.
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // A connection each, so that they look.
        let here = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        for _ in 0..THREADS {
            let _ = TcpStream::connect_timeout(&SocketAddr::new(here, self.address.port()), PAUSE);
        }
    }
}

fn serve(listener: &TcpListener, stop: &AtomicBool, figures: &dyn Fn() -> Option<String>) {
    for connection in listener.incoming() {
        if stop.load(Relaxed) {
            return;
        }
        match connection {
            // Who hangs up early has no answer.
            Ok(connection) => _ = answer(connection, figures),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

fn answer(mut connection: TcpStream, figures: &dyn Fn() -> Option<String>) -> io::Result<()> {
    let due = Instant::now() + PATIENCE;
    let head = read_head(&mut connection, due)?;
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let plain = "text/plain; charset=utf-8";
    let gone = || ("503 Service Unavailable", plain, "out of service\n".to_owned());
    let (status, kind, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => figures().map_or_else(gone, |text| ("200 OK", CONTENT_TYPE, text)),
        ("GET" | "HEAD", "/healthz") => figures().map_or_else(gone, |_| ("200 OK", plain, "ok\n".to_owned())),
        ("GET" | "HEAD", _) => ("404 Not Found", plain, "there are /metrics and /healthz\n".to_owned()),
        _ => ("405 Method Not Allowed", plain, "GET and HEAD are allowed\n".to_owned()),
    };
    let length = body.len();
    let mut text = format!(
        "HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    if method != "HEAD" {
        text.push_str(&body);
    }
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        connection.set_write_timeout(Some(left(due)?))?;
        rest = &rest[connection.write(rest)?..];
    }
    connection.shutdown(Shutdown::Write)
}

/// The first line of a request, when all of its head is there.
fn read_head(connection: &mut TcpStream, due: Instant) -> io::Result<String> {
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && !head.windows(2).any(|end| end == b"\n\n") {
        connection.set_read_timeout(Some(left(due)?))?;
        let read = connection.read(&mut part)?;
        if read == 0 || head.len() + read > MOST_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.extend_from_slice(&part[..read]);
    }
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}

/// How long a connection has still.
fn left(due: Instant) -> io::Result<Duration> {
    let left = due.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
