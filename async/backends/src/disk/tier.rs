//! The tier itself: a pool's books over the slots of one or several volumes.
//!
//! ```text
//!   pool     block  0  1  2  3  4  5  …        free, owned, active, inactive: as in every tier
//!                   │  │  │  │  │  │
//!   volumes         A0 B0 C0 A1 B1 C1 …        slot s of n volumes is slot s ÷ n of volume s mod n
//! ```
//!
//! Whatever a volume holds, an answer is either the bytes that were asked for or a miss: a read that is
//! rejected, or fails, ends the block's registration and its record. A volume that is out of service for
//! good is noticed by the first request that it refuses; its blocks become misses when they are looked up,
//! and its slots are *parked* when they are to be written: owned by nobody, and never free again, so that
//! the tier is smaller and goes on.
//!
//! A volume that has no room, or whose device does not answer just now, keeps its blocks. Where it is away
//! they are not found until it answers. No slot of either is handed out: their victims are passed over, and
//! their free slots set *aside* until they can be written.
//!
//! Invariants
//! - I1: a slot is written, and its record ended, only by who owns or references its block; so no later write
//!   is undone.
//! - I2: a slot of a volume that is lost, away, or without room is not handed out by
//!   [`take`](DiskTier::take), as far as that is known then.
//! - I3: a slot that was taken and not written yet may have a victim's record still: it is `stale` then.
//!   Given back, it is not, but on its volume's list until the record is forgotten. A process that is killed
//!   before finds the block again, whole.
//!
//! # Orderings
//! `lost` and `closed` are Relaxed: who reads them late asks a volume in vain, and is told so. `stale`,
//! `left` and `after_crash` are Relaxed: they are the slot's owner's, and ordered by the slot's
//! transitions.

use super::admission::{Admission, AdmissionPolicy};
use super::budget::Budget;
use super::erase::Erasures;
use super::errand::Errands;
use super::recover::{self, RecoveryReport};
use super::said::Said;
use super::stats::Counters;
use super::unforgotten::Unforgotten;
use kvstrata_core::pool::Passed;
use kvstrata_core::{BlockId, BlockPool, BlockRef, ConfigError, ImmutableBlock, PoolConfig, SequenceHash};
use kvstrata_ffi::arena::BlockWrite;
use kvstrata_ffi::disk::{
    Concern, FailureCause, IoFailure, OwnerId, Pending, Urgency, VolumeError, VolumeOptions, VolumeSet,
};
use kvstrata_tiers::shared::random_seed;
use kvstrata_tiers::transfer::{Rejected, RejectedAtOpening, RejectedReads, TierStats};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// What a tier is, beside its volumes and its pool.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct TierOptions {
    /// Which blocks are worth a write.
    pub admission: AdmissionPolicy,
    /// Bytes that may be written, by the day; `None`: any number.
    pub write_budget: Option<u64>,
    /// Whether blocks are registered with their parents, where those are in the tier: events then name them, and no policy evicts
    /// a parent before its children.
    pub linked: bool,
}

impl TierOptions {
    /// Which blocks are worth a write; all, unless told.
    #[must_use]
    pub fn admission(self, admission: AdmissionPolicy) -> TierOptions {
        TierOptions { admission, ..self }
    }

    /// Bytes that may be written, by the day; none: any number.
    #[must_use]
    pub fn write_budget(self, bytes: impl Into<Option<u64>>) -> TierOptions {
        TierOptions { write_budget: bytes.into(), ..self }
    }

    /// Whether blocks are registered with their parents; not, unless told.
    #[must_use]
    pub fn linked(self, linked: bool) -> TierOptions {
        TierOptions { linked, ..self }
    }
}

/// Why a tier cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// One of its volumes.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// Its pool.
    #[error("the disk tier's pool: {0}")]
    Pool(#[from] ConfigError),
    /// The pool has not as many blocks as the volumes have slots.
    #[error("blocks of the disk tier's pool: {blocks}, slots of its volumes: {slots}; make them equal")]
    Slots {
        /// Blocks of the pool.
        blocks: usize,
        /// Slots of all volumes.
        slots: u64,
    },
}

