//! Each kind of store: the same tests over all of them.

use crate::ground::{
    BYTES, aligned, check, close, config, content, ended, folder, forget, keys, load, on_disk, open, store,
    unaligned,
};
use kvstrata::Tier;
use kvstrata::backend::HostArena;
use kvstrata::store::{BatchOptions, Kind, KvStore, Miss, Outcome, SubmitError, Until};
use std::sync::Arc;

/// Runs a test over each kind of store.
fn over_each(test: impl Fn(&KvStore)) {
    let key: String = (0..32).map(|byte| format!("{byte:02x}")).collect();
    let kinds = [
        ("host", "sizes = [\"16K\"]\n[host]\nbytes = \"1M\"".to_owned()),
        ("disk", "[disk]\nbytes = \"1M\"\n[geometry]\nblock_bytes = \"16K\"".to_owned()),
        ("both", "sizes = [\"16K\"]\n[host]\nbytes = \"128K\"\n[disk]\nbytes = \"1M\"".to_owned()),
        ("sizes", "sizes = [\"4K\", \"16K\"]\n[disk]\nbytes = \"2M\"".to_owned()),
        ("threads", "sizes = [\"16K\"]\n[disk]\nbytes = \"1M\"\nbackend = \"threads\"".to_owned()),
        ("few", "sizes = [\"16K\"]\n[disk]\nbytes = \"1M\"\nstaging = 2\n[runtime]\nthreads = 1".to_owned()),
    ];
    for (kind, text) in kinds {
        println!("{kind}");
        let store = open(&config(&text));
        test(&store);
        close(&store);
    }
    println!("encrypted");
    let folder = folder();
    let file = folder.path().join("key");
    std::fs::write(&file, key).expect("written");
    set_private(&file);
    let more = format!("key_file = \"{}\"", file.display());
    let store = open(&on_disk(&folder, &more));
    test(&store);
    close(&store);
}

fn set_private(file: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).expect("changed");
}

#[test]
fn stored_bytes_are_loaded_into_any_memory() {
    over_each(|of| {
        let numbers: Vec<u64> = (0..12).collect();
        let stored = store(of, &numbers[..6], aligned(&numbers[..6], BYTES));
        assert!(stored.iter().all(|outcome| matches!(outcome, Outcome::Stored(_))), "{stored:?}");
        let stored = store(of, &numbers[6..], unaligned(&numbers[6..], BYTES));
        assert!(stored.iter().all(|outcome| matches!(outcome, Outcome::Stored(_))), "{stored:?}");
        let names = keys(of, numbers.iter().copied());
        assert_eq!(of.leading(&names), numbers.len());
        for memory in [aligned(&[99; 12], BYTES), unaligned(&[99; 12], BYTES)] {
            let loaded = load(of, &numbers, &memory);
            assert!(loaded.iter().all(|outcome| matches!(outcome, Outcome::Loaded(_))), "{loaded:?}");
            check(&memory, &numbers);
        }
    });
}

#[test]
fn each_key_of_a_batch_has_its_own_answer() {
    over_each(|of| {
        store(of, &[1, 3], aligned(&[1, 3], BYTES));
        assert_eq!(store(of, &[1, 3], aligned(&[1, 3], BYTES)), [Outcome::Present; 2]);
        let memory = aligned(&[7; 4], BYTES);
        let loaded = load(of, &[1, 2, 3, 4], &memory);
        assert!(loaded[0].is_done() && loaded[2].is_done());
        assert_eq!([loaded[1], loaded[3]], [Outcome::Absent; 2]);
        // The memory of absent keys is as it was.
        check(&memory, &[1, 7, 3, 7]);
        let all = keys(of, 1..=4);
        assert_eq!((of.leading(&all), all.iter().filter(|key| of.contains(**key)).count()), (1, 2));
    });
}

#[test]
fn entries_are_shorter_than_blocks_too() {
    over_each(|of| {
        for (number, bytes) in [(1, 1), (2, 100), (3, 4096), (4, 4097), (5, 8192), (6, BYTES - 1)] {
            for (shift, memory) in [(0, aligned(&[number], bytes)), (10, unaligned(&[number], bytes))] {
                let number = number + shift;
                let outcome = store(of, &[number], memory)[0];
                assert!(matches!(outcome, Outcome::Stored(_)), "{bytes}: {outcome:?}");
                let key = keys(of, [number])[0];
                assert_eq!(of.find(key).map(|found| found.bytes), Some(bytes));
                let to = HostArena::new(1, bytes).expect("memory");
                assert!(load(of, &[number], &to)[0].is_done());
                assert!(*to.read(0).expect("given back") == content(number - shift, bytes)[..]);
            }
        }
    });
}

