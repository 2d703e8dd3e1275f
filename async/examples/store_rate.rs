//! The rate of the keyed store, for `ffi/python/benches/rate.py`, which compares the Python module with it.
//!
//! Argument: a folder, or `host`. For each line of standard input it runs one round: it stores 1,000 keys of
//! 64 KiB in ten batches, loads them, forgets them, and prints the seconds of the stores and of the loads.

use kvstrata::backend::HostArena;
use kvstrata::store::{Batch, BatchOptions, KvStore, SubmitError};
use kvstrata::{ManagerConfig, SequenceHash};
use std::error::Error;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

const BYTES: usize = 64 << 10;
const BATCHES: usize = 10;
const KEYS: usize = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let place = std::env::args().nth(1).ok_or("give a folder, or the word host")?;
    let builder = ManagerConfig::builder()
        .store_sizes(vec![BYTES as u64])
        .store_model(Some("a model".into()))
        .store_revision(Some("1".into()))
        .store_dtype(Some("bfloat16".into()))
        .store_layout(Some("a layout".into()))
        .store_span(Some(16))
        .store_ranks(Some("tp0of1".into()));
    let builder = match place.as_str() {
        "host" => builder.host_bytes(Some(128 << 20)),
        folder => builder.disk_bytes(Some(128 << 20)).disk_paths(vec![PathBuf::from(folder)]),
    };
    let store = KvStore::open(&builder.build()?)?;
    let memory: Vec<_> = (0..BATCHES).map(|_| HostArena::new(KEYS, BYTES)).collect::<Result<_, _>>()?;
    for arena in &memory {
        for block in 0..KEYS {
            arena.write(block)?.fill(block as u8);
        }
    }
    let mut out = std::io::stdout().lock();
    for (round, line) in std::io::stdin().lock().lines().enumerate() {
        line?;
        let names: Vec<_> = (0..BATCHES).map(|batch| names(round, batch)).collect();
        let keys = |batch: usize| keys(&store, &names[batch]);
        let began = Instant::now();
        all(|batch| store.store(&keys(batch), Arc::clone(&memory[batch]), BatchOptions::default())).await?;
        let stored = began.elapsed();
        let began = Instant::now();
        all(|batch| store.load(&keys(batch), Arc::clone(&memory[batch]), BatchOptions::default())).await?;
        let loaded = began.elapsed();
        all(|batch| store.forget(&keys(batch))).await?;
        writeln!(out, "{} {}", stored.as_secs_f64(), loaded.as_secs_f64())?;
        out.flush()?;
    }
    store.shutdown().await;
    Ok(())
}

/// An engine's keys.
fn names(round: usize, batch: usize) -> Vec<String> {
    (0..KEYS).map(|key| format!("an engine's key {round} {batch} {key}")).collect()
}

/// The store's keys of an engine's.
fn keys(store: &KvStore, names: &[String]) -> Vec<SequenceHash> {
    names.iter().map(|name| store.namespace().key(name.as_bytes())).collect()
}

/// Submits all batches, then waits for their ends.
async fn all(submit: impl Fn(usize) -> Result<Batch, SubmitError>) -> Result<(), Box<dyn Error>> {
    let batches: Vec<Batch> = (0..BATCHES).map(submit).collect::<Result<_, _>>()?;
    for batch in batches {
        let ended = batch.await.ok_or("the store ended")?;
        if !ended.is_done() {
            return Err(format!("a key was not done: {:?}", ended.outcomes).into());
        }
    }
    Ok(())
}