/// Blocks on disk. `Send + Sync`; only waiting for a [`Pending`], or a full queue of a volume, blocks.
#[derive(Debug)]
pub struct DiskTier {
    pub(super) pool: BlockPool,
    pub(super) volumes: VolumeSet,
    block_bytes: u64,
    pub(super) linked: bool,
    /// One a volume: it is out of service.
    pub(super) lost: Box<[AtomicBool]>,
    /// All of them are, in order.
    closed: AtomicBool,
    /// One a slot: it was a victim's, and has its record still.
    stale: Box<[AtomicBool]>,
    /// One a slot: it was erased without zeros, and its bytes are there still.
    pub(super) left: Box<[AtomicBool]>,
    /// One a slot, and none where the last end was in order: its block is of a process that ended without a shutdown.
    after_crash: Box<[AtomicBool]>,
    /// One a volume.
    pub(super) said: Box<[Said]>,
    pub(super) admission: Admission,
    budget: Option<Budget>,
    at_opening: RejectedAtOpening,
    /// Of the blocks that the opening has found, until they are asked for.
    owners: Mutex<Vec<(BlockId, OwnerId)>>,
    /// Scratch of whoever takes slots.
    pub(super) taking: Mutex<Taking>,
    /// One a volume: free slots that cannot be written just now.
    pub(super) aside: Box<[Mutex<Vec<BlockId>>]>,
    /// One a volume.
    pub(super) unforgotten: Box<[Unforgotten]>,
    /// One a volume.
    pub(super) errands: Box<[Arc<Errands>]>,
    /// One a volume.
    pub(super) erasures: Box<[Erasures]>,
    pub(super) counters: Counters,
}

/// Why a read brought nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The volume answered, and it was not the block. Counted by the tier.
    Rejected,
    /// The transfer failed, or its volume is lost.
    Failed,
    /// The device does not answer just now, or the machine was short of something: the block stays.
    Spared,
}

/// What is used over and over by whoever takes slots.
#[derive(Debug, Default)]
pub(super) struct Taking {
    pub(super) victims: Vec<(BlockId, SequenceHash)>,
    /// The same, where some volumes take no writes: how far the look has come, and which volumes it was for.
    pub(super) found: Vec<BlockRef>,
    pub(super) passed: Passed,
    pub(super) writable: Vec<bool>,
}

