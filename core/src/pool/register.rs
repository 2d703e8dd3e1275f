//! Registration: a complete block becomes visible, or gives way to the one that is there already.

use super::stats::count;
use super::{BlockPool, CompleteBlock, ImmutableBlock};
use crate::error::{Reason, TransitionError};
use crate::id::{BlockId, BlockRef};
use crate::registry::Inserted;
use crate::slot::{NIL, Priority, State};
use crate::sync::skipped;
use alloc::vec::Vec;
use core::iter;

/// What became of a block that was registered.
#[derive(Debug)]
pub enum Registered<'p> {
    /// It is now visible under its hash.
    New(ImmutableBlock<'p>),
    /// A block of this hash was there: this is it. The caller's copy was reset and freed.
    Deduplicated(ImmutableBlock<'p>),
}

impl<'p> Registered<'p> {
    /// The block of this hash, whosever copy it is.
    pub fn into_block(self) -> ImmutableBlock<'p> {
        match self {
            Registered::New(block) | Registered::Deduplicated(block) => block,
        }
    }
}

/// Ties a registration to a scope: dropped, it withdraws the block's registration, at once or with the last reference.
#[derive(Debug)]
pub struct RegistrationHandle<'p> {
    pool: &'p BlockPool,
    block: BlockRef,
}

impl Drop for RegistrationHandle<'_> {
    fn drop(&mut self) {
        self.pool.withdraw(self.block);
    }
}