#[test]
fn wrong_length_is_a_miss_and_the_entry_stays() {
    over_each(|of| {
        store(of, &[1], aligned(&[1], 8192));
        let memory = aligned(&[2], 8191);
        assert_eq!(load(of, &[1], &memory), [Outcome::Missed(Miss::Length)]);
        check(&memory, &[2]);
        assert_eq!(store(of, &[1], aligned(&[1], 8191)), [Outcome::Missed(Miss::Length)]);
        let long = aligned(&[2], BYTES + 1);
        assert_eq!(store(of, &[2], long), [Outcome::Missed(Miss::TooLong)]);
        let memory = aligned(&[2], 8192);
        assert!(load(of, &[1], &memory)[0].is_done());
        check(&memory, &[1]);
    });
}

#[test]
fn key_has_one_length_in_all_size_classes() {
    let of = open(&config("sizes = [\"4K\", \"16K\"]\n[disk]\nbytes = \"2M\""));
    store(&of, &[1], aligned(&[1], BYTES));
    assert_eq!(store(&of, &[1], aligned(&[1], 100)), [Outcome::Missed(Miss::Length)]);
    assert_eq!(load(&of, &[1], &aligned(&[2], 100)), [Outcome::Missed(Miss::Length)]);
    assert_eq!(of.find(keys(&of, [1])[0]).map(|found| found.bytes), Some(BYTES));
    assert_eq!(forget(&of, &[1]), [Outcome::Forgotten]);
    assert!(matches!(store(&of, &[1], aligned(&[1], 100))[0], Outcome::Stored(_)));
    close(&of);
}

#[test]
fn forgotten_keys_are_not_found_and_can_be_stored_again() {
    over_each(|of| {
        store(of, &[1, 2], aligned(&[1, 2], BYTES));
        assert_eq!(forget(of, &[1, 5]), [Outcome::Forgotten, Outcome::Absent]);
        let names = keys(of, [1, 2]);
        assert_eq!([of.contains(names[0]), of.contains(names[1])], [false, true]);
        let memory = aligned(&[9], BYTES);
        assert_eq!(load(of, &[1], &memory), [Outcome::Absent]);
        assert!(matches!(store(of, &[1], aligned(&[1], BYTES))[0], Outcome::Stored(_)));
        assert!(load(of, &[1], &memory)[0].is_done());
        check(&memory, &[1]);
    });
}

#[test]
fn full_store_evicts_the_oldest() {
    over_each(|of| {
        let capacity: u64 = of
            .stats()
            .classes
            .iter()
            .map(|class| class.host_blocks[0].max(class.below_blocks[0]))
            .max()
            .expect("a class");
        for number in 0..capacity + 8 {
            assert!(store(of, &[number], aligned(&[number], BYTES))[0].is_done(), "{number}");
        }
        let there: Vec<bool> = keys(of, 0..capacity + 8).into_iter().map(|key| of.contains(key)).collect();
        assert!(there.iter().filter(|there| **there).count() as u64 <= capacity);
        assert!(!there[0] && there[there.len() - 1]);
    });
}

#[test]
fn several_loads_of_one_key_read_it_once() {
    let folder = folder();
    let of = open(&on_disk(&folder, ""));
    store(&of, &[1], aligned(&[1], BYTES));
    let (key, memory) = (keys(&of, [1; 8]), aligned(&[2; 8], BYTES));
    let batch = of.load(&key, Arc::clone(&memory), BatchOptions::default()).expect("begun");
    assert!(ended(batch).expect("an answer").is_done());
    check(&memory, &[1; 8]);
    let stats = of.stats();
    assert_eq!((stats.joined, stats.straight + stats.staged), (7, 2), "a write, and one read");
    close(&of);
}

#[test]
fn store_until_host_is_answered_before_the_disk() {
    let of = open(&config("sizes = [\"16K\"]\n[host]\nbytes = \"1M\"\n[disk]\nbytes = \"1M\""));
    let (key, memory) = (keys(&of, [1]), aligned(&[1], BYTES));
    let options = BatchOptions::default().until(Until::Host);
    let ended = ended(of.store(&key, memory, options).expect("begun")).expect("an answer");
    assert_eq!((ended.kind, &*ended.outcomes), (Kind::Store, &[Outcome::Stored(Tier::Host)][..]));
    assert_eq!(of.find(key[0]).map(|found| found.tier), Some(Tier::Host));
    close(&of);
}

#[test]
fn batches_must_have_a_block_for_each_key() {
    let of = open(&config("sizes = [\"16K\"]\n[host]\nbytes = \"1M\""));
    let refused = of.store(&keys(&of, [1, 2]), aligned(&[1], BYTES), BatchOptions::default());
    assert_eq!(refused.err(), Some(SubmitError::Lengths { keys: 2, blocks: 1 }));
    let nothing = of.forget(&[]).expect("begun");
    assert_eq!(ended(nothing).expect("an answer").outcomes.len(), 0);
    close(&of);
    let closed = of.load(&keys(&of, [1]), aligned(&[1], BYTES), BatchOptions::default());
    assert_eq!(closed.err(), Some(SubmitError::Closed));
}
