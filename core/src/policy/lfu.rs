//! LFU with dynamic ageing (LFU-DA; Arlitt, Cherkasova, Dilley, Friedrich and Jin, 1999), ties by recency.
//!
//! A block's worth is `age + uses` when it is released; the one of least worth goes, and `age` becomes its worth. So what was
//! popular once and is not touched any more is overtaken after a while, with no counter ever halved.
//!
//! ```text
//!   worth:   age   age+1   …   age+15        16 lists a class, worth mod 16: a wheel that age turns
//! ```
//!
//! Uses are counted to 15, so at any time all worths lie within one turn. Within a list, the oldest release goes first.

use super::{Eviction, Hunt};
use crate::slot::{Priority, Slot};
use crate::sync::{AtomicU32, CachePadded, Relaxed};

/// Lists a class: the most uses that are told apart, plus one.
pub(super) const WHEEL: u32 = 16;

pub(crate) struct Lfu {
    ages: [CachePadded<AtomicU32>; Priority::EVICTABLE],
}

impl Lfu {
    pub(super) fn new() -> Lfu {
        Lfu { ages: core::array::from_fn(|_| CachePadded(AtomicU32::new(0))) }
    }
}

impl Eviction for Lfu {
    fn lists(&self) -> usize {
        Priority::EVICTABLE * WHEEL as usize
    }

    #[inline]
    fn on_hit(&self, slot: &Slot) {
        // Relaxed, and a lost count now and then: an estimate.
        let uses = slot.heat.load(Relaxed);
        if u32::from(uses) < WHEEL - 1 {
            slot.heat.store(uses + 1, Relaxed);
        }
    }

    #[inline]
    fn place(&self, slot: &Slot, priority: Priority) -> u8 {
        let class = (priority as usize).min(Priority::EVICTABLE - 1);
        let worth = self.ages[class].load(Relaxed).wrapping_add(u32::from(slot.heat.load(Relaxed)));
        class as u8 * WHEEL as u8 + (worth % WHEEL) as u8
    }

    fn evict(&self, wanted: usize, hunt: &Hunt<'_>) -> usize {
        let (mut taken, mut class) = (0, 0);
        while taken < wanted && class < Priority::EVICTABLE {
            taken += self.evict_class(class, wanted - taken, hunt);
            class = if hunt.reordered() { 0 } else { class + 1 };
        }
        taken
    }
}

impl Lfu {
    /// Turns a class's wheel from its age on, until enough was found or a parent came back behind.
    fn evict_class(&self, class: usize, wanted: usize, hunt: &Hunt<'_>) -> usize {
        // Relaxed: an age read late places a block a little lower, for one turn.
        let from = self.ages[class].load(Relaxed);
        let mut taken = 0;
        for step in 0..WHEEL {
            let worth = from.wrapping_add(step);
            let list = class * WHEEL as usize + (worth % WHEEL) as usize;
            let found = hunt.take_oldest(list, wanted - taken);
            taken += found;
            if found > 0 {
                self.ages[class].store(worth, Relaxed);
            }
            if taken == wanted || hunt.is_reordered() {
                break;
            }
        }
        taken
    }
}
