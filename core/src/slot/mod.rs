//! A slot: the pool's data of one block, on one cache line.
//!
//! ```text
//!   0      8               24     32       40       48         56     58   59   60      64
//!   ┌──────┬───────────────┬──────┬────────┬────────┬──────────┬──────┬────┬────┬───────┐
//!   │state │ key lo, hi    │ link │ ticket │ parent │ children │filled│list│heat│ stamp │
//!   └──────┴───────────────┴──────┴────────┴────────┴──────────┴──────┴────┴────┴───────┘
//! ```
//!
//! I1. `key` is written by the block's one owner before the word becomes `Registered` (Release),
//!     and not again before the word has left `Registered`. A thread that loads `Registered`
//!     (Acquire), reads the key, and then succeeds with a compare-exchange on the same word has
//!     read the key of that very registration.
//! I2. `link` belongs to the registry, `ticket` and `list` to the timeline, `heat` and `stamp` to the
//!     policy; their headers name the writers.
//! I3. `children` counts resident children, leases and open scopes of this registration only. It carries the
//!     generation, so a child whose parent was recycled, or a scope whose block was evicted, changes nothing.

mod children;
mod state;

pub(crate) use state::{MAX_LEASES, MAX_REFERENCES, Word};
pub use state::{Priority, State};

use crate::hash::SequenceHash;
use crate::sync::{AcqRel, Acquire, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Relaxed, Release, site};
use alloc::boxed::Box;

/// No slot: an absent parent, the end of a chain, an empty timeline entry.
pub(crate) const NIL: u32 = u32::MAX;
/// No position on the timeline.
pub(crate) const NO_TICKET: u64 = u64::MAX;

/// In no list.
pub(crate) const NO_LIST: u8 = u8::MAX;

/// One block's metadata.
#[cfg_attr(not(loom), repr(C, align(64)))]
pub(crate) struct Slot {
    state: AtomicU64,
    key_lo: AtomicU64,
    key_hi: AtomicU64,
    pub(crate) link: AtomicU64,
    pub(crate) ticket: AtomicU64,
    parent: AtomicU64,
    children: AtomicU64,
    pub(crate) filled: AtomicU16,
    pub(crate) list: AtomicU8,
    pub(crate) heat: AtomicU8,
    pub(crate) stamp: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 64 && align_of::<Slot>() == 64);

impl Slot {
    fn new() -> Slot {
        Slot {
            state: AtomicU64::new(Word::NEW.0),
            key_lo: AtomicU64::new(0),
            key_hi: AtomicU64::new(0),
            link: AtomicU64::new(u64::from(NIL)),
            ticket: AtomicU64::new(NO_TICKET),
            parent: AtomicU64::new(u64::from(NIL)),
            children: AtomicU64::new(0),
            filled: AtomicU16::new(0),
            list: AtomicU8::new(0),
            heat: AtomicU8::new(0),
            stamp: AtomicU32::new(0),
        }
    }

    /// All slots of a pool.
    pub(crate) fn table(capacity: usize) -> Box<[Slot]> {
        (0..capacity).map(|_| Slot::new()).collect()
    }

    /// The word. Acquire: pairs with the Release of `try_swap`, so the key read next is
    /// the key of this word (I1).
    #[inline]
    pub(crate) fn word(&self) -> Word {
        Word(self.state.load(site!("slot_word_relaxed", Acquire)))
    }

    /// The one way in which a shared word changes. AcqRel: Release publishes the owner's writes (key,
    /// bytes, ticket) to the Acquire in [`Slot::word`] and in a later `try_swap`; Acquire takes over the
    /// writes of earlier holders before their releases.
    #[inline]
    pub(crate) fn try_swap(&self, old: Word, new: Word) -> Result<(), Word> {
        self.state
            .compare_exchange(old.0, new.0, site!("slot_swap_relaxed", AcqRel), Acquire)
            .map(drop)
            .map_err(Word)
    }

    /// A transition by the block's one owner, of a block that is not `Registered`: no other thread
    /// changes such a word, so a store is enough. Release: as in `try_swap`.
    #[inline]
    pub(crate) fn set_word(&self, word: Word) {
        self.state.store(word.0, site!("slot_store_relaxed", Release));
    }

