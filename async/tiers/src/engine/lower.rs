//! A tier below host memory: its port, its name, and the owners of its blocks.

use crate::transfer::TierPort;
use kvstrata_core::classes::below;
use kvstrata_core::owners::Owners;
use kvstrata_core::{BlockId, BlockRef, Priority, SequenceHash, TenantId};
use std::sync::Arc;

/// One of a group's tiers below host memory.
pub(crate) struct LowerTier {
    /// For figures, messages and calls.
    pub(crate) name: String,
    pub(crate) port: Arc<dyn TierPort>,
    /// Owners by slot, of blocks that this process has written there or found there.
    pub(crate) owners: Arc<Owners>,
}

impl LowerTier {
    /// Whether the tier has a block now, without a use of it.
    pub(crate) fn contains(&self, hash: SequenceHash) -> bool {
        self.port.pool().contains(hash)
    }

    /// Whether the tier has a block, whose class follows `class`, of the tier above, from now on.
    pub(crate) fn has(&self, hash: SequenceHash, class: Priority) -> bool {
        self.port.find(hash, false).is_some_and(|there| {
            if there.priority() != below(class) {
                there.set_priority(below(class));
            }
            true
        })
    }

    /// Ends one reference to a block.
    pub(crate) fn release(&self, block: BlockRef) {
        self.port.pool().release_refs([block]);
        self.owners.stir(block.id);
    }

    /// Returns the eviction class of a held block. The pool keeps it in memory: it lasts as long as
    /// the process.
    pub(crate) fn class(&self, block: BlockRef) -> Priority {
        self.port.pool().upgrade(block).map_or(Priority::Normal, |held| held.priority())
    }

    /// Sets the class of a block that was written to a slot, from its class in the tier above.
    pub(crate) fn classify(&self, slot: BlockId, hash: SequenceHash, class: Priority) {
        if class == Priority::Normal {
            return;
        }
        let there = self.port.pool().registered(slot).filter(|(_, there)| *there == hash);
        if let Some(held) = there.and_then(|(block, _)| self.port.pool().upgrade(block)) {
            held.set_priority(below(class));
        }
    }

    /// Takes the owner from a slot that was not written, or is to be forgotten. The slot is free once its
    /// content has been forgotten, after the lock is released.
    pub(crate) fn give_up(&self, slot: BlockId) {
        self.owners.hand_over(slot, TenantId::NONE);
        self.port.release(slot);
    }
}
