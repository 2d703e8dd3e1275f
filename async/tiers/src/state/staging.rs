//! Blocks of host memory for staging: what passes through on its way to or from the disk.

use crate::state::{HostSlot, TransferId};

/// Those of a group.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    /// The last one is taken first.
    free: Vec<HostSlot>,
    /// By place: a block, and the last transfer that had it.
    holders: Vec<Option<(HostSlot, TransferId)>>,
}

impl Staging {
    pub(crate) fn new(free: Vec<HostSlot>) -> Staging {
        Staging { free, holders: Vec::new() }
    }

    /// How many are free.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a free one.
    pub(crate) fn take(&mut self) -> Option<HostSlot> {
        self.free.pop()
    }

    /// One is free.
    pub(crate) fn give(&mut self, block: HostSlot) {
        self.free.push(block);
    }

    /// One is free that something else still uses: it is taken last.
    pub(crate) fn give_to_end(&mut self, block: HostSlot) {
        self.free.insert(0, block);
    }

    /// A transfer has the block at a place.
    pub(crate) fn note_holder(&mut self, place: usize, block: HostSlot, transfer: TransferId) {
        if self.holders.len() <= place {
            self.holders.resize(place + 1, None);
        }
        self.holders[place] = Some((block, transfer));
    }

    /// Blocks, and the transfers that had them last.
    pub(crate) fn holders(&self) -> impl Iterator<Item = (HostSlot, TransferId)> {
        self.holders.iter().flatten().copied()
    }

    /// Lends the same, to be given back.
    pub(crate) fn lend_holders(&mut self) -> Vec<Option<(HostSlot, TransferId)>> {
        std::mem::take(&mut self.holders)
    }

    /// See [`lend_holders`](Staging::lend_holders).
    pub(crate) fn return_holders(&mut self, holders: Vec<Option<(HostSlot, TransferId)>>) {
        self.holders = holders;
    }
}
