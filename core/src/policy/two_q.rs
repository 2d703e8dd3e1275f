//! 2Q, the full version (Johnson and Shasha, VLDB 1994): a FIFO for new blocks, and an LRU for blocks
//! that come back after leaving the FIFO.
//!
//! ```text
//!   new ──► A1in (a quarter) ── out, ghost ──► A1out (half as many)       a hit in A1in changes nothing
//!                                               │ new again
//!           Am ◄────────────────────────────────┘                       by last release; out without a ghost
//! ```
//!
//! Over paths its hits differ from the paper's: children go before their parents, and so blocks of
//! A1in that would have left it stay (see `benches/README.md`: 32.2 % where the paper's has 30.0, at
//! 30,000 blocks of the bundled trace).
//!
//! A burst of uses right after a block was new does not prove it: blocks of A1in keep their place while
//! they are in use, those of Am take a new one. As in the paper, a victim is A1in's while `|A1in| >
//! Kin`, else Am's; [`pair`](super::pair) defines this for a request's victims.
//!
//! A1out has `Kout` ghosts. While blocks are still to come for the victims of a request, it has one more
//! for each, up to a batch: so a block of the request meets the ghosts that it would meet if each block
//! took its victim by itself. Blocks that are free, or held and never released, are also still to come,
//! and let as many more ghosts stay.

use super::ghosts::Ghosts;
use super::pair::{Counts, Pair, Rules};
use crate::hash::Placement;
use crate::timeline::BATCH;

pub(crate) type TwoQ = Pair<TwoQRules>;

pub(crate) struct TwoQRules {
    capacity: usize,
    /// `Kin`: the most blocks in A1in while Am has a block to give.
    most_in: usize,
    /// `Kout`: the length of A1out.
    most_out: usize,
}

impl TwoQ {
    pub(super) fn new(capacity: usize, place: Placement) -> TwoQ {
        let rules = TwoQRules { capacity, most_in: capacity / 4, most_out: capacity / 2 };
        Pair::with(rules, Ghosts::new(1, capacity / 2 + BATCH, place))
    }
}

impl Rules for TwoQRules {
    const TRIAL_KEEPS_PLACES: bool = true;
    const PROVEN_GHOSTS: Option<usize> = None;

    fn most_on_trial(&self) -> usize {
        self.most_in
    }

    #[inline]
    fn trim(&self, ghosts: &Ghosts, counts: &Counts) {
        let to_come = self.capacity.saturating_sub(counts.all());
        ghosts.trim(0, self.most_out + to_come);
    }
}
