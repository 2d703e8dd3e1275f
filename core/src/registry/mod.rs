//! The registry: `SequenceHash → slot`, a lock-free hash table threaded through the slots.
//!
//! ```text
//!   heads            slots
//!   ┌──────┐        ┌───────────────┐        ┌───────────────┐
//!   │ link ├──────► │ key … link ───┼──────► │ key … link ───┼──► NIL
//!   ├──────┤        └───────────────┘        └───────────────┘
//!   │ NIL  │         newest                   oldest
//! ```
//!
//! Michael's list (SPAA 2002), whose nodes are the slots: they are type-stable, so no hazard pointer or epoch is needed,
//! nothing is allocated, and a stale reader meets a slot, at worst another one than it looked for.
//!
//! I1. A slot is in a chain from its insertion until an unlink; it is inserted once a registration.
//! I2. A slot is inserted at the head only. So if a head is unchanged since a scan, nothing was inserted since: of two
//!     inserts of one key, one finds the other.
//! I3. A slot is removed in two steps: its own link is marked (nothing is inserted or unlinked behind it from then on), then
//!     its predecessor is moved past it. Whoever meets a marked slot does the second step.
//! I4. Every change of a link takes a new tag. A reader that read `next` from `cur` and then still finds its predecessor's link
//!     unchanged knows that `cur` was in this chain when it read `next`.
//! I5. A slot is reused only after a whole walk has not found it.
//!
//! # Orderings
//! A head is changed with Release (`insert`), which publishes the slot's key, link and `Registered` word; it pairs with the
//! Acquire of every link load in `walk`. Whether a found slot is acquired is decided by its state word alone.

mod link;

use crate::hash::SequenceHash;
use crate::prefetch::prefetch;
use crate::slot::{MAX_REFERENCES, Slot, State, Word};
use crate::sync::{AcqRel, Acquire, AtomicU64, Relaxed, Release, site, skipped};
use alloc::boxed::Box;
use link::Link;

/// The heads of the chains.
pub(crate) struct Registry {
    heads: Box<[AtomicU64]>,
}

/// A slot that was acquired.
#[derive(Clone, Copy)]
pub(crate) struct Acquired {
    pub(crate) slot: u32,
    /// Its word before.
    pub(crate) word: Word,
}

impl Acquired {
    /// Nobody else held it.
    #[inline]
    pub(crate) fn was_inactive(&self) -> bool {
        self.word.references() == 0
    }
}

/// What an insert found.
pub(crate) enum Inserted {
    New,
    /// An equal key was there, and is now acquired.
    Present(Acquired),
}

impl Registry {
    /// A table for up to `capacity` slots: two heads a slot, so that nearly every chain is one slot long.
    pub(crate) fn new(capacity: usize) -> Registry {
        let heads = if cfg!(loom) { 2 } else { capacity * 2 };
        Registry { heads: (0..heads).map(|_| AtomicU64::new(Link::EMPTY.0)).collect() }
    }

