//! `GET /metrics`: the part of HTTP that it needs.
//!
//! Invariants
//! - I1: a fetch ends within [`PATIENCE`] of the connection attempt, whatever the server does. The system
//!   resolves the name, within its own time limit.
//! - I2: at most [`MOST_HEAD`] and [`MOST_BYTES`] are read.

use super::parse::MOST_BYTES;
use super::reading::{harmless, shown};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(5);
const MOST_HEAD: usize = 16 << 10;
/// The most bytes shown of an answer without metrics.
const MOST_OF_BODY: usize = 80;

/// The address of a manager's metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// `host:port`.
    place: String,
}

impl Target {
    /// Parses `host:port`, as in `metrics.listen`, or the URL.
    pub(crate) fn parse(text: &str) -> Result<Target, String> {
        let place = text.strip_prefix("http://").unwrap_or(text);
        let place = place.strip_suffix("/metrics").or_else(|| place.strip_suffix('/')).unwrap_or(place);
        let (host, port) =
            place.rsplit_once(':').ok_or("must be a host and a port, for example 127.0.0.1:9400")?;
        let bare = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
        let odd = |c: char| c == '/' || c == '@' || c.is_whitespace() || c.is_control();
        if host.is_empty() || bare || host.contains(odd) || port.parse::<u16>().is_err() {
            return Err(
                "must be a host and a port, for example 127.0.0.1:9400, [::1]:9400 or http://worker-3:9400/metrics"
                    .to_owned(),
            );
        }
        Ok(Target { place: place.to_owned() })
    }

    /// `host:port`.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Fetches the text, or the reason why there is none. Also returns the times of question and answer.
    pub(crate) fn fetch(&self) -> (Range<Instant>, Result<String, String>) {
        let asked = Instant::now();
        let text = self.text();
        (asked..Instant::now(), text)
    }

    fn text(&self) -> Result<String, String> {
        let answer = self.ask().map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => format!("no answer in {PATIENCE:?}"),
            io::ErrorKind::ConnectionRefused => "no process listens there".to_owned(),
            _ => error.to_string(),
        })?;
        let end = answer
            .windows(4)
            .position(|end| end == b"\r\n\r\n")
            .ok_or("the process that listens there does not speak HTTP")?;
        let (head, body) = (String::from_utf8_lossy(&answer[..end]), &answer[end + 4..]);
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap_or_default();
        let code = status.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
        match code.ok_or("the process that listens there does not speak HTTP")? {
            "200" => {}
            // The body says why: the manager is out of service, or too many clients ask.
            "503" => {
                let body = String::from_utf8_lossy(&body[..body.len().min(MOST_OF_BODY)]);
                let why = body.lines().next().unwrap_or_default().trim().replace(|c: char| !harmless(c), "?");
                return Err(["it answers 503", &why].join(if why.is_empty() { "" } else { ": " }));
            }
            other => return Err(format!("it answers {}, not metrics", shown(other))),
        }
        let length = lines
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        if length.is_some_and(|(_, length)| length.trim().parse() != Ok(body.len())) {
            return Err("its answer is cut off".to_owned());
        }
        String::from_utf8(body.to_vec()).map_err(|_| "its answer is not UTF-8".to_owned())
    }

    fn ask(&self) -> io::Result<Vec<u8>> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in self.place.to_socket_addrs()? {
            let due = Instant::now() + PATIENCE;
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(connection) => return talk(connection, &self.place, due),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn talk(mut connection: TcpStream, host: &str, due: Instant) -> io::Result<Vec<u8>> {
    connection.set_write_timeout(Some(PATIENCE))?;
    let request = format!(
        "GET /metrics HTTP/1.0\r\nHost: {host}\r\nAccept: text/plain;version=0.0.4\r\nConnection: close\r\n\r\n"
    );
    connection.write_all(request.as_bytes())?;
    let (mut answer, mut part) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        connection.set_read_timeout(Some(left))?;
        match connection.read(&mut part) {
            Ok(0) => return Ok(answer),
            Ok(read) if answer.len() + read > MOST_HEAD + MOST_BYTES => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "its answer is longer than 8 MiB"));
            }
            Ok(read) => answer.extend_from_slice(&part[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
