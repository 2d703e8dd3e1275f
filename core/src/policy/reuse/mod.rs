//! Reuse: evicts the block with the fewest expected hits for its time of residence, as learned online;
//! its hits never fall far behind LRU's.
//!
//! ```text
//!   use       flags and notes of the block; journal: its LRU entry ends; the use itself, if sampled
//!             no lock; cache lines: the block's, its notes', and, once a call, the journal's
//!   release   class (turn × growth, trunk × gap, leaf) ─► its FIFO on the timeline; journal: a few words
//!   learner   sampler (panel of sampled keys): age and class at the last use ─► hits, time at risk
//!                                                                       ─► index by class and age
//!             shadow LRU (counts by age; ghosts: blocks that LRU has and we have not)
//!                                                                       ─► guard: a bank ─► ghosts allowed
//!   evict     the FIFO whose head has the least index, by the index published last
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `notes.rs` | per-block notes and flags |
//! | `path.rs` | a release: paths, and the records written for them |
//! | `journal.rs`, `ring.rs` | records from all threads to the learner |
//! | `lock.rs` | the try-lock around the learner, and around the scan cache of evictors |
//! | `learner.rs` | reads the journal and publishes |
//! | `panel.rs`, `curve.rs`, `ages.rs` | the sampler: sampled keys; hits, time at risk and the index; ages |
//! | `shadow.rs`, `guard.rs` | the blocks that LRU would have; how many hits may be risked |
//! | `classes.rs` | the lists |
//! | `orders.rs` | the published figures, and the choice among lists |
//! | `evict.rs`, `sight.rs` | the search for victims; the scan cache that the next search continues from |
//! | `look.rs`, `looked.rs` | previews of the next victims; the state of a preview between its parts |
//! | `among.rs` | previews of the next victims among one owner's blocks |
//! | `standing.rs` | figures against LRU, for metrics |
//! | `gone.rs` | conversations that were evicted completely |
//!
//! The clock counts releases, modulo 2³²: it is the position of the timeline's young end. A priority
//! other than `Normal` has one list, in LRU's order. See `docs/decisions/015-reuse-prediction.md`.
//!
//! I1. No thread waits. The learning thread holds the journal's reader by a try-lock, and all others go
//!     on with the published figures. An evictor of few blocks holds the cached heads in the same way.
//! I2. Flags change by exchange. So a block's entry in the shadow, counted at its stamp, is removed once:
//!     by its next use, its eviction, a new place, or the end of its registration. A block in use is
//!     therefore in neither count: not among the blocks that LRU has, nor among those that it has room for.
//! I3. A hold that is no use leaves everything as it is: place, class, stamp, flags.
//! I4. Nothing is allocated after construction.

mod ages;
mod among;
mod classes;
mod curve;
mod evict;
mod gone;
mod guard;
mod journal;
mod learner;
mod lock;
mod look;
mod looked;
#[cfg(all(test, loom))]
mod models;
mod notes;
mod orders;
mod panel;
mod path;
mod ring;
mod shadow;
mod sight;
mod standing;
#[cfg(all(test, not(loom)))]
mod tests;

pub(super) use looked::Looked;
pub(super) use path::{Batch, Uses};

use super::carried;
use super::eviction::{Event, Eviction, Shape};
use super::scan::Scan;
use super::stats::ReuseStats;
use crate::hash::Placement;
use crate::slot::{Priority, Slot};
use crate::sync::{Acquire, AtomicU32, AtomicU64, CachePadded, Relaxed, Release, site, skipped};
use crate::timeline::Timeline;
use ages::Ages;
use alloc::boxed::Box;
use classes::{CLASSES, FIRST, GREW, HIGH, LEAF, LISTS, LOW, TRUNK, TURN, YOUNG_LISTS};
use gone::Gone;
use journal::{Journal, Key, Page, Record};
use learner::{Learner, MARGIN};
use lock::TryLock;
use notes::{
    BELOW, FORKS, GAP, GROWTH, GROWTH_ZERO, KNOWN, LENGTH, MOST_BELOW, NEW, Notes, PHASE, TOUCHED, TURNS,
    WAITING, WON,
};
use orders::Orders;
use path::Path;
use sight::Sight;

/// A block becomes a trunk at this many forks: children that came while it had another child. Five
/// children make that many, and so does one child that comes back this often beside another. An only
/// child never counts.
const TRUNK_FORKS: u32 = 4;
/// One block of 2^n of a path is sampled.
const SAMPLE_SHIFT: u32 = 4;
/// At one block of 2^n the count to the next sample begins anew; elsewhere it continues from the block
/// above. Otherwise all paths of a system prompt would be sampled at the same depths.
const ANEW_SHIFT: u32 = 6;

