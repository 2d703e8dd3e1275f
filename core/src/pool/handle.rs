//! The handles: a block's state as a type, for one owner; a counted reference, for many holders.
//!
//! | type | state | on drop |
//! |---|---|---|
//! | [`MutableBlock`] | `Reset` or `Partial` | resets and frees the block |
//! | [`CompleteBlock`] | `Complete` | resets and frees the block |
//! | [`ImmutableBlock`] | `Registered`, referenced | releases the reference |
//! | [`EvictedBlock`] | `Reset`, with its bytes and hash as they were | frees the block |

use super::BlockPool;
use crate::error::{Reason, Refused, TransitionError};
use crate::hash::{Salt, SequenceHash};
use crate::id::{BlockId, BlockRef};
use crate::slot::{MAX_REFERENCES, Priority, Slot, State, Word};
use crate::sync::Relaxed;
use core::mem::ManuallyDrop;
use core::{fmt, iter};

/// A block to be filled, with one owner.
pub struct MutableBlock<'p> {
    pool: &'p BlockPool,
    id: BlockId,
    /// It may have left `Reset`: the word must be read before the block is freed.
    partial: bool,
}

/// A full block, not yet visible to others.
pub struct CompleteBlock<'p> {
    pool: &'p BlockPool,
    id: BlockId,
}

/// A reference to a registered block. Nothing can change or evict the block while it is held.
pub struct ImmutableBlock<'p> {
    pool: &'p BlockPool,
    id: BlockId,
}

/// A victim of eviction: out of the registry, with the bytes of its hash intact, for callers that save
/// them elsewhere.
pub struct EvictedBlock<'p> {
    pool: &'p BlockPool,
    id: BlockId,
}

impl<'p> MutableBlock<'p> {
    #[inline]
    pub(super) fn new(pool: &'p BlockPool, id: BlockId) -> Self {
        MutableBlock { pool, id, partial: false }
    }

    /// The block's number.
    #[inline]
    pub fn id(&self) -> BlockId {
        self.id
    }

    /// `Reset` or `Partial`.
    pub fn state(&self) -> State {
        self.pool.slot(self.id).word().state()
    }

    /// Tokens in the page.
    pub fn filled(&self) -> u32 {
        // Relaxed: the owner's own.
        u32::from(self.pool.slot(self.id).filled.load(Relaxed))
    }

    /// `Reset → Partial`: starts a page for a sequence with this salt.
    ///
    /// # Errors
    /// The block is not `Reset`.
    pub fn init_sequence(&mut self, salt: Salt) -> Result<(), TransitionError> {
        let slot = self.pool.slot(self.id);
        self.pool.transition(self.id, State::Reset, State::Partial)?;
        self.partial = true;
        // Relaxed: the owner's own, published by later transitions.
        slot.filled.store(0, Relaxed);
        slot.set_key(salt.into());
        Ok(())
    }

    /// `Partial → Partial`: adds one token.
    ///
    /// # Errors
    /// The block is not `Partial`, or the page is full.
    pub fn add_token(&mut self) -> Result<(), TransitionError> {
        self.add_tokens(1)
    }

    /// `Partial → Partial`: adds `count` tokens. The pool counts tokens; their bytes are the engine's.
    ///
    /// # Errors
    /// The block is not `Partial`, or the page has no room for that many. Nothing was added.
    pub fn add_tokens(&mut self, count: u32) -> Result<(), TransitionError> {
        let (filled, page_size) = (self.filled(), self.pool.page_size);
        if self.state() != State::Partial {
            return Err(self.pool.refusal(self.id, Reason::Needs(State::Partial)));
        }
        match filled.checked_add(count).filter(|sum| *sum <= page_size) {
            Some(sum) => self.pool.slot(self.id).filled.store(sum as u16, Relaxed),
            None => {
                return Err(self
                    .pool
                    .refusal(self.id, Reason::PageOverflow { filled, added: count, page_size }));
            }
        }
        Ok(())
    }

