//! LRU by last release: one list a priority class, the oldest goes.
//!
//! Exact: the timeline's positions are the order of releases. A sequence releases its blocks tail first, so a child is always
//! older than its parent and leaves before it.

use super::{Eviction, Hunt};
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

    fn evict(&self, wanted: usize, hunt: &Hunt<'_>) -> usize {
        let (mut taken, mut class) = (0, 0);
        while taken < wanted && class < Priority::EVICTABLE {
            taken += hunt.take_oldest(class, wanted - taken);
            class = if hunt.reordered() { 0 } else { class + 1 };
        }
        taken
    }
}
