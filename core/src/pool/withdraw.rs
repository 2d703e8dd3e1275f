//! Withdrawal by number: a held block can no longer be found, and the caller that
//! withdrew it gets it in the end.
//!
//! ```text
//!   registered     returns the registration that a block has now
//!   withdraw       the caller holds a reference: the word is marked, and lookups pass the block
//!   hold_withdrawn takes a reference to a withdrawn block that others still hold or lease,
//!                  by compare-exchange of the same word
//!   take_withdrawn the caller's reference is the only one left: the word to Reset by compare-exchange; the
//!                  block and its bytes become the caller's
//! ```
//!
//! The reference that the caller keeps makes the last step possible: without it the last holder's
//! release would free the block, and the next allocation would get its bytes. This is for bytes that
//! must be overwritten first. A caller that has not withdrawn the block itself gets such a reference by
//! the block's number, as long as the block is held or leased.
//!
//! I1. A withdrawn block is not found, nor upgraded. So its references grow only by clones of existing
//!     ones, and by `hold_withdrawn`, which is for callers that want the block in the end.
//! I2. `take_withdrawn` is the release of an only reference without the freeing. It makes the same
//!     exchange of the same word, so either it or a concurrent clone fails. The same is true of
//!     `hold_withdrawn` and the last release: either the block is kept, or it was free before.

use super::{BlockPool, EvictedBlock};
use crate::hash::SequenceHash;
use crate::id::{BlockId, BlockRef};
use crate::registry::Acquired;
use crate::slot::{MAX_REFERENCES, State, Word};
use crate::sync::skipped;

impl BlockPool {
    /// Returns the registration that a block has now, if lookups can find it: true for this moment only.
    ///
    /// Example: [leases and withdrawal](BlockPool#leases-and-withdrawal).
    #[must_use]
    pub fn registered(&self, block: BlockId) -> Option<(BlockRef, SequenceHash)> {
        let slot = self.slots.get(block.index())?;
        let word = slot.word();
        let hash = slot.key();
        let found = word.state() == State::Registered && !word.withdrawn();
        // If the block was recycled meanwhile, the hash may be of another registration: then the
        // generation is stale, and its next use fails.
        found.then_some((BlockRef { id: block, generation: word.generation() }, hash))
    }

    /// Withdraws a block that the caller holds: no lookup finds it from now on. Its last reference
    /// or lease frees it, unless [`take_withdrawn`](BlockPool::take_withdrawn) comes first. False:
    /// it is not held, or was recycled.
    ///
    /// Example: [leases and withdrawal](BlockPool#leases-and-withdrawal).
    pub fn withdraw_held(&self, block: BlockRef) -> bool {
        if self.held_word(block).is_err() {
            return false;
        }
        self.withdraw(block);
        true
    }

    /// Takes a reference to a withdrawn block that others hold or lease, for
    /// [`take_withdrawn`](BlockPool::take_withdrawn); also returns its hash. Each call takes one more.
    /// None: the block is not withdrawn, or no longer kept by a holder or lease, or its count is full.
    ///
    /// Example: [leases and withdrawal](BlockPool#leases-and-withdrawal).
    #[must_use]
    pub fn hold_withdrawn(&self, block: BlockId) -> Option<(BlockRef, SequenceHash)> {
        let slot = self.slots.get(block.index())?;
        let kept = |word: Word| {
            let withdrawn = word.state() == State::Registered && word.withdrawn();
            withdrawn && word.references() < MAX_REFERENCES || skipped!("withdraw_holds_free")
        };
        let word = self.try_update(slot, |word| kept(word).then(|| word.acquired()))?;
        // Kept by leases alone it counts as inactive.
        let held = self.hold(Acquired { slot: block.0, word });
        let hash = held.hash();
        Some((held.into_ref(), hash))
    }

    /// Takes a withdrawn block as if it had been evicted, if the caller's reference is the only one and there
    /// is no lease. The reference is then gone. None: others still have the block, or it is not withdrawn.
    ///
    /// Example: [leases and withdrawal](BlockPool#leases-and-withdrawal).
    #[must_use]
    pub fn take_withdrawn(&self, block: BlockRef) -> Option<EvictedBlock<'_>> {
        let slot = self.slots.get(block.id.index())?;
        let word = self.try_update(slot, |word| {
            let ours = word.generation() == block.generation
                && word.state() == State::Registered
                && word.withdrawn()
                && (word.references() == 1 || skipped!("withdraw_takes_shared"))
                && word.leases() == 0;
            ours.then(|| if skipped!("withdraw_takes_shared") { word.reset() } else { word.let_go() })
        })?;
        if !word.orphan() {
            self.end_registration(block.id.0, word.generation());
        }
        Some(EvictedBlock::new(self, block.id))
    }
}
