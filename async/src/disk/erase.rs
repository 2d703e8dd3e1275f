//! Erasing slots: what they held is found by nobody any more, not after a restart either; overwritten before, if asked for.
//!
//! Overwriting is a write like any other, of zeros, under a name that no sequence has: so it takes its turn, is encrypted where the volume is, and
//! has been answered by the device before the record is forgotten. A process that is killed between the two leaves a record of zeros.
//!
//! What a volume forgets is forgotten for good when it has written its table: one that is out of service, or cannot write, goes on having
//! what it had. Nobody finds that while this tier is open; the next opening may, and so the slots are told.
//!
//! Invariants
//! - I1: a slot here is the caller's, so no block of anybody's is registered in it.
//! - I2: each volume does its part for itself, so that one that hangs keeps no other from it.

use super::tier::DiskTier;
use kvstrata_core::hash::BlockHasher;
use kvstrata_core::{BlockId, BlockRef, MutableBlock, SequenceHash, Xxh3};
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::disk::{FailureCause, Name, OwnerId};
use std::sync::Arc;

/// Writes of zeros under way at most.
const AT_ONCE: usize = 32;

impl DiskTier {
    /// Takes the slot of a particular block that nobody holds. None: it is held, gone, or its volume lost.
    pub fn take_this(&self, block: BlockRef) -> Option<MutableBlock<'_>> {
        let slot = self.pool.take_out(block).ok()?.into_mutable();
        match self.is_lost(slot.id().0) {
            false => {
                self.set_stale(slot.id(), true);
                Some(slot)
            }
            true => {
                self.park(slot.into_id());
                None
            }
        }
    }

    /// Erases slots of a volume, which the caller has taken; ends when that is on the device for good. Gives those of which that is not so:
    /// they could not be overwritten, or the volume has not written down that they are forgotten. What slots of it that were given back
    /// before held is found by no restart either. Blocks until then.
    pub(super) fn erase(&self, volume: usize, slots: &[BlockId], zero: bool) -> Vec<BlockId> {
        let kept = if zero { self.overwrite(slots) } else { Vec::new() };
        self.forget_all(volume);
        for slot in slots {
            self.volumes.forget(slot.0);
            self.set_stale(*slot, false);
        }
        if self.flush(volume) { kept } else { slots.to_vec() }
    }

    /// Forgets what slots of a volume held that were given back; whether that is on the device for good. Blocks until then.
    pub(super) fn forget_for_good(&self, volume: usize) -> bool {
        self.forget_all(volume);
        self.flush(volume)
    }

    fn flush(&self, volume: usize) -> bool {
        match self.volumes.volumes()[volume].flush().wait() {
            Ok(()) => true,
            Err(failure) => {
                if matches!(failure.cause, FailureCause::OutOfService) {
                    self.lose_volume(volume);
                }
                false
            }
        }
    }

    fn overwrite(&self, slots: &[BlockId]) -> Vec<BlockId> {
        let hash = SequenceHash::from_u128(Xxh3.bytes(b"kvstrata.erased"));
        let name = Name { hash, parent: None, owner: OwnerId::NOBODY };
        // Fresh memory is zeros.
        let Ok(zeros) = HostArena::new(1, self.volumes.slot_bytes()) else { return slots.to_vec() };
        let mut kept = Vec::new();
        for some in slots.chunks(AT_ONCE) {
            let begin = |slot: &BlockId| {
                let bytes = Arc::clone(&zeros).read(0).ok();
                (*slot, bytes.map(|bytes| self.write_slot(*slot, name, bytes)))
            };
            let writes: Vec<_> = some.iter().map(begin).collect();
            for (slot, write) in writes {
                let written = match write {
                    Some(write) => write.wait().is_ok(),
                    None => false,
                };
                if !written {
                    kept.push(slot);
                }
            }
        }
        kept
    }
}
