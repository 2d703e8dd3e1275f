//! Properties of any input from outside: settings, exposition text, HTTP heads, tables of costs. The fuzz
//! targets of the same names call these functions, guided by coverage.

use kvstrata::backend::costs;
use kvstrata::config::ManagerConfig;
use kvstrata::metrics::{HeadReader, MOST_BYTES, TooLong};
use kvstrata_cli::top::{Exposition, Look, Watch};
use kvstrata_ffi::cuda::{CopyCosts, Direction, Fragments, Route};
use kvstrata_ffi::shown::is_shown;
use std::time::{Duration, Instant};

fn assert_harmless(text: &str) {
    assert!(!text.is_empty() && text.chars().all(|c| c == '\n' || is_shown(c)), "{text:?}");
}

/// Settings: refused with messages free of control characters, or a configuration that reads back as written.
pub fn settings(bytes: &[u8]) {
    let name = "\u{1b}]0;x\u{7}.toml";
    // The system would resolve a host name, and might wait for a server.
    if String::from_utf8_lossy(bytes).contains("listen") {
        return;
    }
    match ManagerConfig::builder().toml(name, bytes).build() {
        Ok(config) => {
            assert_harmless(&config.to_string());
            let text = config.to_toml();
            let again = ManagerConfig::builder().toml(name, &text).build();
            let again = again.unwrap_or_else(|error| panic!("what is written is read: {error}\n{text}"));
            assert_eq!(again, config, "{text}");
            assert_eq!(again.to_toml(), text);
        }
        Err(error) => {
            assert_harmless(&error.to_string());
            assert_eq!(error.to_string().lines().count(), error.faults().len(), "a line each: {error}");
        }
    }
}

/// An answer of a manager's endpoint: refused by line, or shown without control characters.
pub fn exposition(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Exposition::parse(text) {
        Ok(read) => {
            for (_, value) in read.samples("kvstrata_tier_blocks") {
                assert!((0.0..=u64::MAX as f64).contains(&value), "{value}");
            }
        }
        Err(refused) => {
            assert_harmless(&refused.to_string());
            assert!((1..=text.split_inclusive('\n').count().max(1)).contains(&refused.line), "{refused}");
        }
    }
    let began = Instant::now();
    let second = Duration::from_secs(1);
    let mut watch = Watch::new("worker-3:9400", second, began);
    for at in [began, began + second] {
        if let Err(why) = watch.take(text, at..at) {
            assert_harmless(&why);
        }
    }
    let view = watch.view(began + second);
    for (columns, rows) in [(80, 24), (120, 60), (20, 5)] {
        let lines = view.lines(Look { colour: false, ascii: false, keys: false }, columns, rows);
        assert!(lines.len() <= usize::from(rows));
        assert!(lines.iter().all(|line| line.to_string().chars().all(is_shown)), "{lines:?}");
    }
}

/// The head of a request: parsed the same in pieces of any size; the first two bytes give the sizes.
pub fn head(bytes: &[u8]) {
    let [cut, more, bytes @ ..] = bytes else { return };
    let whole = HeadReader::default().push(bytes);
    for step in [1, 1 + usize::from(*cut), 1 + 16 * usize::from(*more)] {
        let mut reader = HeadReader::default();
        assert_eq!(bytes.chunks(step).find_map(|part| reader.push(part)), whole, "by {step}");
    }
    match whole {
        None => assert!(bytes.len() <= MOST_BYTES, "more than that is never waited for"),
        Some(Err(TooLong)) => assert!(bytes.len() > MOST_BYTES),
        Some(Ok(head)) => {
            assert!(!head.path.contains([' ', '?', '\r', '\n']) && !head.method.contains([' ', '\r', '\n']));
        }
    }
}

/// Stored costs of a device: refused, or costs that give estimates and are written back unchanged.
pub fn costs(bytes: &[u8]) {
    let uuid = "GPU-00112233-4455-6677-8899-aabbccddeeff";
    let read = match costs::parse(bytes, uuid) {
        Ok(read) => read,
        Err(why) => return assert_harmless(&why),
    };
    assert_harmless(&read.source().to_string());
    for direction in Direction::ALL {
        assert!(read.ctas(direction, 132) > 0);
        for (size, count) in
            CopyCosts::SIZES.into_iter().flat_map(|size| CopyCosts::COUNTS.map(|count| (size, count)))
        {
            let fragments = Fragments { pieces: count, bytes: size * count, families: count, width: 4 };
            for route in Route::ALL {
                let _ = read.estimate(direction, route, fragments);
            }
            let _ = read.choose(direction, fragments, |_| true);
        }
    }
    let text = costs::text(uuid, &read).expect("measured ones are stored");
    assert_eq!(costs::parse(&text, uuid).expect("what is written is read"), read);
}
