//! Lookups: by hash, by prefix, by weak reference. Each block is referenced as it is found.

use super::stats::count;
use super::{BlockPool, ImmutableBlock};
use crate::hash::SequenceHash;
use crate::id::{BlockId, BlockRef};
use crate::policy::{Event, Eviction, Uses};
use crate::registry::Acquired;
use crate::slot::{MAX_REFERENCES, NO_TICKET, Priority, State};
use crate::sync::Relaxed;
use alloc::vec::Vec;

/// How far ahead of the lookup the heads of the chains are prefetched, and then the slots behind them: a
/// miss of the last-level cache takes about as long as ten lookups that hit the first.
const HEADS_AHEAD: usize = 16;
const SLOTS_AHEAD: usize = 8;

/// How a lookup continues after a miss, and whether its hits are uses.
#[derive(Clone, Copy)]
pub(super) struct As {
    beyond_misses: bool,
    is_use: bool,
}

impl As {
    pub(super) const PREFIX: As = As { beyond_misses: false, is_use: true };
    pub(super) const ANY: As = As { beyond_misses: true, is_use: true };
    /// A leading run that is touched, not used.
    pub(super) const TOUCHED: As = As { beyond_misses: false, is_use: false };
}

impl BlockPool {
    /// Finds the longest leading run of `hashes` that is registered. Appends a reference for each to
    /// `out`, and returns its length.
    ///
    /// Example: [a block's life](BlockPool#a-blocks-life).
    pub fn match_prefix<'p>(&'p self, hashes: &[SequenceHash], out: &mut Vec<ImmutableBlock<'p>>) -> usize {
        self.match_while(hashes, out, As::PREFIX, |block| block)
    }

    /// Finds all of `hashes` that are registered, in any position. Appends a reference for each
    /// to `out`, and returns how many.
    ///
    /// Example: [a block's life](BlockPool#a-blocks-life).
    pub fn match_any<'p>(&'p self, hashes: &[SequenceHash], out: &mut Vec<ImmutableBlock<'p>>) -> usize {
        self.match_while(hashes, out, As::ANY, |block| block)
    }

    /// Looks for `hashes`, and appends the result of `keep` on each reference.
    #[inline]
    pub(super) fn match_while<'p, T>(
        &'p self,
        hashes: &[SequenceHash],
        out: &mut Vec<T>,
        how: As,
        keep: impl Fn(ImmutableBlock<'p>) -> T,
    ) -> usize {
        let start = out.len();
        let (mut activated, mut uses) = (Activated::default(), Uses::default());
        for hash in hashes.iter().take(HEADS_AHEAD) {
            self.registry.prefetch_head(*hash);
        }
        for hash in hashes.iter().take(SLOTS_AHEAD) {
            self.registry.prefetch_slot(&self.slots, *hash);
        }
        for (i, hash) in hashes.iter().enumerate() {
            if let Some(ahead) = hashes.get(i + HEADS_AHEAD) {
                self.registry.prefetch_head(*ahead);
            }
            if let Some(ahead) = hashes.get(i + SLOTS_AHEAD) {
                self.registry.prefetch_slot(&self.slots, *ahead);
            }
            match self.registry.acquire(&self.slots, *hash) {
                Some(found) => {
                    activated.add(found);
                    self.hit(found, how, &mut uses);
                    out.push(keep(ImmutableBlock::new(self, BlockId(found.slot))));
                }
                None if how.beyond_misses => {}
                None => break,
            }
        }
        self.policy.end_uses(&mut uses);
        self.count_activated(&activated);
        out.len() - start
    }

    /// Finds one block.
    ///
    /// Example: [a block's life](BlockPool#a-blocks-life).
    pub fn lookup(&self, hash: SequenceHash) -> Option<ImmutableBlock<'_>> {
        let found = self.registry.acquire(&self.slots, hash)?;
        Some(self.activate(found))
    }

    /// Finds one block without using it, for example to register another behind it: for no policy is
    /// this a use. Under [`Policy::Reuse`](crate::Policy::Reuse) the block keeps its place, too.
    ///
    /// Example: [a block's life](BlockPool#a-blocks-life).
    pub fn find(&self, hash: SequenceHash) -> Option<ImmutableBlock<'_>> {
        let found = self.registry.acquire(&self.slots, hash)?;
        Some(self.hold(found))
    }

    /// Returns whether a block of this hash is registered, without a reference: true for this moment only.
    ///
    /// Example: [a block's life](BlockPool#a-blocks-life).
    pub fn contains(&self, hash: SequenceHash) -> bool {
        self.registry.contains(&self.slots, hash)
    }

    /// Turns a weak reference into one that holds the block, without using it. None: the block was
    /// recycled, or is no longer registered.
    ///
    /// Example: [a block's life](BlockPool#a-blocks-life).
    pub fn upgrade(&self, block: BlockRef) -> Option<ImmutableBlock<'_>> {
        let slot = self.slots.get(block.id.index())?;
        let mut word = slot.word();
        loop {
            if word.generation() != block.generation
                || word.state() != State::Registered
                || word.withdrawn()
                || word.references() == MAX_REFERENCES
            {
                return None;
            }
            match slot.try_acquire(word) {
                Ok(()) => {
                    return Some(self.hold(Acquired { slot: block.id.0, word }));
                }
                Err(seen) => word = seen,
            }
        }
    }

    /// Records one acquisition that is a use.
    pub(super) fn activate(&self, found: Acquired) -> ImmutableBlock<'_> {
        let mut uses = Uses::default();
        let block = self.use_one(found, &mut uses);
        self.policy.end_uses(&mut uses);
        block
    }

    /// The same, for one of the uses of a call.
    pub(super) fn use_one(&self, found: Acquired, uses: &mut Uses) -> ImmutableBlock<'_> {
        self.hit(found, As::PREFIX, uses);
        self.acquired(found)
    }

    /// Records one acquisition that is no use.
    pub(super) fn hold(&self, found: Acquired) -> ImmutableBlock<'_> {
        if !self.shape.tells_uses() && found.was_inactive() {
            self.leave_place(found);
        }
        self.acquired(found)
    }

    fn acquired(&self, found: Acquired) -> ImmutableBlock<'_> {
        let mut activated = Activated::default();
        activated.add(found);
        self.count_activated(&activated);
        ImmutableBlock::new(self, BlockId(found.slot))
    }

    #[inline]
    fn hit(&self, found: Acquired, how: As, uses: &mut Uses) {
        let slot = &self.slots[found.slot as usize];
        if how.is_use {
            self.policy.on(found.slot, slot, Event::Used(uses, &self.timeline));
        } else {
            self.policy.on(found.slot, slot, Event::Touched(uses));
        }
        // Held by others that do not use it, it still has its place.
        if found.was_inactive() || (self.shape.tells_uses() && slot.ticket() != NO_TICKET) {
            self.leave_place(found);
        }
    }

    /// Takes an acquired block's place, unless the block keeps that.
    #[inline]
    fn leave_place(&self, found: Acquired) {
        let slot = &self.slots[found.slot as usize];
        // Relaxed: written before the release that made it inactive.
        if !self.shape.keeps_place(slot.list.load(Relaxed)) {
            slot.forget_ticket();
        }
    }

    fn count_activated(&self, activated: &Activated) {
        if activated.blocks > 0 {
            count(&self.lane().inactive, activated.blocks.wrapping_neg());
        }
        if activated.pinned > 0 {
            count(&self.lane().pinned, activated.pinned.wrapping_neg());
        }
    }
}

/// Blocks that ceased to be inactive, and how many of them are pinned: a class changes only while a
/// block is held.
#[derive(Default)]
struct Activated {
    blocks: u64,
    pinned: u64,
}

impl Activated {
    #[inline]
    fn add(&mut self, found: Acquired) {
        self.blocks += u64::from(found.was_inactive());
        self.pinned += u64::from(found.was_inactive() && found.word.priority() == Priority::Pinned);
    }
}