    /// Relaxed: ordered by the word on both sides (I1).
    #[inline]
    pub(crate) fn key(&self) -> SequenceHash {
        let (lo, hi) = (self.key_lo.load(Relaxed), self.key_hi.load(Relaxed));
        SequenceHash::from_u128(u128::from(lo) | (u128::from(hi) << 64))
    }

    #[inline]
    pub(crate) fn key_is(&self, key: SequenceHash) -> bool {
        let key = key.to_u128();
        // Relaxed: see `key`.
        (self.key_lo.load(Relaxed) == key as u64) & (self.key_hi.load(Relaxed) == (key >> 64) as u64)
    }

    /// For the block's one owner; published by the `set_word` to `Complete` and `Registered`. Release: a
    /// thread that reads this key while it holds an older word finds that word changed; pairs with the
    /// fence of the registry's `contains`.
    #[inline]
    pub(crate) fn set_key(&self, key: SequenceHash) {
        let key = key.to_u128();
        let release = site!("slot_key_relaxed", Release);
        self.key_lo.store(key as u64, release);
        self.key_hi.store((key >> 64) as u64, release);
    }

    /// Takes a reference if the word is still `word`, which is `Registered`. `Err`
    /// has the word found instead.
    #[inline]
    pub(crate) fn try_acquire(&self, word: Word) -> Result<(), Word> {
        debug_assert_eq!(word.state(), State::Registered);
        self.try_swap(word, word.acquired())
    }

    /// Resets the data of the last registration; for the owner, before the word becomes `Registered`.
    #[inline]
    pub(crate) fn begin_registration(&self, generation: u32, parent: u64, scoped: bool) {
        // Relaxed, all: published by the `set_word` that registers.
        self.parent.store(parent, Relaxed);
        let scopes = if scoped { children::SCOPE } else { children::UNSCOPED };
        let counts = (u64::from(generation) << 32) | u64::from(scopes);
        // A successful change of the last registration's counts read them before this store: see
        // `forget_ticket` for loom's share.
        #[cfg(loom)]
        self.children.swap(counts, Relaxed);
        #[cfg(not(loom))]
        self.children.store(counts, Relaxed);
        self.heat.store(0, Relaxed);
        self.ticket.store(NO_TICKET, Relaxed);
        self.list.store(NO_LIST, Relaxed);
    }

    /// Parent as `generation << 32 | slot`. Relaxed: written before registration (see `begin_registration`).
    #[inline]
    pub(crate) fn parent(&self) -> u64 {
        self.parent.load(Relaxed)
    }

    /// For the owner, before registration. Relaxed: published by the operation that hands the slot on.
    #[inline]
    pub(crate) fn set_parent(&self, parent: u64) {
        self.parent.store(parent, Relaxed);
    }

    /// Gives a held block another parent, if it still has the old one. Relaxed: published by
    /// the holder's release of the word.
    pub(crate) fn replace_parent(&self, old: u64, new: u64) -> bool {
        self.parent.compare_exchange(old, new, Relaxed, Relaxed).is_ok()
    }

    /// For the timeline. Acquire: pairs with the Release in `set_ticket`.
    #[inline]
    pub(crate) fn ticket(&self) -> u64 {
        self.ticket.load(Acquire)
    }

    /// Forgets the place on the timeline; for the thread that has just ended the inactivity, and holds a
    /// reference. The next ticket is written after this store, by this thread or by one that has
    /// acquired the word since. Relaxed: it publishes nothing.
    #[inline]
    pub(crate) fn forget_ticket(&self) {
        // The compactor's compare-exchange, if it succeeded, comes before this store, since it read an
        // older ticket. loom does not know that no write fits between the read and the write of a
        // read-modify-write, so there this is one itself.
        #[cfg(loom)]
        self.ticket.swap(NO_TICKET, AcqRel);
        #[cfg(not(loom))]
        self.ticket.store(NO_TICKET, Relaxed);
    }

    /// For the holder of the only reference. Release: an evictor that reads this ticket has seen its list.
    #[inline]
    pub(crate) fn set_ticket(&self, ticket: u64) {
        self.ticket.store(ticket, Release);
    }
}
