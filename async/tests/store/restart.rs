//! The next process over the same volumes.

use crate::ground::{
    BYTES, FINGERPRINT, aligned, check, close, folder, forget, keys, load, on_disk, open, store, unaligned,
};
use kvstrata::ManagerConfig;
use kvstrata::store::{KvStore, Miss, Outcome, SubmitError};
use kvstrata_testing::forked;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use tempfile::TempDir;

/// The file of a store in a folder.
fn file(folder: &TempDir) -> PathBuf {
    let files = fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut files = files.filter(|path| path.extension().is_some_and(|extension| extension == "kvs"));
    files.next().expect("the volume")
}

/// Flips a bit of the payload that begins with these bytes.
fn damage(file: &PathBuf, payload: &[u8]) {
    let bytes = fs::read(file).expect("the volume");
    let at = bytes.windows(64).position(|window| window == &payload[..64]).expect("the payload") as u64 + 40;
    let open = File::options().write(true).open(file).expect("the volume");
    open.write_all_at(&[bytes[at as usize] ^ 4], at).expect("written");
}

#[test]
fn next_store_finds_all_entries() {
    let folder = folder();
    let numbers: Vec<u64> = (0..20).collect();
    let of = open(&on_disk(&folder, ""));
    store(&of, &numbers, aligned(&numbers, BYTES));
    store(&of, &[50, 51], unaligned(&[50, 51], 777));
    forget(&of, &[3]);
    close(&of);
    drop(of);
    let of = open(&on_disk(&folder, ""));
    let found: Vec<_> = keys(&of, 0..20).iter().map(|key| of.contains(*key)).collect();
    assert!((0..20).all(|number| found[number] == (number != 3)));
    let memory = aligned(&[99; 20], BYTES);
    load(&of, &numbers, &memory);
    check(&memory, &[0, 1, 2, 99, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
    let short = unaligned(&[99; 2], 777);
    assert!(load(&of, &[50, 51], &short).iter().all(|outcome| outcome.is_done()));
    check(&short, &[50, 51]);
    close(&of);
}

#[test]
fn another_fingerprint_finds_nothing() {
    let folder = folder();
    let of = open(&on_disk(&folder, ""));
    store(&of, &[1], aligned(&[1], BYTES));
    close(&of);
    drop(of);
    let same = on_disk(&folder, "");
    let lines = FINGERPRINT.lines().skip(1).chain(["lora = \"none at first\"", "salt = \"none at first\""]);
    for line in lines {
        let (field, _) = line.split_once(" = ").expect("a setting");
        let value = if field == "span" { "17" } else { "\"other\"" };
        let changed: Vec<String> = same
            .to_toml()
            .lines()
            .scan(false, |within, line| {
                *within = if line.starts_with('[') { line == "[store]" } else { *within };
                let is_it = *within && line.starts_with(&format!("{field} = "));
                Some(if is_it { format!("{field} = {value}") } else { line.to_owned() })
            })
            .collect();
        let other =
            ManagerConfig::builder().toml("other.toml", changed.join("\n")).build().expect("possible");
        assert_ne!(other, same, "{field}");
        // Ranks are part of the file's name: the other process has a file of its own.
        let of = open(&other);
        assert!(!of.contains(keys(&of, [1])[0]), "{field}");
        let memory = aligned(&[9], BYTES);
        assert_eq!(load(&of, &[1], &memory), [Outcome::Absent], "{field}");
        close(&of);
    }
    let of = open(&same);
    assert!(of.contains(keys(&of, [1])[0]), "the first one still finds it");
    close(&of);
}

#[test]
fn damaged_entries_are_misses_and_others_stay_good() {
    let folder = folder();
    let numbers: Vec<u64> = (0..10).collect();
    let of = open(&on_disk(&folder, ""));
    store(&of, &numbers, aligned(&numbers, BYTES));
    close(&of);
    drop(of);
    for number in [2, 7] {
        damage(&file(&folder), &crate::ground::content(number, BYTES));
    }
    let of = open(&on_disk(&folder, ""));
    let memory = aligned(&[99; 10], BYTES);
    let loaded = load(&of, &numbers, &memory);
    for number in 0..10 {
        let is_damaged = [2, 7].contains(&number);
        assert_eq!(loaded[number].is_done(), !is_damaged, "{loaded:?}");
    }
    assert!(matches!(loaded[2], Outcome::Missed(Miss::Failed(_))));
    // From then on they are not there, so that no caller asks for them again.
    let names = keys(&of, [2, 7]);
    assert!(!of.contains(names[0]) && !of.contains(names[1]));
    assert_eq!(load(&of, &[2], &aligned(&[99], BYTES)), [Outcome::Absent]);
    // And can be stored anew.
    assert!(matches!(store(&of, &[2], aligned(&[2], BYTES))[0], Outcome::Stored(_)));
    close(&of);
}

#[test]
fn dropped_store_leaves_a_volume_that_opens() {
    let folder = folder();
    let of = open(&on_disk(&folder, ""));
    store(&of, &[1, 2], aligned(&[1, 2], BYTES));
    let writing = of.store(&keys(&of, 3..9), aligned(&[3, 4, 5, 6, 7, 8], BYTES), Default::default());
    drop(writing.expect("begun"));
    drop(of);
    // The volume closes on a thread of its own.
    let config = on_disk(&folder, "");
    let of = (0..600).find_map(|_| match KvStore::open(&config) {
        Ok(store) => Some(store),
        Err(error) => {
            assert!(error.to_string().contains("has the file open"), "{error}");
            std::thread::park_timeout(std::time::Duration::from_millis(50));
            None
        }
    });
    let of = of.expect("it opens");
    let memory = aligned(&[99; 8], BYTES);
    let loaded = load(&of, &[1, 2, 3, 4, 5, 6, 7, 8], &memory);
    for (at, outcome) in loaded.iter().enumerate() {
        let there = if outcome.is_done() { at as u64 + 1 } else { 99 };
        let bytes = memory.read(at).expect("given back");
        assert!(*bytes == crate::ground::content(there, BYTES)[..]);
    }
    assert!(loaded[0].is_done() && loaded[1].is_done());
    close(&of);
}

#[test]
fn forked_child_gets_errors_and_does_not_hang() {
    let folder = folder();
    let of = open(&on_disk(&folder, ""));
    store(&of, &[1], aligned(&[1], BYTES));
    let key = keys(&of, [1]);
    let memory = aligned(&[1], BYTES);
    let child = || {
        assert_eq!(of.load(&key, memory, Default::default()).err(), Some(SubmitError::Forked));
        assert!(!of.contains(key[0]) && of.stats().stored == 0);
        drop(of.clone());
    };
    assert_eq!(forked::in_child(child), Ok(()));
    assert!(of.contains(key[0]));
    close(&of);
}
