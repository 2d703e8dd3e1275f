//! LRU by last release: one list a priority class, the oldest goes.
//!
//! Exact: the timeline's positions are the order of releases. A sequence releases its blocks tail first, so a
//! child is always older than its parent and leaves before it.

use super::carried::Batch;
use super::eviction::{Event, Eviction, Shape};
use super::scan::Scan;
use super::turns::{ByTurns, Outset, Turn};
use crate::slot::{Priority, Slot};

pub(crate) struct Lru;

impl Eviction for Lru {
    fn shape(&self) -> Shape {
        Shape::new(Priority::EVICTABLE)
    }

    #[inline(always)]
    fn on(&self, _number: u32, _slot: &Slot, _event: Event<'_>) {}

    #[inline]
    fn place(&self, _: &mut Batch, _number: u32, _slot: &Slot, priority: Priority, _position: u64) -> u8 {
        priority as u8
    }

    fn evict<'p>(&self, wanted: usize, scan: &impl Scan<'p>) -> usize {
        let (mut taken, mut class) = (0, 0);
        while taken < wanted && class < Priority::EVICTABLE {
            taken += scan.take_oldest(class, wanted - taken);
            class = if scan.reordered() { 0 } else { class + 1 };
        }
        taken
    }
}

impl ByTurns for Lru {
    fn turn(&self, nth: usize, _outset: &Outset) -> Option<Turn> {
        Turn::of_class(nth)
    }
}
