//! Registration: a complete block becomes visible, or gives way to an existing one.

use super::stats::count;
use super::{BlockPool, CompleteBlock, ImmutableBlock};
use crate::error::{Reason, TransitionError};
use crate::id::{BlockId, BlockRef};
use crate::policy::{Event, Eviction, Uses};
use crate::registry::Inserted;
use crate::slot::{NIL, Slot, State, Word};
use crate::sync::skipped;
use alloc::vec::Vec;
use core::iter;

/// The outcome of a registration.
#[derive(Debug)]
pub enum Registered<'p> {
    /// It is now visible under its hash.
    New(ImmutableBlock<'p>),
    /// An existing block of this hash. The caller's copy was reset and freed.
    Deduplicated(ImmutableBlock<'p>),
}

impl<'p> Registered<'p> {
    /// The block of this hash, new or existing.
    pub fn into_block(self) -> ImmutableBlock<'p> {
        match self {
            Registered::New(block) | Registered::Deduplicated(block) => block,
        }
    }
}

/// Ties a registration to a scope. Dropping the last handle of a block withdraws its registration: at
/// once, or with the last of its references and leases. A block that was also registered without a scope
/// stays until it is evicted, and so does one of more than 2,046 scopes.
#[derive(Debug)]
#[must_use = "dropped at once, it ends the registration at once"]
pub struct RegistrationHandle<'p> {
    pool: &'p BlockPool,
    block: BlockRef,
}

impl Drop for RegistrationHandle<'_> {
    fn drop(&mut self) {
        if self.pool.slot(self.block.id).scope_ended(self.block.generation) {
            self.pool.withdraw(self.block);
        }
    }
}

/// The parents of the blocks of a list.
#[derive(Debug, Clone, Copy)]
pub(super) enum Chain {
    /// No block is another's parent.
    Apart,
    /// Each block is the next one's parent, and this one is the first one's.
    Behind(Option<BlockRef>),
}

impl Chain {
    fn parent(self) -> Option<BlockRef> {
        match self {
            Chain::Apart => None,
            Chain::Behind(parent) => parent,
        }
    }

    fn goes_on(&mut self, block: BlockRef) {
        if let Chain::Behind(parent) = self {
            *parent = Some(block);
        }
    }
}

