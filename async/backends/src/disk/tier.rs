//! [`DiskTier`]: a pool's metadata over the slots of one or more volumes.
//!
//! ```text
//!   pool     block  0  1  2  3  4  5  …        free, owned, active, inactive: as in every tier
//!                   │  │  │  │  │  │
//!   volumes         A0 B0 C0 A1 B1 C1 …        slot s of n volumes is slot s ÷ n of volume s mod n
//! ```
//!
//! Whatever a volume returns, the tier answers with the requested bytes or with a miss. A read that is
//! rejected or fails ends the block's registration and its record. The first request that a retired
//! volume refuses reveals its loss. Its blocks become misses at their next lookup. Its slots are
//! *quarantined* when they would be written: owned for good, never free again. The tier goes on, smaller.
//!
//! A volume that has no room, or is away (its device does not answer), keeps its blocks. While it is
//! away, lookups do not find them. No slot of such a volume is handed out: eviction passes over its
//! victims, and its free slots are set *aside* until they can be written.
//!
//! Invariants
//! - I1: only a block's owner or holder writes its slot or ends its record, so no later write is undone.
//! - I2: [`take`](DiskTier::take) hands out no slot of a volume known to be lost, away or without room.
//! - I3: a slot that was taken and not yet written may still have a victim's record: it is `stale`. When
//!   it is given back, it stops being stale and goes to its volume's list until the record is forgotten.
//!   If the process is killed before that, the next one finds the block again, intact.
//!
//! # Orderings
//! `lost` and `closed` are Relaxed: a thread that reads an old value asks the volume, which refuses.
//! `stale`, `left` and `after_crash` are Relaxed: they belong to the slot's owner, and the slot's
//! transitions order them.

use super::admission::{Admission, AdmissionPolicy};
use super::budget::Budget;
use super::erase::Erasures;
use super::errand::Errands;
use super::lengths::Lengths;
use super::recover::{self, RecoveryReport};
use super::said::Said;
use super::stats::Counters;
use super::unforgotten::Unforgotten;
use kvstrata_core::pool::Passed;
use kvstrata_core::{BlockId, BlockPool, BlockRef, ConfigError, ImmutableBlock, PoolConfig, SequenceHash};
use kvstrata_ffi::disk::{Concern, OwnerId, VolumeError, VolumeOptions, VolumeSet};
use kvstrata_tiers::shared::random_seed;
use kvstrata_tiers::transfer::{Rejected, RejectedAtOpening, RejectedReads, TierStats};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Options of a tier, besides its volumes and its pool.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct TierOptions {
    /// Which blocks are worth a write.
    pub admission: AdmissionPolicy,
    /// Bytes that may be written a day; `None`: no limit.
    pub write_budget: Option<u64>,
    /// Whether blocks are registered with their parents, if the tier has these: events then name the
    /// parent, and no policy evicts a parent before its children.
    pub linked: bool,
}

impl TierOptions {
    /// Sets which blocks are worth a write. Default: all.
    #[must_use]
    pub fn admission(self, admission: AdmissionPolicy) -> TierOptions {
        TierOptions { admission, ..self }
    }

    /// Sets the bytes that may be written a day; none: no limit.
    #[must_use]
    pub fn write_budget(self, bytes: impl Into<Option<u64>>) -> TierOptions {
        TierOptions { write_budget: bytes.into(), ..self }
    }

    /// Sets whether blocks are registered with their parents. Default: no.
    #[must_use]
    pub fn linked(self, linked: bool) -> TierOptions {
        TierOptions { linked, ..self }
    }
}

/// Why a tier cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// A volume cannot be opened.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The pool cannot be made.
    #[error("the disk tier's pool: {0}")]
    Pool(#[from] ConfigError),
    /// The pool's blocks and the volumes' slots differ in number.
    #[error("blocks of the disk tier's pool: {blocks}, slots of its volumes: {slots}; make them equal")]
    Slots {
        /// Blocks of the pool.
        blocks: usize,
        /// Slots of all volumes.
        slots: u64,
    },
}

