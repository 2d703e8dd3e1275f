//! The checks of the fuzz targets, over seeds and damaged seeds, without a fuzzer or a nightly toolchain.
#![cfg(target_os = "linux")]

mod checks;

use proptest::prelude::*;
use std::path::PathBuf;

/// The seeds of a fuzz target.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{}: no seeds", folder.display());
    paths.iter().map(|path| std::fs::read(path).expect("a seed")).collect()
}

/// A change of an input: replaces `length` bytes at `at` with other bytes.
#[derive(Debug, Clone)]
struct Edit {
    at: prop::sample::Index,
    length: usize,
    with: Vec<u8>,
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let words: Vec<&'static [u8]> = vec![
        b"\x1b]0;x\x07",
        b"\"",
        b"\\",
        b"=",
        b"[[",
        b"]]",
        b"\n",
        b"\r\n\r\n",
        b"-1",
        b"1e999",
        b"NaN",
        b"18446744073709551616",
        b"null",
        b"{",
        b"}",
        b",",
        b"\0",
        b"\xff",
        "\u{202e}".as_bytes(),
        b"[[tenant]]\nname = \"a\"\n",
        b"99999999T",
    ];
    let with = prop_oneof![
        prop::sample::select(words).prop_map(<[u8]>::to_vec),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    let edit = (any::<prop::sample::Index>(), 0_usize..12, with);
    prop::collection::vec(edit.prop_map(|(at, length, with)| Edit { at, length, with }), 0..6)
}

/// A seed after the edits.
fn damaged(target: &str, seed: prop::sample::Index, edits: &[Edit]) -> Vec<u8> {
    let all = seeds(target);
    let mut bytes = seed.get(&all).clone();
    for Edit { at, length, with } in edits {
        let at = at.index(bytes.len() + 1);
        let end = (at + length).min(bytes.len());
        bytes.splice(at..end, with.iter().copied());
    }
    bytes
}

#[test]
fn seeds_of_each_target_hold() {
    seeds("settings").iter().for_each(|bytes| checks::settings(bytes));
    seeds("exposition").iter().for_each(|bytes| checks::exposition(bytes));
    seeds("head").iter().for_each(|bytes| checks::head(bytes));
    seeds("costs").iter().for_each(|bytes| checks::costs(bytes));
}

/// If no seed were accepted, the checks would only test refusals.
#[test]
fn valid_seeds_are_accepted() {
    let uuid = "GPU-00112233-4455-6677-8899-aabbccddeeff";
    assert!(seeds("costs").iter().any(|bytes| kvstrata::backend::costs::parse(bytes, uuid).is_ok()));
    let builds =
        |bytes: &Vec<u8>| kvstrata::config::ManagerConfig::builder().toml("s.toml", bytes).build().is_ok();
    assert!(seeds("settings").iter().any(builds));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn damaged_settings_hold(seed: prop::sample::Index, edits in edits()) {
        checks::settings(&damaged("settings", seed, &edits));
    }

    #[test]
    fn damaged_expositions_hold(seed: prop::sample::Index, edits in edits()) {
        checks::exposition(&damaged("exposition", seed, &edits));
    }

    #[test]
    fn damaged_heads_hold(seed: prop::sample::Index, edits in edits()) {
        checks::head(&damaged("head", seed, &edits));
    }

    #[test]
    fn damaged_costs_hold(seed: prop::sample::Index, edits in edits()) {
        checks::costs(&damaged("costs", seed, &edits));
    }
}
