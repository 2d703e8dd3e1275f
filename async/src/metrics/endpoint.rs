//! The figures over HTTP: `GET /metrics` for Prometheus, `GET /healthz` for whoever watches over processes.
//! Nothing else.
//!
//! ```text
//!   one thread: takes connections, and reads their heads as they come  (`poll`: none waits for another)
//!     a head is there ──► a thread for its answer, of 16
//!                    └──► none is free: answers itself, and asks for no figures
//! ```
//!
//! Threads of its own: an engine's runtime need have no driver for sockets, and when it is stuck is when
//! somebody wants to see why. HTTP/1.0 is enough for a scrape: one answer a connection. There is no secret in
//! it and no password to it, so it listens where it is told and nowhere by default.
//!
//! Invariants
//! - I1: the thread that takes connections waits for none of them: their sockets do not block, and it asks
//!   for no figures. What it answers itself is short: `/healthz`, and that all else is not to be had now.
//! - I2: a connection whose head is there has a thread, and there are no more than [`MOST`]. One whose head
//!   is not there has none, and ends by [`OF_HEAD`]; of more than [`MOST_HEADS`] of them the oldest ends at
//!   once.
//! - I3: an answer ends by [`PATIENCE`] from the connection on, whatever the other side does, and no more
//!   than twice [`MOST_BYTES`](super::head::MOST_BYTES) of a connection are read.
//! - I4: no more than [`SCRAPES`] threads ask for figures at a time, so that `/healthz`, which does not,
//!   answers where they hang.
//! - I5: when an [`Endpoint`] has been dropped, its address is free.
//!
//! # Orderings
//! Relaxed throughout. `stop`: who reads it late finds no more connections, and looks again. The counts
//! publish nothing; each is exact, since it is what `fetch_add` gave that decides.

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
/// After no connection could be taken: not to spin while the process has no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
const PLAIN: &str = "text/plain; charset=utf-8";

/// An address that is ours, where nobody answers yet: who connects waits.
#[derive(Debug)]
pub struct Bound {
    /// A forked child does not keep the address.
    listener: Uninherited<TcpListener>,
    address: SocketAddr,
}

/// A place where figures are served, until it is dropped.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    /// The listener once more, as what can be shut down.
    listening: Uninherited<TcpStream>,
}

/// What is served.
struct Served {
    figures: Box<dyn Fn() -> Option<String> + Send + Sync>,
    alive: Box<dyn Fn() -> bool + Send + Sync>,
    /// Threads that answer a connection, beside the one that takes them.
    answers: AtomicUsize,
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
        let listener = Uninherited::open(|| TcpListener::bind(address))?;
        listener.set_nonblocking(true)?;
        Ok(Bound { address: listener.local_addr()?, listener })
    }

    /// Begins to answer. `figures` gives the text of a scrape, none if what it is of is gone; `alive` says
    /// whether that is in service, and does not wait for anything. Both are called by threads of the
    /// endpoint's.
    ///
    /// # Errors
    /// No thread is to be had, or no descriptor.
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

/// A connection whose head is not there, or whose other side has its answer and is to hang up.
struct Waits {
    connection: TcpStream,
    since: Instant,
    head: HeadReader,
    /// It has been answered by the thread that takes connections: what else it sends is read, so that the
    /// answer is not lost by a reset.
    left_to_read: Option<usize>,
}

/// What has become of one that waits.
enum Step {
    /// There is more to come.
    Waits,
    /// It has hung up, or sent enough.
    Over,
    /// Its head is there, or never will be.
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

/// The thread that takes connections, and all that wait for nothing but their own other side.
struct Waiting {
    listener: Uninherited<TcpListener>,
    served: Arc<Served>,
    /// The oldest first.
    heads: VecDeque<Waits>,
    /// Until when no connection is taken.
    pause: Option<Instant>,
}

impl Waiting {
    fn serve(mut self, stop: &AtomicBool) {
        while !stop.load(Relaxed) {
            let ready = self.wait();
            if stop.load(Relaxed) {
                return;
            }
            // From the end, so that those before it stay in their places.
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

    /// Until something can be done; whether the listener and each connection have something.
    fn wait(&mut self) -> Vec<bool> {
        let now = Instant::now();
        self.pause = self.pause.filter(|until| *until > now);
        let ends = self.heads.front().map(|oldest| oldest.since + OF_HEAD).into_iter().chain(self.pause);
        // A moment more than is left, so that it is over then.
        let left = ends.min().map(|end| end.saturating_duration_since(now) + Duration::from_millis(1));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let listens = if self.pause.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let mut asked = vec![PollFd::new(&*self.listener, listens)];
        asked.extend(self.heads.iter().map(|waits| PollFd::new(&waits.connection, PollFlags::IN)));
        match poll(&mut asked, left.as_ref()) {
            Ok(_) => asked.iter().map(|asked| !asked.revents().is_empty()).collect(),
            // Not told which: all are looked at, which do not block.
            Err(error) => {
                if error != rustix::io::Errno::INTR {
                    thread::sleep(PAUSE);
                }
                asked.iter().map(|_| true).collect()
            }
        }
    }

    /// Takes the connections that are there.
    fn take(&mut self) {
        // As many as may wait, so that those that are there already are looked at in between.
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
                    // The oldest gives its descriptor back, if that is what is lacking.
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
            // Most have said all when they are taken.
            self.go_on(self.heads.len() - 1);
        }
    }

    /// Looks at what one has sent.
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
            // Both have it until it is known who answers.
            let (asked, of) = (Arc::clone(&asked), Arc::clone(&self.served));
            let answer_beside = move || {
                let _place = Place(&of.answers);
                let (connection, head) = &*asked;
                // Who hangs up early has no answer.
                let _ = of.answer(connection, head, since + PATIENCE);
            };
            if named().spawn(answer_beside).is_ok() {
                return;
            }
        }
        let _place = Place(&self.served.answers);
        // A thread that did not begin has let go of it.
        let Some((mut connection, head)) = Arc::into_inner(asked) else { return };
        let text = self.served.text(&head, true);
        // Short, and the first that is written: there is room for it, or nobody reads.
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

    /// The whole answer. `busy`: by the thread that takes connections.
    fn text(&self, head: &Result<Head, TooLong>, busy: bool) -> String {
        let (status, kind, body) = match head {
            Ok(head) => self.of(&head.method, &head.path, busy),
            Err(TooLong) => {
                ("431 Request Header Fields Too Large", PLAIN, format!("{MOST_BYTES} bytes are enough\n"))
            }
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

    /// Status, type and body.
    fn of(&self, method: &str, path: &str, busy: bool) -> (&'static str, &'static str, String) {
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

impl Head {
    /// Whether nothing comes behind it.
    fn is_read(&self) -> bool {
        ["GET", "HEAD"].contains(&self.method.as_str())
    }
}

/// Once more after a signal: calls with a time limit are not made again by the system, whatever the signal's
/// handler asks for.
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