/// Blocks on disk. `Send + Sync`. Calls block only to wait for a `Pending` transfer or for room in a volume's
/// queue.
#[derive(Debug)]
pub struct DiskTier {
    pub(super) pool: BlockPool,
    pub(super) volumes: VolumeSet,
    block_bytes: u64,
    pub(super) linked: bool,
    /// By volume: whether it is out of service.
    pub(super) lost: Box<[AtomicBool]>,
    /// All volumes were shut down in order.
    closed: AtomicBool,
    /// By slot: whether it was taken from a victim whose record still exists.
    stale: Box<[AtomicBool]>,
    /// By slot: whether it was erased without zeros, so that its bytes are still there.
    pub(super) left: Box<[AtomicBool]>,
    /// By slot: whether its block was written by a process that ended without a shutdown. Empty after a
    /// clean end.
    pub(super) after_crash: Box<[AtomicBool]>,
    pub(super) lengths: Lengths,
    /// By volume.
    pub(super) said: Box<[Said]>,
    pub(super) admission: Admission,
    budget: Option<Budget>,
    at_opening: RejectedAtOpening,
    /// Owners of the blocks that the opening found, until [`take_owners`](DiskTier::take_owners).
    owners: Mutex<Vec<(BlockId, OwnerId)>>,
    /// Scratch memory of calls that take slots.
    pub(super) taking: Mutex<Taking>,
    /// By volume: free slots that temporarily cannot be written.
    pub(super) aside: Box<[Mutex<Vec<BlockId>>]>,
    /// By volume.
    pub(super) unforgotten: Box<[Unforgotten]>,
    /// By volume.
    pub(super) errands: Box<[Arc<Errands>]>,
    /// By volume.
    pub(super) erasures: Box<[Erasures]>,
    pub(super) counters: Counters,
}

/// Reused memory of calls that take slots.
#[derive(Debug, Default)]
pub(super) struct Taking {
    pub(super) victims: Vec<(BlockId, SequenceHash)>,
    /// Victims, if some volumes take no writes. `passed`: the scan's position; `writable`: its volumes.
    pub(super) found: Vec<BlockRef>,
    pub(super) passed: Passed,
    pub(super) writable: Vec<bool>,
}

impl DiskTier {
    /// Opens or creates the volumes, and puts the blocks that they have into a new pool.
    ///
    /// # Errors
    /// [`TierError`], if a volume or the pool cannot be opened, or if their sizes differ.
    pub fn open(
        volumes: Vec<VolumeOptions>,
        pool: PoolConfig,
        options: TierOptions,
    ) -> Result<(DiskTier, RecoveryReport), TierError> {
        let _span = tracing::info_span!("recover", volumes = volumes.len()).entered();
        let (volumes, recovery) = VolumeSet::open(volumes)?;
        // The pools of a manager have a seed already.
        let seed = pool.given_seed().unwrap_or_else(random_seed);
        let pool = BlockPool::new(pool.seed(seed))?;
        let slots = u64::from(volumes.slots());
        if pool.capacity() as u64 != slots {
            return Err(TierError::Slots { blocks: pool.capacity(), slots });
        }
        let forget = |slot| volumes.forget(slot);
        let (recovered_blocks, owners) = recover::register(&pool, &recovery.blocks, options.linked, &forget);
        let at_opening = RejectedAtOpening::of(&recovery.rejected);
        let rejected = Rejected::of(&at_opening, &RejectedReads::default());
        let report =
            RecoveryReport { recovered_blocks, rejected, clean: recovery.clean, created: recovery.created };
        let block_bytes = volumes.slot_bytes() as u64;
        let doubtful = if recovery.clean { 0 } else { slots };
        let mut after_crash: Box<[AtomicBool]> = (0..doubtful).map(|_| AtomicBool::new(false)).collect();
        for block in &recovery.blocks {
            after_crash.get_mut(block.slot as usize).into_iter().for_each(|slot| *slot.get_mut() = true);
        }
        let tier = DiskTier {
            block_bytes,
            linked: options.linked,
            lost: volumes.volumes().iter().map(|_| AtomicBool::new(false)).collect(),
            closed: AtomicBool::new(false),
            stale: (0..slots).map(|_| AtomicBool::new(false)).collect(),
            left: (0..slots).map(|_| AtomicBool::new(false)).collect(),
            after_crash,
            lengths: Lengths::found(slots, &recovery.blocks),
            said: volumes.volumes().iter().map(|_| Said::default()).collect(),
            admission: Admission::new(options.admission, slots as u32, seed),
            budget: options.write_budget.map(|bytes| Budget::new(bytes, block_bytes)),
            at_opening,
            owners: Mutex::new(owners),
            taking: Mutex::default(),
            aside: volumes.volumes().iter().map(|_| Mutex::default()).collect(),
            unforgotten: volumes.volumes().iter().map(|_| Unforgotten::default()).collect(),
            errands: volumes.volumes().iter().map(|_| Arc::default()).collect(),
            erasures: volumes.volumes().iter().map(|_| Erasures::default()).collect(),
            counters: Counters::new(),
            pool,
            volumes,
        };
        tier.lose_unopened();
        tier.say_opened(&at_opening, report.recovered_blocks, report.clean, report.created);
        Ok((tier, report))
    }

