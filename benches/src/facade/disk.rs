//! Cold blocks brought up from a volume, beside reads of the same tier: the same blocks, in the same
//! order, into the same host memory, but without pool metadata and without a copy up.
//!
//! ```text
//!   façade   match, onboard ─► reads ─► staging ─► checked copy up    no read into a block that is copied up
//!   tier     look up each   ─► reads ─► staging                       reads into all of it, all the time
//! ```

use super::ground::{Ground, Shape, settings};
use super::report::{Cell, Table};
use crate::disk::files::{Folder, cpu_seconds};
use crate::disk::under_way::UnderWay;
use crate::disk::{Failure, size};
use crate::rounds::{Effort, Samples};
use crate::work::Timed;
use futures_executor::block_on;
use kvstrata::backend::disk::{AdmissionPolicy, DiskMover, DiskTier, TierOptions};
use kvstrata::backend::movers::ThreadsMover;
use kvstrata::backend::transfer::HostMemory;
use kvstrata::manager::{KvBlockManager, Needs, OnboardOptions, Parts, StackParts, TierParts};
use kvstrata::tier::Tier;
use kvstrata_core::{PoolConfig, SequenceHash};
use kvstrata_ffi::device::SimDevice;
use kvstrata_ffi::disk::{Urgency, VolumeOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Blocks of staging: the manager's default (`disk.staging`).
fn staging(block_bytes: usize) -> usize {
    ((16 << 20) / block_bytes).clamp(40, 256)
}

/// Threads that copy.
const THREADS: usize = 2;

/// A manager over a disk tier, and that tier.
struct Below {
    ground: Ground,
    tier: Arc<DiskTier>,
    memory: Arc<HostMemory>,
}

impl Below {
    /// Makes a volume of so many bytes in this folder, full of prefixes, below a device of one prefix.
    fn new(folder: &Path, shape: Shape, bytes: usize, runtime: &Handle) -> Result<Below, Failure> {
        let prefixes = (bytes / shape.bytes()).max(2);
        let slots = (prefixes * shape.blocks) as u32;
        let layers = [shape.block_bytes];
        let memory = HostMemory::new(staging(shape.block_bytes), &layers)?;
        let device = Arc::new(SimDevice::with_layers(0, shape.blocks, &layers)?);
        let volume = VolumeOptions::new(
            folder.join(format!("facade-{}", shape.block_bytes)),
            slots,
            shape.block_bytes,
        )
        .keep(true)
        .write_through(true)
        .register(memory.arena());
        let options = TierOptions::default().admission(AdmissionPolicy::Always);
        let (tier, _) = DiskTier::open(vec![volume], PoolConfig::new(slots), options)?;
        let tier = Arc::new(tier);
        let mover = Arc::new(ThreadsMover::new(Arc::clone(&device), Arc::clone(&memory), THREADS)?);
        let stack = StackParts {
            name: "all".to_owned(),
            device: PoolConfig::new(shape.blocks as u32),
            port: Some(device),
            mover,
            memory: Some(Arc::clone(&memory)),
            host: None,
            below: vec![TierParts::new("disk", Arc::new(DiskMover::new(Arc::clone(&tier), runtime)))],
            block_bytes: shape.block_bytes as u64,
            layers: 1,
            needs: Needs::All { page: 16 },
            linked: [false; 2],
            ahead_first: [false; 2],
        };
        let config = settings(shape.block_bytes, shape.blocks as u32, 0).build()?;
        let parts = Parts { stacks: vec![stack], runtime: runtime.clone(), own: None, names: None };
        let manager = KvBlockManager::of_parts(&config, parts)?;
        let ground = Ground::filled(manager, shape, Tier::DISK, prefixes)?;
        Ok(Below { ground, tier, memory })
    }

    /// Reads a prefix block by block, as the manager has them read, but into all of the staging.
    async fn read(&self, hashes: &[SequenceHash]) -> Result<(), Failure> {
        let mut under_way = UnderWay::default();
        let mut left = hashes.iter();
        let mut free: Vec<u32> = (0..self.memory.arena().blocks() as u32).collect();
        loop {
            while let (Some(buffer), Some(hash)) = (free.last().copied(), left.as_slice().first().copied()) {
                let block = self.tier.lookup(hash).ok_or("a block of the prefix is not in the tier")?;
                let into = self.memory.write(buffer)?;
                let read = self.tier.read_slot(block.id(), hash, Urgency::Urgent, into);
                under_way.push(async move { read.await.map(|_| (buffer, block)) });
                free.pop();
                left.next();
            }
            match under_way.next().await {
                Some(ended) => free.push(ended.map_err(|failure| failure.to_string())?.0),
                None => return Ok(()),
            }
        }
    }
}

/// Reads by the façade, or by the tier alone; timed by the wall.
struct Reads<'b> {
    below: &'b Below,
    alone: bool,
    /// The number of prefixes that the tier alone has read; the manager has a position of its own.
    read: usize,
    /// Processor seconds and bytes, of all turns.
    cpu: (f64, f64),
}

