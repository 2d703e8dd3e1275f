//! Batches of blocks by their numbers: for callers that keep [`BlockId`]s and [`BlockRef`]s beside a
//! shared pool, instead of handles with its lifetime.
//!
//! | by number | equivalent with handles |
//! |---|---|
//! | [`match_refs`](BlockPool::match_refs) | `match_prefix`; each reference given up by `into_ref` |
//! | [`lookup_ref`](BlockPool::lookup_ref) | `lookup`, the same |
//! | [`touch_refs`](BlockPool::touch_refs) | |
//! | [`release_refs`](BlockPool::release_refs) | `adopt_immutable`, `release` |
//! | [`hold_again`](BlockPool::hold_again) | `clone` |
//! | [`allocate_free_ids`](BlockPool::allocate_free_ids) | `allocate_free`, `into_id` |
//! | [`give_back_ids`](BlockPool::give_back_ids) | `adopt_mutable`, `give_back` |
//! | [`evict_ids`](BlockPool::evict_ids) | `evict`, each `into_mutable`, `into_id` |
//! | [`evict_ids_behind`](BlockPool::evict_ids_behind) | the same, for a request in parts |
//! | [`register_ids`](BlockPool::register_ids) | `adopt_mutable`, `complete`/`commit`, `register_sequence` |
//! | [`register_ids_apart`](BlockPool::register_ids_apart) | the same, by `register` without a parent |
//!
//! A number does not tell its owner, so each is checked against its block's word:
//!
//! I1. A number whose block is not in the state that the call needs is left alone, even if it is named
//!     twice in one call. The word cannot tell the rest, which stays the caller's duty: to name only its
//!     own blocks, and from one thread.
//! I2. A list for registration is checked whole before any of it changes. Each block is marked as it is
//!     checked, with the request table's mark, so that a block that is named twice is found without a search.

use super::lookup::As;
use super::register::Chain;
use super::release::Last;
use super::{BlockPool, ImmutableBlock, MutableBlock};
use crate::error::{OutOfBlocks, Reason, TransitionError};
use crate::hash::SequenceHash;
use crate::id::{BlockId, BlockRef};
use crate::slot::{MAX_REFERENCES, State, Word};
use crate::sync::Relaxed;
use alloc::vec::Vec;

impl BlockPool {
    /// As [`match_prefix`](BlockPool::match_prefix), each handle turned into a reference as by
    /// [`ImmutableBlock::into_ref`].
    ///
    /// Example: [blocks by number](BlockPool#blocks-by-number).
    pub fn match_refs(&self, hashes: &[SequenceHash], out: &mut Vec<BlockRef>) -> usize {
        self.match_while(hashes, out, As::PREFIX, ImmutableBlock::into_ref)
    }

    /// As [`match_refs`](BlockPool::match_refs), for blocks that will be used later. Once released they
    /// have new places in the order of eviction, but for no policy is this a use. Under SIEVE and
    /// S3-FIFO, and on trial under 2Q, a block keeps its place.
    ///
    /// Example: [blocks by number](BlockPool#blocks-by-number).
    pub fn touch_refs(&self, hashes: &[SequenceHash], out: &mut Vec<BlockRef>) -> usize {
        self.match_while(hashes, out, As::TOUCHED, ImmutableBlock::into_ref)
    }

    /// As [`lookup`](BlockPool::lookup), the handle turned into a reference as by
    /// [`ImmutableBlock::into_ref`].
    ///
    /// Example: [blocks by number](BlockPool#blocks-by-number).
    pub fn lookup_ref(&self, hash: SequenceHash) -> Option<BlockRef> {
        self.lookup(hash).map(ImmutableBlock::into_ref)
    }

