//! A look at the oldest slots that takes and changes nothing, to prepare for coming evictions.
//!
//! The result is a hint: others acquire, evict and compact meanwhile. Before it acts on it, a
//! caller checks the slot's generation.

use super::position::{Position, WORD};
use super::{Bits, Candidate, Entry, Timeline};
use crate::slot::Slot;
use crate::sync::{Acquire, Relaxed};

impl Timeline {
    /// The place of the next slot to be put, or a later one.
    pub(crate) fn young_end(&self) -> u64 {
        self.tail().0
    }

    /// The place of the oldest slot, or an earlier one.
    pub(crate) fn old_end(&self) -> u64 {
        self.head().0
    }

    /// The place before one.
    pub(crate) fn before(&self, place: u64) -> u64 {
        Position(place).minus_one(self.size).0
    }

    /// The slot at the place before this one, of whichever list.
    pub(crate) fn slot_before(&self, slots: &[Slot], place: u64) -> Option<u32> {
        let position = Position(place).minus_one(self.size);
        // Acquire: pairs with the Release in `Reserved::put`.
        let entry = Entry(self.ring[position.index()].load(Acquire));
        let is_live = || entry.lap() == position.lap() && slots[entry.slot() as usize].ticket() == position.0;
        is_live().then_some(entry.slot())
    }

    /// The beginning of the first word of a list that may have entries. The cursor
    /// moves there, as in a search.
    pub(crate) fn first_word(&self, list: usize) -> u64 {
        self.oldest_word(list).map_or_else(|| self.tail().word_start().0, |(word, _)| word.0)
    }

    /// Returns whether a list has a bit at a place: true for this moment only.
    pub(crate) fn is_listed(&self, list: usize, place: u64) -> bool {
        let place = Position(place);
        // Relaxed: a hint.
        self.lists.get(list).is_some_and(|of| of.bits[place.word()].load(Relaxed) & place.bit() != 0)
    }

    /// The beginning of a word about `places` places behind this place, at most once round.
    pub(crate) fn word_behind(&self, place: u64, places: u32) -> u64 {
        Position(place).word_start().plus(places.next_multiple_of(WORD).min(self.size), self.size).0
    }

    /// The oldest of a list, if the list's first bit stands for it. None: the list is empty, or its
    /// first entries are stale, and `take_oldest` will drop them.
    #[inline]
    pub(crate) fn oldest(&self, slots: &[Slot], list: usize) -> Option<Candidate> {
        let of = &self.lists[list];
        // Relaxed: a place to look at. An entry before the head, or of another lap, is not live.
        let word = Position(of.cursor.load(Relaxed));
        // Acquire: pairs with the Release in `set_bits`.
        let bit = Bits(of.bits[word.word()].load(Acquire)).next()?;
        let slot = self.live_slot(slots, list, word, bit)?;
        Some(Candidate { slot, ticket: word.0 + u64::from(bit) })
    }

    /// Shows the inactive slots of a list to `see`, the oldest first, until it returns false or there
    /// are no more. Begins at the place `from`; 0: at the list's cursor, which is the hand of a sweep.
    /// Returns the place to continue from; none if there were no more.
    pub(crate) fn peek(
        &self,
        slots: &[Slot],
        list: usize,
        from: u64,
        see: impl FnMut(&Slot, u32) -> bool,
    ) -> Option<u64> {
        self.peek_until(slots, list, from, u64::MAX, see)
    }

    /// The same for the slots before `to`, the first place of a word.
    pub(crate) fn peek_until(
        &self,
        slots: &[Slot],
        list: usize,
        from: u64,
        to: u64,
        mut see: impl FnMut(&Slot, u32) -> bool,
    ) -> Option<u64> {
        let of = &self.lists[list];
        // Relaxed: a place to begin at. Slots that become older meanwhile are missed.
        let cursor = if self.sweeps && from > 0 { 0 } else { of.cursor.load(Relaxed) };
        let oldest = Position(cursor).max(self.head().word_start()).word_start();
        let mut at = oldest.max(Position(from).word_start());
        let end = self.tail().min(Position(to));
        while at < end {
            // Acquire: pairs with the Release in `set_bits`.
            for bit in Bits(of.bits[at.word()].load(Acquire)) {
                let here = at.0 + u64::from(bit);
                if here >= from
                    && let Some(number) = self.live_slot(slots, list, at, bit)
                    && slots[number as usize].word().inactive()
                    && !see(&slots[number as usize], number)
                {
                    return Some(Position(here).plus(1, self.size).0);
                }
            }
            at = at.plus(WORD, self.size);
        }
        None
    }
}
