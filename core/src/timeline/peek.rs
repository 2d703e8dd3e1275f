//! A look at what is oldest, which takes and changes nothing: for whoever prepares for evictions to come.
//!
//! What is seen is a hint: others acquire, evict and compact meanwhile. Who acts on it checks the slot's
//! generation.

use super::position::{Position, WORD};
use super::{Bits, Candidate, Entry, Timeline};
use crate::slot::Slot;
use crate::sync::{Acquire, Relaxed};

impl Timeline {
    /// Where the next slot to be put will be, or a later one.
    pub(crate) fn young_end(&self) -> u64 {
        self.tail().0
    }

    /// Where the oldest slot is, or an earlier place.
    pub(crate) fn old_end(&self) -> u64 {
        self.head().0
    }

    /// The place before one.
    pub(crate) fn before(&self, place: u64) -> u64 {
        Position(place).minus_one(self.size).0
    }

    /// The slot that has the place before one, whichever list it is of.
    pub(crate) fn slot_before(&self, slots: &[Slot], place: u64) -> Option<u32> {
        let position = Position(place).minus_one(self.size);
        // Acquire: pairs with the Release in `Reserved::put`.
        let entry = Entry(self.ring[position.index()].load(Acquire));
        let is_live = || entry.lap() == position.lap() && slots[entry.slot() as usize].ticket() == position.0;
        is_live().then_some(entry.slot())
    }

    /// Where the first word of a list begins that may have something. The cursor goes there, as in a search.
    pub(crate) fn first_word(&self, list: usize) -> u64 {
        self.oldest_word(list).map_or_else(|| self.tail().word_start().0, |(word, _)| word.0)
    }

    /// Whether a list has something at a place: true for this moment only.
    pub(crate) fn is_listed(&self, list: usize, place: u64) -> bool {
        let place = Position(place);
        // Relaxed: a hint.
        self.lists.get(list).is_some_and(|of| of.bits[place.word()].load(Relaxed) & place.bit() != 0)
    }

    /// The beginning of a word about so many places behind one, or once round.
    pub(crate) fn word_behind(&self, place: u64, places: u32) -> u64 {
        Position(place).word_start().plus(places.next_multiple_of(WORD).min(self.size), self.size).0
    }

    /// The oldest of a list, if that is what the list's first bit stands for. None: the list is empty, or it is for `take_oldest` to drop what
    /// is stale there.
    #[inline]
    pub(crate) fn oldest(&self, slots: &[Slot], list: usize) -> Option<Candidate> {
        let of = &self.lists[list];
        // Relaxed: a place to look at. What is before the head, or of another lap, is not live.
        let word = Position(of.cursor.load(Relaxed));
        // Acquire: pairs with the Release in `set_bits`.
        let bit = Bits(of.bits[word.word()].load(Acquire)).next()?;
        let slot = self.live_slot(slots, list, word, bit)?;
        Some(Candidate { slot, ticket: word.0 + u64::from(bit) })
    }

    /// Shows the inactive slots of a list to `see`, the oldest first, from a place on (0: from the list's cursor, which of a sweep is its hand), until that says false or there are no
    /// more. Where to go on; none if there were no more.
    pub(crate) fn peek(
        &self,
        slots: &[Slot],
        list: usize,
        from: u64,
        see: impl FnMut(&Slot, u32) -> bool,
    ) -> Option<u64> {
        self.peek_until(slots, list, from, u64::MAX, see)
    }

    /// The same for those before a place, the first of its word.
    pub(crate) fn peek_until(
        &self,
        slots: &[Slot],
        list: usize,
        from: u64,
        to: u64,
        mut see: impl FnMut(&Slot, u32) -> bool,
    ) -> Option<u64> {
        let of = &self.lists[list];
        // Relaxed: a place to begin at. What becomes older meanwhile is missed.
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
