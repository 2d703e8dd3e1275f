//! Listening addresses as text: an address or a name of this machine, and a port.

use kvstrata_ffi::shown::shown;
use std::net::{SocketAddr, ToSocketAddrs};

/// The allowed texts, in words that follow "give" or "must be".
pub const ALLOWED: &str =
    "a host and port of this machine (0: a free port), such as 127.0.0.1:9400, [::1]:9400 or localhost:9400";

/// Parses an address and a port. A name gives the first address of the system's look-up.
///
/// # Errors
/// The text is no address and port, or the look-up fails. The message names the allowed texts.
pub fn place(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    // Text that cannot be a name is not looked up.
    let (name, port) = text.rsplit_once(':').ok_or_else(|| format!("the port is missing; give {ALLOWED}"))?;
    let part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_');
    if name.is_empty() || !name.chars().all(part) || port.parse::<u16>().is_err() {
        return Err(format!("not a host and a port; give {ALLOWED}"));
    }
    let found = text.to_socket_addrs().map_err(|error| format!("{}; give {ALLOWED}", shown(error)));
    found?.next().ok_or_else(|| format!("the name has no address; give {ALLOWED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_an_address_or_a_name_with_a_port() {
        assert_eq!(place("127.0.0.1:9400"), Ok(SocketAddr::from(([127, 0, 0, 1], 9400))));
        assert_eq!(place("[::1]:0").map(|place| (place.is_ipv6(), place.port())), Ok((true, 0)));
        assert!(place("localhost:9400").is_ok_and(|place| place.ip().is_loopback() && place.port() == 9400));
        for wrong in ["9400", "127.0.0.1", "127.0.0.1:66666", "", ":9400", "a b:1", "\u{1b}]0;x:1", "::1:x"] {
            let error = place(wrong).expect_err("no place");
            assert!(error.contains("as 127.0.0.1:9400"), "{wrong:?}: {error}");
        }
    }
}
