//! Slots that are free once their volume has been told to forget what they held.
//!
//! ```text
//!   given back, written in vain ──► list ──► forget, into the volume's queue ──► pool
//!                                    ▲             │ full
//!                                    └─────────────┘ who may wait comes back with all of them
//! ```
//!
//! To put a slot here is a lock and no more, so that it can be done where nobody may wait. A list a volume:
//! one that hangs, or is slow, keeps no slot of another.
//!
//! Invariants
//! - I1: a slot is owned, by its number, until its forget is in the queue. Its next write stands behind that:
//!   no forget ends a later record.
//! - I2: one thread at a time empties a list, and leaves when it finds it empty, or its volume's queue full.
//! - I3: who finds a queue full is told so once, and sees to it that somebody who may wait empties the list;
//!   or says that nobody does.

use super::tier::DiskTier;
use kvstrata_core::{BlockId, MutableBlock};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The list of a volume.
#[derive(Debug, Default)]
pub(super) struct Unforgotten {
    books: Mutex<Books>,
    /// Nobody is at it.
    left: Condvar,
}

#[derive(Debug, Default)]
struct Books {
    slots: Vec<BlockId>,
    /// Somebody empties it (I2).
    busy: bool,
    /// Somebody who may wait is about to (I3).
    expected: bool,
}

impl Unforgotten {
    fn lock(&self) -> MutexGuard<'_, Books> {
        // Nothing that panics runs under it.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskTier {
    /// Puts a slot on its volume's list.
    pub(super) fn put_unforgotten(&self, slot: MutableBlock<'_>) {
        let slot = slot.into_id();
        self.unforgotten[self.volume_of(slot.0)].lock().slots.push(slot);
    }

    /// Has a volume forget what is on its list, without waiting. False: its queue is full, and [`forget_all`](DiskTier::forget_all) is due,
    /// from a thread that may wait, or [`nobody_comes`](DiskTier::nobody_comes).
    #[must_use]
    pub(super) fn try_forget_all(&self, volume: usize) -> bool {
        let list = &self.unforgotten[volume];
        let mut books = list.lock();
        if books.busy || books.expected {
            return true;
        }
        books.busy = true;
        let mut room = true;
        while room && let Some(slot) = books.slots.pop() {
            drop(books);
            room = self.volumes.try_forget(slot.0);
            if room {
                self.is_free(slot);
            }
            books = list.lock();
            if !room {
                books.slots.push(slot);
            }
        }
        books.busy = false;
        books.expected = !room;
        drop(books);
        list.left.notify_all();
        room
    }

    /// Nobody may wait for room just now: the list is left to whoever comes next.
    pub(super) fn nobody_comes(&self, volume: usize) {
        self.unforgotten[volume].lock().expected = false;
    }

    /// The same, and waits for room: what was put on the list before this is in the volume's queue after it.
    pub(super) fn forget_all(&self, volume: usize) {
        let list = &self.unforgotten[volume];
        let mut books = list.lock();
        while books.busy {
            books = list.left.wait(books).unwrap_or_else(PoisonError::into_inner);
        }
        (books.busy, books.expected) = (true, false);
        while let Some(slot) = books.slots.pop() {
            drop(books);
            self.volumes.forget(slot.0);
            self.is_free(slot);
            books = list.lock();
        }
        books.busy = false;
        drop(books);
        list.left.notify_all();
    }

    fn is_free(&self, slot: BlockId) {
        // It is the list's (I1), so this is never refused.
        drop(self.pool.adopt_mutable(slot));
    }
}