    /// Returns the pool: the metadata of the blocks.
    #[must_use]
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Returns the volumes: the bytes of the blocks.
    #[must_use]
    pub fn volumes(&self) -> &VolumeSet {
        &self.volumes
    }

    /// Returns the owners of the recovered blocks, except unowned ones. Later calls return nothing.
    #[must_use]
    pub fn take_owners(&self) -> Vec<(BlockId, OwnerId)> {
        mem::take(&mut *self.owners.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shuts the volumes down, with the mark of a clean end, so that the next tier over them finds their
    /// blocks. Blocks until that is done; a volume that hangs does not keep the others from their end.
    /// The pool stays; reads and writes fail from now on.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
        let close = |volume: usize| {
            self.forget_all(volume);
            self.volumes.volumes()[volume].close();
        };
        thread::scope(|scope| {
            // This thread closes the first volume, then those for which the system gave no thread.
            let others = (1..self.lost.len()).filter(|volume| {
                let volume = *volume;
                let thread = thread::Builder::new().name("kvstrata-close".to_owned());
                thread.spawn_scoped(scope, move || close(volume)).is_err()
            });
            let left: Vec<usize> = others.collect();
            std::iter::once(0).chain(left).for_each(close);
        });
    }

    /// Returns the tier's counters.
    #[must_use]
    pub fn stats(&self) -> TierStats {
        let mut stats = self.counters.snapshot(&self.at_opening, self.losses());
        for volume in 0..self.lost.len() {
            stats.volumes.add(self.state(volume));
        }
        stats.failed = self.volumes.stats().failed.into();
        let removed = self.volumes.volumes().iter().filter(|volume| volume.is_removed());
        stats.removed_files = removed.count() as u64;
        stats
    }

    /// Finds a block. If its volume is out of service, the block is unregistered and not found.
    #[must_use]
    pub fn lookup(&self, hash: SequenceHash) -> Option<ImmutableBlock<'_>> {
        self.if_in_service(self.pool.lookup(hash)?)
    }

