//! A write to the tier: from a slot that was taken to a block that is found.
//!
//! ```text
//!   take ─► slot ── write ──► under way ── ended ─┬─► Stored   registered, the most recent block
//!                                 │               ├─► Failed   the slot is free when its record has been forgotten
//!                                 │               └─► Lost     the slot is parked, with its volume
//!                                 └── nobody can wait for it ─► abandoned: not used again
//! ```
//!
//! Invariants
//! - I1: a block is registered only after its payload is down.
//! - I2: a slot has no other owner until the device has answered its write.

use super::tier::DiskTier;
use kvstrata_core::{BlockId, ImmutableBlock, MutableBlock};
use kvstrata_ffi::arena::BlockRead;
use kvstrata_ffi::disk::{FailureCause, IoFailure, Name, Payload, Pending};

/// A block on its way to a slot. Dropped before [`DiskTier::finish`], it waits for the write and gives the slot up.
#[derive(Debug)]
#[must_use = "only finish() makes the block known"]
pub struct Writing<'t> {
    tier: &'t DiskTier,
    name: Name,
    /// `None` once it has ended.
    under_way: Option<(MutableBlock<'t>, Pending<BlockRead>)>,
}

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The block is in the tier, the most recent of all.
    Stored,
    /// Its volume is out of service, and the slot parked: another slot may do.
    Lost,
    /// It failed, and the slot is free, or will be when its record has been forgotten.
    Failed,
}

impl DiskTier {
    /// Writes a block to a slot; [`finish`](DiskTier::finish) waits for it. A block that was summed when it was copied
    /// ([`Payload::summed`]) is not read again for that.
    pub fn write<'t>(
        &'t self,
        slot: MutableBlock<'t>,
        name: Name,
        payload: impl Into<Payload>,
    ) -> Writing<'t> {
        let request = self.write_slot(slot.id(), name, payload);
        Writing { tier: self, name, under_way: Some((slot, request)) }
    }

    /// [`write`](DiskTier::write) to a slot that is owned by its number. With the outcome follows [`ended`](DiskTier::ended), or,
    /// if nobody can wait for it, [`abandoned`](DiskTier::abandoned).
    pub fn write_slot(&self, slot: BlockId, name: Name, payload: impl Into<Payload>) -> Pending<BlockRead> {
        self.set_stale(slot, false);
        self.volumes.write(slot.0, name, payload)
    }

    /// The same, without waiting for room in the queue of its volume: where there is none, the bytes come back.
    pub(super) fn try_write_slot(
        &self,
        slot: BlockId,
        name: Name,
        bytes: BlockRead,
    ) -> Result<Pending<BlockRead>, BlockRead> {
        let writing = self.volumes.try_write(slot.0, name, bytes)?;
        self.set_stale(slot, false);
        Ok(writing)
    }

    /// Waits until the write has ended, and makes the block known.
    pub fn finish(&self, mut writing: Writing<'_>) -> WriteOutcome {
        let Some((slot, request)) = writing.under_way.take() else { return WriteOutcome::Failed };
        let outcome = request.wait();
        self.ended(slot.into_id(), writing.name, outcome.as_ref().map(drop))
    }

    /// Takes note of how a write to a slot ended, which is owned by its number and no longer the caller's; makes the block known. Waits while
    /// the queue of the slot's volume is full, if there is something to forget there: after a failure, or of a second copy.
    pub fn ended(&self, slot: BlockId, name: Name, outcome: Result<(), &IoFailure>) -> WriteOutcome {
        let outcome = self.note_ended(slot, name, outcome);
        self.forget_all(self.volume_of(slot.0));
        outcome
    }

    /// The same without a call to the volume: a slot that has no block is on the list of those that will be free.
    pub(super) fn note_ended(
        &self,
        slot: BlockId,
        name: Name,
        outcome: Result<(), &IoFailure>,
    ) -> WriteOutcome {
        // Refused only where the caller did not own it: then nothing is his to free or to register.
        let Ok(slot) = self.pool.adopt_mutable(slot) else { return WriteOutcome::Failed };
        match outcome {
            Ok(()) => {
                self.counters.add(|mine| &mine.written);
                self.set_ours(slot.id());
                self.set_left(slot.id(), false);
                self.say_state(self.volume_of(slot.id().0));
                self.register(slot, name)
            }
            Err(IoFailure { cause: FailureCause::OutOfService, .. }) => {
                let id = slot.into_id();
                self.park(id);
                self.lose(id.0);
                WriteOutcome::Lost
            }
            Err(failure) => {
                let volume = self.volume_of(slot.id().0);
                self.put_unforgotten(slot);
                self.say_failed(volume, failure);
                self.say_state(volume);
                WriteOutcome::Failed
            }
        }
    }

    /// Takes note that nobody will hear how the write to a slot ends. The number is kept by nobody, so that no other write meets it (I2).
    pub fn abandoned(&self, _slot: BlockId) {
        self.counters.add(|mine| &mine.abandoned);
    }

    /// Whether a block gives way to another copy of it: its device does not answer, and nobody holds it.
    fn replaces(&self, there: ImmutableBlock<'_>) -> bool {
        if !self.is_away(self.volume_of(there.id().0)) {
            return false;
        }
        let (reference, volume) = (there.downgrade(), self.volume_of(there.id().0));
        drop(there);
        let Ok(old) = self.pool.take_out(reference) else { return false };
        // A volume that is away forgets in memory.
        self.put_unforgotten(old.into_mutable());
        if !self.try_forget_all(volume) {
            self.nobody_comes(volume);
        }
        true
    }

    fn register(&self, slot: MutableBlock<'_>, name: Name) -> WriteOutcome {
        if let Some(there) = self.pool.find(name.hash)
            && !self.replaces(there)
        {
            // Another worker was quicker. Its copy is the most recent now, as this one would be, and no policy takes that for a use. This
            // one must not come back either. (Until the next line it may: then the next opening finds two, and rejects one as a duplicate.)
            self.put_unforgotten(slot);
            return WriteOutcome::Stored;
        }
        let parent = name.parent.filter(|_| self.linked).and_then(|parent| self.pool.find(parent));
        // A block from the pool is `Reset`, so this is never refused.
        let Ok(complete) = slot.complete(name.hash) else { return WriteOutcome::Failed };
        // Released before its parent, as sequences are: tail first.
        drop(self.pool.register(complete, parent.as_ref()));
        WriteOutcome::Stored
    }
}

impl Drop for Writing<'_> {
    /// Waits (I2).
    fn drop(&mut self) {
        if let Some((slot, request)) = self.under_way.take() {
            let _ = request.wait();
            self.tier.volumes.forget(slot.id().0);
        }
    }
}
