//! Blocks of host memory for staging: bytes pass through them on their way to or from the disk.

use crate::state::{HostSlot, TransferId};

/// The staging of a group.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    /// The last block is taken first.
    free: Vec<HostSlot>,
    /// By place: a block, and the last transfer that had it.
    holders: Vec<Option<(HostSlot, TransferId)>>,
}

impl Staging {
    pub(crate) fn new(free: Vec<HostSlot>) -> Staging {
        Staging { free, holders: Vec::new() }
    }

    /// Returns the number of free blocks.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a free block.
    pub(crate) fn take(&mut self) -> Option<HostSlot> {
        self.free.pop()
    }

    /// Frees a block.
    pub(crate) fn give(&mut self, block: HostSlot) {
        self.free.push(block);
    }

    /// Frees a block that something else still uses: it is taken last.
    pub(crate) fn give_to_end(&mut self, block: HostSlot) {
        self.free.insert(0, block);
    }

    /// Notes that a transfer has the block at a place.
    pub(crate) fn note_holder(&mut self, place: usize, block: HostSlot, transfer: TransferId) {
        if self.holders.len() <= place {
            self.holders.resize(place + 1, None);
        }
        self.holders[place] = Some((block, transfer));
    }

    /// Returns blocks, each with the last transfer that had it.
    pub(crate) fn holders(&self) -> impl Iterator<Item = (HostSlot, TransferId)> {
        self.holders.iter().flatten().copied()
    }

    /// Lends the list of holders, to be given back.
    pub(crate) fn lend_holders(&mut self) -> Vec<Option<(HostSlot, TransferId)>> {
        std::mem::take(&mut self.holders)
    }

    /// Gives the list of holders back.
    pub(crate) fn return_holders(&mut self, holders: Vec<Option<(HostSlot, TransferId)>>) {
        self.holders = holders;
    }
}
