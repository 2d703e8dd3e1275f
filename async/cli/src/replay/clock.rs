//! The disk tier in the time of the trace: its write budget counts days of the trace, so that the counts
//! are the same in every run.
//!
//! Invariants
//! - I1: the receiver of the tier's end is notified when no owner of the volumes is left.
//!
//! # Orderings
//! `now` is Relaxed: it publishes nothing, and a value that is one request old is as good.

use kvstrata::backend::disk::DiskMover;
use kvstrata::backend::transfer::{
    Admits, Closing, Extras, Forgetting, Lasts, Reserve, TierFacts, TierPort, TierRead, TierWrite,
};
use kvstrata_core::{BlockId, BlockPool, BlockRef, ImmutableBlock, SequenceHash};
use kvstrata_ffi::disk::OwnerId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::oneshot::{Receiver, Sender, channel};

/// The time of the trace.
#[derive(Debug, Default)]
pub(super) struct TraceClock(AtomicU64);

impl TraceClock {
    /// Advances to the time of a request, in milliseconds. A time that is not a number counts as 0.
    pub(super) fn set(&self, milliseconds: f64) {
        let time = Duration::try_from_secs_f64(milliseconds / 1000.0).unwrap_or_default();
        self.0.fetch_max(time.as_nanos() as u64, Relaxed);
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Relaxed))
    }
}

/// A disk tier with the clock of the trace.
#[derive(Debug)]
pub(super) struct TimedDisk {
    disk: DiskMover,
    clock: Arc<TraceClock>,
    /// Dropped after the tier (I1).
    _ended: Sender<()>,
}

impl TimedDisk {
    /// Makes the tier, and the receiver that is notified of its end (I1).
    pub(super) fn new(disk: DiskMover, clock: Arc<TraceClock>) -> (TimedDisk, Receiver<()>) {
        let (_ended, end) = channel();
        (TimedDisk { disk, clock, _ended }, end)
    }
}

impl TierPort for TimedDisk {
    fn pool(&self) -> &BlockPool {
        self.disk.pool()
    }

    fn facts(&self) -> TierFacts {
        self.disk.facts()
    }

    fn find(&self, hash: SequenceHash, uses: bool) -> Option<ImmutableBlock<'_>> {
        self.disk.find(hash, uses)
    }

    fn reserve(&self, which: Reserve, slots: &mut Vec<BlockId>) {
        self.disk.reserve(which, slots);
    }

    fn read(&self, read: TierRead) {
        self.disk.read(read);
    }

    fn write(&self, write: TierWrite) {
        self.disk.write(write);
    }

    fn release(&self, slot: BlockId) {
        self.disk.release(slot);
    }

    fn forget(&self, block: BlockRef) {
        self.disk.forget(block);
    }

    /// Without the extras that would close the volumes: the replay closes them itself.
    fn extras(&self) -> Extras<'_> {
        Extras { admits: Some(self), lasts: Some(self), ..self.disk.extras() }
    }
}

impl Admits for TimedDisk {
    fn used(&self, hash: SequenceHash) {
        self.disk.used(hash);
    }

    fn admits(&self, hash: SequenceHash, _: Duration) -> bool {
        self.disk.admits(hash, self.clock.now())
    }
}

impl Lasts for TimedDisk {
    fn recovered(&self) -> Vec<(BlockId, OwnerId)> {
        self.disk.recovered()
    }

    fn forget_released(&self) {
        self.disk.forget_released();
    }

    fn forget_for_good(&self) -> Forgetting {
        self.disk.forget_for_good()
    }

    fn close(&self) -> Option<Closing> {
        None
    }
}
