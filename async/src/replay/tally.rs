//! What one worker counts. Nobody else writes it; at the end all are added up.

use super::histogram::Histogram;
use super::pattern::Mismatch;
use super::report::{Failures, Wrong};
use std::time::{Duration, Instant};

/// Where a block is, or was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// G1.
    Device,
    /// G2.
    Host,
    /// G3.
    Disk,
}

/// Bytes moved one way, and the time that it took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flow {
    pub(super) bytes: u64,
    pub(super) busy: Duration,
}

impl Flow {
    pub(super) fn add(&mut self, bytes: usize, since: Instant) {
        self.bytes += bytes as u64;
        self.busy += since.elapsed();
    }

    fn merge(&mut self, other: Flow) {
        self.bytes += other.bytes;
        self.busy += other.busy;
    }
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) blocks: u64,
    pub(super) uncached_blocks: u64,
    /// Hits in device, host and disk.
    pub(super) hits: [u64; 3],
    pub(super) verified_blocks: u64,
    pub(super) wrong_blocks: u64,
    pub(super) wrong_bytes: u64,
    /// The one of the lowest line.
    pub(super) first_wrong: Option<Wrong>,
    pub(super) filled: Flow,
    pub(super) device_to_host: Flow,
    pub(super) host_to_disk: Flow,
    pub(super) disk_to_host: Flow,
    pub(super) host_to_device: Flow,
    /// Victims that found no room below, though there is a tier below.
    pub(super) dropped_blocks: u64,
    pub(super) failures: Failures,
    pub(super) allocation: Histogram,
    pub(super) matching: Histogram,
    pub(super) onboard: Histogram,
    pub(super) release: Histogram,
}

impl Tally {
    pub(super) fn hit(&mut self, tier: Tier) {
        self.hits[tier as usize] += 1;
    }

    pub(super) fn wrong(&mut self, line: u64, id: u64, found_in: Tier, mismatch: Mismatch) {
        self.wrong_blocks += 1;
        self.wrong_bytes += mismatch.bytes;
        let wrong = Wrong { line, id, found_in, bytes: mismatch.bytes, first_offset: mismatch.first };
        keep_first(&mut self.first_wrong, Some(wrong));
    }

    pub(super) fn merge(&mut self, other: &Tally) {
        let Tally {
            requests, blocks, uncached_blocks, hits, verified_blocks, wrong_blocks, wrong_bytes, ..
        } = other;
        self.requests += requests;
        self.blocks += blocks;
        self.uncached_blocks += uncached_blocks;
        for (mine, theirs) in self.hits.iter_mut().zip(hits) {
            *mine += theirs;
        }
        self.verified_blocks += verified_blocks;
        self.wrong_blocks += wrong_blocks;
        self.wrong_bytes += wrong_bytes;
        keep_first(&mut self.first_wrong, other.first_wrong.clone());
        self.filled.merge(other.filled);
        self.device_to_host.merge(other.device_to_host);
        self.host_to_disk.merge(other.host_to_disk);
        self.disk_to_host.merge(other.disk_to_host);
        self.host_to_device.merge(other.host_to_device);
        self.dropped_blocks += other.dropped_blocks;
        self.failures.merge(&other.failures);
        self.allocation.merge(&other.allocation);
        self.matching.merge(&other.matching);
        self.onboard.merge(&other.onboard);
        self.release.merge(&other.release);
    }
}

fn keep_first(mine: &mut Option<Wrong>, theirs: Option<Wrong>) {
    let earlier = |a: Wrong, b: Wrong| if b.line < a.line { b } else { a };
    *mine = match (mine.take(), theirs) {
        (Some(a), Some(b)) => Some(earlier(a, b)),
        (a, b) => a.or(b),
    };
}
