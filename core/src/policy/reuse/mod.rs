//! Reuse: evicts the block of least expected hits for time of residence, as learned online; never far behind LRU.
//!
//! ```text
//!   use       flags and notes of the block; a sampled one is told                 no lock, and no line but the block's
//!   release   class (turn × growth, trunk × gap, leaf) ─► its FIFO on the timeline; what happened ─► journal, a few words a path
//!   learner   panel (sampled keys): age and class at the last use ─► hits, time at risk ─► index by class and age
//!             shadow LRU (counts by age, ghosts of what it has and we have not) ─► guard: a bank ─► how many ghosts are allowed
//!   evict     the FIFO whose head has the least index, as it was published last
//! ```
//!
//! | file | what |
//! |---|---|
//! | `notes.rs` | what is kept of a block |
//! | `path.rs` | a release: paths, and what is told of them |
//! | `journal.rs`, `lock.rs` | from all threads to the one that learns; who that is |
//! | `learner.rs` | hears, and publishes |
//! | `panel.rs`, `curve.rs`, `ages.rs` | sampled keys that wait; hits and time at risk, and the index; ages |
//! | `shadow.rs`, `guard.rs` | what LRU would have; how much may be risked |
//! | `orders.rs` | what was published, and the choice |
//! | `evict.rs`, `look.rs` | the search; a look at what it would take |
//! | `gone.rs` | conversations that were evicted wholly |
//!
//! The clock counts releases, modulo 2³²: it is where the timeline's young end is. A class other than `Normal` has one list, in LRU's order.
//! See `docs/decisions/015-reuse-prediction.md`.
//!
//! I1. No thread waits: one that learns has the journal by a try-lock, all others go on with what was published.
//! I2. Flags change by exchange, so what the shadow counts at a block's stamp is taken out once: by its next release, its eviction, or the
//!     end of its registration.
//! I3. A hold that is no use leaves everything as it is: place, class, stamp, flags.
//! I4. Nothing is allocated after construction.

mod ages;
mod curve;
mod evict;
mod gone;
mod guard;
mod journal;
mod learner;
mod lock;
mod look;
#[cfg(all(test, loom))]
mod models;
mod notes;
mod orders;
mod panel;
mod path;
mod shadow;

pub(crate) use look::Looked;
pub(crate) use path::Batch;

use super::{Eviction, Hunt};
use crate::slot::{Priority, Slot};
use crate::sync::{AtomicU32, AtomicU64, CachePadded, Relaxed, skipped};
use ages::Ages;
use alloc::boxed::Box;
use gone::Gone;
use journal::{Journal, Key, Record};
use learner::{Learner, MARGIN};
use notes::{
    BELOW, CHILDREN, GAP, GROWTH, GROWTH_ZERO, HAD, KNOWN, LENGTH, MOST_BELOW, NEW, Notes, OTHER, PHASE,
    TURNS, WAITING,
};
use orders::{Orders, YOUNG_LISTS};
use path::Path;

/// First turn × length.
const FIRST: usize = 0;
/// Later turns that grew by little.
const TURN: usize = 4;
/// Later turns that grew by much.
const GREW: usize = 9;
/// Shared prefixes × gap before the last use.
const TRUNK: usize = 12;
/// The last block of a path.
const LEAF: usize = 15;
/// Classes, a list each. In models two, or there would be little but empty lists to look at.
pub(crate) const CLASSES: usize = if cfg!(loom) { 2 } else { 16 };

/// The lists of other priorities, behind them.
const LOW: usize = CLASSES;
const HIGH: usize = CLASSES + 1;
/// Lists in all.
pub(crate) const LISTS: usize = CLASSES + 2;

/// Children ever that make a trunk.
const TRUNK_CHILDREN: u32 = 5;
/// One block of 2^n of a path is in the panel.
const SAMPLE_SHIFT: u32 = 4;

pub(crate) struct Reuse {
    capacity: u32,
    notes: Box<[AtomicU32]>,
    journal: Journal<Learner>,
    orders: Orders,
    gone: Gone,
    /// Where the youngest segment of each list begins on the timeline; 0: nothing is left of it.
    young: CachePadded<[AtomicU64; YOUNG_LISTS]>,
    /// Blocks that wait among other priorities.
    others: CachePadded<AtomicU32>,
    /// Bytes of what the learner has, who may be at work when somebody asks.
    learner_bytes: usize,
}

impl Reuse {
    pub(super) fn new(capacity: usize, lanes: usize, lane_of: fn() -> usize) -> Reuse {
        let ages = Ages::new(capacity);
        let orders = Orders::new(ages, 0, MARGIN);
        let mut learner = Learner::new(capacity, ages, 0);
        learner.publish_all(&orders);
        let learner_bytes = learner.memory_bytes();
        Reuse {
            capacity: capacity as u32,
            notes: (0..capacity).map(|_| AtomicU32::new(0)).collect(),
            journal: Journal::new(lanes, lane_of, journal::words(capacity), learner),
            orders,
            gone: Gone::new(capacity),
            young: CachePadded(core::array::from_fn(|_| AtomicU64::new(0))),
            others: CachePadded(AtomicU32::new(0)),
            learner_bytes,
        }
    }

