//! The interface of a policy to its pool: the pool reports events, the policy names the list of each
//! released block and finds victims.
//!
//! The pool carries a policy's own state over a call ([`Uses`]) or a batch of releases ([`Batch`]),
//! and knows no policy by its name.

use super::carried::{Batch, Uses};
use super::scan::Scan;
use super::stats::ReuseStats;
use crate::slot::{Priority, Slot};
use crate::sync::Relaxed;
use crate::timeline::Timeline;

/// A policy, as its pool calls it.
pub(crate) trait Eviction {
    /// The policy's constants. A pool asks once.
    fn shape(&self) -> Shape;

    /// Reports an event on a block.
    fn on(&self, number: u32, slot: &Slot, event: Event<'_>);

    /// Ends a call that has used or registered blocks.
    #[inline]
    fn end_uses(&self, _uses: &mut Uses) {}

    /// Begins a batch of blocks that will take places. `first`: the number of places given before.
    #[inline]
    fn begin_batch<'s>(&self, _first: u64, _blocks: impl Iterator<Item = &'s Slot>) -> Batch {
        Batch::default()
    }

    /// Returns the list of a block of the batch, which takes this position of the timeline now. The
    /// caller holds its only reference.
    fn place(&self, batch: &mut Batch, number: u32, slot: &Slot, priority: Priority, position: u64) -> u8;

    /// Ends a batch: all its blocks have places. `free` counts the free blocks.
    #[inline]
    fn end_batch(&self, _batch: &mut Batch, _free: impl Fn() -> usize) {}

    /// The list into which a parent is requeued when its last child is gone. None, or the parent's
    /// own list: its old place there.
    #[inline]
    fn list_of_returning(&self, _priority: Priority) -> Option<u8> {
        None
    }

    /// Finds up to `wanted` victims.
    fn evict<'p>(&self, wanted: usize, scan: &impl Scan<'p>) -> usize;

    /// Bytes of the policy, besides its lists on the timeline.
    fn memory_bytes(&self) -> usize {
        0
    }

    /// The policy's figures against LRU, if it keeps any.
    fn beside_lru(&self) -> Option<ReuseStats> {
        None
    }
}

/// Events of a block, apart from its release and from its eviction by the policy.
pub(crate) enum Event<'e> {
    /// It is about to be registered, behind a parent, which the caller holds.
    Registering { parent: Option<u32> },
    /// It is registered now: as the only block of its hash, unless duplicates are kept.
    Registered(&'e mut Uses),
    /// It got another child besides those it has. The caller holds it.
    Forked,
    /// It was used: acquired by a lookup, or found by a caller that would have registered it. The clock
    /// counts releases.
    Used(&'e mut Uses, &'e Timeline),
    /// It was acquired for a new place, and not used.
    Touched(&'e mut Uses),
    /// It stays registered without a place: it has lost its own, or did not get the one that `place`
    /// chose a list for. It will be placed again.
    Displaced,
    /// It is pinned, and is about to be released without a place. The caller holds its only reference,
    /// and may report this more than once.
    Pinned,
    /// It was evicted by another's choice, and belongs to the caller. `parent`: its parent, if that is
    /// still registered. `Removed` follows.
    TakenOut { parent: Option<u32> },
    /// It leaves the registry.
    Removed,
}

/// The constants of a policy. Sets of lists have a bit for each list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Its lists on the timeline, 64 at most.
    pub(crate) lists: usize,
    /// Whether a hand sweeps its lists.
    pub(crate) swept: bool,
    /// The lists of each priority.
    of: [u64; Priority::EVICTABLE],
    /// Lists whose blocks keep their places while they are in use.
    keeping: u64,
    /// The bits of a block's heat that a released block has until it is used. 0: the policy does not
    /// distinguish uses from other holds.
    waiting: u8,
}

