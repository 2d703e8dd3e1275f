//! A folder for volumes, settings for a store, memory to lend.

use kvstrata::ManagerConfig;
use kvstrata::backend::HostArena;
use kvstrata::store::{BatchOptions, Completion, KvStore, Outcome};
use kvstrata_core::SequenceHash;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Bytes of a block.
pub const BYTES: usize = 16 << 10;
/// Within this time everything ends that does end.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The parts of a fingerprint.
pub const FINGERPRINT: &str = "[store]\nmodel = \"m\"\nrevision = \"1\"\ndtype = \"bf16\"\nlayout = \"l\"\nspan = 16\n\
                               ranks = \"0of1\"\n";

pub fn folder() -> TempDir {
    let place = std::env::var_os("KVSTRATA_DISK_DIR").map(PathBuf::from);
    let place = place.unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")));
    tempfile::tempdir_in(place).expect("a directory")
}

/// Settings with a fingerprint; `text` goes on in the section `store`.
pub fn config(text: &str) -> ManagerConfig {
    let all = format!("{FINGERPRINT}{text}");
    ManagerConfig::builder().toml("store.toml", all).build().expect("possible settings")
}

/// Settings of a store of one size over a disk in a folder.
pub fn on_disk(folder: &TempDir, more: &str) -> ManagerConfig {
    let path = folder.path().display();
    config(&format!("sizes = [\"16K\"]\n[disk]\npaths = [\"{path}\"]\nbytes = \"1M\"\nfill = \"no\"\n{more}"))
}

pub fn open(config: &ManagerConfig) -> KvStore {
    KvStore::open(config).expect("a store")
}

pub fn keys(store: &KvStore, numbers: impl IntoIterator<Item = u64>) -> Vec<SequenceHash> {
    numbers.into_iter().map(|number| store.namespace().key(&number.to_le_bytes())).collect()
}

/// The bytes of a key.
pub fn content(number: u64, bytes: usize) -> Vec<u8> {
    let word =
        |at: u64| (number << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23).to_le_bytes();
    (0..bytes.div_ceil(8) as u64).flat_map(word).take(bytes).collect()
}

/// Page-aligned memory with the bytes of keys.
pub fn aligned(numbers: &[u64], bytes: usize) -> Arc<HostArena> {
    let memory = HostArena::new(numbers.len(), bytes).expect("memory");
    for (block, number) in numbers.iter().enumerate() {
        memory.write(block).expect("unused").copy_from_slice(&content(*number, bytes));
    }
    memory
}

/// Memory of any alignment with the bytes of keys.
pub fn unaligned(numbers: &[u64], bytes: usize) -> Arc<HostArena> {
    HostArena::of_buffers(numbers.iter().map(|number| content(*number, bytes)).collect()).expect("memory")
}

/// Runs a future to its end, in time.
pub fn ended<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("in time") })
}

/// Stores the bytes of keys; returns the answers.
pub fn store(store: &KvStore, numbers: &[u64], memory: Arc<HostArena>) -> Vec<Outcome> {
    let keys = keys(store, numbers.iter().copied());
    let batch = store.store(&keys, memory, BatchOptions::default()).expect("begun");
    answers(ended(batch))
}

/// Loads keys into memory; returns the answers.
pub fn load(store: &KvStore, numbers: &[u64], memory: &Arc<HostArena>) -> Vec<Outcome> {
    let keys = keys(store, numbers.iter().copied());
    let batch = store.load(&keys, Arc::clone(memory), BatchOptions::default()).expect("begun");
    answers(ended(batch))
}

fn answers(completion: Option<Completion>) -> Vec<Outcome> {
    completion.expect("an answer").outcomes.into_vec()
}

pub fn forget(store: &KvStore, numbers: &[u64]) -> Vec<Outcome> {
    answers(ended(store.forget(&keys(store, numbers.iter().copied())).expect("begun")))
}

/// Asserts that memory has the bytes of keys.
pub fn check(memory: &Arc<HostArena>, numbers: &[u64]) {
    for (block, number) in numbers.iter().enumerate() {
        let bytes = memory.read(block).expect("given back");
        assert!(*bytes == content(*number, bytes.len())[..], "key {number}");
    }
}

pub fn close(store: &KvStore) {
    ended(store.shutdown());
}