impl BlockPool {
    /// `Complete → Registered`. `parent` is the block before it in its sequence, which is not evicted
    /// before it.
    ///
    /// Example: [a block's life](BlockPool#a-blocks-life).
    pub fn register<'p>(
        &'p self,
        block: CompleteBlock<'p>,
        parent: Option<&ImmutableBlock<'p>>,
    ) -> Registered<'p> {
        self.register_counted(block, parent, false)
    }

    /// As [`register`](BlockPool::register), but the block stays even if one of its hash is registered
    /// already: both stay, as under [`Duplicates::Keep`](crate::Duplicates::Keep). For a block whose
    /// bytes are being read, which must not be recycled.
    ///
    /// Example: [a block's life](BlockPool#a-blocks-life).
    pub fn register_beside<'p>(
        &'p self,
        block: CompleteBlock<'p>,
        parent: Option<&ImmutableBlock<'p>>,
    ) -> ImmutableBlock<'p> {
        let parent = parent.map(ImmutableBlock::downgrade);
        let registered = self.register_one(block, parent, false, false);
        count(&self.lane().stored, 1);
        registered.into_block()
    }

    fn register_counted<'p>(
        &'p self,
        block: CompleteBlock<'p>,
        parent: Option<&ImmutableBlock<'p>>,
        scoped: bool,
    ) -> Registered<'p> {
        let registered = self.register_one(block, parent.map(ImmutableBlock::downgrade), scoped, self.unique);
        match registered {
            Registered::New(_) => count(&self.lane().stored, 1),
            Registered::Deduplicated(_) => count(&self.lane().deduplicated, 1),
        }
        registered
    }

    /// Registers the blocks of one sequence, each the parent of the next, behind `parent`. Drains `blocks`,
    /// and appends a reference for each to `out`: the block itself, or an existing block of its hash.
    /// Returns how many existed. As one batch, the cache misses overlap, and the blocks are counted once.
    ///
    /// Example: [a block's life](BlockPool#a-blocks-life).
    pub fn register_sequence<'p>(
        &'p self,
        blocks: &mut Vec<CompleteBlock<'p>>,
        parent: Option<&ImmutableBlock<'p>>,
        out: &mut Vec<ImmutableBlock<'p>>,
    ) -> usize {
        for block in blocks.iter() {
            self.registry.prefetch_slot(&self.slots, self.slot(block.id()).key());
        }
        let parent = parent.map(ImmutableBlock::downgrade);
        self.register_each(blocks.drain(..), Chain::Behind(parent), out, |block| block)
    }

    /// Registers blocks, linked by `chain`, and appends the result of `keep` on each reference. Returns
    /// how many existed.
    pub(super) fn register_each<'p, T>(
        &'p self,
        blocks: impl Iterator<Item = CompleteBlock<'p>>,
        mut chain: Chain,
        out: &mut Vec<T>,
        keep: impl Fn(ImmutableBlock<'p>) -> T,
    ) -> usize {
        let (start, mut present, mut uses) = (out.len(), 0, Uses::default());
        for block in blocks {
            let registered = self.register_uncounted(block, chain.parent(), false, self.unique, &mut uses);
            present += u64::from(matches!(registered, Registered::Deduplicated(_)));
            let block = registered.into_block();
            chain.goes_on(block.downgrade());
            out.push(keep(block));
        }
        self.policy.end_uses(&mut uses);
        let lane = self.lane();
        count(&lane.stored, (out.len() - start) as u64 - present);
        if present > 0 {
            count(&lane.deduplicated, present);
        }
        present as usize
    }

    /// Registers one block by itself.
    fn register_one<'p>(
        &'p self,
        block: CompleteBlock<'p>,
        parent: Option<BlockRef>,
        scoped: bool,
        unique: bool,
    ) -> Registered<'p> {
        let mut uses = Uses::default();
        let registered = self.register_uncounted(block, parent, scoped, unique, &mut uses);
        self.policy.end_uses(&mut uses);
        registered
    }

    fn register_uncounted<'p>(
        &'p self,
        block: CompleteBlock<'p>,
        parent: Option<BlockRef>,
        scoped: bool,
        unique: bool,
        uses: &mut Uses,
    ) -> Registered<'p> {
        let (pool, id) = block.into_parts();
        debug_assert!(core::ptr::eq(pool, self), "{id} is of another pool");
        let slot = self.slot(id);
        let key = slot.key();
        let complete = slot.word();
        debug_assert_eq!(complete.state(), State::Complete);
        slot.begin_registration(complete.generation(), pack(parent), scoped);
        self.policy.on(id.0, slot, Event::Registering { parent: parent.map(|parent| parent.id.0) });
        // Registered before it can be found: an insert that finds it can acquire it at once. The
        // first reference is the caller's.
        slot.set_word(complete.with_state(State::Registered).acquired());
        loop {
            match self.registry.insert(&self.slots, id.0, key, unique) {
                Inserted::New => {
                    if let Some(parent) = parent {
                        self.add_child(slot, pack(Some(parent)), parent);
                        let above = self.slot(parent.id);
                        if above.has_siblings() {
                            self.policy.on(parent.id.0, above, Event::Forked);
                        }
                    }
                    self.policy.on(id.0, slot, Event::Registered(uses));
                    if let Some(sink) = &self.sink {
                        sink.stored(BlockRef { id, generation: complete.generation() }, key, parent);
                    }
                    return Registered::New(ImmutableBlock::new(self, id));
                }
                Inserted::Present(found) => {
                    let present = self.use_one(found, uses);
                    let there = self.slot(present.id());
                    if !there.scope_joined(found.word.generation(), scoped) {
                        // Its last scope has ended, and the thread that ended it is about to
                        // withdraw it. We do not wait for that.
                        self.update(present.id(), Word::with_withdrawal);
                        continue;
                    }
                    self.discard(id);
                    if let Some(parent) = parent {
                        self.adopt_orphan(there, parent);
                    }
                    return Registered::Deduplicated(present);
                }
            }
        }
    }

    /// Counts `child`, whose parent is stored as `packed`, with its parent. The caller holds both.
    fn add_child(&self, child: &Slot, packed: u64, parent: BlockRef) {
        if !self.slot(parent.id).child_added(parent.generation) {
            child.replace_parent(packed, pack(None));
        }
    }

    /// Gives a block that outlived its parent's registration its sequence's present
    /// parent. The caller holds both.
    fn adopt_orphan(&self, child: &Slot, parent: BlockRef) {
        let (old, new) = (child.parent(), pack(Some(parent)));
        let orphaned = unpack(old).is_some_and(|old| self.slot(old.id).word().generation() != old.generation);
        let itself = core::ptr::eq(child, self.slot(parent.id));
        if orphaned && !itself && child.replace_parent(old, new) {
            self.add_child(child, new, parent);
        }
    }

    /// As [`register`](BlockPool::register), for content that must not outlive one or several scopes:
    /// see [`RegistrationHandle`]. The block stays as long as the handle does, unless it is evicted,
    /// whether this call stored it or found it.
    ///
    /// Example: [leases and withdrawal](BlockPool#leases-and-withdrawal).
    pub fn register_scoped<'p>(
        &'p self,
        block: CompleteBlock<'p>,
        parent: Option<&ImmutableBlock<'p>>,
    ) -> (Registered<'p>, RegistrationHandle<'p>) {
        let registered = self.register_counted(block, parent, true);
        let (Registered::New(block) | Registered::Deduplicated(block)) = &registered;
        let handle = RegistrationHandle { pool: self, block: block.downgrade() };
        (registered, handle)
    }

    /// `Registered → Reset` of a block that is not held.
    ///
    /// Example: [leases and withdrawal](BlockPool#leases-and-withdrawal).
    ///
    /// # Errors
    /// The block is referenced (by a sequence, by a transfer, or for a moment by an evictor that gives
    /// it another place) or leased; or it was recycled.
    pub fn unregister(&self, block: BlockRef) -> Result<(), TransitionError> {
        self.claim_inactive(block)?;
        self.end_registration(block.id.0, block.generation);
        self.free.free(iter::once(block.id.0));
        Ok(())
    }

    /// `Registered → Reset` of a block that is neither held nor leased. The caller then owns
    /// it, and ends its registration.
    pub(super) fn claim_inactive(&self, block: BlockRef) -> Result<(), TransitionError> {
        let mut word = self.checked_word(block.id)?;
        let slot = self.slot(block.id);
        loop {
            if word.generation() != block.generation || word.state() != State::Registered {
                return Err(self.refusal(block.id, Reason::Recycled));
            }
            if word.references() > 0 {
                return Err(self.refusal(block.id, Reason::Referenced { references: word.references() }));
            }
            if word.leases() > 0 && !skipped!("lease_unregistered") {
                return Err(self.refusal(block.id, Reason::Leased { leases: word.leases() }));
            }
            match slot.try_swap(word, word.reset()) {
                Ok(()) => break,
                Err(seen) => word = seen,
            }
        }
        self.count_inactive(word, -1);
        Ok(())
    }

    /// Ends a registration: now, or when the block is no longer held or leased. Lookups do
    /// not find it from now on.
    pub(super) fn withdraw(&self, block: BlockRef) {
        let kept = |error| matches!(error, Reason::Referenced { .. } | Reason::Leased { .. });
        while self.unregister(block).is_err_and(|error| kept(error.reason)) {
            let slot = self.slot(block.id);
            let word = slot.word();
            let same = word.generation() == block.generation || skipped!("withdraw_another");
            let kept = same && word.references() + word.leases() > 0;
            if kept && slot.try_swap(word, word.with_withdrawal()).is_ok() {
                return;
            }
        }
    }

    /// Gives up a copy that was never inserted. A stale reader of its slot's last chain
    /// may hold it for a moment.
    fn discard(&self, id: BlockId) {
        let slot = self.slot(id);
        let mut word = slot.word();
        loop {
            let held =
                if skipped!("discard_as_stored") { word.with_withdrawal() } else { word.with_orphanhood() };
            let next = held.let_go();
            match slot.try_swap(word, next) {
                Ok(()) if next.state() == State::Reset => return self.free.free(iter::once(id.0)),
                // The reader has left a lease behind.
                Ok(()) if next.references() == 0 => return self.count_inactive(next, 1),
                Ok(()) => return,
                Err(seen) => word = seen,
            }
        }
    }
}

/// A parent as the slot stores it.
fn pack(parent: Option<BlockRef>) -> u64 {
    parent.map_or(u64::from(NIL), |parent| (u64::from(parent.generation) << 32) | u64::from(parent.id.0))
}

/// The inverse of [`pack`].
pub(super) fn unpack(parent: u64) -> Option<BlockRef> {
    (parent as u32 != NIL)
        .then_some(BlockRef { id: BlockId(parent as u32), generation: (parent >> 32) as u32 })
}
