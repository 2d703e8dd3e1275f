//! LFU with dynamic ageing (LFU-DA; Arlitt, Cherkasova, Dilley, Friedrich and Jin, 1999), ties by recency.
//!
//! A block's worth is `age + uses` when it is released. The block of least worth goes, and `age` becomes
//! its worth. So blocks that were popular once and are used no more are overtaken after a while, without
//! halving any counter. The registration is the first use, as in the paper. If it did not count, blocks
//! that are used once would leave without raising the age, and a stream of them would overtake nothing.
//!
//! ```text
//!   worth:   age   age+1   …   age+15        16 lists a class, worth mod 16: a wheel that age turns
//!            └ blocks whose worth the age has reached, and requeued parents
//! ```
//!
//! A deferred parent was the block of least worth: `age` becomes its worth too. When its last child is
//! gone, its worth is the age, which is not less. If the age is still the same, the parent has its old
//! place; otherwise it changes lists, since in its old list it would be a turn behind.
//!
//! Uses are counted to 15, so at any time all worths lie within one turn. Within a list, the oldest
//! release goes first.

use super::carried::Batch;
use super::eviction::{Event, Eviction, Shape};
use super::scan::Scan;
use super::turns::{ByTurns, Outset, Turn};
use crate::slot::{Priority, Slot};
use crate::sync::{AtomicU32, CachePadded, Relaxed};

/// Lists a class: the highest count of uses, plus one. Three in models: otherwise a model would scan
/// little but empty lists.
pub(super) const WHEEL: u32 = if cfg!(loom) { 3 } else { 16 };

pub(crate) struct Lfu {
    ages: [CachePadded<AtomicU32>; Priority::EVICTABLE],
}

impl Lfu {
    pub(super) fn new() -> Lfu {
        Lfu { ages: core::array::from_fn(|_| CachePadded(AtomicU32::new(0))) }
    }
}

impl Eviction for Lfu {
    fn shape(&self) -> Shape {
        const CLASS: u64 = (1 << WHEEL) - 1;
        let of = [CLASS, CLASS << WHEEL, CLASS << (2 * WHEEL)];
        Shape::new(Priority::EVICTABLE * WHEEL as usize).with_lists_of(of)
    }

    #[inline(always)]
    fn on(&self, _number: u32, slot: &Slot, event: Event<'_>) {
        if let Event::Used(..) = event {
            count_hit(slot);
        }
    }

    #[inline]
    fn list_of_returning(&self, priority: Priority) -> Option<u8> {
        Some(self.list(priority, 0))
    }

    #[inline]
    fn place(&self, _: &mut Batch, _number: u32, slot: &Slot, priority: Priority, _position: u64) -> u8 {
        self.list(priority, slot.heat.load(Relaxed) + 1)
    }

    fn evict<'p>(&self, wanted: usize, scan: &impl Scan<'p>) -> usize {
        let (mut taken, mut class) = (0, 0);
        while taken < wanted && class < Priority::EVICTABLE {
            taken += self.evict_class(class, wanted - taken, scan);
            class = if scan.reordered() { 0 } else { class + 1 };
        }
        taken
    }
}

impl ByTurns for Lfu {
    fn outset(&self) -> Outset {
        Outset { ages: self.ages.each_ref().map(|age| age.load(Relaxed)), ..Outset::default() }
    }

    /// Returns a class's lists, from its age on.
    fn turn(&self, nth: usize, outset: &Outset) -> Option<Turn> {
        let (class, step) = (nth / WHEEL as usize, nth as u32 % WHEEL);
        let age = outset.ages.get(class)?;
        Some(Turn::whole(class * WHEEL as usize + (age.wrapping_add(step) % WHEEL) as usize))
    }
}

#[inline]
fn count_hit(slot: &Slot) {
    // Relaxed, and a count may be lost: an estimate. It counts hits: all uses except the first.
    let hits = slot.heat.load(Relaxed);
    if u32::from(hits) + 1 < WHEEL - 1 {
        slot.heat.store(hits + 1, Relaxed);
    }
}

impl Lfu {
    /// The list of a block whose worth is its uses above the age.
    #[inline]
    fn list(&self, priority: Priority, uses: u8) -> u8 {
        let class = (priority as usize).min(Priority::EVICTABLE - 1);
        // Relaxed: an age that is read late places a block a little lower; or, if the age has passed the
        // block's worth meanwhile, a turn of the wheel higher.
        let worth = self.ages[class].load(Relaxed).wrapping_add(u32::from(uses));
        class as u8 * WHEEL as u8 + (worth % WHEEL) as u8
    }

    /// Turns a class's wheel from its age on, until enough victims were found or a
    /// parent was requeued behind.
    fn evict_class<'p>(&self, class: usize, wanted: usize, scan: &impl Scan<'p>) -> usize {
        let from = self.ages[class].load(Relaxed);
        let mut taken = 0;
        for step in 0..WHEEL {
            let worth = from.wrapping_add(step);
            let list = class * WHEEL as usize + (worth % WHEEL) as usize;
            taken += scan.timeline().take_oldest(scan.slots(), list, wanted - taken, |candidate, _| {
                // Before the claim: a parent that the claim requeues is placed by this age.
                self.raise(class, worth);
                scan.claim(candidate)
            });
            if taken == wanted || scan.is_reordered() {
                break;
            }
        }
        taken
    }

    /// Raises the age to a worth, unless another evictor is already further.
    fn raise(&self, class: usize, worth: u32) {
        let age = &self.ages[class];
        let mut now = age.load(Relaxed);
        while (worth.wrapping_sub(now) as i32) > 0 {
            match age.compare_exchange_weak(now, worth, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(seen) => now = seen,
            }
        }
    }
}
