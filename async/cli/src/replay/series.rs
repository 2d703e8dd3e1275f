//! A replay over time: samples of its counts after requests, for a picture.
//!
//! I1. Samples are in the order in which requests ended. There are at most about [`MOST`]:
//! beyond that, every second sample is removed, and new ones come half as often. So memory
//! does not grow with the trace.

use super::report::{ByPath, ByTier};
use super::tally::Tally;
use super::tiers::Tiers;
use kvstrata::backend::transfer::Path;
use kvstrata::tier::Tier;
use std::time::{Duration, Instant};

/// The most samples kept.
const MOST: usize = 4096;

/// The counts and the fill of the tiers after a request. All numbers except `filled_blocks` only grow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Requests served.
    pub requests: u64,
    /// Time since the trace's first request, by the trace.
    pub trace_time: Duration,
    /// Time since the replay began to serve.
    pub wall_time: Duration,
    /// Blocks of the requests.
    pub blocks: u64,
    /// Hits by tier.
    pub hits: ByTier,
    /// Blocks in each tier.
    pub filled_blocks: ByTier,
    /// Bytes moved, by path.
    pub bytes: ByPath<u64>,
}

/// The counts of one request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Served {
    /// Its time since the first request of the trace.
    time: Duration,
    blocks: u64,
    hits: [u64; 3],
    filled_bytes: u64,
}

impl Served {
    /// Notes the counts of a worker at the beginning of a request.
    pub(super) fn begin(time: Duration, tally: &Tally) -> Served {
        Served { time, blocks: tally.blocks, hits: tally.hits, filled_bytes: tally.filled.bytes }
    }

    /// The counts that the request has added to those noted.
    pub(super) fn end(mut self, tally: &Tally) -> Served {
        self.blocks = tally.blocks - self.blocks;
        for (before, now) in self.hits.iter_mut().zip(tally.hits) {
            *before = now - *before;
        }
        self.filled_bytes = tally.filled.bytes - self.filled_bytes;
        self
    }
}

/// Collects samples during a replay.
#[derive(Debug)]
pub(super) struct Series {
    began: Instant,
    now: Sample,
    every: u64,
    samples: Vec<Sample>,
}

impl Series {
    pub(super) fn new(tiers: &Tiers) -> Series {
        let now = Sample {
            requests: 0,
            trace_time: Duration::ZERO,
            wall_time: Duration::ZERO,
            blocks: 0,
            hits: ByTier::default(),
            filled_blocks: filled(tiers),
            bytes: ByPath::default(),
        };
        Series { began: Instant::now(), now, every: 1, samples: vec![now] }
    }

    /// Adds the counts of a request, and takes a sample if it is due.
    pub(super) fn add(&mut self, served: &Served, tiers: &Tiers) {
        let now = &mut self.now;
        now.requests += 1;
        now.blocks += served.blocks;
        let [device, host, disk] = served.hits;
        now.hits.device += device;
        now.hits.host += host;
        now.hits.disk += disk;
        now.bytes.filled += served.filled_bytes;
        // With several requests at a time, a later one may end first.
        now.trace_time = now.trace_time.max(served.time);
        if now.requests.is_multiple_of(self.every) {
            self.take(tiers);
        }
    }

    fn take(&mut self, tiers: &Tiers) {
        let stats = tiers.manager.stats();
        let bytes = |path| stats.path(path).bytes;
        self.now.wall_time = self.began.elapsed();
        self.now.filled_blocks = filled(tiers);
        self.now.bytes = ByPath {
            device_to_host: bytes(Path::DeviceToHost),
            host_to_disk: bytes(Path::HOST_TO_DISK),
            disk_to_host: bytes(Path::DISK_TO_DEVICE),
            host_to_device: bytes(Path::HostToDevice),
            filled: self.now.bytes.filled,
        };
        self.samples.push(self.now);
        if self.samples.len() > MOST {
            let mut nth = 0;
            self.samples.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
            self.every *= 2;
        }
    }

    /// Takes the last sample and returns all.
    pub(super) fn end(mut self, tiers: &Tiers) -> Vec<Sample> {
        self.take(tiers);
        self.samples
    }
}

fn filled(tiers: &Tiers) -> ByTier {
    let [device, host, disk] = Tier::OF_SETTINGS.map(|tier| {
        let stats = tiers.manager.default_group().pool_stats(tier);
        // Both are sums of several counters, not read at the same instant.
        stats.stored.saturating_sub(stats.removed)
    });
    ByTier { device, host, disk }
}
