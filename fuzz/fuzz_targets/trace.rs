//! A trace of any bytes, compressed or not, is read to its end or refused with a message; never a panic,
//! never memory without bound (libFuzzer's limit checks this).
#![no_main]

use kvstrata_cli::trace::{TraceReader, TraceSource};
use libfuzzer_sys::fuzz_target;
use std::io::Write;
use std::path::PathBuf;
use std::sync::LazyLock;

/// The reader opens files, so the bytes go into a file of this process alone.
static FILE: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("kvstrata-fuzz-trace-{}", std::process::id())));

fuzz_target!(|bytes: &[u8]| {
    std::fs::File::create(&*FILE).and_then(|mut file| file.write_all(bytes)).expect("a temporary file");
    let mut reader = TraceReader::open(TraceSource::File(FILE.clone())).expect("a readable file opens");
    std::fs::remove_file(&*FILE).expect("it is open, and needs no name any more");

    let mut requests = 0;
    loop {
        match reader.next_request() {
            Ok(Some(request)) => {
                requests += 1;
                assert!(request.timestamp >= 0.0 && request.timestamp.is_finite());
            }
            Ok(None) => break,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                break;
            }
        }
    }
    assert!(reader.line() >= requests, "a request is a line");
    assert!(reader.consumed_bytes() <= bytes.len() as u64);
});