    /// Releases references that were given up, in the order given, as [`release`](BlockPool::release)
    /// does. A reference is left alone if no holder has its registration now; returns how many were.
    ///
    /// Example: [blocks by number](BlockPool#blocks-by-number).
    pub fn release_refs(&self, blocks: impl IntoIterator<Item = BlockRef>) -> usize {
        let (mut last, mut wrong) = (Last::new(), 0);
        blocks.into_iter().for_each(|block| {
            // This block waits with a reference that counts as released already: release it, and look
            // whether there is another (I1).
            if last.has(block.id.0) {
                self.release_last(&mut last);
            }
            match self.held_word(block) {
                Ok(_) => self.release_one(block.id.0, &mut last),
                Err(_) => wrong += 1,
            }
        });
        self.release_last(&mut last);
        wrong
    }

    /// Takes one more reference to a block that the caller holds, as `clone` of its handle does; to be
    /// released as often. None: the block is not held, or it was recycled, or its count is full. If
    /// others may hold the block, but not the caller, use [`upgrade`](BlockPool::upgrade).
    ///
    /// Example: [blocks by number](BlockPool#blocks-by-number).
    pub fn hold_again(&self, block: BlockRef) -> Option<BlockRef> {
        let held = |word: Word| {
            let held = word.generation() == block.generation && word.references() > 0;
            (held && word.references() < MAX_REFERENCES).then(|| word.acquired())
        };
        self.try_update(self.slots.get(block.id.index())?, held).map(|_| block)
    }

    /// Appends the numbers of `n` free blocks, and never evicts, as
    /// [`allocate_free`](BlockPool::allocate_free).
    ///
    /// Example: [blocks by number](BlockPool#blocks-by-number).
    ///
    /// # Errors
    /// Fewer than `n` blocks are free, or two concurrent calls each want more than half of them. Nothing
    /// was allocated.
    pub fn allocate_free_ids(&self, n: usize, out: &mut Vec<BlockId>) -> Result<(), OutOfBlocks> {
        self.allocate_free_as(n, out)
    }

    /// Appends the numbers of up to `n` victims, as [`evict`](BlockPool::evict): each with the hash of
    /// its bytes, which are intact. The victims are the caller's. Returns how many.
    ///
    /// Example: [blocks by number](BlockPool#blocks-by-number).
    pub fn evict_ids(&self, n: usize, out: &mut Vec<(BlockId, SequenceHash)>) -> usize {
        self.evict_ids_behind(n, 0, out)
    }

    /// As [`evict_ids`](BlockPool::evict_ids), for a caller that already has `given` blocks for this
    /// purpose, free ones or victims, and has registered none of them yet. ARC, 2Q and S3-FIFO choose as
    /// if all had been requested in one call.
    ///
    /// Example: [blocks by number](BlockPool#blocks-by-number).
    pub fn evict_ids_behind(&self, n: usize, given: usize, out: &mut Vec<(BlockId, SequenceHash)>) -> usize {
        self.evict_slots(n, given, |slot| out.push((BlockId(slot), self.slot(BlockId(slot)).key())))
    }

    /// Frees owned blocks as one batch, as [`give_back`](BlockPool::give_back) does; a `Partial` one is
    /// reset. A number is left alone if its block is not `Reset` or `Partial` and in use, or if a
    /// request has reserved it; returns how many were.
    ///
    /// Example: [blocks by number](BlockPool#blocks-by-number).
    pub fn give_back_ids(&self, blocks: impl IntoIterator<Item = BlockId>) -> usize {
        let (mut wrong, mut gathered) = (0, Gathered::default());
        self.give_back(blocks.into_iter().filter_map(|id| {
            let owned = self.owned_word(id).ok().filter(|_| gathered.add(id.0));
            wrong += usize::from(owned.is_none());
            owned.map(|word| self.adopted(id, word))
        }));
        wrong
    }

    /// Registers owned blocks, `Reset` or `Partial` and full, as one sequence, each the parent of the
    /// next, behind `parent`, which the caller holds. Appends a reference for each to `out`, as by
    /// [`ImmutableBlock::into_ref`]: the block itself, or an existing block of its hash; in that case
    /// the copy was reset and freed. Returns how many existed.
    ///
    /// Example: [blocks by number](BlockPool#blocks-by-number).
    ///
    /// # Errors
    /// The lists differ in length, the parent is not held, or a block is not the caller's, cannot be
    /// completed, or is named twice. Nothing was registered, and all blocks are the caller's as before.
    pub fn register_ids(
        &self,
        ids: &[BlockId],
        hashes: &[SequenceHash],
        parent: Option<BlockRef>,
        out: &mut Vec<BlockRef>,
    ) -> Result<usize, TransitionError> {
        self.register_list(ids, hashes, Chain::Behind(parent), out)
    }

