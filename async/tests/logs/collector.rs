//! As much of a collector as takes what it is sent first.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub struct Collector {
    pub address: SocketAddr,
    taken: JoinHandle<String>,
}

impl Collector {
    /// One that reads until it has all of these, answers, and takes what may follow.
    pub fn until(wanted: &'static [&'static str]) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let taken = thread::spawn(move || {
            let (mut connection, _) = listener.accept().expect("a sender");
            // Half of what it sends is a failure, not a wait for the rest.
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

    /// What it was sent, now that whoever sends has ended.
    pub fn sent(self) -> String {
        // If nothing has come, this ends the wait for it.
        drop(TcpStream::connect(self.address));
        self.taken.join().expect("it is sent")
    }
}
