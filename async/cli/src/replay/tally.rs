//! The counts of one worker's requests. Only that worker writes them; at the end, those of all workers
//! are added up. The manager counts transfers.

use super::histogram::Histogram;
use super::pattern::Mismatch;
use super::report::Wrong;
use kvstrata::tier::Tier;
use std::time::{Duration, Instant};

/// Bytes moved in one direction, and the time taken.
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
    /// The wrong block with the lowest line.
    pub(super) first_wrong: Option<Wrong>,
    pub(super) filled: Flow,
    /// Hits that could not be read back from the device.
    pub(super) unread: u64,
    /// Blocks that could not be written to the device.
    pub(super) unwritten: u64,
    pub(super) allocation: Histogram,
    pub(super) matching: Histogram,
    pub(super) onboard: Histogram,
    pub(super) release: Histogram,
    /// Delays of requests after their times.
    pub(super) lateness: Histogram,
}

impl Tally {
    pub(super) fn hit(&mut self, tier: Tier) {
        self.hits[tier.index()] += 1;
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
        self.unread += other.unread;
        self.unwritten += other.unwritten;
        self.allocation.merge(&other.allocation);
        self.matching.merge(&other.matching);
        self.onboard.merge(&other.onboard);
        self.release.merge(&other.release);
        self.lateness.merge(&other.lateness);
    }
}

fn keep_first(mine: &mut Option<Wrong>, theirs: Option<Wrong>) {
    let earlier = |a: Wrong, b: Wrong| if b.line < a.line { b } else { a };
    *mine = match (mine.take(), theirs) {
        (Some(a), Some(b)) => Some(earlier(a, b)),
        (a, b) => a.or(b),
    };
}
