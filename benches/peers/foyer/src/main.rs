//! foyer's disk cache as a worker of the disk bench (its lines are in `benches/src/disk/worker.rs`).
//!
//! Disk only: values go by the storage writer, which keeps none in memory, and come back by
//! `Store::load`. O_DIRECT, its io_uring engine, its checksums. Its buffers hold twice the values in
//! flight, so that it drops none; values that it drops all the same are not counted.

use bytes::Bytes;
use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder, IoEngineConfig, Load,
    RecoverMode, UringIoEngineConfig,
};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use kvstrata_benches::disk::Failure;
use kvstrata_benches::disk::files::cpu_seconds;
use kvstrata_benches::inputs::mix;
use serde_json::{Value, json};
use std::env;
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

const USAGE: &str = "foyer_disk DIRECTORY BLOCK_BYTES FOOTPRINT_BYTES";
const DEPTH: usize = 32;

type Cache = HybridCache<u64, Bytes>;

struct Peer {
    cache: Cache,
    block_bytes: usize,
    /// Cloned for a write without a copy; foyer makes one, into its buffer.
    payload: Bytes,
    /// Keys are numbers, the newest is the last.
    written: u64,
    /// At least so many of the newest are still there.
    kept: u64,
}

fn main() -> Result<(), Failure> {
    let mut arguments = env::args().skip(1);
    let mut next = || arguments.next().ok_or(USAGE);
    let (directory, block_bytes, footprint): (String, usize, usize) =
        (next()?, next()?.parse()?, next()?.parse()?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut peer = match runtime.block_on(Peer::new(&directory, block_bytes, footprint)) {
        Ok(peer) => peer,
        Err(error) => {
            println!("{}", json!({ "skip": format!("cannot be built: {error}") }));
            return Ok(());
        }
    };
    say(&json!({ "ready": "foyer 0.22.6, io_uring" }))?;
    for line in std::io::stdin().lock().lines() {
        let answer = runtime.block_on(peer.turn(&line?));
        say(&answer.unwrap_or_else(|error| json!({ "error": error.to_string() })))?;
    }
    Ok(())
}

fn say(what: &Value) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{what}")?;
    Ok(out.flush()?)
}

impl Peer {
    async fn new(directory: &str, block_bytes: usize, footprint: usize) -> Result<Peer, Failure> {
        let device = FsDeviceBuilder::new(directory).with_capacity(footprint).with_direct(true).build()?;
        let in_flight = (2 * DEPTH * (block_bytes + 8192)).max(64 << 20);
        let engine = BlockEngineConfig::new(device)
            .with_block_size(32 << 20)
            .with_buffer_pool_size(in_flight)
            .with_submit_queue_size_threshold(4 * in_flight);
        let cache = HybridCacheBuilder::new()
            .memory(1 << 20)
            .storage()
            .with_io_engine_config(Box::new(UringIoEngineConfig::new()) as Box<dyn IoEngineConfig>)
            .with_engine_config(engine)
            .with_recover_mode(RecoverMode::None)
            .build()
            .await?;
        let payload: Vec<u8> = (0..block_bytes as u64 / 8).flat_map(|i| mix(i).to_le_bytes()).collect();
        // A number of values that eviction has certainly left: whole blocks of the engine lose their
        // ends, and some are always being emptied.
        let kept = (footprint / block_bytes / 2) as u64;
        let mut peer = Peer { cache, block_bytes, payload: payload.into(), written: 0, kept };
        // Once over all of it, and a half: every file has been written, and eviction is at work.
        let all = 3 * footprint as u64 / 2;
        while peer.written * (block_bytes as u64) < all {
            peer.batch(DEPTH).await;
        }
        Ok(peer)
    }

    async fn turn(&mut self, line: &str) -> Result<Value, Failure> {
        let mut words = line.split(' ');
        let mut next = || words.next().ok_or("a line has four words");
        let way = next()?;
        let (block_bytes, depth): (usize, usize) = (next()?.parse()?, next()?.parse()?);
        let length = Duration::from_millis(next()?.parse()?);
        if block_bytes != self.block_bytes {
            return Err(format!("blocks of {block_bytes} bytes: this one has {}", self.block_bytes).into());
        }
        let (cpu, start) = (cpu_seconds(), Instant::now());
        let blocks = match way {
            "read" => self.reads(depth, length).await?,
            "write" => self.writes(depth, length).await?,
            _ => return Err(format!("{way}: unknown").into()),
        };
        Ok(json!({
            "bytes": blocks * block_bytes as u64, "seconds": start.elapsed().as_secs_f64(),
            "cpu_seconds": cpu_seconds() - cpu,
        }))
    }

    /// Submits so many values, and waits until they are on disk.
    fn batch(&mut self, values: usize) -> impl Future<Output = ()> + use<> {
        for _ in 0..values {
            self.cache.storage_writer(self.written).force().insert(self.payload.clone());
            self.written += 1;
        }
        let cache = self.cache.clone();
        async move { cache.storage().wait().await }
    }

    /// Half of the depth is submitted while the other half is in flight.
    async fn writes(&mut self, depth: usize, length: Duration) -> Result<u64, Failure> {
        let before = self.cache.statistics().disk_write_bytes();
        let start = Instant::now();
        let half = (depth / 2).max(1);
        let mut last = tokio::spawn(self.batch(half));
        let mut blocks = half as u64;
        while start.elapsed() < length {
            let this = tokio::spawn(self.batch(half));
            blocks += half as u64;
            last.await?;
            last = this;
        }
        last.await?;
        let written = (self.cache.statistics().disk_write_bytes() - before) as u64;
        Ok(blocks.min(written / self.block_bytes as u64))
    }

    async fn reads(&mut self, depth: usize, length: Duration) -> Result<u64, Failure> {
        let (mut draws, mut blocks, mut misses) = (self.written, 0, 0_u64);
        let first = self.written - self.kept;
        let mut begin = || {
            draws += 1;
            let (cache, key) = (self.cache.clone(), first + mix(draws) % self.kept);
            tokio::spawn(async move { cache.storage().load(&key).await })
        };
        let start = Instant::now();
        let mut under_way: FuturesUnordered<_> = (0..depth).map(|_| begin()).collect();
        while let Some(loaded) = under_way.next().await {
            match loaded?? {
                Load::Entry { value, .. } if value.len() == self.block_bytes => blocks += 1,
                _ => misses += 1,
            }
            if start.elapsed() < length {
                under_way.push(begin());
            }
        }
        if misses * 10 > blocks {
            return Err(format!("{misses} misses beside {blocks} hits").into());
        }
        Ok(blocks)
    }
}
