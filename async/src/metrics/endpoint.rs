//! The figures over HTTP: `GET /metrics` for Prometheus, `GET /healthz` for whoever watches over processes. Nothing else.
//!
//! Threads of its own and blocking sockets: an engine's runtime need have no driver for sockets, and when it is stuck is when somebody wants to
//! see why. HTTP/1.0 is enough for a scrape: one answer a connection. There is no secret in it and no password to it, so it listens where it
//! is told and nowhere by default.
//!
//! Invariants
//! - I1: a connection has a thread, and there are no more than [`MOST`] and the one that takes connections. What is over that has its answer by the
//!   latter, which waits no longer than [`BRIEF`] for each, and asks for no figures: `/healthz`, and that all else is not to be had now.
//! - I2: a connection ends by [`PATIENCE`], and by [`OF_HEAD`] if its request is not there by then, whatever its other side does, and no more than twice
//!   [`MOST_BYTES`] of it are read.
//! - I3: no more than [`SCRAPES`] threads ask for figures at a time, so that `/healthz`, which does not, answers where they hang.
//! - I4: when an [`Endpoint`] has been dropped, its address is free.
//!
//! # Orderings
//! Relaxed throughout. `stop`: who reads it late finds no more connections, and looks again. The counts publish nothing; each is exact, since it is what
//! `fetch_add` gave that decides.

use super::text::CONTENT_TYPE;
use kvstrata_ffi::process::Listed;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const MOST: usize = 16;
const SCRAPES: usize = 4;
const PATIENCE: Duration = Duration::from_secs(5);
const OF_HEAD: Duration = Duration::from_secs(1);
const BRIEF: Duration = Duration::from_millis(50);
const MOST_BYTES: usize = 8 << 10;
/// After no connection could be taken: not to spin while the process has no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
const PLAIN: &str = "text/plain; charset=utf-8";

/// An address that is ours, where nobody answers yet: who connects waits.
#[derive(Debug)]
pub struct Bound {
    /// A forked child does not keep the address. Dropped before the listener.
    listed: Listed,
    listener: TcpListener,
    address: SocketAddr,
}

/// A place where figures are served, until it is dropped.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    /// Dropped before it.
    _listed: Listed,
    /// The listener once more, as what can be shut down.
    listening: TcpStream,
}

/// What is served.
struct Served {
    figures: Box<dyn Fn() -> Option<String> + Send + Sync>,
    alive: Box<dyn Fn() -> bool + Send + Sync>,
    /// Threads that have a connection, beside the one that takes them.
    connections: AtomicUsize,
    /// Threads that ask for figures.
    scrapes: AtomicUsize,
}

/// One of so many, until it is dropped.
struct Place<'c>(&'c AtomicUsize);

