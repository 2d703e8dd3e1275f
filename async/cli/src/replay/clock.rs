//! The disk tier in the trace's time: a write budget is by the day of the trace, so that the counts are the same in every run.
//!
//! Invariants
//! - I1: whoever waits for the tier's end hears of it when nothing has the volumes any more.
//!
//! # Orderings
//! `now` is Relaxed: it publishes nothing, and one request earlier or later is as good.

use kvstrata::disk::{DiskMover, TierStats};
use kvstrata::transfer::{DiskPort, DiskRead, DiskWrite, Erasing, Forgetting};
use kvstrata_core::{BlockId, BlockPool, BlockRef, ImmutableBlock, SequenceHash};
use kvstrata_ffi::disk::OwnerId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::oneshot::{Receiver, Sender, channel};

/// The trace's time.
#[derive(Debug, Default)]
pub(super) struct TraceClock(AtomicU64);

impl TraceClock {
    /// A request of that time is served: in milliseconds; a time that is none is taken for the beginning.
    pub(super) fn set(&self, milliseconds: f64) {
        let time = Duration::try_from_secs_f64(milliseconds / 1000.0).unwrap_or_default();
        self.0.fetch_max(time.as_nanos() as u64, Relaxed);
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Relaxed))
    }
}

/// A disk tier that goes by it.
#[derive(Debug)]
pub(super) struct TimedDisk {
    disk: DiskMover,
    clock: Arc<TraceClock>,
    /// Dropped behind the tier (I1).
    _ended: Sender<()>,
}

impl TimedDisk {
    /// And what ends when it has ended.
    pub(super) fn new(disk: DiskMover, clock: Arc<TraceClock>) -> (TimedDisk, Receiver<()>) {
        let (_ended, end) = channel();
        (TimedDisk { disk, clock, _ended }, end)
    }
}

impl DiskPort for TimedDisk {
    fn pool(&self) -> &BlockPool {
        self.disk.pool()
    }

    fn recovered(&self) -> Vec<(BlockId, OwnerId)> {
        self.disk.recovered()
    }

    fn lookup(&self, hash: SequenceHash) -> Option<ImmutableBlock<'_>> {
        self.disk.lookup(hash)
    }

    fn find(&self, hash: SequenceHash) -> Option<ImmutableBlock<'_>> {
        self.disk.find(hash)
    }

    fn used(&self, hash: SequenceHash) {
        self.disk.used(hash);
    }

    fn admits(&self, hash: SequenceHash, _: Duration) -> bool {
        self.disk.admits(hash, self.clock.now())
    }

    fn take(&self, wanted: usize, slots: &mut Vec<BlockId>) {
        self.disk.take(wanted, slots);
    }

    fn take_this(&self, block: BlockRef) -> Option<BlockId> {
        self.disk.take_this(block)
    }

    fn erase(&self, slots: Vec<BlockId>, zero: bool) -> Erasing {
        self.disk.erase(slots, zero)
    }

    fn give_back(&self, slot: BlockId) {
        self.disk.give_back(slot);
    }

    fn forget_given_back(&self) {
        self.disk.forget_given_back();
    }

    fn erase_left(&self) -> Forgetting {
        self.disk.erase_left()
    }

    fn forget_for_good(&self) -> Forgetting {
        self.disk.forget_for_good()
    }

    fn reads_at_once(&self) -> u32 {
        self.disk.reads_at_once()
    }

    fn writes_at_once(&self) -> u32 {
        self.disk.writes_at_once()
    }

    fn losses(&self) -> u64 {
        self.disk.losses()
    }

    fn is_lost(&self, slot: BlockId) -> bool {
        self.disk.is_lost(slot)
    }

    fn says_what_fails(&self) -> bool {
        self.disk.says_what_fails()
    }

    fn stats(&self) -> Option<TierStats> {
        self.disk.stats()
    }

    fn read(&self, read: DiskRead) {
        self.disk.read(read);
    }

    fn write(&self, write: DiskWrite) {
        self.disk.write(write);
    }

    fn unregister(&self, block: BlockRef) {
        self.disk.unregister(block);
    }

    fn describe(&self) -> String {
        self.disk.describe()
    }
}
