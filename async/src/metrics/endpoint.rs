//! The HTTP endpoint: `GET /metrics` for Prometheus and `GET /healthz` for process supervisors.
//!
//! ```text
//!   one thread: accepts connections and reads their heads    (`poll`: no connection waits for another)
//!     head complete ──► one of 16 threads answers
//!                  └──► no thread is free: the accepting thread answers, without metrics
//! ```
//!
//! The endpoint has its own threads: the runtime of an engine may have no driver for sockets, and metrics
//! matter most when it is stuck. HTTP/1.0 is enough for a scrape: one answer per connection. The endpoint
//! serves no secrets and has no password, so it is off by default and listens only at the given address.
//!
//! Invariants
//! - I1: the accepting thread waits for no connection: the sockets do not block, and it collects no
//!   metrics. Its own answers are short: `/healthz`, or that everything else is unavailable.
//! - I2: a connection with a complete head has a thread; there are at most [`MOST`]. A connection with an
//!   incomplete head has none, and is closed after [`OF_HEAD`]. With more than [`MOST_HEADS`] of them, the
//!   oldest is closed at once.
//! - I3: an answer ends within [`PATIENCE`] of the start of its connection, whatever the client does. At
//!   most twice [`MOST_BYTES`](super::head::MOST_BYTES) are read from a connection.
//! - I4: at most [`SCRAPES`] threads collect metrics at a time. `/healthz` collects none, so it answers
//!   while they hang.
//! - I5: after an [`Endpoint`] has been dropped, its address is free.
//!
//! # Orderings
//! Relaxed throughout. `stop`: a thread that reads it late finds no more connections, and reads it again. The
//! counts publish nothing. Each limit is exact, since the result of `fetch_add` decides.

use super::CONTENT_TYPE;
use super::head::{Head, HeadReader, MOST_BYTES, TooLong};
use kvstrata_ffi::process::Uninherited;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const MOST: usize = 16;
const MOST_HEADS: usize = 256;
const SCRAPES: usize = 4;
const PATIENCE: Duration = Duration::from_secs(5);
const OF_HEAD: Duration = Duration::from_secs(1);
/// Pause after a failed accept, so that the thread does not spin while the process has no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
const PLAIN: &str = "text/plain; charset=utf-8";

/// A bound address that does not answer yet: clients that connect wait.
#[derive(Debug)]
pub struct Bound {
    /// Not inherited by a forked child, which would keep the address.
    listener: Uninherited<TcpListener>,
    address: SocketAddr,
}

/// An endpoint that serves metrics until it is dropped.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    /// The listener again, as a type that can be shut down.
    listening: Uninherited<TcpStream>,
}

/// The sources of the answers.
struct Served {
    figures: Box<dyn Fn() -> Option<String> + Send + Sync>,
    alive: Box<dyn Fn() -> bool + Send + Sync>,
    /// Threads that answer a connection, without the accepting thread.
    answers: AtomicUsize,
    /// Threads that collect metrics.
    scrapes: AtomicUsize,
}

/// A place under a limit, until it is dropped.
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
    /// Binds an address; port 0 takes a free port.
    ///
    /// # Errors
    /// The address is in use, or it is not an address of this machine.
    pub fn at(address: SocketAddr) -> io::Result<Bound> {
        let listener = Uninherited::open(|| TcpListener::bind(address))?;
        listener.set_nonblocking(true)?;
        Ok(Bound { address: listener.local_addr()?, listener })
    }

    /// Begins to answer. `figures` returns the text of a scrape, or none if the manager is gone. `alive`
    /// returns whether the manager is in service, without waiting. Threads of the endpoint call both.
    ///
    /// # Errors
    /// The system gives no thread or no descriptor.
    pub fn serve(
        self,
        figures: impl Fn() -> Option<String> + Send + Sync + 'static,
        alive: impl Fn() -> bool + Send + Sync + 'static,
    ) -> io::Result<Endpoint> {
        let Bound { listener, address } = self;
        let listening = Uninherited::open(|| Ok(TcpStream::from(OwnedFd::from(listener.try_clone()?))))?;
        let endpoint = Endpoint { address, stop: Arc::default(), listening };
        let stop = Arc::clone(&endpoint.stop);
        let served = Arc::new(Served {
            figures: Box::new(figures),
            alive: Box::new(alive),
            answers: AtomicUsize::new(0),
            scrapes: AtomicUsize::new(0),
        });
        named().spawn(move || {
            Waiting { listener, served, heads: VecDeque::new(), pause: None }.serve(&stop);
        })?;
        Ok(endpoint)
    }
}