impl Timed for Reads<'_> {
    fn items(&self) -> u64 {
        self.below.ground.shape.bytes() as u64
    }

    fn time(&mut self, runs: u64) -> Duration {
        let (start, cpu) = (Instant::now(), cpu_seconds());
        for _ in 0..runs {
            match self.alone {
                true => {
                    let prefixes = self.below.ground.prefixes();
                    block_on(self.below.read(&prefixes[self.read % prefixes.len()]))
                        .expect("reads of the tier");
                    self.read += 1;
                }
                false => drop(self.below.ground.bring(OnboardOptions::default())),
            }
        }
        self.cpu.0 += cpu_seconds() - cpu;
        self.cpu.1 += (runs * self.items()) as f64;
        start.elapsed()
    }
}

impl Reads<'_> {
    fn cpu_a_gib(&self) -> Cell {
        Cell::number(self.cpu.0 / (self.cpu.1 / f64::from(1 << 30)), 3)
    }
}

/// Measures this part: volumes of so many bytes each, in this folder.
///
/// # Errors
/// There is no room, a volume cannot be made, or bytes are wrong.
pub fn measure(effort: Effort, parent: &Path, bytes: usize) -> Result<Vec<Table>, Failure> {
    let mut table = Table::new(
        "Cold onboard from disk, simulated device: runs of blocks".to_owned(),
        &[
            "run",
            "disk tier alone, GB/s",
            "façade, GB/s",
            "façade / tier",
            "reach",
            "CPU s a GiB, tier",
            "CPU s a GiB, façade",
        ],
    );
    let folder = Folder::new(parent, 2 * bytes as u64 + (256 << 20))?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_time().build()?;
    for (block_bytes, blocks) in [(128 << 10, 1024), (1 << 20, 128), (5 << 20, 64)] {
        // A run is at most a quarter of a small footprint.
        let blocks = blocks.min(bytes / 4 / block_bytes).max(32);
        let shape = Shape { block_bytes, blocks, layers: 1 };
        let below = Below::new(folder.path(), shape, bytes, runtime.handle())?;
        for volume in below.tier.volumes().descriptions() {
            eprintln!("{blocks} × {}: {volume}", size(block_bytes));
        }
        let reads = |alone| Reads { below: &below, alone, read: 0, cpu: (0.0, 0.0) };
        let (mut tier, mut ours) = (reads(true), reads(false));
        let samples = Samples::take(effort, &mut [&mut tier, &mut ours]);
        let share = samples.times(0, 1);
        table.rows.push(vec![
            Cell::word(format!("{blocks} × {}", size(block_bytes))),
            Cell::figure(samples.time(0).rate(shape.bytes() as f64), 2),
            Cell::figure(samples.time(1).rate(shape.bytes() as f64), 2),
            Cell::ratio(share),
            Cell::reach("≥ 0.95", share.median >= 0.95),
            tier.cpu_a_gib(),
            ours.cpu_a_gib(),
        ]);
        below.ground.check()?;
        drop(below);
        std::fs::remove_file(folder.file(&format!("facade-{block_bytes}")))?;
    }
    table.notes.push(format!(
        "A volume of {} MiB, each block's checksum verified by both; staging of 16 MiB, 40 blocks at least; {THREADS} copying threads.",
        bytes >> 20
    ));
    Ok(vec![table])
}
