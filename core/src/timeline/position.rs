//! A place on the timeline: the lap, and the index.
//!
//! ```text
//!  63        32 31         0
//! ┌────────────┬────────────┐   The pair compares as one number: a later place is a greater one.
//! │ lap :32    │ index :32  │
//! └────────────┴────────────┘
//! ```

/// Places a word of a list: 64; two in loom's models, so that they reach the seams.
pub(super) const WORD: u32 = if cfg!(loom) { 2 } else { 64 };

/// A position; as a ticket it is stored in the slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Position(pub(super) u64);

impl Position {
    /// The first position that is ever given. Lap 0 is never used: new entries have it.
    pub(super) const FIRST: Position = Position(1 << 32);

    #[inline]
    pub(super) const fn new(lap: u32, index: u32) -> Position {
        Position(((lap as u64) << 32) | index as u64)
    }
    #[inline]
    pub(super) const fn lap(self) -> u32 {
        (self.0 >> 32) as u32
    }
    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0 as u32 as usize
    }
    /// `n` places later, on a ring of `size`; `n ≤ size`.
    #[inline]
    pub(super) const fn plus(self, n: u32, size: u32) -> Position {
        let index = self.0 as u32 as u64 + n as u64;
        if index >= size as u64 {
            Position::new(self.lap() + 1, (index - size as u64) as u32)
        } else {
            Position::new(self.lap(), index as u32)
        }
    }
    /// One place earlier.
    #[inline]
    pub(super) const fn minus_one(self, size: u32) -> Position {
        if self.0 as u32 == 0 { Position::new(self.lap() - 1, size - 1) } else { Position(self.0 - 1) }
    }
    /// Places from `earlier` to `self`, on a ring of `size`; 0 if it is not earlier, as after reads at
    /// different times.
    #[inline]
    pub(super) const fn since(self, earlier: Position, size: u32) -> u64 {
        if self.0 <= earlier.0 {
            return 0;
        }
        let laps = (self.lap() - earlier.lap()) as u64;
        laps * size as u64 + (self.0 as u32 as u64) - (earlier.0 as u32 as u64)
    }
    /// This place's bit within its word.
    #[inline]
    pub(super) const fn bit(self) -> u64 {
        1 << (self.0 % WORD as u64)
    }
    /// The number of this place's word.
    #[inline]
    pub(super) const fn word(self) -> usize {
        self.index() / WORD as usize
    }
    /// The first place of this place's word.
    #[inline]
    pub(super) const fn word_start(self) -> Position {
        Position(self.0 & !(WORD as u64 - 1))
    }
}

/// The entry at an index: the lap in which it was written, and the slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(pub(super) u64);

impl Entry {
    #[inline]
    pub(super) const fn new(position: Position, slot: u32) -> Entry {
        Entry(((position.lap() as u64) << 32) | slot as u64)
    }
    #[inline]
    pub(super) const fn slot(self) -> u32 {
        self.0 as u32
    }
    #[inline]
    pub(super) const fn lap(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The numbers of a word's set bits, from the lowest.
pub(super) struct Bits(pub(super) u64);

impl Iterator for Bits {
    type Item = u32;
    #[inline]
    fn next(&mut self) -> Option<u32> {
        let bit = (self.0 != 0).then(|| self.0.trailing_zeros());
        self.0 &= self.0.wrapping_sub(1);
        bit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_after_wrapping_keep_their_order() {
        let size = 192;
        let mut position = Position::FIRST;
        for step in 1..1000u32 {
            let next = position.plus(1, size);
            assert!(next > position);
            assert_eq!(next.minus_one(size), position);
            assert_eq!(next.since(Position::FIRST, size), u64::from(step));
            assert_eq!(next.index(), (step % size) as usize);
            position = next;
        }
        assert_eq!(Position::FIRST.plus(191, size).plus(64, size).since(Position::FIRST, size), 255);
    }
}
