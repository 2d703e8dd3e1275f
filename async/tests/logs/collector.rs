//! A minimal collector: it takes one connection and keeps the bytes that come.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub struct Collector {
    pub address: SocketAddr,
    taken: JoinHandle<String>,
}

impl Collector {
    /// Starts a collector that reads until it has seen all of `wanted`, answers, and takes the rest.
    pub fn until(wanted: &'static [&'static str]) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let taken = thread::spawn(move || {
            let (mut connection, _) = listener.accept().expect("a sender");
            // A sender that stops half way is a failure, not a wait for the rest.
            connection.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
            let (mut sent, mut part) = (Vec::new(), [0; 4096]);
            let has =
                |sent: &[u8], what: &str| sent.windows(what.len()).any(|bytes| bytes == what.as_bytes());
            while wanted.iter().any(|what| !has(&sent, what)) {
                let read = connection.read(&mut part).expect("more of it");
                assert!(read > 0, "{}", String::from_utf8_lossy(&sent));
                sent.extend_from_slice(&part[..read]);
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            connection.write_all(answer).expect("it reads");
            _ = connection.read_to_end(&mut sent);
            String::from_utf8_lossy(&sent).into_owned()
        });
        Collector { address, taken }
    }

    /// Returns the bytes that came. The sender must have ended.
    pub fn sent(self) -> String {
        // If no sender has connected, this connection ends the wait.
        drop(TcpStream::connect(self.address));
        self.taken.join().expect("it is sent")
    }
}
