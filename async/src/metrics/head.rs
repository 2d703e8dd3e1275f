//! Reads the head of an HTTP request from an untrusted client, in one piece or byte by byte.
//!
//! The two paths of the endpoint need only the method and the path. The rest of the head is read and ignored.
//!
//! Invariants
//! - I1: at most [`MOST_BYTES`] are kept, and each byte is examined once, however the head is divided into
//!   pieces.
//! - I2: the result does not depend on the division into pieces.

/// The most bytes of a head.
pub const MOST_BYTES: usize = 8 << 10;

/// Method and path of a request; empty where the head has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Head {
    /// The method, such as `GET`.
    pub method: String,
    /// The path, without the host of a proxy request and without the query.
    pub path: String,
}

/// The head has no end within its first [`MOST_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// Reads a head piece by piece.
#[derive(Debug, Clone, Default)]
pub struct HeadReader {
    bytes: Vec<u8>,
}

impl HeadReader {
    /// Takes the next bytes. Returns none while the head is incomplete.
    ///
    /// # Errors
    /// [`TooLong`]: the head exceeds [`MOST_BYTES`].
    pub fn push(&mut self, part: &[u8]) -> Option<Result<Head, TooLong>> {
        // The end may have begun in the bytes before.
        let from = self.bytes.len().saturating_sub(3);
        let room = MOST_BYTES - self.bytes.len();
        self.bytes.extend_from_slice(&part[..part.len().min(room)]);
        let is_end = |at: &usize| {
            let rest = &self.bytes[*at..];
            rest.starts_with(b"\r\n\r\n") || rest.starts_with(b"\n\n")
        };
        match (from..self.bytes.len()).find(is_end) {
            Some(_) => Some(Ok(Head::of(&self.bytes))),
            None if part.len() > room => Some(Err(TooLong)),
            None => None,
        }
    }
}

impl Head {
    fn of(bytes: &[u8]) -> Head {
        let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        // A proxy request has the host before the path.
        let of_host = target.strip_prefix("http://");
        let target = of_host.map_or(target, |rest| rest.find('/').map_or("/", |at| &rest[at..]));
        let path = target.split('?').next().unwrap_or_default();
        Head { method: method.to_owned(), path: path.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The simplest reader: it searches all bytes up to the limit.
    fn naive(bytes: &[u8]) -> Option<Result<Head, TooLong>> {
        let kept = &bytes[..bytes.len().min(MOST_BYTES)];
        let ends = |end: &[u8]| kept.windows(end.len()).any(|window| window == end);
        if ends(b"\r\n\r\n") || ends(b"\n\n") {
            return Some(Ok(Head::of(kept)));
        }
        (bytes.len() > MOST_BYTES).then_some(Err(TooLong))
    }

    fn in_pieces(bytes: &[u8], cuts: &[usize]) -> Option<Result<Head, TooLong>> {
        let (mut reader, mut rest) = (HeadReader::default(), bytes);
        for cut in cuts.iter().cycle().take(bytes.len() + cuts.len()) {
            let (part, behind) = rest.split_at((*cut).min(rest.len()));
            if let Some(read) = reader.push(part) {
                return Some(read);
            }
            rest = behind;
        }
        reader.push(rest)
    }

    #[test]
    fn request_is_its_method_and_path() {
        let of = |text: &str| match HeadReader::default().push(text.as_bytes()) {
            Some(Ok(Head { method, path })) => (method, path),
            other => panic!("{other:?}"),
        };
        for (text, method, path) in [
            ("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n", "GET", "/metrics"),
            ("HEAD /healthz?a=b HTTP/1.0\n\n", "HEAD", "/healthz"),
            ("GET http://here:1/metrics HTTP/1.1\r\n\r\n", "GET", "/metrics"),
            ("GET http://here HTTP/1.1\r\n\r\n", "GET", "/"),
            ("GET\r\n\r\n", "GET", ""),
            ("\r\n\r\n", "", ""),
            ("GET /\u{1b}[2J x\n\nbody", "GET", "/\u{1b}[2J"),
        ] {
            assert_eq!(of(text), (method.to_owned(), path.to_owned()), "{text:?}");
        }
        assert_eq!(HeadReader::default().push(b"GET / HTTP/1.1\r\n"), None);
        let long = [b"GET /", &[b'x'; MOST_BYTES][..]].concat();
        assert_eq!(HeadReader::default().push(&long), Some(Err(TooLong)));
        assert_eq!(HeadReader::default().push(&long[..MOST_BYTES]), None);
    }

    proptest! {
        #[test]
        fn head_is_the_same_however_it_is_cut(
            line in "(GET|HEAD|POST|x)? ?(http://)?[/a-z?\u{1b}é ]{0,20}",
            fill in 0_usize..2 * MOST_BYTES,
            end in "(\r|\n){0,6}",
            cuts in proptest::collection::vec(1_usize..3000, 1..8),
        ) {
            let bytes = [line.as_bytes(), b"\r\nX: ", &vec![b'x'; fill], end.as_bytes()].concat();
            prop_assert_eq!(in_pieces(&bytes, &cuts), naive(&bytes));
        }
    }
}
