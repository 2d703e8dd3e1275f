//! Withdrawal by number: a block that somebody holds is found by nobody from now on, and whoever withdrew it
//! has it in the end.
//!
//! ```text
//!   registered     which registration has a block now
//!   withdraw       the caller holds a reference: the word is marked, lookups pass by
//!   hold_withdrawn one that is withdrawn, and that others still hold or lease: a reference more, by compare-exchange of the same word
//!   take_withdrawn the caller's is the only reference left: the word to Reset by compare-exchange, the block the caller's with its bytes
//! ```
//!
//! The reference that the caller keeps is what makes the last step possible: without one the last holder's
//! release would free the block, and its bytes would be whoever's allocates next. For bytes that must be
//! overwritten first. Who has not withdrawn the block itself gets such a reference by the block's number, as
//! long as somebody keeps the block.
//!
//! I1. A withdrawn block is not found, nor upgraded, so that its references only grow by clones of those that
//! are there, and by
//!     `hold_withdrawn`, which is for who wants the block in the end.
//! I2. `take_withdrawn` is the release of an only reference, but for the freeing: the same exchange of the
//! same word, so that of
//!     it and a clone made meanwhile one fails. The same is true of `hold_withdrawn` and the last release: either the block is kept, or it
//!     was free before.

use super::{BlockPool, EvictedBlock};
use crate::hash::SequenceHash;
use crate::id::{BlockId, BlockRef};
use crate::registry::Acquired;
use crate::slot::{MAX_REFERENCES, State, Word};
use crate::sync::skipped;

impl BlockPool {
    /// What is registered in a block now, and can be found: true for this moment only.
    #[must_use]
    pub fn registered(&self, block: BlockId) -> Option<(BlockRef, SequenceHash)> {
        let slot = self.slots.get(block.index())?;
        let word = slot.word();
        let hash = slot.key();
        let found = word.state() == State::Registered && !word.withdrawn();
        // Recycled meanwhile, the hash may be of another registration: then the generation is not found again by whoever uses it.
        found.then_some((BlockRef { id: block, generation: word.generation() }, hash))
    }

    /// Withdraws a block that the caller holds: no lookup finds it from now on, and with its last reference or lease it is free, unless
    /// [`take_withdrawn`](BlockPool::take_withdrawn) comes first. False: nobody holds it, or it was recycled.
    pub fn withdraw_held(&self, block: BlockRef) -> bool {
        if self.held_word(block).is_err() {
            return false;
        }
        self.withdraw(block);
        true
    }

    /// A reference to a withdrawn block that others hold or lease, for [`take_withdrawn`](BlockPool::take_withdrawn); and its hash. Each call
    /// gives one more. None: it is not withdrawn, or nobody has it any more, or its count is full.
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

    /// Takes a withdrawn block of which the caller's is the only reference, and which nobody leases, as if it had been evicted; the reference
    /// is gone then. None: others still have it, or it is not withdrawn.
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