    /// As [`register_ids`](BlockPool::register_ids), but no block is another's parent: for a pool that
    /// is to evict them in its order alone.
    ///
    /// Example: [blocks by number](BlockPool#blocks-by-number).
    ///
    /// # Errors
    /// As of [`register_ids`](BlockPool::register_ids).
    pub fn register_ids_apart(
        &self,
        ids: &[BlockId],
        hashes: &[SequenceHash],
        out: &mut Vec<BlockRef>,
    ) -> Result<usize, TransitionError> {
        self.register_list(ids, hashes, Chain::Apart, out)
    }

    fn register_list(
        &self,
        ids: &[BlockId],
        hashes: &[SequenceHash],
        chain: Chain,
        out: &mut Vec<BlockRef>,
    ) -> Result<usize, TransitionError> {
        if ids.len() != hashes.len() {
            // The first block without a hash, or the last one with one.
            let block = ids.get(hashes.len()).or(ids.last()).copied().unwrap_or(BlockId(0));
            let state = self.checked_word(block)?.state();
            let reason = Reason::Unpaired { blocks: ids.len(), hashes: hashes.len() };
            return Err(TransitionError { block, state, reason });
        }
        if let Chain::Behind(Some(parent)) = chain {
            self.held_word(parent)?;
        }
        self.mark(ids, hashes)?;
        for hash in hashes {
            self.registry.prefetch_slot(&self.slots, *hash);
        }
        let complete = ids.iter().zip(hashes).map(|(id, hash)| {
            let word = self.slot(*id).word().with_reservation(false);
            MutableBlock::new(self, *id).completed(word, *hash)
        });
        Ok(self.register_each(complete, chain, out, ImmutableBlock::into_ref))
    }

    /// Checks that all of a list can be completed, and marks each block. On an error it
    /// unmarks those before (I2).
    fn mark(&self, ids: &[BlockId], hashes: &[SequenceHash]) -> Result<(), TransitionError> {
        for (i, (id, hash)) in ids.iter().zip(hashes).enumerate() {
            match self.fillable_word(*id) {
                Ok(word) => self.slot(*id).set_word(word.with_reservation(true)),
                Err(mut error) => {
                    if ids[..i].contains(id) {
                        error.reason = Reason::Repeated;
                    }
                    for id in &ids[..i] {
                        let slot = self.slot(*id);
                        slot.set_word(slot.word().with_reservation(false));
                    }
                    return Err(error);
                }
            }
            // It will be registered soon.
            self.registry.prefetch_head(*hash);
        }
        Ok(())
    }

    /// Returns the word of an owned block that can be completed.
    fn fillable_word(&self, id: BlockId) -> Result<Word, TransitionError> {
        let word = self.owned_word(id)?;
        // Relaxed: the owner's own.
        let filled = u32::from(self.slot(id).filled.load(Relaxed));
        if word.state() == State::Partial && filled < self.page_size {
            return Err(self.refusal(id, Reason::PageNotFull { filled, page_size: self.page_size }));
        }
        Ok(word)
    }
}

/// Blocks of a batch that the free map has gathered and not freed yet: of one aligned run of 64.
#[derive(Default)]
struct Gathered {
    run: u32,
    mask: u64,
}

impl Gathered {
    /// Adds a block. False: it was gathered already.
    fn add(&mut self, number: u32) -> bool {
        if number / 64 != self.run {
            *self = Gathered { run: number / 64, mask: 0 };
        }
        let bit = 1 << (number % 64);
        let new = self.mask & bit == 0;
        self.mask |= bit;
        new
    }
}