    /// `Partial → Complete`: completes the full page; `hash` is its sequence hash.
    ///
    /// # Errors
    /// The block is not `Partial`, or the page is not full; the block comes back as it was.
    pub fn commit(self, hash: SequenceHash) -> Result<CompleteBlock<'p>, Refused<Self>> {
        let (filled, page_size) = (self.filled(), self.pool.page_size);
        if self.state() == State::Partial && filled < page_size {
            let error = self.pool.refusal(self.id, Reason::PageNotFull { filled, page_size });
            return Err(Refused { block: self, error });
        }
        self.complete_from(State::Partial, hash)
    }

    /// Completes a whole page at once: `init_sequence`, `add_tokens(page_size)` and
    /// `commit` in one transition.
    ///
    /// # Errors
    /// The block is not `Reset`; it comes back as it was.
    #[inline]
    pub fn complete(self, hash: SequenceHash) -> Result<CompleteBlock<'p>, Refused<Self>> {
        self.complete_from(State::Reset, hash)
    }

    #[inline]
    fn complete_from(self, from: State, hash: SequenceHash) -> Result<CompleteBlock<'p>, Refused<Self>> {
        let word = self.pool.slot(self.id).word();
        if word.state() != from {
            return Err(Refused { error: self.pool.refusal(self.id, Reason::Needs(from)), block: self });
        }
        Ok(self.completed(word, hash))
    }

    /// Makes the block `Complete`, from a state that allows it, as the caller has seen in `word`.
    #[inline]
    pub(super) fn completed(self, word: Word, hash: SequenceHash) -> CompleteBlock<'p> {
        let (pool, id) = (self.pool, self.id);
        let slot = pool.slot(id);
        slot.set_key(hash);
        slot.filled.store(pool.page_size as u16, Relaxed);
        slot.set_word(word.with_state(State::Complete));
        // It will be registered soon.
        pool.registry.prefetch_head(hash);
        let _gone = ManuallyDrop::new(self);
        CompleteBlock { pool, id }
    }

    /// `Partial → Reset`: discards the content and keeps the block.
    pub fn reset(&mut self) {
        if core::mem::take(&mut self.partial) {
            self.pool.reset_owned(self.id);
        }
    }

    /// Gives up the handle; the block stays owned, through its number.
    /// [`BlockPool::adopt_mutable`] takes it back.
    pub fn into_id(self) -> BlockId {
        ManuallyDrop::new(self).id
    }
}

impl<'p> CompleteBlock<'p> {
    #[inline]
    pub(super) fn into_parts(self) -> (&'p BlockPool, BlockId) {
        let this = ManuallyDrop::new(self);
        (this.pool, this.id)
    }

    /// The block's number.
    #[inline]
    pub fn id(&self) -> BlockId {
        self.id
    }

    /// The hash under which it will be registered.
    pub fn hash(&self) -> SequenceHash {
        self.pool.slot(self.id).key()
    }

    /// `Complete → Reset`: discards the content and keeps the block.
    pub fn reset(self) -> MutableBlock<'p> {
        let (pool, id) = self.into_parts();
        pool.reset_owned(id);
        MutableBlock::new(pool, id)
    }
}

impl<'p> ImmutableBlock<'p> {
    #[inline]
    pub(super) fn new(pool: &'p BlockPool, id: BlockId) -> Self {
        ImmutableBlock { pool, id }
    }

    #[inline]
    pub(super) fn into_parts(self) -> (&'p BlockPool, BlockId) {
        let this = ManuallyDrop::new(self);
        (this.pool, this.id)
    }

    /// The block's number.
    #[inline]
    pub fn id(&self) -> BlockId {
        self.id
    }

    /// Its sequence hash.
    #[inline]
    pub fn hash(&self) -> SequenceHash {
        self.pool.slot(self.id).key()
    }

    /// A weak reference, which ends with the registration.
    pub fn downgrade(&self) -> BlockRef {
        self.pool.reference(self.id)
    }

    /// The number of references to the block, this handle included.
    pub fn references(&self) -> u32 {
        self.pool.slot(self.id).word().references()
    }

    /// Sets the block's class for eviction, which takes effect the next time it becomes inactive.
    pub fn set_priority(&self, priority: Priority) {
        self.pool.update(self.id, |word| word.with_priority(priority));
    }