impl<'c> Place<'c> {
    fn of(most: usize, count: &'c AtomicUsize) -> Option<Place<'c>> {
        let place = Place(count);
        (count.fetch_add(1, Relaxed) < most).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Bound {
    /// Takes an address; with port 0, at a free one.
    ///
    /// # Errors
    /// The address is taken, or not this machine's.
    pub fn at(address: SocketAddr) -> io::Result<Bound> {
        let (listener, listed) = Listed::open(|| TcpListener::bind(address))?;
        Ok(Bound { address: listener.local_addr()?, listed, listener })
    }

    /// Begins to answer. `figures` gives the text of a scrape, none if what it is of is gone; `alive` says whether that is in service, and does not
    /// wait for anything. Both are called by threads of the endpoint's.
    ///
    /// # Errors
    /// No thread is to be had, or no descriptor.
    pub fn serve(
        self,
        figures: impl Fn() -> Option<String> + Send + Sync + 'static,
        alive: impl Fn() -> bool + Send + Sync + 'static,
    ) -> io::Result<Endpoint> {
        let Bound { listed, listener, address } = self;
        let (listening, again) = Listed::open(|| Ok(TcpStream::from(OwnedFd::from(listener.try_clone()?))))?;
        let endpoint = Endpoint { address, stop: Arc::default(), _listed: again, listening };
        let stop = Arc::clone(&endpoint.stop);
        let served = Served {
            figures: Box::new(figures),
            alive: Box::new(alive),
            connections: AtomicUsize::new(0),
            scrapes: AtomicUsize::new(0),
        };
        named().spawn(move || {
            serve(&listener, &stop, &Arc::new(served));
            drop(listed);
        })?;
        Ok(endpoint)
    }
}

impl Endpoint {
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
        // The listener listens no more, whoever still has it, and who waits for connections of it is woken.
        let _ = self.listening.shutdown(Shutdown::Both);
    }
}

fn named() -> thread::Builder {
    thread::Builder::new().name("kvstrata-metrics".to_owned())
}

fn serve(listener: &TcpListener, stop: &AtomicBool, served: &Arc<Served>) {
    for connection in listener.incoming() {
        if stop.load(Relaxed) {
            return;
        }
        let Ok(connection) = connection else {
            thread::sleep(PAUSE);
            continue;
        };
        // Both have it until it is known who answers.
        let connection = Arc::new(connection);
        let (for_thread, of) = (Arc::clone(&connection), Arc::clone(served));
        let busy = served.connections.fetch_add(1, Relaxed) >= MOST;
        let answer_beside = move || {
            let _place = Place(&of.connections);
            // Who hangs up early has no answer.
            let _ = of.answer(&for_thread, false);
        };
        if busy || named().spawn(answer_beside).is_err() {
            let _place = Place(&served.connections);
            let _ = served.answer(&connection, true);
        }
    }
}

impl Served {
    /// `busy`: the next connection waits for that.
    fn answer(&self, connection: &TcpStream, busy: bool) -> io::Result<()> {
        let now = Instant::now();
        let [of_head, due] =
            if busy { [BRIEF, BRIEF] } else { [OF_HEAD, PATIENCE] }.map(|patience| now + patience);
        let head = read_head(connection, of_head)?;
        let mut words = head.as_deref().unwrap_or_default().split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (status, kind, body) = match head {
            Some(_) => self.of(method, target, busy),
            None => {
                ("431 Request Header Fields Too Large", PLAIN, format!("{MOST_BYTES} bytes are enough\n"))
            }
        };
        let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
        let length = body.len();
        let mut text = format!(
            "HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n"
        );
        if method != "HEAD" {
            text.push_str(&body);
        }
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            connection.set_write_timeout(Some(left(due)?))?;
            rest = &rest[again(|| (&*connection).write(rest))?..];
        }
        connection.shutdown(Shutdown::Write)?;
        if !["GET", "HEAD"].contains(&method) {
            // Closed with something unread, a connection is reset, and the answer may be lost.
            let (due, mut part, mut read) = (due.min(Instant::now() + OF_HEAD), [0; 1024], 1);
            for _ in 0..MOST_BYTES / part.len() {
                if read > 0 {
                    connection.set_read_timeout(Some(left(due)?))?;
                    read = again(|| (&*connection).read(&mut part))?;
                }
            }
        }
        Ok(())
    }

    /// Status, type and body.
    fn of(&self, method: &str, target: &str, busy: bool) -> (&'static str, &'static str, String) {
        // With the host before it, as a proxy is asked.
        let of_host = target.strip_prefix("http://");
        let target = of_host.map_or(target, |rest| rest.find('/').map_or("/", |at| &rest[at..]));
        let path = target.split('?').next().unwrap_or_default();
        let unavailable = |why: &str| ("503 Service Unavailable", PLAIN, format!("{why}\n"));
        match (method, path) {
            ("GET" | "HEAD", "/healthz") if (self.alive)() => ("200 OK", PLAIN, "ok\n".to_owned()),
            ("GET" | "HEAD", "/healthz") => unavailable("out of service"),
            _ if busy => unavailable("as many connections are served as may be"),
            ("", _) | (_, "") => ("400 Bad Request", PLAIN, "this is HTTP\n".to_owned()),
            ("GET" | "HEAD", "/metrics") => match Place::of(SCRAPES, &self.scrapes) {
                None => unavailable("as many scrapes are under way as may be"),
                Some(_place) => (self.figures)()
                    .map_or_else(|| unavailable("out of service"), |text| ("200 OK", CONTENT_TYPE, text)),
            },
            ("GET" | "HEAD", _) => ("404 Not Found", PLAIN, "there are /metrics and /healthz\n".to_owned()),
            _ => ("405 Method Not Allowed", PLAIN, "GET and HEAD are allowed\n".to_owned()),
        }
    }
}

/// The first line of a request, when all of its head is there; none if that is too long.
fn read_head(connection: &TcpStream, due: Instant) -> io::Result<Option<String>> {
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && !head.windows(2).any(|end| end == b"\n\n") {
        connection.set_read_timeout(Some(left(due)?))?;
        let read = again(|| (&*connection).read(&mut part))?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if head.len() + read > MOST_BYTES {
            return Ok(None);
        }
        head.extend_from_slice(&part[..read]);
    }
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    Ok(Some(String::from_utf8_lossy(line).into_owned()))
}

/// Once more after a signal: calls with a time limit are not made again by the system, whatever the signal's handler asks for.
fn again(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// How long a connection has still.
fn left(due: Instant) -> io::Result<Duration> {
    let left = due.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
