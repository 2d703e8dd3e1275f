//! What is said of a volume, each once: that a transfer has failed, that what it holds is not what was written, that it is out of service.
//!
//! By whatever thread finds it out, none of which has a lock. How often is in the figures.
//!
//! # Orderings
//! Relaxed: only that one of those who find it out says it.

use super::tier::DiskTier;
use kvstrata_ffi::disk::{IoFailure, Rejection};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use tracing::{error, info, warn};

/// What has been said of a volume.
#[derive(Debug, Default)]
pub(super) struct Said(AtomicU8);

const FAILED: u8 = 1;
const REJECTED: u8 = 2;
const LOST: u8 = 4;

impl Said {
    /// Whether it was not said before.
    fn first(&self, what: u8) -> bool {
        self.0.fetch_or(what, Relaxed) & what == 0
    }
}

impl DiskTier {
    fn path(&self, volume: usize) -> String {
        self.volumes.volumes()[volume].describe().path.display().to_string()
    }

    /// A transfer has failed for good, and the volume is still in service.
    pub(super) fn say_failed(&self, volume: usize, failure: &IoFailure) {
        if self.said[volume].first(FAILED) {
            let (path, cause) = (self.path(volume), &failure.cause);
            let remedy = "see the kernel's log (dmesg) and the drive's (smartctl, nvme smart-log); its blocks are misses meanwhile";
            warn!(tier = "disk", path, %cause, remedy, "a transfer of a volume failed");
        }
    }

    /// What a slot holds is not what was written to it.
    pub(super) fn say_rejected(&self, volume: usize, why: Rejection) {
        if self.said[volume].first(REJECTED) {
            let path = self.path(volume);
            let remedy = "if nobody else writes to the file, mistrust the drive: see smartctl, nvme smart-log; the block is computed anew";
            error!(tier = "disk", path, cause = %why, remedy, "a volume gave something else than what was written");
        }
    }

    /// A volume is out of service.
    pub(super) fn say_lost(&self, volume: usize) {
        if self.said[volume].first(LOST) {
            let path = self.path(volume);
            let remedy =
                "see the kernel's log (dmesg); start again with a drive that works, or without this path";
            error!(
                tier = "disk",
                path, remedy, "a volume is out of service: its blocks are misses, and the tier is smaller"
            );
        }
    }

    /// What could be better with volumes, and what the opening has found.
    pub(super) fn say_opened(&self, recovered_blocks: u64, clean: bool, created: bool) {
        for volume in self.volumes.volumes() {
            let found = volume.describe();
            for note in &found.notes {
                info!(tier = "disk", path = %found.path.display(), "{note}");
            }
        }
        let rejected = self.stats().rejected.total();
        info!(tier = "disk", blocks = recovered_blocks, rejected, clean, created, "a disk tier is open");
    }
}
