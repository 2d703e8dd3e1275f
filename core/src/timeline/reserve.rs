//! The young end of the timeline: a batch of released slots takes its positions, and enters its lists a
//! word at a time.
//!
//! ```text
//!   reserve(n)  ─►  put × n (ticket, then entry)  ─►  the slot becomes inactive  ─►  settle
//!                                                └─►  or is acquired: retract
//!               ─►  finish (bits, fence, cursor)
//! ```
//!
//! I1. Every reserved position is written, whatever becomes of its slot.
//! I2. A bit is set after its slot has become inactive: an evictor that meets an
//!     active slot may drop the bit.

use super::Timeline;
use super::position::{Entry, Position};
use crate::slot::{NO_TICKET, Slot};
use crate::sync::{Relaxed, Release};

/// Reserved positions, which must all be written: an unwritten one would hold up the compactor.
pub(crate) struct Reserved<'t> {
    timeline: &'t Timeline,
    first: Position,
    next: Position,
    /// Bits to be set together: the list, the word, and the bits in it.
    list: u8,
    word: Position,
    mask: u64,
}

impl<'t> Reserved<'t> {
    pub(super) fn new(timeline: &'t Timeline, first: Position) -> Reserved<'t> {
        Reserved { timeline, first, next: first, list: 0, word: first, mask: 0 }
    }

    /// The next position.
    pub(crate) fn next(&self) -> u64 {
        self.next.0
    }

    /// Gives the next position as ticket to a slot whose only reference the caller holds.
    #[inline]
    pub(crate) fn put(&mut self, number: u32, slot: &Slot, list: u8) -> Put {
        let position = self.next;
        self.next = position.plus(1, self.timeline.size);
        // Relaxed: published by the ticket.
        slot.list.store(list, Relaxed);
        // The ticket first: a thread that finds the entry and not the ticket knows that the entry is
        // stale for ever (I2).
        slot.set_ticket(position.0);
        // Release: publishes ticket and list to the Acquire of all readers of the ring.
        self.timeline.ring[position.index()].store(Entry::new(position, number).0, Release);
        Put { position, list }
    }

    /// The slot of this `put` has become inactive: its bit is due.
    #[inline]
    pub(crate) fn settle(&mut self, put: Put) {
        let word = put.position.word_start();
        if self.mask != 0 && (word != self.word || put.list != self.list) {
            self.timeline.set_bits(usize::from(self.list), self.word, self.mask);
            self.mask = 0;
        }
        (self.word, self.list) = (word, put.list);
        self.mask |= put.position.bit();
    }

    /// Retracts a `put` that was in vain: another thread took a reference, and will take a ticket of its own.
    #[inline]
    pub(crate) fn retract(slot: &Slot) {
        slot.set_ticket(NO_TICKET);
    }

    /// Sets the remaining bits, and again those of slots that the compactor has moved meanwhile. `batch`
    /// has all slots that were put, in order; `settled` has a bit for each that became inactive.
    pub(crate) fn finish(self, slots: &[Slot], batch: &[u32], settled: u64) {
        if self.mask != 0 {
            self.timeline.set_bits(usize::from(self.list), self.word, self.mask);
        }
        let mut position = self.first;
        for (i, number) in batch.iter().enumerate() {
            if settled & (1 << i) != 0 {
                self.timeline.relist_unless(slots, *number, position.0);
            }
            position = position.plus(1, self.timeline.size);
        }
    }
}

/// A slot's new place.
#[derive(Clone, Copy)]
pub(crate) struct Put {
    position: Position,
    list: u8,
}
