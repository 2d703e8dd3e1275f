//! Reads of the tier: from a held block to its bytes, or to the reason why there are none.
//!
//! ```text
//!   held block ── read ──► in flight ── ended ─┬─► its bytes
//!                                              ├─► Rejected  other bytes or another record: a miss
//!                                              ├─► Failed    its record is forgotten, while it is held
//!                                              └─► Spared, Refused: the block stays
//! ```

use super::tier::DiskTier;
use kvstrata_core::{BlockId, ImmutableBlock, SequenceHash};
use kvstrata_ffi::arena::BlockWrite;
use kvstrata_ffi::disk::{FailureCause, IoFailure, Pending, Urgency};
use std::sync::atomic::Ordering::Relaxed;

/// Why a read returned no block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The volume answered with something other than the block. The tier has counted it.
    Rejected,
    /// The transfer failed, or its volume is lost.
    Failed,
    /// The volume temporarily does not answer, or the machine was short of a resource: the block stays.
    Spared,
    /// The buffer is not as long as the block, or O_DIRECT cannot move it: the block stays.
    Refused,
}

impl DiskTier {
    /// Returns the bytes of a block that the caller holds. A read of the block needs a buffer of this length.
    #[must_use]
    pub fn bytes_of(&self, block: BlockId) -> usize {
        self.lengths.of(block)
    }

    /// Reads a block. The caller holds it until the read has ended, and passes a failure to
    /// [`rejected`](DiskTier::rejected).
    pub fn read(
        &self,
        block: &ImmutableBlock<'_>,
        urgency: Urgency,
        buffer: BlockWrite,
    ) -> Pending<BlockWrite> {
        self.read_slot(block.id(), block.hash(), urgency, buffer)
    }

    /// Like [`read`](DiskTier::read), for a block that is held by its number.
    pub fn read_slot(
        &self,
        slot: BlockId,
        hash: SequenceHash,
        urgency: Urgency,
        buffer: BlockWrite,
    ) -> Pending<BlockWrite> {
        self.volumes.read(slot.0, hash, urgency, buffer)
    }

    /// Records that a read of a block failed, and ends its record. When the last reference is released,
    /// call [`unregister`](DiskTier::unregister).
    pub fn rejected(&self, block: &ImmutableBlock<'_>, failure: &IoFailure) -> ReadOutcome {
        self.rejected_slot(block.id(), failure)
    }

    /// Like [`rejected`](DiskTier::rejected), for a block that is held by its number.
    pub fn rejected_slot(&self, slot: BlockId, failure: &IoFailure) -> ReadOutcome {
        let forget = |slot| {
            self.volumes.forget(slot);
            true
        };
        self.reject(slot, failure, forget).unwrap_or(ReadOutcome::Failed)
    }

    /// The same, without waiting. `None`: nothing was recorded, because the queue of its volume is full.
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
            // The payload does not match its record: the volume has then emptied the slot. Or the record
            // is another block's, and stays.
            FailureCause::Rejected(why) => {
                let after_crash = self.after_crash.get(slot as usize).is_some_and(|slot| slot.load(Relaxed));
                self.counters.rejected(why, after_crash);
                self.say_rejected(self.volume_of(slot), why, after_crash);
                return Some(ReadOutcome::Rejected);
            }
            FailureCause::OutOfService => self.lose(slot),
            // The caller's mistake: it says nothing about the block.
            cause if cause.is_of_the_buffer() => {
                self.say_failed(self.volume_of(slot), failure);
                return Some(ReadOutcome::Refused);
            }
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

    /// Whether a failure says nothing about the slot: its block is as good as before.
    fn spares(&self, slot: u32, failure: &IoFailure) -> bool {
        let volume = self.volume_of(slot);
        failure.is_retryable() || self.is_away(volume) || self.volumes.volumes()[volume].is_in_doubt()
    }
}
