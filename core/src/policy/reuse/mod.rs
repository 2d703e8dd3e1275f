//! Reuse: evicts the block of least expected hits for time of residence, as learned online; never far behind
//! LRU.
//!
//! ```text
//!   use       flags and notes of the block; what LRU had, and a sampled one, is told      no lock; the block's line, its notes', and the journal's, once a call
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
//! | `journal.rs`, `ring.rs` | from all threads to the one that learns |
//! | `lock.rs` | who learns; whose the heads are that the last evictor looked at |
//! | `learner.rs` | hears, and publishes |
//! | `panel.rs`, `curve.rs`, `ages.rs` | sampled keys that wait; hits and time at risk, and the index; ages |
//! | `shadow.rs`, `guard.rs` | what LRU would have; how much may be risked |
//! | `classes.rs` | the lists |
//! | `orders.rs` | what was published, and the choice |
//! | `evict.rs`, `sight.rs` | the search; what the next one goes on with |
//! | `look.rs`, `looked.rs` | a look at what it would take; what that remembers from one part to the next |
//! | `among.rs` | the same of one owner's blocks |
//! | `standing.rs` | what it is beside LRU, for who watches |
//! | `gone.rs` | conversations that were evicted wholly |
//!
//! The clock counts releases, modulo 2³²: it is where the timeline's young end is. A class other than
//! `Normal` has one list, in LRU's order. See `docs/decisions/015-reuse-prediction.md`.
//!
//! I1. No thread waits: one that learns has the journal by a try-lock, all others go on with what was
//! published; so has an evictor of few the heads. I2. Flags change by exchange, so what the shadow counts at
//! a block's stamp is taken out once: by its next use, its eviction, a new place, or
//!     the end of its registration. So what is in use is in neither of two counts, of what LRU has and of what it has room for.
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

/// Children that come beside another make a trunk when they are so many: as five do, or one that comes back beside another so often. One that is alone
/// counts never.
const TRUNK_FORKS: u32 = 4;
/// One block of 2^n of a path is in the panel.
const SAMPLE_SHIFT: u32 = 4;
/// Which one is counted on from a block above, of 2^n one: else all paths of a system prompt would be sampled at the same depths.
const ANEW_SHIFT: u32 = 6;

pub(crate) struct Reuse {
    place: Placement,
    capacity: u32,
    notes: Box<[AtomicU32]>,
    journal: Journal<Learner>,
    orders: Orders,
    gone: Gone,
    /// Where the youngest segment of each list begins on the timeline; 0: nothing is left of it.
    young: CachePadded<[AtomicU64; YOUNG_LISTS]>,
    /// For evictors that take few at a time.
    sight: CachePadded<TryLock<Sight>>,
    /// Bytes of what the learner has, who may be at work when somebody asks.
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

    /// What LRU has, its ghosts, its hits less ours, and what waits here, when the shadow has heard all.
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

    /// Lets the learner hear what was written, unless somebody does. `free`: how many blocks are. LRU has room for as many as are, and for
    /// as many as wait: what is in use, or of another priority, or kept from us, it would have to hold as well.
    fn learn(&self, free: impl Fn() -> usize) {
        self.journal.learn(|learner, lanes| {
            let room = || (free() as u32).saturating_add(lanes.waiting()).max(1);
            learner.learn(&lanes, &self.orders, &room);
        });
    }

    /// The same for who has written much, and must not ask.
    #[cold]
    fn hear(&self) {
        self.journal.learn(|learner, lanes| learner.hear_all(&lanes, &self.orders));
    }

    /// The books of a block that is evicted, and is the caller's; `parent` if that is registered still.
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

    /// Writes what a call has gathered, where its next block may find no room.
    #[inline]
    fn make_room(&self, uses: &mut Uses) {
        if uses.is_full() && self.journal.write(uses.page()) {
            self.hear();
        }
    }

    /// A block that waits does so no more; or it was touched before, and is used now. When it was released, unless it did not wait.
    #[inline]
    fn takes_up(&self, slot: &Slot, uses: &mut Uses, touched: u8) -> Option<u32> {
        // Acquire: pairs with the Release in `place`, of who is about to let go of it: the stamp is the new one.
        let flags = slot.heat.load(site!("reuse_use_relaxed", Acquire));
        if flags & WAITING == 0 && (flags & TOUCHED == 0 || touched != 0) {
            return None;
        }
        // Relaxed, this and the exchange: of two that use it at once, while a third holds it, one finds the flag (I2).
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

    /// All notes of a block that no lookup can find yet.
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

    /// It is there: a miss of the request that brought it.
    fn missed(&self, number: u32, slot: &Slot, uses: &mut Uses) {
        self.make_room(uses);
        let key = self.key_of(slot);
        uses.tell(Record::Missed(key));
        if self.notes(number).is_sampled() {
            uses.tell(Record::Used(key));
        }
    }

    /// A block with so many children is a trunk.
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

    /// LRU has it at a new place, as we have; what was learned of it waits for its use.
    fn touched(&self, slot: &Slot, uses: &mut Uses) {
        self.takes_up(slot, uses, TOUCHED);
    }

    /// It leaves the registry, or loses its place.
    fn leaves(&self, slot: &Slot) {
        // Relaxed, both: by the slot's owner, or its only holder. LRU loses it with us.
        if slot.heat.swap(0, Relaxed) & KNOWN != 0
            && self.journal.write_one(Record::Out { first: slot.stamp.load(Relaxed), blocks: 1 })
        {
            self.hear();
        }
    }

    /// Another evictor chose it.
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
            // `begin_batch` has made it: this does not happen.
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
        // Relaxed, both: our own, and before the flags, for who uses it beside us.
        let old = slot.stamp.load(Relaxed);
        slot.stamp.store(stamp, Relaxed);
        let flags = if is_other { WAITING } else { KNOWN | WAITING };
        // Release: pairs with the Acquire in `takes_up`.
        let flags = slot.heat.swap(flags, site!("reuse_place_relaxed", Release));
        if flags & WON != 0 {
            // LRU had lost it when it was used: a hit that it has not.
            batch.won();
        }
        if flags & KNOWN != 0 {
            // It was not used, and has a new place for another reason.
            batch.out(old);
        }
        if is_other {
            // The shadow counts all that were released: not this one.
            batch.out(stamp);
            return if priority == Priority::Low { LOW as u8 } else { HIGH as u8 };
        }
        let class = self.class(slot, notes, &batch.path);
        // Of one that was touched, the wait goes on.
        if notes.is_sampled() && flags & TOUCHED == 0 {
            batch.page.add(Record::Waits { key: self.key_of(slot), class, nth });
        }
        if batch.path.enters(class) && class < YOUNG_LISTS {
            // Relaxed: a place to look at; of two that release at once one is the youngest.
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

/// Where the growth of a run begins, behind so many blocks that were there before; if they are too many to be known, far below.
fn grown(before: u32) -> u32 {
    if before >= MOST_BELOW { 0 } else { GROWTH_ZERO - before }
}
