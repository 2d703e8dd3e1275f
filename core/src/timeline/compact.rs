//! Compaction keeps the ring short. First the head walks over stale entries (*trim*), as far as it can.
//! Nothing more ever happens while victims leave at the head. If a live entry stays there, among entries that
//! hits made stale, live entries slide towards the tail (*slide*), one at a time, and never past each other:
//!
//! ```text
//!   head          src        dst     end                 before
//!    │ A · · B · · C │ · · · │ D E F │                   src walks down from end, dst fills down from end
//!    │ A · · B · · · │ · · C │ D E F │                   C was moved over stale entries only
//!                                                        src at head: all up to dst is stale; head jumps
//! ```
//!
//! I1. There is one compactor at a time (`busy`); a thread that finds it busy goes on without.
//! I2. All positions in `(src, dst]` are written and stale. Only the compactor makes a stale position live.
//! I3. A live entry is moved in this order: the entry, the ticket (by compare-exchange: a slot that was
//!     acquired or taken meanwhile has none), the bit, together with its neighbours'. Order among live
//!     entries is kept at each step. A slot that is in use and keeps its place, or is just being
//!     released, may be moved too: its releaser sets the bit of the ticket that the slot has by then.
//! I4. A position that is not written yet is left as it is; `dst` restarts below it.

use super::{AHEAD, Entry, List, Position, Timeline};
use crate::slot::Slot;
use crate::sync::{Acquire, AtomicU32, AtomicU64, CachePadded, Relaxed, Release, skipped};

/// The state of the pass. All fields except `busy` belong to the thread that has set `busy`.
pub(super) struct Compactor {
    busy: AtomicU32,
    src: AtomicU64,
    dst: AtomicU64,
}

/// Bits of moved entries, to be set a word at a time: each setting costs a fence.
#[derive(Default)]
struct Due {
    list: u8,
    word: u64,
    mask: u64,
}

impl Due {
    fn add(&mut self, timeline: &Timeline, list: u8, at: Position) {
        if self.mask != 0 && (self.list, self.word) != (list, at.word_start().0) {
            self.flush(timeline);
        }
        (self.list, self.word) = (list, at.word_start().0);
        self.mask |= at.bit();
    }

    fn flush(&mut self, timeline: &Timeline) {
        if self.mask != 0 {
            timeline.set_bits(usize::from(self.list), Position(self.word), core::mem::take(&mut self.mask));
        }
    }
}

/// No pass is under way.
const IDLE: u64 = 0;

impl Compactor {
    pub(super) fn new() -> Compactor {
        Compactor { busy: AtomicU32::new(0), src: AtomicU64::new(IDLE), dst: AtomicU64::new(IDLE) }
    }
}

impl Timeline {
    /// Compacts up to `steps` positions, unless another thread is compacting.
    #[cold]
    pub(super) fn compact(&self, slots: &[Slot], steps: usize) {
        let state = &self.compactor;
        // Acquire: pairs with the Release at the end; src and dst are as the last compactor left them
        // (I1). Relaxed, before: a look.
        if state.busy.load(Relaxed) != 0 || state.busy.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            return;
        }
        // Relaxed: ordered by `busy`.
        let (mut src, mut dst) = (Position(state.src.load(Relaxed)), Position(state.dst.load(Relaxed)));
        let mut left = steps;
        if src.0 == IDLE {
            left = self.trim(slots, steps);
            if left > 0 {
                src = self.tail().minus_one(self.size);
                dst = src;
            }
        }
        let head = self.head();
        let mut due = Due::default();
        while left > 0 && src.0 != IDLE {
            left -= 1;
            if src < head {
                // Release: pairs with `head()`. All up to dst was seen stale and stays so (I2).
                self.head.store(dst.plus(1, self.size).0, Release);
                src = Position(IDLE);
                break;
            }
            self.prefetch_slot(slots, src.index().wrapping_sub(AHEAD));
            self.slide(slots, src, &mut dst, &mut due);
            src = src.minus_one(self.size);
        }
        due.flush(self);
        // Relaxed, both: ordered by `busy`.
        state.src.store(src.0, Relaxed);
        state.dst.store(dst.0, Relaxed);
        // Release: pairs with the Acquire at the start.
        state.busy.store(0, Release);
    }

    /// Walks the head over stale entries. Returns the steps that are left: 0 if it could
    /// continue, or there is room enough.
    fn trim(&self, slots: &[Slot], steps: usize) -> usize {
        let (mut head, tail) = (self.head(), self.tail());
        let mut left = steps;
        while left > 0 && head < tail && self.is_stale(slots, head) {
            self.prefetch_slot(slots, head.index() + AHEAD);
            head = head.plus(1, self.size);
            left -= 1;
        }
        // Release: pairs with `head()`. All before it was seen stale and stays so (I2).
        self.head.store(head.0, Release);
        if tail.since(head, self.size) <= self.threshold { 0 } else { left }
    }

    fn is_stale(&self, slots: &[Slot], at: Position) -> bool {
        // Acquire: pairs with the Release in `Reserved::put`.
        let entry = Entry(self.ring[at.index()].load(Acquire));
        entry.lap() == at.lap() && slots[entry.slot() as usize].ticket() != at.0
    }

    /// Moves the entry at one position, if it is live.
    fn slide(&self, slots: &[Slot], src: Position, dst: &mut Position, due: &mut Due) {
        // Acquire: pairs with the Release in `Reserved::put`.
        let entry = Entry(self.ring[src.index()].load(Acquire));
        let below = src.minus_one(self.size);
        if entry.lap() != src.lap() {
            *dst = below;
            return;
        }
        let slot = &slots[entry.slot() as usize];
        if slot.ticket() != src.0 {
            return;
        }
        if *dst == src {
            *dst = below;
            return;
        }
        // Relaxed: written before the ticket, whose Acquire load we have done; it
        // changes only with the ticket.
        let list = slot.list.load(Relaxed);
        // A store is enough: only the compactor writes here until the head has passed, and only the
        // compactor moves the head. Release: pairs with the Acquire of ring readers, as in `put`.
        self.ring[dst.index()].store(Entry::new(*dst, entry.slot()).0, Release);
        // Release: pairs with the Acquire of `Slot::ticket`: a thread that sees the new ticket sees the
        // new entry. Relaxed on failure: the slot was acquired or taken (I3), and we leave it.
        let moved = if skipped!("timeline_move_by_store") {
            slot.ticket.store(dst.0, Release);
            true
        } else {
            slot.ticket.compare_exchange(src.0, dst.0, Release, Relaxed).is_ok()
        };
        if moved {
            due.add(self, list, *dst);
            self.carry_hand(usize::from(list), src, *dst);
            *dst = dst.minus_one(self.size);
        }
    }
}

impl Timeline {
    /// Moves the hand of a sweep along: if it has passed the slot's old place, it must
    /// have passed the new one.
    fn carry_hand(&self, list: usize, src: Position, dst: Position) {
        // A slot that is just leaving its list is in none.
        let Some(CachePadded(List { cursor: hand, .. })) = self.lists.get(list).filter(|_| self.sweeps)
        else {
            return;
        };
        // Relaxed: as in `sweep`.
        let at = hand.load(Relaxed);
        if at > src.0 && at <= dst.0 && !skipped!("timeline_hand_stays") {
            let _ = hand.compare_exchange(at, dst.plus(1, self.size).0, Relaxed, Relaxed);
        }
    }
}
