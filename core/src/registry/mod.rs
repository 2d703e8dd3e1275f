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
//! Michael's list (SPAA 2002), with the slots as its nodes. They are type-stable, so no hazard
//! pointer or epoch is needed, nothing is allocated, and a stale reader meets a slot, at worst
//! another one than it looked for.
//!
//! I1. A slot is in a chain from its insertion until an unlink; it is inserted once a registration.
//! I2. A slot is inserted at the head only. So if a head is unchanged since a scan, nothing was inserted
//!     since: of two inserts of one key, one finds the other.
//! I3. A slot is removed in two steps: its own link is marked (nothing is inserted or unlinked
//!     behind it from then on), then its predecessor is moved past it. Any thread that meets a
//!     marked slot does the second step.
//! I4. Every change of a link takes a new tag. A reader that read `next` from `cur` and then still finds
//!     its predecessor's link unchanged knows that `cur` was in this chain when it read `next`.
//! I5. A slot is reused only after a whole walk has not found it.
//!
//! # Orderings
//! A head is changed with Release (`insert`), which publishes the slot's key, link and `Registered` word
//! to the Acquire load of the head in `walk`. Every change of a head is an exchange, which continues the
//! release sequences of those before it, so the slots behind are published too. For I4 a thread that
//! meets a slot in another chain must know of the slot's way out of the first one. A predecessor is moved
//! past it with Release (`walk`); the remover's walk acquires that, and puts the slot elsewhere with
//! Release (`insert`), to the Acquire load of `next` in `walk`. The mark itself is Relaxed: the thread
//! that does the second step has read it. The state word alone decides whether a found slot is acquired.

mod link;
#[cfg(all(test, loom))]
mod models;

use crate::hash::{Placement, SequenceHash};
use crate::prefetch::prefetch;
use crate::slot::{MAX_REFERENCES, Slot, State, Word};
use crate::sync::{Acquire, AtomicU64, Relaxed, Release, fence, site, skipped};
use alloc::boxed::Box;
use link::Link;

/// The heads of the chains.
pub(crate) struct Registry {
    place: Placement,
    heads: Box<[AtomicU64]>,
}

/// An acquired slot.
#[derive(Clone, Copy)]
pub(crate) struct Acquired {
    pub(crate) slot: u32,
    /// The word before the acquisition.
    pub(crate) word: Word,
}

impl Acquired {
    /// Returns whether the slot had no other holder.
    #[inline]
    pub(crate) fn was_inactive(&self) -> bool {
        self.word.references() == 0
    }
}

/// The result of an insert.
pub(crate) enum Inserted {
    New,
    /// An equal key was registered, and is now acquired.
    Present(Acquired),
}

impl Registry {
    /// A table for up to `capacity` slots: two heads a slot, so that nearly every chain is one slot long.
    pub(crate) fn new(capacity: usize, place: Placement) -> Registry {
        let heads = if cfg!(loom) { 2 } else { capacity * 2 };
        Registry { place, heads: (0..heads).map(|_| AtomicU64::new(Link::EMPTY.0)).collect() }
    }

