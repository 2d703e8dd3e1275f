//! Leases: a registered block's bytes stay as they are while a copy reads them, without counting as a
//! use. A lease is no reference: it neither hits the block nor moves it. So the block keeps its place in
//! the eviction order, and hits and releases by others count as always.
//!
//! ```text
//!   lease        children + 1, then the word's leases + 1
//!   an evictor   reads the word, then the children: deferred, if there is either;
//!                else the word to Reset, by compare-exchange
//!   end_lease    the word's leases - 1, then children - 1: the last one requeues a deferred block
//! ```
//!
//! The two counts answer two questions. *May it be recycled?* is the word's question: a lease changes the
//! word, so a claim that has not seen it fails. The count of children alone could not tell: it is in
//! another word than the one that a claim changes, and may rise between an evictor's look and its claim.
//! *When is it requeued?* is the children's question. To evictors a lease is one more child, and their
//! treatment of parents (out of the list, and back to the old place with the last child) is right for it,
//! in each policy. An evictor's pass meanwhile is not undone: SIEVE's hand meets the block on its next
//! round, and LFU, once the age is past the block's worth, puts it behind the others of least worth.
//!
//! I1. A block whose word counts a lease stays `Registered`, in this registration. Eviction defers
//!     it; `unregister` and `take_out` refuse. A withdrawn one ends with the last of its references
//!     and leases: see `Word::settled`.
//! I2. The word never counts more leases than children. So if an evictor saw a lease and then no child,
//!     the lease has ended in between, and looking again is progress.
//! I3. A block that is withdrawn, leased and not referenced counts as inactive. It cannot be found, and
//!     the end of its last lease frees it.

use super::stats::count;
use super::{BlockPool, EvictedBlock};
use crate::error::TransitionError;
use crate::id::BlockRef;
use crate::policy::{Event, Eviction};
use crate::slot::{MAX_LEASES, Slot, State, Word};
use crate::sync::skipped;

impl BlockPool {
    /// Keeps a registered block, active or inactive, from eviction until
    /// [`end_lease`](BlockPool::end_lease), without using it. False: it is no longer registered, or has
    /// 15 leases. Until its lease ends the block counts as available, though it is not.
    ///
    /// Example: [leases and withdrawal](BlockPool#leases-and-withdrawal).
    pub fn lease(&self, block: BlockRef) -> bool {
        let Some(slot) = self.slots.get(block.id.index()) else { return false };
        let may = |word: Word| {
            word.generation() == block.generation
                && word.state() == State::Registered
                && !word.withdrawn()
                && word.leases() < MAX_LEASES
        };
        // The first look shows that the counts of children are this registration's.
        if !may(slot.word()) || !slot.child_added(block.generation) {
            return false;
        }
        if skipped!("lease_as_child_only") {
            return true;
        }
        let leased = self.try_update(slot, |word| may(word).then(|| word.leased())).is_some();
        if !leased {
            self.child_gone(block);
        }
        leased
    }

    /// Ends a lease that [`lease`](BlockPool::lease) has given, once. The block is then where it would
    /// be without the lease. A block that was withdrawn meanwhile, and is not held, is freed.
    ///
    /// Example: [leases and withdrawal](BlockPool#leases-and-withdrawal).
    pub fn end_lease(&self, block: BlockRef) {
        let Some(slot) = self.slots.get(block.id.index()) else { return };
        let ours = |word: &Word| word.generation() == block.generation && word.leases() > 0;
        let Some(word) = self.try_update(slot, |word| ours(&word).then(|| word.lease_ended())) else {
            return;
        };
        if word.lease_ended().state() == State::Reset {
            self.count_inactive(word, -1);
            self.retire(block.id.0, word);
        } else if !skipped!("lease_end_forgets") {
            self.child_gone(block);
        }
    }

    /// Returns whether a registered block is leased: true for this moment only.
    ///
    /// Example: [leases and withdrawal](BlockPool#leases-and-withdrawal).
    #[must_use]
    pub fn is_leased(&self, block: BlockRef) -> bool {
        let word = self.slots.get(block.id.index()).map(|slot| slot.word());
        word.is_some_and(|word| word.generation() == block.generation && word.leases() > 0)
    }

    /// Returns whether a registered block has leases, or resident children, which are useless without
    /// it: true for this moment only.
    ///
    /// Example: [leases and withdrawal](BlockPool#leases-and-withdrawal).
    #[must_use]
    pub fn has_children(&self, block: BlockRef) -> bool {
        let same = |slot: &&Slot| slot.word().generation() == block.generation;
        self.slots.get(block.id.index()).filter(same).is_some_and(Slot::has_children)
    }

    /// Takes a particular inactive block, as if it had been evicted: its bytes are intact and the
    /// caller's. It counts as removed, not as evicted.
    ///
    /// Example: [eviction](BlockPool#eviction).
    ///
    /// # Errors
    /// As of [`unregister`](BlockPool::unregister).
    pub fn take_out(&self, block: BlockRef) -> Result<EvictedBlock<'_>, TransitionError> {
        self.claim_inactive(block)?;
        self.end_registration(block.id.0, block.generation);
        Ok(EvictedBlock::new(self, block.id))
    }

    /// As [`take_out`](BlockPool::take_out), and it counts as evicted: for a caller that needs room and
    /// chooses the victim.
    ///
    /// Example: [eviction](BlockPool#eviction).
    ///
    /// # Errors
    /// As of [`unregister`](BlockPool::unregister).
    pub fn evict_this(&self, block: BlockRef) -> Result<EvictedBlock<'_>, TransitionError> {
        self.claim_inactive(block)?;
        let slot = self.slot(block.id);
        self.policy.on(block.id.0, slot, Event::TakenOut { parent: self.parent_of(slot) });
        self.end_registration(block.id.0, block.generation);
        count(&self.lane().evicted, 1);
        Ok(EvictedBlock::new(self, block.id))
    }
}