pub(crate) struct Reuse {
    place: Placement,
    capacity: u32,
    notes: Box<[AtomicU32]>,
    journal: Journal<Learner>,
    orders: Orders,
    gone: Gone,
    /// Where the youngest segment of each list begins on the timeline; 0: the segment is used up.
    young: CachePadded<[AtomicU64; YOUNG_LISTS]>,
    /// The scan cache, for evictors that take few blocks at a time.
    sight: CachePadded<TryLock<Sight>>,
    /// Bytes that the learner holds, computed once: the learner may be locked when `memory_bytes` is called.
    learner_bytes: usize,
}

impl Reuse {
    pub(super) fn new(capacity: usize, place: Placement, lanes: usize, lane_of: fn() -> usize) -> Reuse {
        let ages = Ages::new(capacity);
        let orders = Orders::new(ages, 0, MARGIN);
        let mut learner = Learner::new(capacity, ages, 0);
        learner.publish_all(&orders);
        let learner_bytes = learner.memory_bytes();
        Reuse {
            capacity: capacity as u32,
            place,
            notes: (0..capacity).map(|_| AtomicU32::new(0)).collect(),
            journal: Journal::new(lanes, lane_of, journal::words(capacity, lanes), learner),
            orders,
            gone: Gone::new(capacity),
            young: CachePadded(core::array::from_fn(|_| AtomicU64::new(0))),
            sight: CachePadded(TryLock::new(Sight::none())),
            learner_bytes,
        }
    }

    /// Blocks that LRU has, its ghosts, its hits less ours, and inactive blocks here, after the
    /// journal was read.
    #[cfg(test)]
    fn books(&self) -> Option<[i64; 4]> {
        self.hear();
        self.journal.learn(|learner, lanes| {
            let shadow = learner.shadow();
            [shadow.total(), shadow.ghosts().into(), shadow.deficit(), lanes.waiting().into()]
        })
    }

    #[inline]
    fn key_of(&self, slot: &Slot) -> Key {
        Key::of(slot.key(), &self.place)
    }

    #[inline]
    fn notes(&self, number: u32) -> Notes {
        Notes(self.notes[number as usize].load(Relaxed))
    }

    #[inline]
    fn set_notes(&self, number: u32, notes: Notes) {
        self.notes[number as usize].store(notes.0, Relaxed);
    }

    /// Reads the journal and publishes, unless another thread does. `free` counts the free blocks. LRU
    /// has room for the free blocks and the inactive ones: all others (in use, of another priority, kept
    /// from this policy) it would have to hold as well.
    fn learn(&self, free: impl Fn() -> usize) {
        self.journal.learn(|learner, lanes| {
            let room = || (free() as u32).saturating_add(lanes.waiting()).max(1);
            learner.learn(&lanes, &self.orders, &room);
        });
    }

    /// Reads the journal and publishes nothing of the shadow: for callers that have written much and must
    /// not count the free blocks.
    #[cold]
    fn hear(&self) {
        self.journal.learn(|learner, lanes| learner.hear_all(&lanes, &self.orders));
    }

    /// Records the eviction of a block that the caller owns. `parent`: its parent, if still registered.
    fn evicted(&self, number: u32, slot: &Slot, parent: Option<u32>, page: &mut Page) {
        // Relaxed, both: we own it.
        let (flags, stamp) = (slot.heat.swap(0, Relaxed), slot.stamp.load(Relaxed));
        let key = self.key_of(slot);
        if flags & KNOWN != 0 {
            if self.orders.lru_has(stamp) {
                self.orders.risk_one();
                if !page.has_room() && self.journal.write(page) {
                    self.hear();
                }
                page.add(Record::Evicted(key, stamp));
            } else {
                page.left(1);
            }
        }
        let notes = self.notes(number);
        let is_top = parent.is_none_or(|parent| self.notes(parent).is(notes::TRUNK));
        if is_top && !notes.is(notes::TRUNK) {
            self.gone.note(key, notes.get(BELOW), notes.get(TURNS));
        }
    }

    /// Writes the records that a call has gathered so far, if the next block may find no room.
    #[inline]
    fn make_room(&self, uses: &mut Uses) {
        if uses.is_full() && self.journal.write(uses.page()) {
            self.hear();
        }
    }

