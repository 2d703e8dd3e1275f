//! LRU by last release: one list a priority class, the oldest goes.
//!
//! Exact: the timeline's positions are the order of releases. A sequence releases its blocks tail first, so a child is always
//! older than its parent and leaves before it.

use super::{Eviction, Scan};
use crate::slot::{Priority, Slot};

pub(crate) struct Lru;

impl Eviction for Lru {
    fn lists(&self) -> usize {
        Priority::EVICTABLE
    }

    #[inline]
    fn place(&self, _slot: &Slot, priority: Priority) -> u8 {
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
