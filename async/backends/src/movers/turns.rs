//! Whose turn it is: what brings blocks up, or what takes them down.
//!
//! ```text
//!   up     ▓ ▓ ▓ ▓ ▓ ▓     first: somebody waits for these bytes
//!   down   ░ ░ ░           a copy of what is there, or room that is made; zeros too
//!
//!   taken  ▓ ▓ ▓ ▓ ░ ▓ ▓ ░ ░
//! ```
//!
//! What is started is bounded by bytes, a direction: without turns, a run that is asked for now would stand
//! behind all that an offload has started. Copies of several lists are in no order (the port's contract), so
//! that nobody sees but who waits. What is out stays out.
//!
//! Invariants
//! - I1: what brings up goes before what takes down.
//! - I2: nothing waits for ever: where both wait, one of each five that are taken goes down. Somebody may
//!   wait for the room.
//! - I3: within a direction, the oldest goes first.

use kvstrata_tiers::transfer::{Copies, HostSide};
use std::collections::VecDeque;

/// So many that bring up are taken before one that takes down.
const UPS: u32 = 4;

/// As many seldom wait at a time, of a direction: more cost an allocation.
const USUAL: usize = 64;

/// Whether a list brings blocks up. Zeros are nobody's to wait for.
pub(super) fn brings_up(copies: &Copies) -> bool {
    copies.list().iter().any(|copy| matches!(copy.host, HostSide::Read(_)))
}

/// What waits, by direction.
#[derive(Debug)]
pub(super) struct Turns<T> {
    up: VecDeque<T>,
    down: VecDeque<T>,
    /// Turns of those that bring up since one that takes down waits.
    ups: u32,
}

impl<T> Default for Turns<T> {
    fn default() -> Turns<T> {
        Turns::with_capacity(USUAL)
    }
}

impl<T> Turns<T> {
    pub(super) fn with_capacity(each: usize) -> Turns<T> {
        Turns { up: VecDeque::with_capacity(each), down: VecDeque::with_capacity(each), ups: 0 }
    }

    pub(super) fn push(&mut self, up: bool, item: T) {
        if up { self.up.push_back(item) } else { self.down.push_back(item) }
    }

    /// Whether something waits that brings up.
    pub(super) fn has_up(&self) -> bool {
        !self.up.is_empty()
    }

    /// Takes a turn: those of one direction, of which the first is meant, and is there. None: nothing waits.
    pub(super) fn turn(&mut self) -> Option<&mut VecDeque<T>> {
        let both = !self.up.is_empty() && !self.down.is_empty();
        let up = self.down.is_empty() || both && self.ups < UPS;
        self.ups = if both && up { self.ups + 1 } else { 0 };
        let of = if up { &mut self.up } else { &mut self.down };
        (!of.is_empty()).then_some(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn onboards_go_first_and_one_of_five_is_an_offload() {
        let mut turns = Turns::default();
        (0..3).for_each(|item| turns.push(false, item));
        (10..17).for_each(|item| turns.push(true, item));
        let mut taken = || turns.turn()?.pop_front();
        let order: Vec<u32> = std::iter::from_fn(&mut taken).collect();
        assert_eq!(order, [10, 11, 12, 13, 0, 14, 15, 16, 1, 2]);
        turns.push(false, 3);
        assert!(!turns.has_up());
        assert_eq!(turns.turn(), Some(&mut VecDeque::from([3])), "and alone it waits for nothing");
    }
}