    /// Ends the wait of an inactive block, or the state "touched" of a block that is used now. Returns
    /// the stamp of its release; none if it was in neither state, or another thread was first.
    #[inline]
    fn takes_up(&self, slot: &Slot, uses: &mut Uses, touched: u8) -> Option<u32> {
        // Acquire: pairs with the Release in `place`, by the holder that is about to release it: the
        // stamp is the new one.
        let flags = slot.heat.load(site!("reuse_use_relaxed", Acquire));
        if flags & WAITING == 0 && (flags & TOUCHED == 0 || touched != 0) {
            return None;
        }
        // Relaxed, this and the exchange: of two threads that use it at once, while a third holds it,
        // one finds the flag (I2).
        let stamp = slot.stamp.load(Relaxed);
        let had = self.orders.lru_has(stamp);
        let won = if flags & KNOWN != 0 && !had { WON } else { flags & WON };
        let next = won | touched;
        if skipped!("reuse_use_no_exchange") {
            slot.heat.store(next, Relaxed);
        } else if slot.heat.compare_exchange(flags, next, Relaxed, Relaxed).is_err() {
            return None;
        }
        self.make_room(uses);
        if flags & KNOWN != 0 {
            uses.add(stamp, had);
        }
        Some(stamp)
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

    /// Writes all notes of a block that no lookup can find yet.
    fn begins(&self, number: u32, slot: &Slot, parent: Option<u32>) {
        let key = self.key_of(slot);
        let mut notes = Notes::default();
        notes.set(NEW, 1);
        notes.set(TURNS, 1);
        notes.set(GROWTH, GROWTH_ZERO + 1);
        notes.set_phase(key.tag() >> 12);
        let begins_anew = key.tag() >> 16 & ((1 << ANEW_SHIFT) - 1) == 0;
        let above = parent.map(|parent| self.notes(parent));
        if let Some(above) = above
            && !begins_anew
        {
            notes.set_phase(above.get(PHASE) + 1);
        }
        match above {
            Some(above) if !above.is(notes::TRUNK) => {
                notes.set(TURNS, above.get(TURNS));
                // Inside a run the growth continues. A run begins with the number of blocks that were
                // below the parent and may have come back.
                let growth = if above.is(NEW) { above.get(GROWTH) } else { grown(above.get(BELOW)) };
                notes.set(GROWTH, growth + 1);
            }
            _ => {
                if let Some((turns, below)) = self.gone.take(key) {
                    // The conversation was evicted and comes back.
                    notes.set(TURNS, turns + 1);
                    notes.set(GROWTH, grown(below + 1) + 1);
                }
            }
        }
        self.set_notes(number, notes);
    }

    /// Records a registration: the block was a miss of the request that brought it.
    fn missed(&self, number: u32, slot: &Slot, uses: &mut Uses) {
        self.make_room(uses);
        let key = self.key_of(slot);
        uses.tell(Record::Missed(key));
        if self.notes(number).is_sampled() {
            uses.tell(Record::Used(key));
        }
    }

    /// Counts a fork of `parent`, which becomes a trunk at `TRUNK_FORKS`.
    fn forked(&self, parent: u32) {
        let mut notes = self.notes(parent);
        notes.add(FORKS, 1);
        if notes.get(FORKS) >= TRUNK_FORKS {
            notes.set(notes::TRUNK, 1);
        }
        self.set_notes(parent, notes);
    }

    #[inline]
    fn used(&self, number: u32, slot: &Slot, uses: &mut Uses, timeline: &Timeline) {
        let Some(stamp) = self.takes_up(slot, uses, 0) else { return };
        let mut notes = self.notes(number);
        let age = (timeline.clock() as u32).wrapping_sub(stamp);
        let gap = match age {
            _ if age < self.capacity / 2 => 0,
            _ if age < self.capacity.saturating_mul(4) => 1,
            _ => 2,
        };
        notes.set(GAP, gap);
        notes.add(TURNS, 1);
        self.set_notes(number, notes);
        if notes.is_sampled() {
            uses.tell(Record::Used(self.key_of(slot)));
        }
    }

    /// LRU moves the block to a new place, as we do. Its sampled time at risk goes on until its use.
    fn touched(&self, slot: &Slot, uses: &mut Uses) {
        self.takes_up(slot, uses, TOUCHED);
    }

    /// Records that a block leaves the registry, or loses its place.
    fn leaves(&self, slot: &Slot) {
        // Relaxed, both: the caller is the slot's owner, or its only holder. LRU loses the block with us.
        if slot.heat.swap(0, Relaxed) & KNOWN != 0
            && self.journal.write_one(Record::Out { first: slot.stamp.load(Relaxed), blocks: 1 })
        {
            self.hear();
        }
    }

    /// Records an eviction that another evictor chose.
    fn taken_out(&self, number: u32, slot: &Slot, parent: Option<u32>) {
        let mut page = Page::new();
        self.evicted(number, slot, parent, &mut page);
        if self.journal.write(&mut page) {
            self.hear();
        }
    }
}

impl Eviction for Reuse {
    fn shape(&self) -> Shape {
        const OTHERS: u64 = 1 << LOW | 1 << HIGH;
        Shape::new(LISTS).with_lists_of([1 << LOW, !OTHERS, 1 << HIGH]).telling_uses(WAITING)
    }

