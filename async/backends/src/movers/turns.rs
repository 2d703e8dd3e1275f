//! The order of directions: copies up (onboards) before copies down (offloads).
//!
//! ```text
//!   up     ▓ ▓ ▓ ▓ ▓ ▓     first: a request waits for these bytes
//!   down   ░ ░ ░           offloads, copies that make room, zeros
//!
//!   taken  ▓ ▓ ▓ ▓ ░ ▓ ▓ ░ ░
//! ```
//!
//! Started copies are bounded by bytes, for each direction. Without turns, a run that is requested now
//! would wait behind all copies that an offload has started. Copies of different lists have no order
//! (the port's contract), so only waiting callers can tell. A copy that a thread has is not interrupted.
//!
//! Invariants
//! - I1: copies up go before copies down.
//! - I2: no copy waits for ever: if both directions wait, one in five goes down. A request may wait for
//!   the room.
//! - I3: within a direction, the oldest goes first.

use kvstrata_tiers::transfer::{Copies, HostSide};
use std::collections::VecDeque;

/// The copies up that are taken before one goes down.
const UPS: u32 = 4;

/// Seldom do more wait in a direction; more cost an allocation.
const USUAL: usize = 64;

/// Whether a list brings blocks up. Zeros do not: no request waits for them.
pub(super) fn brings_up(copies: &Copies) -> bool {
    copies.list().iter().any(|copy| matches!(copy.host, HostSide::Read(_)))
}

/// The waiting items, by direction.
#[derive(Debug)]
pub(super) struct Turns<T> {
    up: VecDeque<T>,
    down: VecDeque<T>,
    /// Turns of copies up since copies down have been waiting.
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

    /// Whether a copy up waits.
    pub(super) fn has_up(&self) -> bool {
        !self.up.is_empty()
    }

    /// Takes a turn. Returns the queue of the direction that has its turn, which is not empty: the turn is
    /// its first item's. `None`: no item waits.
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