impl Endpoint {
    /// Returns the address that it listens at.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    /// Does not wait for the threads: one of them may drop the endpoint.
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // Stops the listener for all holders, and wakes the thread that waits for its connections.
        let _ = self.listening.shutdown(Shutdown::Both);
    }
}

fn named() -> thread::Builder {
    thread::Builder::new().name("kvstrata-metrics".to_owned())
}

/// A connection with an incomplete head, or one that is answered until the client closes it.
struct Waits {
    connection: TcpStream,
    since: Instant,
    head: HeadReader,
    /// Set after the accepting thread has answered: further input is read, so that no reset loses the answer.
    left_to_read: Option<usize>,
}

/// The state of a waiting connection after a read.
enum Step {
    /// More input may come.
    Waits,
    /// The client has closed the connection, or sent too much.
    Over,
    /// The head is complete, or too long.
    Asks(Result<Head, TooLong>),
}

impl Waits {
    fn step(&mut self) -> Step {
        let mut part = [0; 1024];
        loop {
            let read = match self.connection.read(&mut part) {
                Ok(read @ 1..) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Step::Waits,
                Ok(_) | Err(_) => return Step::Over,
            };
            match &mut self.left_to_read {
                Some(left) if *left < read => return Step::Over,
                Some(left) => *left -= read,
                None => {
                    if let Some(asks) = self.head.push(&part[..read]) {
                        return Step::Asks(asks);
                    }
                }
            }
        }
    }
}

/// The accepting thread, and the connections that wait for their clients.
struct Waiting {
    listener: Uninherited<TcpListener>,
    served: Arc<Served>,
    /// Connections, the oldest first.
    heads: VecDeque<Waits>,
    /// No connection is accepted before this time.
    pause: Option<Instant>,
}

impl Waiting {
    fn serve(mut self, stop: &AtomicBool) {
        while !stop.load(Relaxed) {
            let ready = self.wait();
            if stop.load(Relaxed) {
                return;
            }
            // From the end, so that earlier connections keep their indices.
            for at in (0..self.heads.len()).rev().filter(|at| ready[1 + at]) {
                self.go_on(at);
            }
            while self.heads.front().is_some_and(|oldest| oldest.since.elapsed() >= OF_HEAD) {
                self.heads.pop_front();
            }
            if ready[0] {
                self.take();
            }
        }
    }

    /// Waits for input or a time limit. Returns whether the listener and each connection have input.
    fn wait(&mut self) -> Vec<bool> {
        let now = Instant::now();
        self.pause = self.pause.filter(|until| *until > now);
        let ends = self.heads.front().map(|oldest| oldest.since + OF_HEAD).into_iter().chain(self.pause);
        // Slightly longer than the time left, so that the limit has passed afterwards.
        let left = ends.min().map(|end| end.saturating_duration_since(now) + Duration::from_millis(1));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let listens = if self.pause.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let mut asked = vec![PollFd::new(&*self.listener, listens)];
        asked.extend(self.heads.iter().map(|waits| PollFd::new(&waits.connection, PollFlags::IN)));
        match poll(&mut asked, left.as_ref()) {
            Ok(_) => asked.iter().map(|asked| !asked.revents().is_empty()).collect(),
            // Unknown which are ready: all are tried, since none of them blocks.
            Err(error) => {
                if error != rustix::io::Errno::INTR {
                    thread::sleep(PAUSE);
                }
                asked.iter().map(|_| true).collect()
            }
        }
    }

