//! The learner: reads the journal, one thread at a time, and publishes its conclusions.
//!
//! I1. It allocates nothing, and reads at most as many records as the ring holds: its work is bounded.
//! I2. Its errors cost hits and nothing else: no block depends on it.

#[cfg(all(test, not(loom)))]
use super::ages::BUCKETS;
use super::ages::{Ages, not_before};
use super::classes::CLASSES;
use super::curve::Curve;
use super::guard::Guard;
use super::journal::{Lanes, Record};
use super::orders::Orders;
use super::panel::Panel;
use super::shadow::Shadow;

/// Releases between the refreshes of one class's index.
const REFRESH: u32 = 64;
/// The oldest block goes unless another's index is below this part of its own. Rises to 1 as the lead
/// over LRU reaches `PROOF` capacities.
pub(super) const MARGIN: f32 = 0.4;
const PROOF: f32 = 0.05;

pub(super) struct Learner {
    capacity: u32,
    /// Releases read so far. The youngest stamp is its low half.
    clock: u32,
    heard: u64,
    /// Ghosts by evictors that it has read of, modulo 2³².
    ghosts: u32,
    panel: Panel,
    shadow: Shadow,
    guard: Guard,
    curve: Curve,
    due: u32,
    next_class: usize,
    /// Mean blocks per request.
    length: f32,
    /// Blocks that LRU has room for, as counted last; `ask`: that was long ago.
    room: u32,
    ask: bool,
}