    /// The block's class for eviction.
    pub fn priority(&self) -> Priority {
        self.pool.slot(self.id).word().priority()
    }

    /// Gives up the handle but not the reference. [`BlockPool::adopt_immutable`] takes it back.
    pub fn into_ref(self) -> BlockRef {
        let (pool, id) = self.into_parts();
        pool.reference(id)
    }
}

impl Clone for ImmutableBlock<'_> {
    fn clone(&self) -> Self {
        // A held block stays Registered, so this is one more reference. Too many are a bug that
        // must not go on, as with `Arc`.
        self.pool.update(self.id, |word| {
            assert!(word.references() < MAX_REFERENCES, "{} has {MAX_REFERENCES} references", self.id);
            word.acquired()
        });
        ImmutableBlock { pool: self.pool, id: self.id }
    }
}

impl<'p> EvictedBlock<'p> {
    #[inline]
    pub(super) fn new(pool: &'p BlockPool, id: BlockId) -> Self {
        EvictedBlock { pool, id }
    }

    /// The block's number: its bytes are still there.
    pub fn id(&self) -> BlockId {
        self.id
    }

    /// The hash under which it was registered.
    pub fn hash(&self) -> SequenceHash {
        self.pool.slot(self.id).key()
    }

    /// Turns the victim into a block for new content: the bytes are no longer needed.
    pub fn into_mutable(self) -> MutableBlock<'p> {
        let this = ManuallyDrop::new(self);
        MutableBlock::new(this.pool, this.id)
    }
}

impl Drop for MutableBlock<'_> {
    fn drop(&mut self) {
        if self.partial {
            self.pool.reset_owned(self.id);
        }
        self.pool.free.free(iter::once(self.id.0));
    }
}

impl Drop for CompleteBlock<'_> {
    fn drop(&mut self) {
        self.pool.reset_owned(self.id);
        self.pool.free.free(iter::once(self.id.0));
    }
}

impl Drop for ImmutableBlock<'_> {
    fn drop(&mut self) {
        self.pool.release_slots(iter::once(self.id.0));
    }
}

impl Drop for EvictedBlock<'_> {
    fn drop(&mut self) {
        self.pool.free.free(iter::once(self.id.0));
    }
}

