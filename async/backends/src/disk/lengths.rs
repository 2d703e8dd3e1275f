//! The lengths of blocks, by slot. A block may be shorter than its slot.
//!
//! Invariants
//! - I1: a registered block has its length here: set by the opening that found it, or by the write that
//!   stored it, before the block was registered.

use kvstrata_core::BlockId;
use kvstrata_ffi::disk::Recovered;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// By slot: the length of its block.
#[derive(Debug)]
pub(super) struct Lengths(Box<[AtomicU32]>);

impl Lengths {
    /// The lengths of the blocks that an opening has found.
    pub(super) fn found(slots: u64, found: &[Recovered]) -> Lengths {
        let mut lengths: Box<[AtomicU32]> = (0..slots).map(|_| AtomicU32::new(0)).collect();
        for block in found {
            let of = lengths.get_mut(block.slot as usize);
            of.into_iter().for_each(|slot| *slot.get_mut() = block.payload_bytes);
        }
        Lengths(lengths)
    }

    /// The length of a block, for a holder of the block.
    pub(super) fn of(&self, block: BlockId) -> usize {
        // Relaxed: as in `set`.
        self.0.get(block.index()).map_or(0, |bytes| bytes.load(Relaxed) as usize)
    }

    /// Sets the length of the block in a slot, for the slot's owner.
    pub(super) fn set(&self, slot: BlockId, bytes: usize) {
        if let Some(of) = self.0.get(slot.index()) {
            // Relaxed: the block is registered after this, and the pool's own words order that before any act
            // of a holder of the block. A volume's slots are below 4 GiB.
            of.store(u32::try_from(bytes).unwrap_or(u32::MAX), Relaxed);
        }
    }
}
