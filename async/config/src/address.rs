//! Where something listens, as people type it: an address, or a name of this machine, and a port.

use kvstrata_ffi::shown::shown;
use std::net::{SocketAddr, ToSocketAddrs};

/// What is allowed, to be said behind "give" or "must be".
pub const ALLOWED: &str = "an address of this machine, or a name that it knows, and a port (0: a free one), as 127.0.0.1:9400, [::1]:9400 or localhost:9400";

/// An address and a port; of a name the first address that it has, by the system's look-up.
pub fn place(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    // What can be no name is not looked up.
    let (name, port) = text.rsplit_once(':').ok_or_else(|| format!("no port; give {ALLOWED}"))?;
    let part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_');
    if name.is_empty() || !name.chars().all(part) || port.parse::<u16>().is_err() {
        return Err(format!("no address and port; give {ALLOWED}"));
    }
    let found = text.to_socket_addrs().map_err(|error| format!("{}; give {ALLOWED}", shown(error)));
    found?.next().ok_or_else(|| format!("the name has no address; give {ALLOWED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_address_or_a_name_and_a_port() {
        assert_eq!(place("127.0.0.1:9400"), Ok(SocketAddr::from(([127, 0, 0, 1], 9400))));
        assert_eq!(place("[::1]:0").map(|place| (place.is_ipv6(), place.port())), Ok((true, 0)));
        assert!(place("localhost:9400").is_ok_and(|place| place.ip().is_loopback() && place.port() == 9400));
        for wrong in ["9400", "127.0.0.1", "127.0.0.1:66666", "", ":9400", "a b:1", "\u{1b}]0;x:1", "::1:x"] {
            let error = place(wrong).expect_err("no place");
            assert!(error.contains("as 127.0.0.1:9400"), "{wrong:?}: {error}");
        }
    }
}