    #[inline(always)]
    fn on(&self, number: u32, slot: &Slot, event: Event<'_>) {
        match event {
            Event::Registering { parent } => self.begins(number, slot, parent),
            Event::Registered(uses) => self.missed(number, slot, &mut uses.reuse),
            Event::Forked => self.forked(number),
            Event::Used(uses, timeline) => self.used(number, slot, &mut uses.reuse, timeline),
            Event::Touched(uses) => self.touched(slot, &mut uses.reuse),
            Event::TakenOut { parent } => self.taken_out(number, slot, parent),
            Event::Displaced | Event::Removed => self.leaves(slot),
            Event::Pinned => {}
        }
    }

    fn end_uses(&self, uses: &mut carried::Uses) {
        if let Some(page) = uses.reuse.end()
            && self.journal.write(page)
        {
            self.hear();
        }
    }

    fn begin_batch<'s>(&self, first: u64, _: impl Iterator<Item = &'s Slot>) -> carried::Batch {
        carried::Batch { reuse: Some(Batch::new(Path::of(self.journal.path()), first as u32)) }
    }

    fn place(
        &self,
        batch: &mut carried::Batch,
        number: u32,
        slot: &Slot,
        priority: Priority,
        position: u64,
    ) -> u8 {
        let Some(batch) = &mut batch.reuse else {
            // `begin_batch` always makes one, so this branch is unreachable.
            return (LEAF % CLASSES) as u8;
        };
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
        // Relaxed, both: our own stamp, stored before the flags for a thread that uses the block meanwhile.
        let old = slot.stamp.load(Relaxed);
        slot.stamp.store(stamp, Relaxed);
        let flags = if is_other { WAITING } else { KNOWN | WAITING };
        // Release: pairs with the Acquire in `takes_up`.
        let flags = slot.heat.swap(flags, site!("reuse_place_relaxed", Release));
        if flags & WON != 0 {
            // LRU had lost the block when it was used: a hit of ours that LRU does not have.
            batch.won();
        }
        if flags & KNOWN != 0 {
            // It was not used: its new place has another reason.
            batch.out(old);
        }
        if is_other {
            // `Record::Released` counts every block of the batch, so this one is taken out again.
            batch.out(stamp);
            return if priority == Priority::Low { LOW as u8 } else { HIGH as u8 };
        }
        let class = self.class(slot, notes, &batch.path);
        // For a touched block, the sampled wait goes on.
        if notes.is_sampled() && flags & TOUCHED == 0 {
            batch.page.add(Record::Waits { key: self.key_of(slot), class, nth });
        }
        if batch.path.enters(class) && class < YOUNG_LISTS {
            // Relaxed: a place to look at. Of two concurrent releases, one begins the youngest segment.
            self.young[class].store(position, Relaxed);
        }
        class as u8
    }

    fn end_batch(&self, batch: &mut carried::Batch, free: impl Fn() -> usize) {
        let Some(batch) = &mut batch.reuse else { return };
        batch.turn(|page| _ = self.journal.write(page));
        self.journal.set_path(batch.path.words());
        self.learn(free);
    }

    fn evict<'p>(&self, wanted: usize, scan: &impl Scan<'p>) -> usize {
        self.search(wanted, scan)
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Reuse>()
            + size_of_val(&*self.notes)
            + self.journal.memory_bytes()
            + self.learner_bytes
            + self.gone.memory_bytes()
    }

    fn beside_lru(&self) -> Option<ReuseStats> {
        Some(self.orders.standing.read(self.orders.room().max(0) as u32))
    }
}

/// The initial growth of a run behind `before` blocks that were there before: `GROWTH_ZERO` less
/// `before`, or 0 where the count had reached `MOST_BELOW`.
fn grown(before: u32) -> u32 {
    if before >= MOST_BELOW { 0 } else { GROWTH_ZERO - before }
}
