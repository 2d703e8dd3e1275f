//! Release: the last holder's release puts the block on the timeline.
//!
//! A batch takes its positions at once, so that threads meet at the timeline's tail once a
//! request, not once a block.

use super::BlockPool;
use super::handle::ImmutableBlock;
use super::stats::count;
use crate::policy::{Event, Eviction};
use crate::slot::{NO_TICKET, Priority, Slot, State, Word};
use crate::sync::{Relaxed, skipped};
use crate::timeline::{BATCH, Reserved};
use core::iter;

/// Blocks of a batch whose only reference is ours, before they get their positions.
pub(super) struct Last {
    slots: [u32; BATCH],
    len: usize,
}

impl Last {
    pub(super) fn new() -> Last {
        Last { slots: [0; BATCH], len: 0 }
    }

    /// Returns whether a block is in this batch.
    #[inline]
    pub(super) fn has(&self, number: u32) -> bool {
        self.slots[..self.len].contains(&number)
    }
}

impl BlockPool {
    /// Releases references in the order given: the first one is evicted first. Engines
    /// give a sequence tail first.
    ///
    /// Example: [a block's life](BlockPool#a-blocks-life).
    pub fn release<'p>(&'p self, blocks: impl IntoIterator<Item = ImmutableBlock<'p>>) {
        self.release_slots(blocks.into_iter().map(|block| {
            let (pool, id) = block.into_parts();
            debug_assert!(core::ptr::eq(pool, self), "{id} is of another pool");
            id.0
        }));
    }

    pub(super) fn release_slots(&self, slots: impl Iterator<Item = u32>) {
        let mut last = Last::new();
        for number in slots {
            self.release_one(number, &mut last);
        }
        self.release_last(&mut last);
    }

    /// Releases one reference of a batch; a block that needs a place is kept in `last` for the batch.
    #[inline]
    pub(super) fn release_one(&self, number: u32, last: &mut Last) {
        if self.release_shared(number) {
            return;
        }
        last.slots[last.len] = number;
        last.len += 1;
        if last.len == BATCH {
            self.release_last(last);
        }
    }

    /// Releases a reference that needs no new place on the timeline. False: it is the
    /// only one, and needs one.
    #[inline]
    fn release_shared(&self, number: u32) -> bool {
        let slot = &self.slots[number as usize];
        let mut word = slot.word();
        loop {
            let last = word.references() == 1;
            if last && self.needs_place(number, slot, word) {
                return false;
            }
            let next = word.let_go();
            match slot.try_swap(word, next) {
                Ok(()) if !last => return true,
                Ok(()) if next.state() == State::Reset => {
                    self.retire(number, word);
                    return true;
                }
                Ok(()) => {
                    self.count_inactive(word, 1);
                    if word.priority() != Priority::Pinned {
                        self.timeline.relist(&self.slots, number);
                        self.place_if_used(number, slot, word);
                    }
                    return true;
                }
                Err(seen) => word = seen,
            }
        }
    }

    /// Returns whether the block gets a new place if it becomes inactive now. The caller
    /// holds the only reference.
    #[inline]
    fn needs_place(&self, number: u32, slot: &Slot, word: Word) -> bool {
        if word.withdrawn() {
            // It goes with the lease that keeps it: no search must meet it again and again.
            slot.set_ticket(NO_TICKET);
            return false;
        }
        let pinned = word.priority() == Priority::Pinned;
        if (self.shape.keeps_places() || self.shape.tells_uses()) && slot.ticket() != NO_TICKET {
            // Relaxed: written with the ticket.
            if self.shape.is_of(slot.list.load(Relaxed), word.priority()) {
                return false;
            }
            // Its class has changed while it was held: the place is another class's.
            slot.set_ticket(NO_TICKET);
            self.policy.on(number, slot, Event::Displaced);
        }
        if pinned {
            self.policy.on(number, slot, Event::Pinned);
        }
        !pinned
    }

    /// Puts blocks whose only reference is ours on the timeline, and releases them.
    #[inline]
    pub(super) fn release_last(&self, last: &mut Last) {
        let batch = &mut last.slots[..core::mem::take(&mut last.len)];
        if batch.is_empty() {
            return;
        }
        let Ok(mut positions) = self.timeline.reserve(&self.slots, batch.len() as u32) else {
            return batch.iter().for_each(|number| self.release_unplaced(*number));
        };
        let blocks = batch.iter().map(|number| &self.slots[*number as usize]);
        let mut placed = self.policy.begin_batch(self.timeline.number(positions.next()), blocks);
        let mut settled = 0u64;
        for (i, number) in batch.iter().enumerate() {
            let slot = &self.slots[*number as usize];
            let word = slot.word();
            if self.policy.list_of_returning(word.priority()).is_some() {
                slot.forget_deferral(word.generation());
            }
            let class = word.priority().min(Priority::High);
            let list = self.policy.place(&mut placed, *number, slot, class, positions.next());
            if self.place_and_release(&mut positions, *number, list) {
                settled |= 1 << i;
            }
        }
        if settled != 0 {
            count(&self.lane().inactive, u64::from(settled.count_ones()));
        }
        positions.finish(&self.slots, batch, settled);
        self.policy.end_batch(&mut placed, || self.free());
    }

    /// Releases a block, by its only reference, into a list that its policy has named.
    pub(super) fn release_to(&self, number: u32, list: u8) {
        let Ok(mut position) = self.timeline.reserve(&self.slots, 1) else {
            return self.release_unplaced(number);
        };
        let settled = self.place_and_release(&mut position, number, list);
        if settled {
            count(&self.lane().inactive, 1);
        }
        position.finish(&self.slots, &[number], u64::from(settled));
    }

    /// Gives the block the next position, in a list, and releases it. False: another
    /// thread acquired it meanwhile.
    #[inline]
    fn place_and_release(&self, positions: &mut Reserved<'_>, number: u32, list: u8) -> bool {
        let slot = &self.slots[number as usize];
        let mut word = slot.word();
        let put = positions.put(number, slot, list);
        while word.references() == 1
            && (!word.withdrawn() || skipped!("release_keeps_withdrawn"))
            && word.priority() != Priority::Pinned
        {
            match slot.try_swap(word, word.released()) {
                Ok(()) => {
                    positions.settle(put);
                    self.place_if_used(number, slot, word);
                    return true;
                }
                Err(seen) => word = seen,
            }
        }
        // Only our reference knows of this place.
        Reserved::retract(slot);
        self.policy.on(number, slot, Event::Displaced);
        self.release_slots_slowly(number);
        false
    }

    /// Re-queues a block that lost its ticket to a concurrent use. A use forgets the place of a held
    /// block. It may begin and end between our look at the word and our exchange, so the word alone
    /// cannot show it. The released block had its old place, or a new one. A use before that place was
    /// given has left the place alone, and was reported to the policy.
    #[inline]
    fn place_if_used(&self, number: u32, slot: &Slot, before: Word) {
        let is_placed = || slot.ticket() != NO_TICKET && self.shape.waits(slot);
        if !self.shape.tells_uses() || is_placed() || skipped!("release_misses_use") {
            return;
        }
        let waits = |word: Word| {
            word.inactive()
                && word.generation() == before.generation()
                && word.priority() != Priority::Pinned
                // Kept by leases alone: it goes with the last of them.
                && !word.withdrawn()
        };
        // A present holder will place it; if there is none, we do. A lease may come or go meanwhile.
        let mut word = slot.word();
        while waits(word) {
            match slot.try_acquire(word) {
                Ok(()) => {
                    count(&self.lane().inactive, 1u64.wrapping_neg());
                    slot.forget_ticket();
                    return self.release_slots_slowly(number);
                }
                Err(_) if skipped!("release_misses_lease") => return,
                Err(seen) => word = seen,
            }
        }
    }

    #[cold]
    fn release_slots_slowly(&self, number: u32) {
        self.release_slots(iter::once(number));
    }

    /// The timeline is full: the block becomes inactive without a place on it (see `unplaced`), so that
    /// no thread waits.
    #[cold]
    fn release_unplaced(&self, number: u32) {
        let slot = &self.slots[number as usize];
        let mut word = slot.word();
        while word.references() == 1 && !word.withdrawn() && word.priority() != Priority::Pinned {
            match slot.try_swap(word, word.released()) {
                Ok(()) => {
                    let lane = self.lane();
                    count(&lane.inactive, 1);
                    count(&lane.unplaced, 1);
                    return self.unplaced.note(number);
                }
                Err(seen) => word = seen,
            }
        }
        self.release_slots_slowly(number);
    }

    /// Frees a block that its last keeper has reset; `word` is its value before.
    pub(super) fn retire(&self, number: u32, word: Word) {
        if !word.orphan() {
            self.end_registration(number, word.generation());
        }
        self.free.free(iter::once(number));
    }
}
