//! Writes to the tier: from a taken slot to a registered block.
//!
//! ```text
//!   take ─► slot ── write ──► in flight ── ended ─┬─► Stored   registered, the most recent block
//!                                 │               ├─► Failed   the slot is free once its record is forgotten
//!                                 │               └─► Lost     the slot is quarantined, with its volume
//!                                 └── no one will wait for it ─► abandoned: not used again
//! ```
//!
//! Invariants
//! - I1: a block is registered only after its payload is written.
//! - I2: a slot has no other owner until the device has answered its write.

use super::tier::DiskTier;
use kvstrata_core::{BlockId, ImmutableBlock, MutableBlock};
use kvstrata_ffi::arena::BlockRead;
use kvstrata_ffi::disk::{FailureCause, IoFailure, Name, Payload, Pending};

/// A block on its way to a slot. If dropped before [`DiskTier::finish`], it waits for the write and
/// frees the slot.
#[derive(Debug)]
#[must_use = "only finish() makes the block known"]
pub struct Writing<'t> {
    tier: &'t DiskTier,
    name: Name,
    /// `None` once it has ended.
    under_way: Option<(MutableBlock<'t>, Pending<BlockRead>)>,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The block is in the tier, the most recent of all.
    Stored,
    /// Its volume is out of service, and the slot is quarantined: retry with another slot.
    Lost,
    /// The write failed. The slot is free, or will be once its record is forgotten.
    Failed,
}

impl DiskTier {
    /// Writes a block to a slot; [`finish`](DiskTier::finish) waits for it. A payload that was summed
    /// when it was copied ([`Payload::summed`]) is not summed again.
    pub fn write<'t>(
        &'t self,
        slot: MutableBlock<'t>,
        name: Name,
        payload: impl Into<Payload>,
    ) -> Writing<'t> {
        let request = self.write_slot(slot.id(), name, payload);
        Writing { tier: self, name, under_way: Some((slot, request)) }
    }

    /// Like [`write`](DiskTier::write), for a slot that is owned by its number. Call
    /// [`ended`](DiskTier::ended) with the outcome, or [`abandoned`](DiskTier::abandoned) if no one can
    /// wait for it.
    pub fn write_slot(&self, slot: BlockId, name: Name, payload: impl Into<Payload>) -> Pending<BlockRead> {
        self.set_stale(slot, false);
        self.volumes.write(slot.0, name, payload)
    }

    /// The same, without waiting. If the queue of its volume is full, the bytes come back.
    pub(super) fn try_write_slot(
        &self,
        slot: BlockId,
        name: Name,
        payload: Payload,
    ) -> Result<Pending<BlockRead>, BlockRead> {
        let writing = self.volumes.try_write(slot.0, name, payload)?;
        self.set_stale(slot, false);
        Ok(writing)
    }

    /// Waits for the end of the write, and registers the block.
    pub fn finish(&self, mut writing: Writing<'_>) -> WriteOutcome {
        let Some((slot, request)) = writing.under_way.take() else { return WriteOutcome::Failed };
        let outcome = request.wait();
        self.ended(slot.into_id(), writing.name, outcome.as_ref())
    }

    /// Records the outcome of a write to a slot that is owned by its number; the slot is no longer the
    /// caller's. Registers the block. After a failure, or for a duplicate, waits while the queue of the
    /// slot's volume is full.
    pub fn ended(&self, slot: BlockId, name: Name, outcome: Result<&BlockRead, &IoFailure>) -> WriteOutcome {
        let outcome = self.note_ended(slot, name, outcome);
        self.forget_all(self.volume_of(slot.0));
        outcome
    }

    /// The same without a call to the volume: a slot without a block goes to the list of slots to
    /// forget.
    pub(super) fn note_ended(
        &self,
        slot: BlockId,
        name: Name,
        outcome: Result<&BlockRead, &IoFailure>,
    ) -> WriteOutcome {
        // Refused only if the caller did not own the slot: then there is nothing to free or to register.
        let Ok(slot) = self.pool.adopt_mutable(slot) else { return WriteOutcome::Failed };
        match outcome {
            Ok(bytes) => {
                self.counters.add(|mine| &mine.written);
                self.lengths.set(slot.id(), bytes.len());
                self.set_ours(slot.id());
                self.set_left(slot.id(), false);
                self.say_state(self.volume_of(slot.id().0));
                self.register(slot, name)
            }
            Err(IoFailure { cause: FailureCause::OutOfService, .. }) => {
                let id = slot.into_id();
                self.quarantine(id);
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

    /// Records that the outcome of a write will not be reported. The slot's number is forgotten, so no
    /// other write uses it (I2).
    pub fn abandoned(&self, _slot: BlockId) {
        self.counters.add(|mine| &mine.abandoned);
    }

    /// Whether a block gives way to another copy: its device does not answer, and it is not held.
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
            self.no_thread_comes(volume);
        }
        true
    }

    fn register(&self, slot: MutableBlock<'_>, name: Name) -> WriteOutcome {
        if let Some(there) = self.pool.find(name.hash)
            && !self.replaces(there)
        {
            // Another worker was quicker. Its copy is the most recent now, as this one would be, and no
            // policy counts that as a use. This copy must not come back. (Until the next line it may:
            // the next opening then finds two, and rejects one as a duplicate.)
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