    /// Bytes of the heads.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.heads)
    }

    #[inline]
    fn head(&self, key: SequenceHash) -> &AtomicU64 {
        let index = if cfg!(loom) {
            // The models choose the chain of each key by this.
            let place = u128::from((key.to_u128() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            ((place * self.heads.len() as u128) >> 64) as usize
        } else {
            // Engines hand in hashes of their own, or an attacker's.
            self.place.among(key, self.heads.len())
        };
        &self.heads[index]
    }

    /// Prefetches the key's head.
    #[inline]
    pub(crate) fn prefetch_head(&self, key: SequenceHash) {
        prefetch(self.head(key));
    }

    /// Prefetches the first slot of the key's chain; its head should be in the cache already.
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

    /// Returns whether a registered slot has this key.
    pub(crate) fn contains(&self, slots: &[Slot], key: SequenceHash) -> bool {
        self.walk(slots, self.head(key), |slot| {
            if has(&slots[slot as usize], key) { Visit::Stop(()) } else { Visit::Continue }
        })
        .is_ok()
    }

    /// Inserts a slot, whose word is `Registered` already and which no other thread knows, unless its
    /// key is there. With `unique` false it is inserted beside an equal key.
    pub(crate) fn insert(&self, slots: &[Slot], slot: u32, key: SequenceHash, unique: bool) -> Inserted {
        let head = self.head(key);
        loop {
            // The head is read before the scan (I2). Relaxed: the scan acquires it itself, and without a
            // scan nothing behind it is read.
            let first = Link(head.load(Relaxed));
            let scans = unique || skipped!("registry_keep_scans");
            if scans && !first.is_end() && !skipped!("registry_insert_no_scan") {
                let found = self.walk(slots, head, |other| match try_acquire(&slots[other as usize], key) {
                    Some(word) => Visit::Stop(Acquired { slot: other, word }),
                    None => Visit::Continue,
                });
                if let Ok(found) = found {
                    return Inserted::Present(found);
                }
            }
            let own = &slots[slot as usize].link;
            // Release: a thread that reads this link while it looks for the slot in its former chain
            // must find, when it validates, that the slot has left that chain; pairs with the Acquire
            // load of `next` in `walk`. The new tag fails stale compare-exchanges (I4).
            let relink = site!("registry_relink_relaxed", Release);
            // Relaxed load: since the mark of the last removal, which the owner knows of, no other
            // thread has changed it.
            own.store(Link(own.load(Relaxed)).moved_to(first.slot()).0, relink);
            // Release: publishes key, link and word to the Acquire in `walk`. Relaxed on failure: a
            // changed head (I2) is read anew.
            let published = site!("registry_insert_relaxed", Release);
            if head.compare_exchange(first.0, first.moved_to(slot).0, published, Relaxed).is_ok() {
                return Inserted::New;
            }
        }
    }

    /// Takes a slot out of its chain. The caller has ended its `Registered` state, and owns it from then on.
    pub(crate) fn remove(&self, slots: &[Slot], slot: u32, key: SequenceHash) {
        // Relaxed: from it on, in the order of this link's changes, no exchange that expects it unmarked
        // succeeds (I3). And the thread that moves the predecessor past this slot has read the mark, and
        // passes that on by the Release there.
        if !skipped!("registry_no_mark") {
            slots[slot as usize].link.fetch_or(Link::MARK_BIT, Relaxed);
        }
        // A whole walk: it unlinks the slot when it meets it, or finds that another thread has (I5).
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
            // Acquire: pairs with the Release of `insert`, of this slot and of all behind it: every
            // change of a head continues its predecessors' release sequences.
            let mut link = Link(previous.load(site!("registry_walk_relaxed", Acquire)));
            loop {
                if link.is_end() {
                    return Err(());
                }
                let current = link.slot();
                let next_of = &slots[current as usize].link;
                // Acquire: pairs with the Release of a relink in `insert`: a thread that reads the new
                // link sees below that the slot has left.
                let next = Link(next_of.load(site!("registry_next_relaxed", Acquire)));
                // I4: was `current` still in this chain when its link was read? Relaxed: comes after
                // the line before by its Acquire.
                if Link(previous.load(Relaxed)) != link && !skipped!("registry_walk_no_validate") {
                    continue 'restart;
                }
                if next.marked() {
                    let past = link.moved_to(next.slot());
                    // Release: pairs with the Acquire loads of links above: a thread that removes the
                    // slot behind next, and takes it elsewhere, passes on that this link changed, and
                    // that `current` was marked (I4).
                    let unlink = site!("registry_unlink_relaxed", Release);
                    match previous.compare_exchange(link.0, past.0, unlink, Relaxed) {
                        Ok(_) => link = past,
                        Err(_) => continue 'restart,
                    }
                    continue;
                }
                match visit(current) {
                    Visit::Stop(found) => return Ok(found),
                    Visit::Continue if skipped!("registry_walk_gives_up") => return Err(()),
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

/// Returns whether lookups may find it: not if its registration was withdrawn.
#[inline]
fn registered(word: Word) -> bool {
    word.state() == State::Registered && (!word.withdrawn() || skipped!("registry_finds_withdrawn"))
}

/// Returns whether a slot is registered under this key.
fn has(slot: &Slot, key: SequenceHash) -> bool {
    let mut word = slot.word();
    while registered(word) && slot.key_is(key) {
        // Acquire: pairs with the Release in `set_key`. A key of a later registration was written after
        // the word had left this one, so the load below sees that.
        if !skipped!("registry_contains_no_fence") {
            fence(Acquire);
        }
        let now = slot.word();
        if same_registration(now, word) {
            return true;
        }
        word = now;
    }
    false
}

fn same_registration(a: Word, b: Word) -> bool {
    a.generation() == b.generation() && a.state() == b.state()
}

/// Takes a reference to a slot if it is registered under this key. Returns its word before.
#[inline]
fn try_acquire(slot: &Slot, key: SequenceHash) -> Option<Word> {
    let mut word = slot.word();
    loop {
        // A saturated count is a miss, not an error: a million holders of one block.
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