    /// Blocks that LRU has, when the shadow has heard all.
    #[cfg(all(test, loom))]
    fn total(&self) -> Option<i64> {
        self.hear();
        self.journal.learn(|learner, _| learner.total())
    }

    #[inline]
    fn notes(&self, number: u32) -> Notes {
        Notes(self.notes[number as usize].load(Relaxed))
    }

    #[inline]
    fn set_notes(&self, number: u32, notes: Notes) {
        self.notes[number as usize].store(notes.0, Relaxed);
    }

    /// Lets the learner hear what was written, unless somebody does. `available`: blocks that are free, or wait.
    fn learn(&self, available: impl Fn() -> usize) {
        let room = || (available() as u32).saturating_sub(self.others.load(Relaxed)).max(1);
        self.journal.learn(|learner, lanes| learner.learn(&lanes, &self.orders, &room));
    }

    /// The same for who has written much, and must not ask.
    #[cold]
    fn hear(&self) {
        self.journal.learn(|learner, lanes| learner.hear_all(&lanes, &self.orders));
    }

    /// A block leaves the shadow, and those of other priorities: what `flags` say that it is in.
    fn leave(&self, slot: &Slot, flags: u8) {
        if flags & OTHER != 0 {
            self.others.fetch_sub(1, Relaxed);
        }
        if flags & KNOWN != 0 {
            // LRU loses it with us. Relaxed: by the slot's owner, or its only holder.
            if self.journal.write_one(Record::Out { first: slot.stamp.load(Relaxed), blocks: 1 }) {
                self.hear();
            }
        }
    }

    fn class(&self, slot: &Slot, notes: Notes, path: &Path) -> usize {
        let class = if notes.is(notes::TRUNK) {
            TRUNK + notes.get(GAP) as usize
        } else if !slot.has_children() {
            LEAF
        } else {
            match notes.get(TURNS) as usize {
                0 | 1 => FIRST + notes.get(LENGTH) as usize,
                turn if path.much => GREW + turn.min(4) - 2,
                turn => TURN + turn.min(6) - 2,
            }
        };
        class % CLASSES
    }
}

impl Eviction for Reuse {
    fn lists(&self) -> usize {
        LISTS
    }

    fn tells_uses(&self) -> bool {
        true
    }

    fn priority_of(&self, list: u8) -> usize {
        match usize::from(list) {
            LOW => Priority::Low as usize,
            HIGH => Priority::High as usize,
            _ => Priority::Normal as usize,
        }
    }

    /// All notes of a block that nobody can find yet.
    fn on_register(&self, number: u32, slot: &Slot, parent: Option<u32>) {
        let key = Key::of(slot.key());
        let mut notes = Notes::default();
        notes.set(NEW, 1);
        notes.set(TURNS, 1);
        notes.set(GROWTH, GROWTH_ZERO + 1);
        notes.set_phase(key.tag() >> 12);
        let above = parent.map(|parent| self.notes(parent));
        if let Some(above) = above {
            notes.set_phase(above.get(PHASE) + 1);
        }
        match above {
            Some(above) if !above.is(notes::TRUNK) => {
                notes.set(TURNS, above.get(TURNS));
                // Inside of a run it goes on; else it begins with what was below and may have come back.
                let growth = if above.is(NEW) { above.get(GROWTH) } else { grown(above.get(BELOW)) };
                notes.set(GROWTH, growth + 1);
            }
            _ => {
                if let Some((turns, below)) = self.gone.take(key) {
                    // The conversation was here before.
                    notes.set(TURNS, turns + 1);
                    notes.set(GROWTH, grown(below + 1) + 1);
                }
            }
        }
        self.set_notes(number, notes);
    }

    /// It is there: a miss of the request that brought it. Its parent is held by the caller.
    fn on_registered(&self, number: u32, slot: &Slot, parent: Option<u32>) {
        let key = Key::of(slot.key());
        let mut page = journal::Page::new();
        page.add(Record::Missed(key));
        if self.notes(number).is_sampled() {
            page.add(Record::Used(key));
        }
        if self.journal.write(&mut page) {
            self.hear();
        }
        if let Some(parent) = parent {
            let mut notes = self.notes(parent);
            notes.add(CHILDREN, 1);
            if notes.get(CHILDREN) >= TRUNK_CHILDREN {
                notes.set(notes::TRUNK, 1);
            }
            self.set_notes(parent, notes);
        }
    }