impl BlockPool {
    /// `Complete → Registered`. `parent` is the block before it in its sequence, which will not be evicted before this one.
    pub fn register<'p>(
        &'p self,
        block: CompleteBlock<'p>,
        parent: Option<&ImmutableBlock<'p>>,
    ) -> Registered<'p> {
        let registered = self.register_uncounted(block, parent);
        match registered {
            Registered::New(_) => count(&self.lane().stored, 1),
            Registered::Deduplicated(_) => count(&self.lane().deduplicated, 1),
        }
        registered
    }

    /// Registers the blocks of one sequence, each the parent of the next, behind `parent`; drains `blocks`, and appends a reference
    /// for each to `out`: the block itself, or the one of its hash that was there. Returns how many were there. Being one batch, its
    /// cache misses overlap and its counts are one.
    pub fn register_sequence<'p>(
        &'p self,
        blocks: &mut Vec<CompleteBlock<'p>>,
        parent: Option<&ImmutableBlock<'p>>,
        out: &mut Vec<ImmutableBlock<'p>>,
    ) -> usize {
        for block in blocks.iter() {
            self.registry.prefetch_slot(&self.slots, self.slot(block.id()).key());
        }
        let (start, mut present) = (out.len(), 0);
        for block in blocks.drain(..) {
            let parent = if out.len() > start { out.last() } else { parent };
            let registered = self.register_uncounted(block, parent);
            present += u64::from(matches!(registered, Registered::Deduplicated(_)));
            out.push(registered.into_block());
        }
        let lane = self.lane();
        count(&lane.stored, (out.len() - start) as u64 - present);
        if present > 0 {
            count(&lane.deduplicated, present);
        }
        present as usize
    }

    fn register_uncounted<'p>(
        &'p self,
        block: CompleteBlock<'p>,
        parent: Option<&ImmutableBlock<'p>>,
    ) -> Registered<'p> {
        let (pool, id) = block.into_parts();
        debug_assert!(core::ptr::eq(pool, self), "{id} is of another pool");
        let slot = self.slot(id);
        let key = slot.key();
        let complete = slot.word();
        debug_assert_eq!(complete.state(), State::Complete);
        let parent = parent.map(|parent| self.reference(parent.id()));
        slot.begin_registration(complete.generation(), pack(parent));
        // Registered before it is found: an insert that finds it can acquire it at once. The caller's is its first reference.
        slot.set_word(complete.with_state(State::Registered).acquired());
        match self.registry.insert(&self.slots, id.0, key, self.unique) {
            Inserted::New => {
                if let Some(parent) = parent {
                    self.slot(parent.id).child_added();
                }
                if let Some(sink) = &self.sink {
                    sink.stored(BlockRef { id, generation: complete.generation() }, key, parent);
                }
                Registered::New(ImmutableBlock::new(self, id))
            }
            Inserted::Present(found) => {
                self.discard(id);
                let present = self.activate(found);
                if let Some(parent) = parent {
                    self.adopt_orphan(present.id(), parent);
                }
                Registered::Deduplicated(present)
            }
        }
    }

    /// A block that outlived its parent's registration gets the parent that its sequence has now. Both are held by the caller.
    fn adopt_orphan(&self, child: BlockId, parent: BlockRef) {
        let slot = self.slot(child);
        let old = slot.parent();
        let orphaned = unpack(old).is_some_and(|old| self.slot(old.id).word().generation() != old.generation);
        if orphaned && child != parent.id && slot.replace_parent(old, pack(Some(parent))) {
            self.slot(parent.id).child_added();
        }
    }

    /// As [`register`](BlockPool::register), for content that shall not outlive a scope: see [`RegistrationHandle`]. A deduplicated
    /// block has none: its registration is somebody else's.
    pub fn register_scoped<'p>(
        &'p self,
        block: CompleteBlock<'p>,
        parent: Option<&ImmutableBlock<'p>>,
    ) -> (Registered<'p>, Option<RegistrationHandle<'p>>) {
        let registered = self.register(block, parent);
        let handle = match &registered {
            Registered::New(block) => Some(RegistrationHandle { pool: self, block: block.downgrade() }),
            Registered::Deduplicated(_) => None,
        };
        (registered, handle)
    }

    /// `Registered → Reset` of a block that nobody holds.
    ///
    /// # Errors
    /// It is referenced, by a sequence or a transfer, or was recycled.
    pub fn unregister(&self, block: BlockRef) -> Result<(), TransitionError> {
        let Some(slot) = self.slots.get(block.id.index()) else {
            let reason = Reason::OutOfRange { capacity: self.capacity() };
            return Err(TransitionError { block: block.id, state: State::Reset, reason });
        };
        let mut word = slot.word();
        loop {
            if word.generation() != block.generation || word.state() != State::Registered {
                return Err(self.refusal(block.id, Reason::Recycled));
            }
            if word.references() > 0 {
                return Err(self.refusal(block.id, Reason::Referenced { references: word.references() }));
            }
            match slot.try_swap(word, word.reset()) {
                Ok(()) => break,
                Err(seen) => word = seen,
            }
        }
        count(&self.lane().inactive, 1u64.wrapping_neg());
        if word.priority() == Priority::Pinned {
            count(&self.lane().pinned, 1u64.wrapping_neg());
        }
        self.end_registration(block.id.0, block.generation);
        self.free.free(iter::once(block.id.0));
        Ok(())
    }

    /// Ends a registration: now, or, if the block is held, when it no longer is. Lookups do not find it from now on.
    fn withdraw(&self, block: BlockRef) {
        while let Err(TransitionError { reason: Reason::Referenced { .. }, .. }) = self.unregister(block) {
            let slot = self.slot(block.id);
            let word = slot.word();
            let held = word.generation() == block.generation && word.references() > 0;
            if held && slot.try_swap(word, word.with_doom()).is_ok() {
                return;
            }
        }
    }

    /// Gives up a copy that was never inserted. A stale reader of its slot's last chain may hold it for a moment.
    fn discard(&self, id: BlockId) {
        let slot = self.slot(id);
        let mut word = slot.word();
        loop {
            let last = word.references() == 1;
            let held = if skipped!("discard_as_stored") { word.with_doom() } else { word.with_orphanhood() };
            let next = if last { word.reset() } else { held.released() };
            match slot.try_swap(word, next) {
                Ok(()) if last => return self.free.free(iter::once(id.0)),
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