    /// Bytes of the heads.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.heads)
    }

    #[inline]
    fn head(&self, key: SequenceHash) -> &AtomicU64 {
        // Engines hand in hashes of their own, so mix before the range reduction (Lemire 2016), which uses the high bits.
        let key = key.to_u128();
        let mixed = ((key as u64) ^ (key >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let index = ((u128::from(mixed) * self.heads.len() as u128) >> 64) as usize;
        &self.heads[index]
    }

    /// Brings the key's head into the cache.
    #[inline]
    pub(crate) fn prefetch_head(&self, key: SequenceHash) {
        prefetch(self.head(key));
    }

    /// Brings the first slot of the key's chain into the cache; its head should be there already.
    #[inline]
    pub(crate) fn prefetch_slot(&self, slots: &[Slot], key: SequenceHash) {
        // Relaxed: a hint.
        let first = Link(self.head(key).load(Relaxed));
        if !first.is_end() {
            prefetch(&slots[first.slot() as usize]);
        }
    }

    /// Finds the registered slot of this key and takes a reference.
    #[inline]
    pub(crate) fn acquire(&self, slots: &[Slot], key: SequenceHash) -> Option<Acquired> {
        self.walk(slots, self.head(key), |slot| match try_acquire(&slots[slot as usize], key) {
            Some(word) => Visit::Stop(Acquired { slot, word }),
            None => Visit::Continue,
        })
        .ok()
    }

    /// Whether a registered slot has this key.
    pub(crate) fn contains(&self, slots: &[Slot], key: SequenceHash) -> bool {
        self.walk(slots, self.head(key), |slot| {
            let slot = &slots[slot as usize];
            let word = slot.word();
            // The second load closes the window in which the slot was recycled between the first and the key.
            let found = registered(word) && slot.key_is(key) && same_registration(slot.word(), word);
            if found { Visit::Stop(()) } else { Visit::Continue }
        })
        .is_ok()
    }

    /// Inserts a slot, whose word is `Registered` already and which nobody else knows, unless its key is there.
    /// With `unique` false it is inserted beside an equal key.
    pub(crate) fn insert(&self, slots: &[Slot], slot: u32, key: SequenceHash, unique: bool) -> Inserted {
        let head = self.head(key);
        loop {
            // The head is read before the scan (I2). Acquire: pairs with the Release below.
            let first = Link(head.load(Acquire));
            if unique && !first.is_end() && !skipped!("registry_insert_no_scan") {
                let found = self.walk(slots, head, |other| match try_acquire(&slots[other as usize], key) {
                    Some(word) => Visit::Stop(Acquired { slot: other, word }),
                    None => Visit::Continue,
                });
                if let Ok(found) = found {
                    return Inserted::Present(found);
                }
            }
            let own = &slots[slot as usize].link;
            // Release: who reads this link while it looks for the slot in its former chain must find, when it validates, that the slot
            // has left that chain; pairs with the Acquire load of `next` in `walk`. The new tag fails stale compare-exchanges (I4).
            let relink = site!("registry_relink_relaxed", Release);
            own.store(Link(own.load(Relaxed)).moved_to(first.slot()).0, relink);
            // Release: publishes key, link and word. A changed head fails (I2).
            let published = site!("registry_insert_relaxed", Release);
            if head.compare_exchange(first.0, first.moved_to(slot).0, published, Relaxed).is_ok() {
                return Inserted::New;
            }
        }
    }

    /// Takes a slot out of its chain. Its word has left `Registered`, by the caller, who owns it from then on.
    pub(crate) fn remove(&self, slots: &[Slot], slot: u32, key: SequenceHash) {
        // AcqRel: the mark is seen by all who read the link later; and we see the last link put behind us (I3).
        slots[slot as usize].link.fetch_or(Link::MARK_BIT, AcqRel);
        // A whole walk: it unlinks the slot when it meets it, or finds that someone has (I5).
        let _ = self.walk(slots, self.head(key), |_| Visit::<()>::Continue);
    }

    /// Visits the unmarked slots of a chain, and unlinks the marked ones.
    #[inline]
    fn walk<T>(
        &self,
        slots: &[Slot],
        head: &AtomicU64,
        mut visit: impl FnMut(u32) -> Visit<T>,
    ) -> Result<T, ()> {
        'restart: loop {
            let mut previous = head;
            // Acquire, here and below: pairs with the Release in `insert`.
            let mut link = Link(previous.load(site!("registry_walk_relaxed", Acquire)));
            loop {
                if link.is_end() {
                    return Err(());
                }
                let current = link.slot();
                let next_of = &slots[current as usize].link;
                let next = Link(next_of.load(Acquire));
                // I4: was `current` still in this chain when its link was read?
                if Link(previous.load(Acquire)) != link && !skipped!("registry_walk_no_validate") {
                    continue 'restart;
                }
                if next.marked() {
                    let past = link.moved_to(next.slot());
                    // AcqRel: who reaches the slot behind through this link sees all that was published with it.
                    match previous.compare_exchange(link.0, past.0, AcqRel, Acquire) {
                        Ok(_) => link = past,
                        Err(_) => continue 'restart,
                    }
                    continue;
                }
                match visit(current) {
                    Visit::Stop(found) => return Ok(found),
                    Visit::Continue => {}
                }
                previous = next_of;
                link = next;
            }
        }
    }
}

enum Visit<T> {
    Continue,
    Stop(T),
}

/// Whether lookups may find it: not if its registration was withdrawn.
#[inline]
fn registered(word: Word) -> bool {
    word.state() == State::Registered && !word.doomed()
}

fn same_registration(a: Word, b: Word) -> bool {
    a.generation() == b.generation() && a.state() == b.state()
}

/// Takes a reference to a slot if it is registered under this key; its word before.
#[inline]
fn try_acquire(slot: &Slot, key: SequenceHash) -> Option<Word> {
    let mut word = slot.word();
    loop {
        // A saturated count is a miss, not an error: 16 million holders of one block.
        if !registered(word) || word.references() == MAX_REFERENCES {
            return None;
        }
        if !slot.key_is(key) {
            return None;
        }
        match slot.try_acquire(word) {
            Ok(()) => return Some(word),
            Err(seen) => word = seen,
        }
    }
}