    fn on_use(&self, number: u32, slot: &Slot, clock: impl Fn() -> u64) {
        // Relaxed, both: who has let go of it before us wrote them before, and the word that we have acquired orders that. Of two that use
        // it at once, while a third holds it, one finds the flag (I2).
        if slot.heat.load(Relaxed) & WAITING == 0 {
            return;
        }
        let stamp = slot.stamp.load(Relaxed);
        let had = if self.orders.lru_has(stamp) { HAD } else { 0 };
        let waited = if skipped!("reuse_use_no_exchange") {
            let flags = slot.heat.load(Relaxed);
            slot.heat.store(flags & !WAITING, Relaxed);
            flags
        } else {
            slot.heat.fetch_and(!WAITING, Relaxed)
        };
        if waited & WAITING == 0 {
            return;
        }
        slot.heat.fetch_or(had, Relaxed);
        let mut notes = self.notes(number);
        let age = (clock() as u32).wrapping_sub(stamp);
        let gap = match age {
            _ if age < self.capacity / 2 => 0,
            _ if age < self.capacity.saturating_mul(4) => 1,
            _ => 2,
        };
        notes.set(GAP, gap);
        notes.add(TURNS, 1);
        self.set_notes(number, notes);
        if notes.is_sampled() {
            self.journal.write_one(Record::Used(Key::of(slot.key())));
        }
    }

    fn on_remove(&self, slot: &Slot) {
        let flags = slot.heat.swap(0, Relaxed);
        if flags != 0 {
            self.leave(slot, flags);
        }
    }

    fn begin_batch(&self, first: u64) -> Option<Batch> {
        Some(Batch::new(Path::of(self.journal.path()), first as u32))
    }

    fn place_in(&self, batch: &mut Batch, number: u32, slot: &Slot, priority: Priority, place: u64) -> u8 {
        if batch.is_full() {
            batch.turn(|page| {
                if self.journal.write(page) {
                    self.hear();
                }
            });
        }
        let mut notes = self.notes(number);
        let block = (u64::from(slot.word().generation()) << 32) | u64::from(number);
        let begins = batch.path.goes_on(block, slot.parent(), notes);
        let (stamp, nth) = batch.stamp(begins);
        let path = &mut batch.path;
        if path.trunk {
            notes.set(notes::TRUNK, 1);
        }
        if notes.is(NEW) {
            notes.set(LENGTH, path.length);
            notes.set(NEW, 0);
        }
        notes.set(BELOW, path.at.min(MOST_BELOW));
        self.set_notes(number, notes);
        let is_other = priority != Priority::Normal;
        let flags = slot.heat.swap(if is_other { OTHER | WAITING } else { KNOWN | WAITING }, Relaxed);
        let old = slot.stamp.load(Relaxed);
        slot.stamp.store(stamp, Relaxed);
        if flags & OTHER != 0 {
            self.others.fetch_sub(1, Relaxed);
        }
        if flags & KNOWN != 0 {
            // What was lost by LRU when it was used is a hit that LRU has not; what was not used has a new place for another reason.
            if flags & (HAD | WAITING) == 0 { batch.won() } else { batch.out(old) }
        }
        if is_other {
            self.others.fetch_add(1, Relaxed);
            // The shadow counts all that were released: not this one.
            batch.out(stamp);
            return if priority == Priority::Low { LOW as u8 } else { HIGH as u8 };
        }
        let class = self.class(slot, notes, &batch.path);
        if notes.is_sampled() {
            batch.page.add(Record::Waits { key: Key::of(slot.key()), class, nth });
        }
        if batch.path.enters(class) && class < YOUNG_LISTS {
            // Relaxed: a place to look at; of two that release at once one is the youngest.
            self.young[class].store(place, Relaxed);
        }
        class as u8
    }

    fn end_batch(&self, mut batch: Batch, available: impl Fn() -> usize) {
        batch.turn(|page| _ = self.journal.write(page));
        self.journal.set_path(batch.path.words());
        self.learn(available);
    }

    fn place(&self, _slot: &Slot, priority: Priority) -> u8 {
        // For a block without a batch: there is none.
        match priority {
            Priority::Low => LOW as u8,
            Priority::High | Priority::Pinned => HIGH as u8,
            Priority::Normal => (LEAF % CLASSES) as u8,
        }
    }

    fn evict(&self, wanted: usize, hunt: &Hunt<'_>) -> usize {
        self.search(wanted, hunt)
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Reuse>()
            + size_of_val(&*self.notes)
            + self.journal.memory_bytes()
            + self.learner_bytes
            + self.gone.memory_bytes()
    }
}

/// Where the growth of a run begins, behind so many blocks that were there before; if they are too many to be known, far below.
fn grown(before: u32) -> u32 {
    if before >= MOST_BELOW { 0 } else { GROWTH_ZERO - before }
}
