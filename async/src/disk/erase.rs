//! Erasing slots: what they held is found by nobody any more, not after a restart either; overwritten before, if asked for.
//!
//! Overwriting is a write like any other, of zeros, under a name that no sequence has: so it takes its turn, is encrypted where the volume is, and
//! has been answered by the device before the record is forgotten. A process that is killed between the two leaves a record of zeros.
//!
//! Invariants
//! - I1: a slot here is the caller's, so no block of anybody's is registered in it.

use super::tier::DiskTier;
use kvstrata_core::hash::BlockHasher;
use kvstrata_core::{BlockId, BlockRef, MutableBlock, SequenceHash, Xxh3};
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::disk::{Name, OwnerId};
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
                self.park(slot);
                None
            }
        }
    }

    /// Erases slots that the caller has taken; ends when that is on the device for good. Gives those that could not be overwritten, though
    /// forgotten. What slots that were given back before held is found by no restart either. Blocks until then.
    pub fn erase(&self, slots: &[BlockId], zero: bool) -> Vec<BlockId> {
        let kept = if zero { self.overwrite(slots) } else { Vec::new() };
        self.forget_all();
        for slot in slots {
            self.volumes.forget(slot.0);
            self.set_stale(*slot, false);
        }
        // A volume that is out of service says so; its slots are found by nobody while it is.
        for flush in self.volumes.flush() {
            let _ = flush.wait();
        }
        kept
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