impl BlockPool {
    /// Frees blocks as one batch, cheaper than dropping them one by one.
    ///
    /// Example: [a block's life](BlockPool#a-blocks-life).
    #[inline]
    pub fn give_back<'p>(&'p self, blocks: impl IntoIterator<Item = MutableBlock<'p>>) {
        self.free.free(blocks.into_iter().map(|block| {
            let block = ManuallyDrop::new(block);
            debug_assert!(core::ptr::eq(block.pool, self), "{} is of another pool", block.id);
            if block.partial {
                self.reset_owned(block.id);
            }
            block.id.0
        }));
    }

    /// Takes back a block whose number came from [`MutableBlock::into_id`], once.
    ///
    /// Example: [blocks by number](BlockPool#blocks-by-number).
    ///
    /// # Errors
    /// The number is not of a block that is `Reset` or `Partial` and in use, or a request owns the block: see
    /// [`RequestTable::detach`](crate::RequestTable::detach).
    pub fn adopt_mutable(&self, id: BlockId) -> Result<MutableBlock<'_>, TransitionError> {
        self.owned_word(id).map(|word| self.adopted(id, word))
    }

    /// The handle of a block; `word` is its [`owned_word`](BlockPool::owned_word).
    #[inline]
    pub(super) fn adopted(&self, id: BlockId, word: Word) -> MutableBlock<'_> {
        MutableBlock { pool: self, id, partial: word.state() == State::Partial }
    }

    /// Takes back a reference that [`ImmutableBlock::into_ref`] gave up, once.
    ///
    /// Example: [blocks by number](BlockPool#blocks-by-number).
    ///
    /// # Errors
    /// The block was recycled, or is not referenced.
    pub fn adopt_immutable(&self, block: BlockRef) -> Result<ImmutableBlock<'_>, TransitionError> {
        self.held_word(block)?;
        Ok(ImmutableBlock { pool: self, id: block.id })
    }

    /// Returns the word of a block that is `Reset` or `Partial`, and neither free nor a request's:
    /// it has an owner with its number.
    pub(super) fn owned_word(&self, id: BlockId) -> Result<Word, TransitionError> {
        let word = self.checked_word(id)?;
        match word.state() {
            State::Reset | State::Partial if word.reserved() => Err(self.refusal(id, Reason::Reserved)),
            State::Reset | State::Partial if !self.free.is_free(id.0) => Ok(word),
            _ => Err(self.refusal(id, Reason::Needs(State::Partial))),
        }
    }

    /// Returns the word of a referenced block, of this very registration.
    #[inline]
    pub(super) fn held_word(&self, block: BlockRef) -> Result<Word, TransitionError> {
        let word = self.checked_word(block.id)?;
        if word.generation() != block.generation {
            return Err(self.refusal(block.id, Reason::Recycled));
        }
        if word.references() == 0 {
            return Err(self.refusal(block.id, Reason::Needs(State::Registered)));
        }
        Ok(word)
    }

    /// Returns the word of a block of this pool.
    #[inline]
    pub(super) fn checked_word(&self, id: BlockId) -> Result<Word, TransitionError> {
        match self.slots.get(id.index()) {
            Some(slot) => Ok(slot.word()),
            None => {
                let reason = Reason::OutOfRange { capacity: self.capacity() };
                Err(TransitionError { block: id, state: State::Reset, reason })
            }
        }
    }

    /// The next block of a request's list. A reserved block has no parent yet, so the parent's word holds it.
    pub(crate) fn next_reserved(&self, id: BlockId) -> u32 {
        self.slot(id).parent() as u32
    }

    /// Sets the value of `next_reserved`, and marks the block as the request table's; for the block's owner.
    pub(crate) fn set_next_reserved(&self, id: BlockId, next: u32) {
        let slot = self.slot(id);
        slot.set_parent(u64::from(next));
        slot.set_word(slot.word().with_reservation(true));
    }

    /// The handle of a block that the request table owned.
    pub(crate) fn adopt_reserved(&self, id: BlockId) -> MutableBlock<'_> {
        let slot = self.slot(id);
        slot.set_word(slot.word().with_reservation(false));
        MutableBlock { pool: self, id, partial: false }
    }

    /// Makes one transition of a block that the caller owns, or refuses and changes nothing.
    pub(super) fn transition(&self, id: BlockId, from: State, to: State) -> Result<(), TransitionError> {
        let slot = self.slot(id);
        let word = slot.word();
        if word.state() != from || !from.allows(to) {
            return Err(self.refusal(id, Reason::Needs(from)));
        }
        slot.set_word(word.with_state(to));
        Ok(())
    }

    pub(super) fn refusal(&self, block: BlockId, reason: Reason) -> TransitionError {
        TransitionError { block, state: self.slot(block).word().state(), reason }
    }

    /// `Partial`, `Complete` → `Reset`.
    fn reset_owned(&self, id: BlockId) {
        let slot = self.slot(id);
        slot.set_word(slot.word().reset());
    }

    /// Changes the word of a block that the caller holds.
    pub(super) fn update(&self, id: BlockId, change: impl Fn(Word) -> Word) {
        self.try_update(self.slot(id), |word| Some(change(word)));
    }

    /// Applies `change` to a slot's newest word, unless it returns none. Returns the word before.
    #[inline]
    pub(super) fn try_update(&self, slot: &Slot, change: impl Fn(Word) -> Option<Word>) -> Option<Word> {
        let mut word = slot.word();
        loop {
            match slot.try_swap(word, change(word)?) {
                Ok(()) => return Some(word),
                Err(seen) => word = seen,
            }
        }
    }
}

macro_rules! debug_as_block {
    ($($handle:ident)*) => {$(
        impl fmt::Debug for $handle<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({}: {:?})", stringify!($handle), self.id, self.pool.slot(self.id).word())
            }
        }
    )*};
}
debug_as_block!(MutableBlock CompleteBlock ImmutableBlock EvictedBlock);