    /// Accepts the pending connections.
    fn take(&mut self) {
        // At most as many as may wait, so that accepted connections are served in between.
        for _ in 0..MOST_HEADS {
            let connection = match self.listener.accept() {
                Ok((connection, _)) => connection,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) =>
                {
                    continue;
                }
                Err(_) => {
                    // The oldest gives its descriptor back, in case none is left.
                    self.heads.pop_front();
                    self.pause = Some(Instant::now() + PAUSE);
                    return;
                }
            };
            if connection.set_nonblocking(true).is_err() {
                continue;
            }
            if self.heads.len() == MOST_HEADS {
                self.heads.pop_front();
            }
            let (since, head) = (Instant::now(), HeadReader::default());
            self.heads.push_back(Waits { connection, since, head, left_to_read: None });
            // Most clients have sent the whole head by now.
            self.go_on(self.heads.len() - 1);
        }
    }

    /// Reads the input of one connection.
    fn go_on(&mut self, at: usize) {
        let asks = match self.heads[at].step() {
            Step::Waits => return,
            Step::Over => None,
            Step::Asks(head) => Some(head),
        };
        let Some(waits) = self.heads.remove(at) else { return };
        if let Some(head) = asks {
            self.answer(waits, head);
        }
    }

    fn answer(&mut self, waits: Waits, head: Result<Head, TooLong>) {
        let Waits { connection, since, .. } = waits;
        let asked = Arc::new((connection, head));
        if self.served.answers.fetch_add(1, Relaxed) < MOST {
            // Shared with the new thread until it is certain that it starts.
            let (asked, of) = (Arc::clone(&asked), Arc::clone(&self.served));
            let answer_beside = move || {
                let _place = Place(&of.answers);
                let (connection, head) = &*asked;
                // A client that closes early gets no answer.
                let _ = of.answer(connection, head, since + PATIENCE);
            };
            if named().spawn(answer_beside).is_ok() {
                return;
            }
        }
        let _place = Place(&self.served.answers);
        // A thread that did not start has dropped its reference.
        let Some((mut connection, head)) = Arc::into_inner(asked) else { return };
        let text = self.served.text(&head, true);
        // The first and only write, and short: it fits the socket's buffer.
        if connection.write(text.as_bytes()).is_ok_and(|written| written == text.len())
            && connection.shutdown(Shutdown::Write).is_ok()
        {
            let left_to_read = Some(MOST_BYTES);
            self.heads.push_back(Waits {
                connection,
                since: Instant::now(),
                head: HeadReader::default(),
                left_to_read,
            });
        }
    }
}

impl Served {
    fn answer(&self, connection: &TcpStream, head: &Result<Head, TooLong>, due: Instant) -> io::Result<()> {
        connection.set_nonblocking(false)?;
        let text = self.text(head, false);
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            connection.set_write_timeout(Some(left(due)?))?;
            rest = &rest[again(|| (&*connection).write(rest))?..];
        }
        connection.shutdown(Shutdown::Write)?;
        if !head.as_ref().is_ok_and(Head::is_read) {
            // Closing with unread input would reset the connection, and the answer could be lost.
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

    /// Returns the whole answer. `busy`: the accepting thread answers, since no other is free.
    fn text(&self, head: &Result<Head, TooLong>, busy: bool) -> String {
        let (status, kind, body) = match head {
            Ok(head) => self.of(&head.method, &head.path, busy),
            Err(TooLong) => (
                "431 Request Header Fields Too Large",
                PLAIN,
                format!("the head exceeds {MOST_BYTES} bytes; send fewer headers\n"),
            ),
        };
        let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
        let length = body.len();
        let mut text = format!(
            "HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n"
        );
        if !head.as_ref().is_ok_and(|head| head.method == "HEAD") {
            text.push_str(&body);
        }
        text
    }

    /// Returns status, content type and body.
    fn of(&self, method: &str, path: &str, busy: bool) -> (&'static str, &'static str, String) {
        let unavailable = |why: &str| ("503 Service Unavailable", PLAIN, format!("{why}\n"));
        match (method, path) {
            ("GET" | "HEAD", "/healthz") if (self.alive)() => ("200 OK", PLAIN, "ok\n".to_owned()),
            ("GET" | "HEAD", "/healthz") => unavailable("out of service"),
            _ if busy => unavailable("too many connections; try again"),
            ("", _) | (_, "") => {
                ("400 Bad Request", PLAIN, "not an HTTP request; send GET /metrics HTTP/1.0\n".to_owned())
            }
            ("GET" | "HEAD", "/metrics") => match Place::of(SCRAPES, &self.scrapes) {
                None => unavailable("too many scrapes at a time; try again"),
                Some(_place) => (self.figures)()
                    .map_or_else(|| unavailable("out of service"), |text| ("200 OK", CONTENT_TYPE, text)),
            },
            ("GET" | "HEAD", _) => {
                ("404 Not Found", PLAIN, "not found; use /metrics or /healthz\n".to_owned())
            }
            _ => ("405 Method Not Allowed", PLAIN, "only GET and HEAD are allowed\n".to_owned()),
        }
    }
}

impl Head {
    /// Returns whether the request has no body.
    fn is_read(&self) -> bool {
        ["GET", "HEAD"].contains(&self.method.as_str())
    }
}

/// Repeats a call after a signal. The system never restarts calls with a time limit, even if the signal's
/// handler asks for it.
fn again(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Returns the time until `due`.
///
/// # Errors
/// `TimedOut` if `due` has passed.
fn left(due: Instant) -> io::Result<Duration> {
    let left = due.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