impl DiskTier {
    /// Opens the volumes, or creates them, and puts what they hold into a new pool.
    ///
    /// # Errors
    /// [`TierError`].
    pub fn open(
        volumes: Vec<VolumeOptions>,
        pool: PoolConfig,
        options: TierOptions,
    ) -> Result<(DiskTier, RecoveryReport), TierError> {
        let _span = tracing::info_span!("recover", volumes = volumes.len()).entered();
        let (volumes, recovery) = VolumeSet::open(volumes)?;
        // A manager's pools have one already.
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

    /// The books.
    #[must_use]
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// The bytes.
    #[must_use]
    pub fn volumes(&self) -> &VolumeSet {
        &self.volumes
    }

    /// Whose the blocks are that the opening has found, but for nobody's. Told once.
    #[must_use]
    pub fn take_owners(&self) -> Vec<(BlockId, OwnerId)> {
        mem::take(&mut *self.owners.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the volumes, so that the next tier over them finds what they hold, with the mark of a clean end. Blocks until that is so; one
    /// that hangs keeps no other from its end. The books stay; reads and writes fail from now on.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
        let close = |volume: usize| {
            self.forget_all(volume);
            self.volumes.volumes()[volume].close();
        };
        thread::scope(|scope| {
            // The first one here; those for which there is no thread after it.
            let others = (1..self.lost.len()).filter(|volume| {
                let volume = *volume;
                let thread = thread::Builder::new().name("kvstrata-close".to_owned());
                thread.spawn_scoped(scope, move || close(volume)).is_err()
            });
            let left: Vec<usize> = others.collect();
            std::iter::once(0).chain(left).for_each(close);
        });
    }

    /// What it has done.
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

    /// Finds a block. One whose volume is out of service is not found, and gone.
    #[must_use]
    pub fn lookup(&self, hash: SequenceHash) -> Option<ImmutableBlock<'_>> {
        self.if_in_service(self.pool.lookup(hash)?)
    }

    /// The same for who looks after it and does not use it, as [`BlockPool::find`].
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

    /// Reads a block that the caller holds, and keeps until the read has ended. A read that fails goes to
    /// [`rejected`](DiskTier::rejected).
    pub fn read(
        &self,
        block: &ImmutableBlock<'_>,
        urgency: Urgency,
        buffer: BlockWrite,
    ) -> Pending<BlockWrite> {
        self.read_slot(block.id(), block.hash(), urgency, buffer)
    }

    /// [`read`](DiskTier::read) of a block that is held by its number.
    pub fn read_slot(
        &self,
        slot: BlockId,
        hash: SequenceHash,
        urgency: Urgency,
        buffer: BlockWrite,
    ) -> Pending<BlockWrite> {
        self.volumes.read(slot.0, hash, urgency, buffer)
    }

    /// Takes note that a read of a block brought nothing: its record is ended. With the last reference released, let
    /// [`unregister`](DiskTier::unregister) follow.
    pub fn rejected(&self, block: &ImmutableBlock<'_>, failure: &IoFailure) -> ReadOutcome {
        self.rejected_slot(block.id(), failure)
    }

    /// [`rejected`](DiskTier::rejected) of a block that is held by its number.
    pub fn rejected_slot(&self, slot: BlockId, failure: &IoFailure) -> ReadOutcome {
        let forget = |slot| {
            self.volumes.forget(slot);
            true
        };
        self.reject(slot, failure, forget).unwrap_or(ReadOutcome::Failed)
    }

    /// The same, without waiting. None: nothing is noted yet, since its volume's queue is full.
    pub(super) fn try_rejected_slot(&self, slot: BlockId, failure: &IoFailure) -> Option<ReadOutcome> {
        self.reject(slot, failure, |slot| self.volumes.try_forget(slot))
    }

    fn reject(
        &self,
        slot: BlockId,
        failure: &IoFailure,
        forget: impl FnOnce(u32) -> bool,
    ) -> Option<ReadOutcome> {
        let slot = slot.0;
        match failure.cause {
            // What is there is not what its record says: then the volume has emptied the slot itself; or the record is of another block,
            // whose it stays.
            FailureCause::Rejected(why) => {
                let after_crash = self.after_crash.get(slot as usize).is_some_and(|slot| slot.load(Relaxed));
                self.counters.rejected(why, after_crash);
                self.say_rejected(self.volume_of(slot), why, after_crash);
                return Some(ReadOutcome::Rejected);
            }
            FailureCause::OutOfService => self.lose(slot),
            _ if self.spares(slot, failure) => {
                self.say_failed(self.volume_of(slot), failure);
                self.say_state(self.volume_of(slot));
                return Some(ReadOutcome::Spared);
            }
            // While the block is held, so that the slot has no other owner (I1).
            _ => {
                let noted = forget(slot);
                self.say_failed(self.volume_of(slot), failure);
                return noted.then_some(ReadOutcome::Failed);
            }
        }
        Some(ReadOutcome::Failed)
    }

    /// Whether a failure says nothing of the slot: its block is as good as before.
    fn spares(&self, slot: u32, failure: &IoFailure) -> bool {
        let volume = self.volume_of(slot);
        failure.is_retryable() || self.is_away(volume) || self.volumes.volumes()[volume].is_in_doubt()
    }

    /// Ends the registration of a block, unless somebody holds it, who will find the same out, or it has gone already.
    pub fn unregister(&self, block: BlockRef) {
        let _ = self.pool.unregister(block);
    }

    /// A request has this block, wherever it is.
    pub fn used(&self, hash: SequenceHash) {
        self.admission.used(hash);
    }

    /// Whether a block that is not in the tier is to be written; what is admitted is taken out of the budget. `now` is the time
    /// since some fixed moment.
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

    /// Frees a slot that was taken and not written. Waits while the queue of its volume is full, if it has something to forget.
    pub fn give_back(&self, slot: BlockId) {
        self.put_back(slot);
        self.forget_all(self.volume_of(slot.0));
    }

    /// The same without a call to the volume: it is free, or on the list of those that will be.
    pub(super) fn put_back(&self, slot: BlockId) {
        // Refused only where the caller did not own it.
        let Ok(owned) = self.pool.adopt_mutable(slot) else { return };
        if self.set_stale(slot, false) {
            self.put_unforgotten(owned);
        }
    }

    pub(super) fn is_stale(&self, slot: BlockId) -> bool {
        self.stale.get(slot.index()).is_some_and(|stale| stale.load(Relaxed))
    }

    /// What a slot's owner says of its record; and what was so before.
    pub(super) fn set_stale(&self, slot: BlockId, stale: bool) -> bool {
        self.stale.get(slot.index()).is_some_and(|was| was.swap(stale, Relaxed))
    }

    /// A slot has a block of this process.
    pub(super) fn set_ours(&self, slot: BlockId) {
        if let Some(after_crash) = self.after_crash.get(slot.index()) {
            after_crash.store(false, Relaxed);
        }
    }

    /// How many volumes are out of service.
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

    /// Volumes that could not be opened: the opening says so.
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

    /// The number is kept by nobody, so that the slot stays owned for good.
    pub(super) fn park(&self, _slot: BlockId) {
        self.counters.add(|mine| &mine.parked);
    }
}

#[cfg(test)]
mod tests;