impl Learner {
    pub(super) fn new(capacity: usize, ages: Ages, clock: u32) -> Learner {
        Learner {
            capacity: capacity as u32,
            clock,
            heard: 0,
            ghosts: 0,
            panel: Panel::new(capacity),
            shadow: Shadow::new(capacity, clock),
            guard: Guard::default(),
            curve: Curve::new(capacity, ages),
            due: 0,
            next_class: 0,
            length: 1.0,
            room: capacity as u32,
            ask: false,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.panel.memory_bytes() + self.shadow.memory_bytes()
    }

    /// Uses that were learned from, by age.
    #[cfg(all(test, not(loom)))]
    pub(super) fn hits(&self) -> [f32; BUCKETS] {
        self.curve.hits()
    }

    #[cfg(test)]
    pub(super) fn shadow(&self) -> &Shadow {
        &self.shadow
    }

    /// Publishes the initial state.
    pub(super) fn publish_all(&mut self, orders: &Orders) {
        (0..CLASSES).for_each(|class| orders.set_row(class, &self.curve.row(class, self.length)));
        let room = self.room;
        self.publish(orders, &|| room);
    }

    /// Reads the journal and publishes nothing of the shadow: LRU's room may not be known now.
    pub(super) fn hear_all(&mut self, lanes: &Lanes<'_>, orders: &Orders) {
        let lost = lanes.read(|record, batch| self.hear(record, batch, orders));
        if lost.blocks > 0 {
            self.shadow.lost(lost.blocks);
            orders.standing.lost(lost.blocks);
        }
        self.ghosts = self.ghosts.wrapping_add(lost.evicted);
    }

    /// Reads the journal and publishes. `room` returns the number of blocks that LRU has room for.
    pub(super) fn learn(&mut self, lanes: &Lanes<'_>, orders: &Orders, room: &impl Fn() -> u32) {
        self.hear_all(lanes, orders);
        self.publish(orders, room);
    }

    fn publish(&mut self, orders: &Orders, room: &impl Fn() -> u32) {
        // The count visits all lanes, so it is taken only where it may move the horizon, and now and then.
        if core::mem::take(&mut self.ask) || self.shadow.is_full(self.room, self.clock) {
            self.room = room();
        }
        self.shadow.keep_within(self.room, self.clock);
        let ghosts = self.guard.room(&self.shadow, self.heard, self.capacity, self.length);
        let lead = self.guard.lead() as f32;
        let margin = MARGIN + (1.0 - MARGIN) * (lead / (self.capacity as f32 * PROOF)).min(1.0);
        orders.set(self.shadow.horizon(), margin, self.ghosts, ghosts);
        orders.standing.set(&self.shadow, &self.guard);
    }

    fn hear(&mut self, record: Record, batch: u32, orders: &Orders) {
        match record {
            Record::Missed(key) => self.shadow.missed(key),
            Record::Used(key) => self.panel.used(key.short(), self.clock, &mut self.curve),
            Record::Released { first, blocks, paths } => self.released(first, blocks, paths, orders),
            Record::Waits { key, class, nth } => {
                self.panel.waits(key, class, batch.wrapping_add(nth), &mut self.curve);
            }
            Record::Out { first, blocks } => self.shadow.out(first, blocks),
            Record::Won(hits) => self.shadow.won(hits),
            Record::Evicted(key, stamp) => {
                self.ghosts = self.ghosts.wrapping_add(1);
                self.shadow.evicted(key, stamp);
            }
        }
    }

    fn released(&mut self, first: u32, blocks: u32, paths: u32, orders: &Orders) {
        let last = first.wrapping_add(blocks).wrapping_sub(1);
        if not_before(last, self.clock) {
            self.clock = last;
        }
        self.heard += u64::from(blocks);
        self.shadow.released(first, blocks);
        self.panel.scan(2 * blocks, self.clock, &mut self.curve);
        // Adds the blocks and the begun paths of the release: their quotient is the paths' mean
        // length, without a count of requests.
        self.length += 0.01 * blocks as f32 - 0.01 * paths as f32 * self.length;
        self.length = self.length.max(1.0);
        self.due += blocks;
        while self.due >= REFRESH {
            self.due -= REFRESH;
            self.ask = true;
            self.next_class += 1;
            if self.next_class == CLASSES {
                self.next_class = 0;
                self.curve.decay(REFRESH * CLASSES as u32);
                self.curve.share();
            }
            orders.set_row(self.next_class, &self.curve.row(self.next_class, self.length));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::reuse::journal::{Journal, Key, WORDS};

    /// A learner of a pool of 1,000 blocks, which were all released, each as a path of its own.
    fn learner() -> (Journal<Learner>, Orders) {
        let ages = Ages::new(1000);
        let orders = Orders::new(ages, 0, MARGIN);
        let journal = Journal::new(1, || 0, WORDS, Learner::new(1000, ages, 0));
        (0..25).for_each(|nth| release(&journal, &orders, 40 * nth, 1000));
        (journal, orders)
    }

    fn release(journal: &Journal<Learner>, orders: &Orders, first: u32, room: u32) {
        journal.write_one(Record::Released { first, blocks: 40, paths: 40 });
        journal.learn(|learner, lanes| learner.learn(&lanes, orders, &|| room));
    }

    /// A pool that is counted during allocations and releases may seem to have no room: LRU loses no
    /// more blocks than have come since the last time.
    #[test]
    fn learner_with_a_wrong_room_loses_two_chunks() {
        let (journal, orders) = learner();
        assert!(orders.lru_has(0) && !orders.lru_has(u32::MAX));
        (25..27).for_each(|nth| release(&journal, &orders, 40 * nth, 1));
        assert!(orders.lru_has(100), "eighty have come, and two chunks are fourteen");
        // As it would have been by now.
        release(&journal, &orders, 40 * 27, 1000);
        assert!(orders.lru_has(140) && !orders.lru_has(50));
    }

    /// Room is counted now and then, and where LRU seems to be full.
    #[test]
    fn learner_asks_for_the_room_seldom() {
        let (journal, orders) = learner();
        let asked = core::cell::Cell::new(0);
        for nth in 0..32 {
            journal.write_one(Record::Released { first: 1000 + 4 * nth, blocks: 4, paths: 1 });
            journal.write_one(Record::Out { first: 500 + 4 * nth, blocks: 4 });
            journal.learn(|learner, lanes| {
                learner.learn(&lanes, &orders, &|| {
                    asked.set(asked.get() + 1);
                    1000
                });
            });
        }
        assert_eq!(asked.get(), 2, "128 releases");
    }

    /// A ghost that an evictor makes uses the allowance once, whether its record is read or lost.
    #[test]
    fn learner_charges_each_ghost_once() {
        let (journal, orders) = learner();
        let left = || (0..=100).find(|more| orders.leave(*more).tight).expect("a bank of two hits");
        let evict = |number: u64| {
            orders.risk_one();
            journal.write_one(Record::Evicted(Key::some(number), 500));
        };
        let hear = || journal.learn(|learner, lanes| learner.learn(&lanes, &orders, &|| 1000));
        hear();
        let before = left();
        // Two ghosts whose records cannot have been read yet, and one whose record is read.
        (0..2).for_each(|_| orders.risk_one());
        evict(0);
        hear();
        assert_eq!(left(), before - 3);
        (0..WORDS as u64).for_each(|_| _ = journal.write_one(Record::Won(0)));
        evict(1);
        hear();
        assert_eq!(left(), before - 3, "what was lost is a hit of LRU's to a part, and no ghost");
    }

    /// A part of the lost records counts as LRU's hits: an eighth at first, a 64th where no ghost was
    /// made for long, and twice the part of the ghosts that were hit.
    #[test]
    fn learner_charges_lost_records_to_the_guard() {
        let (journal, orders) = learner();
        let deficit = || journal.learn(|learner, _| learner.shadow().deficit()).expect("nobody else learns");
        let tell = |record| _ = journal.write_one(record);
        let hear = || _ = journal.learn(|learner, lanes| learner.hear_all(&lanes, &orders));
        let lose = |lost: u64| {
            (0..WORDS as u64 + lost).for_each(|number| tell(Record::Missed(Key::some(number))));
            hear();
            deficit()
        };
        assert_eq!(lose(72), 9);
        (0..2000).for_each(|_| _ = lose(0));
        assert_eq!(lose(640) - 9, 10);
        // A quarter of the evicted blocks is requested again.
        for number in (1000..1400).map(Key::some) {
            tell(Record::Evicted(number, 500));
            hear();
        }
        for number in (1000..1100).map(Key::some) {
            tell(Record::Missed(number));
            hear();
        }
        assert_eq!(deficit(), 119, "all of them are LRU's hits");
        assert!((315..=325).contains(&(lose(640) - 119)), "half of what was lost is: {}", deficit());
    }
}
