//! What policies of two lists a class have in common: S3-FIFO, ARC, 2Q.
//!
//! ```text
//!   list      0      1      2      3      4      5
//!           ┌──────┬──────┬──────┬──────┬──────┬──────┐     a list's class is its number modulo the classes
//!           │ low  │ norm.│ high │ low  │ norm.│ high │
//!           └──────┴──────┴──────┴──────┴──────┴──────┘
//!             blocks on trial      blocks that are proven
//! ```
//!
//! Of a class, blocks on trial go first while there are more of them than there should be (their *surplus*), then the proven ones, then
//! what else is on trial.

use super::ghosts::Ghosts;
use super::{Hunt, Turn};
use crate::slot::{NO_LIST, Priority, Slot};
use crate::sync::Relaxed;
use crate::timeline::Verdict;

/// The first list of proven blocks.
pub(super) const PROVEN: u8 = Priority::EVICTABLE as u8;
/// Lists in all.
pub(super) const LISTS: usize = 2 * Priority::EVICTABLE;

/// A policy of two lists a class.
pub(super) trait Pair {
    /// How many more blocks are on trial than there should be.
    fn surplus(&self) -> usize;
    /// Takes up to `wanted` of a class's blocks on trial.
    fn take_on_trial(&self, class: usize, wanted: usize, hunt: &Hunt<'_>) -> usize;
    /// Takes up to `wanted` of a class's proven blocks.
    fn take_proven(&self, class: usize, wanted: usize, hunt: &Hunt<'_>) -> usize;
}

/// The turns of the lists, class by class.
pub(super) fn turn(nth: usize, surplus: usize) -> Option<Turn> {
    let class = nth / 3;
    (class < Priority::EVICTABLE).then(|| match nth % 3 {
        0 => Turn { list: class, most: surplus },
        1 => Turn::whole(usize::from(PROVEN) + class),
        _ => Turn::whole(class),
    })
}

/// Takes up to `wanted` of a list, each of which leaves a ghost; `left` hears of each. All are taken before the first ghost is written, so that
/// the cache misses of the ghosts' table overlap.
pub(super) fn take_for_ghosts(
    (ghosts, queue): (&Ghosts, usize),
    list: usize,
    wanted: usize,
    hunt: &Hunt<'_>,
    left: impl Fn(&Slot),
) -> usize {
    let before = hunt.claimed();
    let taken = hunt.timeline().take_oldest(hunt.slots(), list, wanted, |candidate, slot| {
        let verdict = hunt.claim(candidate);
        if let Verdict::Taken | Verdict::TakenLast = verdict {
            ghosts.prefetch(slot.key());
            left(slot);
        }
        verdict
    });
    hunt.claimed_since(before).for_each(|slot| ghosts.insert(queue, slot.key()));
    taken
}

/// Before blocks are placed: those that are new will look for their ghosts.
pub(super) fn prefetch_ghosts<'s>(ghosts: &Ghosts, blocks: impl Iterator<Item = &'s Slot>) {
    // Relaxed: the caller has their only references.
    blocks.filter(|slot| slot.list.load(Relaxed) == NO_LIST).for_each(|slot| ghosts.prefetch(slot.key()));
}

/// Finds up to `wanted` victims.
pub(super) fn evict(policy: &impl Pair, wanted: usize, hunt: &Hunt<'_>) -> usize {
    let (mut taken, mut class) = (0, 0);
    while taken < wanted && class < Priority::EVICTABLE {
        let left = wanted - taken;
        let surplus = policy.surplus().min(left);
        let mut found = if surplus > 0 { policy.take_on_trial(class, surplus, hunt) } else { 0 };
        if found == 0 {
            found = policy.take_proven(class, left, hunt);
        }
        if found == 0 {
            found = policy.take_on_trial(class, left, hunt);
        }
        taken += found;
        if hunt.reordered() {
            class = 0;
        } else if found == 0 {
            class += 1;
        }
    }
    taken
}
