//! Memory that is kept for reuse, so that little is allocated under the lock.
//!
//! Invariants
//! - I1: each list is empty between two uses.

use crate::state::Effects;
use crate::transfer::Copy;
use kvstrata_core::{BlockId, BlockPool, BlockRef, SequenceHash};

/// Maximum number of lists of copies that are kept for their memory.
const MOST_COPIES: usize = 1024;

/// Victims that were evicted.
pub(crate) type Victims = Vec<(BlockId, SequenceHash)>;
/// Victims that are next.
pub(crate) type NextVictims = Vec<(BlockRef, SequenceHash)>;

/// A list of each kind.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Effects that were carried out.
    effects: Vec<Effects>,
    /// Lists of copies that have landed.
    copies: Vec<Vec<Copy>>,
    slots: Vec<BlockId>,
    victims: Victims,
    one_victim: Victims,
    next_victims: NextVictims,
}

impl Scratch {
    /// Takes one block by a call that adds it to a list.
    pub(crate) fn one(&mut self, take: impl FnOnce(&mut Vec<BlockId>)) -> Option<BlockId> {
        take(&mut self.slots);
        self.slots.pop()
    }

    /// Takes a free block of a pool.
    pub(crate) fn one_free(&mut self, pool: &BlockPool) -> Option<BlockId> {
        self.one(|slots| _ = pool.allocate_free_ids(1, slots))
    }

    /// Lends a list for one victim, to be given back. It differs from the list of
    /// [`lend_victims`](Scratch::lend_victims), which may be in use.
    pub(crate) fn lend_one_victim(&mut self) -> Victims {
        std::mem::take(&mut self.one_victim)
    }

    /// Takes that list back. Returns the victim.
    pub(crate) fn return_one_victim(&mut self, mut victims: Victims) -> Option<(BlockId, SequenceHash)> {
        let victim = victims.pop();
        self.one_victim = victims;
        victim
    }

    /// Lends a list for victims, to be given back.
    pub(crate) fn lend_victims(&mut self) -> Victims {
        std::mem::take(&mut self.victims)
    }

    pub(crate) fn return_victims(&mut self, mut victims: Victims) {
        victims.clear();
        self.victims = victims;
    }

    /// Lends a list for the next victims, to be given back.
    pub(crate) fn lend_next_victims(&mut self) -> NextVictims {
        std::mem::take(&mut self.next_victims)
    }

    pub(crate) fn return_next_victims(&mut self, mut victims: NextVictims) {
        victims.clear();
        self.next_victims = victims;
    }

    /// Returns the next victim of a pool.
    pub(crate) fn next_victim(&mut self, pool: &BlockPool) -> Option<(BlockRef, SequenceHash)> {
        pool.next_victims(1, &mut self.next_victims);
        let next = self.next_victims.pop();
        self.next_victims.clear();
        next
    }

    /// Returns a list for copies.
    pub(crate) fn copies(&mut self) -> Vec<Copy> {
        self.copies.pop().unwrap_or_default()
    }

    /// Takes back a list of copies that have landed.
    pub(crate) fn return_copies(&mut self, list: Vec<Copy>) {
        if self.copies.len() < MOST_COPIES {
            self.copies.push(list);
        }
    }

    /// Returns memory for effects.
    pub(crate) fn effects(&mut self) -> Effects {
        self.effects.pop().unwrap_or_default()
    }

    /// Takes back effects that were carried out. As many are kept as threads carry out effects at once.
    pub(crate) fn return_effects(&mut self, effects: Effects) {
        self.effects.push(effects);
    }
}
