//! ARC (Megiddo and Modha, FAST 2003): blocks that were used once, blocks that were used again, and a
//! balance that the ghosts of both adjust.
//!
//! ```text
//!   B1 · · · ◄── out ── T1 ◄── new              T1: once, T2: again, each by last release
//!    │                   │ used                  new, with a ghost in B1: T1 ought to be longer, p rises;
//!    └──────── new ────► T2 ── out ──► · · · B2  in B2: shorter, p falls; both go to T2
//! ```
//!
//! With the capacity `c`, `|T1| + |B1| ≤ c` and all four together are at most `2c`. A victim is T1's
//! while `|T1| > p`, else T2's; [`pair`](super::pair) defines this for a request's victims. While blocks
//! are still to come for a request's victims, B1 and B2 may have one more ghost for each, up to a batch.
//! Where even these have no room, the oldest ghost goes of the queue that would have lost it if each
//! block had come after its victim: B1's, if `|T1| + |B1|` were more than `c`, else B2's. Blocks that are
//! free, or held and never released, are in none of the lists; for each of them one more ghost may stay.
//!
//! `p` is a real number in the paper, and moves by `|B2| / |B1|`, or the inverse, if that is more than 1.
//! Here it counts in units of 2^-32 blocks. A value less than 2^-17 below a whole number is taken for that
//! number, so that three thirds are one.
//!
//! A block's uses count when it is released: a held block stays T1's until then. A ghost is met at its
//! block's first release, not at its registration.
//!
//! One thing differs from the paper. There a miss first moves `p` and then takes a victim. A pool takes
//! victims before it knows the blocks that replace them. So here `p` moves after the victim, and the
//! paper's tie (`|T1| = p`, and the new one is B2's) cannot be known. For this reason, and because
//! children leave before their parents and no block in use leaves, a pool's hits differ a little from
//! those of the paper's lists. The policies' hits of the bundled trace are in benches/README.md.

use super::ghosts::Ghosts;
use super::pair::{Counts, Pair, Rules};
use crate::hash::Placement;
use crate::slot::Slot;
use crate::sync::{AtomicU64, CachePadded, Relaxed};
use crate::timeline::BATCH;

/// The ghosts' queues: of T1 and of T2.
const B1: usize = 0;
const B2: usize = 1;

/// Bits of `p` behind the point, and the constant that rounds it.
const FRACTION: u32 = 32;
const NEAR: u64 = 1 << 15;

pub(crate) type Arc = Pair<ArcRules>;

pub(crate) struct ArcRules {
    capacity: usize,
    /// `p`: the target length of T1. Written when a ghost is met; the next adaptation makes up for one
    /// that is lost between two threads.
    target: CachePadded<AtomicU64>,
}

impl Arc {
    pub(super) fn new(capacity: usize, place: Placement) -> Arc {
        let rules = ArcRules { capacity, target: CachePadded(AtomicU64::new(0)) };
        Pair::with(rules, Ghosts::new(2, capacity + BATCH, place))
    }
}

impl Rules for ArcRules {
    const TRIAL_KEEPS_PLACES: bool = false;
    const PROVEN_GHOSTS: Option<usize> = Some(B2);

    #[inline]
    fn on_hit(&self, slot: &Slot) {
        // Relaxed: published by the user's release of the block.
        slot.heat.store(1, Relaxed);
    }

    fn on_met(&self, queue: usize, ghosts: &Ghosts) {
        // The lengths with this ghost.
        let [b1, b2] = [B1, B2].map(|of| (ghosts.len(of) + usize::from(of == queue)).max(1) as u64);
        let by = |longer: u64, shorter: u64| ((longer << FRACTION) / shorter).max(1 << FRACTION);
        let p = self.target.load(Relaxed);
        let p = match queue {
            B1 => (p + by(b2, b1)).min((self.capacity as u64) << FRACTION),
            _ => p.saturating_sub(by(b1, b2)),
        };
        self.target.store(p, Relaxed);
    }

    fn most_on_trial(&self) -> usize {
        ((self.target.load(Relaxed) + NEAR) >> FRACTION) as usize
    }

    #[inline]
    fn trim(&self, ghosts: &Ghosts, counts: &Counts) {
        ghosts.trim(B1, self.capacity.saturating_sub(counts.on_trial()));
        ghosts.trim(B2, (2 * self.capacity).saturating_sub(counts.all() + ghosts.len(B1)));
    }

    fn queue_to_drop(&self, of: usize, ghosts: &Ghosts, on_trial: usize) -> usize {
        // Counted with the new ghost, if it is B1's.
        if ghosts.len(B1) + usize::from(of == B1) + on_trial > self.capacity { B1 } else { B2 }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::SequenceHash;

    /// Parts of blocks add up: three times 4 / 3 is 4.
    #[test]
    fn arc_target_sums_fractions_exactly() {
        let rules = ArcRules { capacity: 100, target: CachePadded(AtomicU64::new(0)) };
        let ghosts = Ghosts::new(2, 100, Placement::new(1));
        // One of B1 is taken out when it is met.
        for (queue, number) in [(B1, 1), (B1, 2), (B2, 3), (B2, 4), (B2, 5), (B2, 6)] {
            ghosts.insert(queue, SequenceHash::from_u128(number << 33), || queue);
        }
        let of_three = [1, 2, 3].map(|_| {
            rules.on_met(B1, &ghosts);
            rules.most_on_trial()
        });
        assert_eq!(of_three, [1, 2, 4]);
    }
}