impl Shape {
    /// A policy of `lists` lists. A list's priority is its number modulo the priorities, and blocks take
    /// new places when they are released.
    pub(super) const fn new(lists: usize) -> Shape {
        // Each third bit.
        const LOW: u64 = 0x9249_2492_4924_9249;
        Shape { lists, swept: false, of: [LOW, LOW << 1, LOW << 2], keeping: 0, waiting: 0 }
    }

    /// A hand sweeps the lists.
    pub(super) const fn swept(self) -> Shape {
        Shape { swept: true, ..self }
    }

    /// Sets the lists of each priority.
    pub(super) const fn with_lists_of(self, of: [u64; Priority::EVICTABLE]) -> Shape {
        Shape { of, ..self }
    }

    /// Blocks of these lists keep their places while they are in use (the FIFO family).
    pub(super) const fn keeping(self, keeping: u64) -> Shape {
        Shape { keeping, ..self }
    }

    /// The policy distinguishes uses from other holds, by these bits of a block's heat.
    pub(super) const fn telling_uses(self, waiting: u8) -> Shape {
        Shape { waiting, ..self }
    }

    /// Returns whether blocks of a list keep their places while they are in use.
    #[inline]
    pub(crate) fn keeps_place(&self, list: u8) -> bool {
        self.keeping != 0 && has(self.keeping, list)
    }

    /// Returns whether blocks of any list do.
    #[inline]
    pub(crate) fn keeps_places(&self) -> bool {
        self.keeping != 0
    }

    /// Returns whether a list is of this priority.
    #[inline]
    pub(crate) fn is_of(&self, list: u8, priority: Priority) -> bool {
        self.of.get(priority as usize).is_some_and(|lists| has(*lists, list))
    }

    /// Returns whether the policy distinguishes uses from other holds. Then a block that is
    /// held and not used keeps its place.
    #[inline]
    pub(crate) fn tells_uses(&self) -> bool {
        self.waiting != 0
    }

    /// Returns whether an inactive block was not used since its release, under a policy that
    /// distinguishes uses.
    #[inline]
    pub(crate) fn waits(&self, slot: &Slot) -> bool {
        // Relaxed: a caller that used the block has released it since, and the word orders that.
        slot.heat.load(Relaxed) & self.waiting != 0
    }
}

/// Returns whether a set of lists has this one. `NO_LIST` counts as the last.
#[inline]
fn has(lists: u64, list: u8) -> bool {
    lists >> (list & 63) & 1 != 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::hash::Placement;
    use crate::policy::{AnyPolicy, Policy};
    use crate::slot::NO_LIST;
    use alloc::vec::Vec;

    /// Each list is of one priority, and the lists of a priority are as many as those
    /// of another, `reuse` aside.
    #[test]
    fn policy_lists_belong_to_one_priority_each() {
        for policy in Policy::ALL {
            let any = AnyPolicy::new(policy, 64, Placement::new(1), 1, || 0);
            let shape = any.shape();
            let of = |priority| (0..shape.lists as u8).filter(|list| shape.is_of(*list, priority)).count();
            let counts = [Priority::Low, Priority::Normal, Priority::High, Priority::Pinned].map(of);
            let third = shape.lists / 3;
            let expected =
                if policy == Policy::Reuse { [1, shape.lists - 2, 1, 0] } else { [third, third, third, 0] };
            assert_eq!(counts, expected, "{policy}");
            for priority in [Priority::Low, Priority::Normal, Priority::High] {
                let mut batch = any.begin_batch(0, core::iter::empty());
                let list = any.place(&mut batch, 0, &Slot::table(1)[0], priority, 0);
                assert!(shape.is_of(list, priority), "{policy}: {priority:?} in list {list}");
            }
        }
    }

    #[test]
    fn block_without_a_list_keeps_no_place() {
        let shape = Shape::new(6).keeping(0b111);
        let keeping: Vec<u8> = (0..6).chain([NO_LIST]).filter(|list| shape.keeps_place(*list)).collect();
        assert_eq!(keeping, [0, 1, 2]);
        assert!(shape.keeps_places() && !Shape::new(6).keeps_places());
    }
}
