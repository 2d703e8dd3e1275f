//! Slots that become free once their volume has been told to forget their records.
//!
//! ```text
//!   given back, write failed ──► list ──► forget, into the volume's queue ──► pool
//!                                 ▲             │ full
//!                                 └─────────────┘ a thread that may wait returns for all of them
//! ```
//!
//! Adding a slot takes only a lock, so code that must not wait can do it. Each volume has its own list:
//! a volume that hangs or is slow keeps no slot of another.
//!
//! Invariants
//! - I1: a slot stays owned, by its number, until its forget is in the queue. Its next write is queued
//!   behind that, so no forget ends a later record.
//! - I2: one thread at a time empties a list. It leaves when the list is empty or the volume's queue is
//!   full.
//! - I3: one thread is told that the queue is full. It has a thread that may wait empty the list, or
//!   reports that there is none ([`no_thread_comes`](DiskTier::no_thread_comes)).

use super::tier::DiskTier;
use kvstrata_core::{BlockId, MutableBlock};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The list of a volume.
#[derive(Debug, Default)]
pub(super) struct Unforgotten {
    books: Mutex<Books>,
    /// No thread is emptying the list.
    left: Condvar,
}

#[derive(Debug, Default)]
struct Books {
    slots: Vec<BlockId>,
    /// A thread is emptying the list (I2).
    busy: bool,
    /// A thread that may wait is about to empty the list (I3).
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

    /// Has a volume forget the slots on its list, without waiting. False: its queue is full; the caller
    /// must then have [`forget_all`](DiskTier::forget_all) run on a thread that may wait, or call
    /// [`no_thread_comes`](DiskTier::no_thread_comes).
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

    /// Reports that no thread may wait for room: the next call empties the list.
    pub(super) fn no_thread_comes(&self, volume: usize) {
        self.unforgotten[volume].lock().expected = false;
    }

    /// The same, but waits for room: all slots that were on the list before are then in the volume's
    /// queue.
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
        // The list owns it (I1), so this is never refused.
        drop(self.pool.adopt_mutable(slot));
    }
}