    /// Finds a block without counting a use, as [`BlockPool::find`].
    #[must_use]
    pub fn find(&self, hash: SequenceHash) -> Option<ImmutableBlock<'_>> {
        self.if_in_service(self.pool.find(hash)?)
    }

    fn if_in_service<'p>(&'p self, block: ImmutableBlock<'p>) -> Option<ImmutableBlock<'p>> {
        if self.is_away(self.volume_of(block.id().0)) {
            // Found again when the device answers.
            return None;
        }
        if !self.is_lost(block.id().0) {
            return Some(block);
        }
        let reference = block.downgrade();
        drop(block);
        self.unregister(reference);
        None
    }

    /// Unregisters a block, unless it is gone, or held: its holder will see the same failure.
    pub fn unregister(&self, block: BlockRef) {
        let _ = self.pool.unregister(block);
    }

    /// Records that a request has this block, in whichever tier.
    pub fn used(&self, hash: SequenceHash) {
        self.admission.used(hash);
    }

    /// Whether to write a block that is not in the tier. An admitted block is charged to the budget.
    /// `now` is the time since a fixed moment.
    #[must_use]
    pub fn admits(&self, hash: SequenceHash, now: Duration) -> bool {
        self.counters.add(|mine| &mine.offered);
        if !self.any_writable() && !self.all_lost() {
            self.counters.add(|mine| &mine.refused_by_volume);
            return false;
        }
        if !self.admission.admits(hash, self.pool.free() == 0) {
            self.counters.add(|mine| &mine.refused_by_admission);
            return false;
        }
        if self.budget.as_ref().is_some_and(|budget| !budget.take(self.block_bytes, now)) {
            self.counters.add(|mine| &mine.refused_by_budget);
            return false;
        }
        true
    }

    /// Frees a slot that was taken and not written. If it has a record to forget, waits while its
    /// volume's queue is full.
    pub fn give_back(&self, slot: BlockId) {
        self.put_back(slot);
        self.forget_all(self.volume_of(slot.0));
    }

    /// The same without a call to the volume: the slot becomes free, or goes to the list of slots to
    /// forget.
    pub(super) fn put_back(&self, slot: BlockId) {
        // Refused only if the caller did not own the slot.
        let Ok(owned) = self.pool.adopt_mutable(slot) else { return };
        if self.set_stale(slot, false) {
            self.put_unforgotten(owned);
        }
    }

    pub(super) fn is_stale(&self, slot: BlockId) -> bool {
        self.stale.get(slot.index()).is_some_and(|stale| stale.load(Relaxed))
    }

    /// Sets whether a slot has a victim's record, for its owner. Returns the previous value.
    pub(super) fn set_stale(&self, slot: BlockId, stale: bool) -> bool {
        self.stale.get(slot.index()).is_some_and(|was| was.swap(stale, Relaxed))
    }

    /// Records that a slot has a block of this process.
    pub(super) fn set_ours(&self, slot: BlockId) {
        if let Some(after_crash) = self.after_crash.get(slot.index()) {
            after_crash.store(false, Relaxed);
        }
    }

    /// Returns the number of volumes out of service.
    pub(super) fn losses(&self) -> u64 {
        self.lost.iter().filter(|lost| lost.load(Relaxed)).count() as u64
    }

    pub(super) fn volume_of(&self, slot: u32) -> usize {
        slot as usize % self.lost.len()
    }

    pub(super) fn errands_of(&self, slot: BlockId) -> &Arc<Errands> {
        &self.errands[self.volume_of(slot.0)]
    }

    pub(super) fn is_lost(&self, slot: u32) -> bool {
        self.lost[self.volume_of(slot)].load(Relaxed)
    }

    pub(super) fn all_lost(&self) -> bool {
        self.lost.iter().all(|lost| lost.load(Relaxed))
    }

    pub(super) fn lose(&self, slot: u32) {
        self.lose_volume(self.volume_of(slot));
    }

    /// Marks volumes that could not be opened as lost; the opening logs them.
    fn lose_unopened(&self) {
        for (volume, of) in self.volumes.volumes().iter().enumerate() {
            if of.describe().concerns.contains(&Concern::NotOpened) {
                self.lost[volume].store(true, Relaxed);
            }
        }
    }

    pub(super) fn lose_volume(&self, volume: usize) {
        self.lost[volume].store(true, Relaxed);
        if !self.closed.load(Relaxed) {
            self.say_lost(volume);
        }
    }

    pub(super) fn closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    pub(super) fn is_lost_volume(&self, volume: usize) -> bool {
        self.lost[volume].load(Relaxed)
    }

    /// Forgets the slot's number, so that the slot stays owned for good.
    pub(super) fn quarantine(&self, _slot: BlockId) {
        self.counters.add(|mine| &mine.quarantined);
    }
}

#[cfg(test)]
mod tests;
