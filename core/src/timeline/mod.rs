//! The timeline: one order of events for all lists of an eviction policy, lock-free, bounded and exact.
//!
//! Every policy of the list family (LRU, LFU, 2Q, S3-FIFO, ARC …) is made of two moves: put a block at the
//! young end of a list, take the oldest of a list. Here all lists share one ring of positions, and a list is
//! a bitmap over it:
//!
//! ```text
//!            head                                        tail
//!   ring      │ 7 │ 3 │ · │ 9 │ 3 │ · │ 4 │ 1 │ 8 │ · │ 2 │         entry = lap : slot
//!   list 0    │ 1 │ 0 │ 0 │ 1 │ 0 │ 0 │ 0 │ 1 │ 1 │ 0 │ 0 │         cursor 0: nothing of list 0 before it
//!   list 1    │ 0 │ 0 │ 0 │ 0 │ 1 │ 0 │ 1 │ 0 │ 0 │ 0 │ 1 │         cursor 1
//! ```
//!
//! A block that becomes inactive takes the next position as its *ticket*. A block that becomes active forgets
//! its ticket, and the entry is stale from then on, without being touched. So a hit costs one store to a line
//! that the hit owns anyway. Stale entries are dropped when they are met, and squeezed out by [`compact`],
//! piecemeal: the ring has three places per slot, 24 bytes. Each further list costs three bits per slot.
//!
//! I1. An entry is *live* if its slot's ticket is its position. So a slot has at most one live entry.
//! I2. A ticket is never given twice. Its writers: the holder of the slot's only reference (release); a
//!     holder that forgets it (the one that turned 0 references into 1, or one that uses a block held without
//!     use); the evictor that owns the slot (forgets it); the one compactor (moves it by compare-exchange).
//! I3. An inactive, unpinned slot is live. Its list's bit is set, or it is deferred as a parent, or the
//!     thread that released it, or the compactor that moved it, is about to set the bit.
//! I4. No bit of a list is set before its cursor, or a thread is about to pull the cursor back.
//! I5. No live entry is before `head`; `tail - head ≤ size - WORD`, so no word of positions has two laps.
//! I6. A set bit proves nothing; the entry, the ticket and the word decide.
//!
//! # Orderings
//! Bit and cursor are Dekker's problem: a releaser sets a bit, then looks at the cursor; an evictor moves
//! the cursor, then looks at the bits. Each has a SeqCst fence between its two steps, so at least one sees
//! the other (I4). Word and ticket are another: a releaser lets go of the word, then looks for the ticket,
//! which the compactor may have moved; an evictor that has seen the new ticket and cleared its bit looks
//! at the word. The same fence of the releaser, in `set_bits`, before it looks a second time, and a fence
//! of the evictor, if the block seems to be in use, ensure that one of them sets the bit (I3).

mod compact;
mod peek;
mod position;
mod reserve;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::prefetch::prefetch;
use crate::slot::{NO_TICKET, Slot};
use crate::sync::{AcqRel, Acquire, AtomicU64, CachePadded, Relaxed, Release, SeqCst, fence, skipped};
use alloc::boxed::Box;
use compact::Compactor;
use position::{Bits, Entry, Position, WORD};
pub(crate) use reserve::Reserved;

/// Slots that an evictor prefetches ahead.
const AHEAD: usize = 8;
/// Words of a list that are read together.
const GROUP: usize = if cfg!(loom) { 1 } else { 8 };
/// Slots that a batch handles at once.
pub(crate) const BATCH: usize = 64;

/// The ring, and the lists over it.
pub(crate) struct Timeline {
    size: u32,
    sweeps: bool,
    /// Number of entries in use at which pushes begin to compact.
    threshold: u64,
    ring: Box<[AtomicU64]>,
    lists: Box<[CachePadded<List>]>,
    tail: CachePadded<AtomicU64>,
    /// Written by the compactor only.
    head: CachePadded<AtomicU64>,
    compactor: CachePadded<Compactor>,
}

/// On cache lines of its own. A thread that sets a bit also reads the cursor, so they lie together.
struct List {
    bits: Box<[AtomicU64]>,
    /// Start of the first word that may have the list's oldest block.
    cursor: AtomicU64,
}

/// No room: every position between head and tail is live or being written, which only stalled threads cause.
pub(crate) struct Full;

/// A slot that was live, and the ticket that made it so.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) slot: u32,
    pub(crate) ticket: u64,
}

/// An evictor's verdict on a candidate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the evictor's; its ticket is forgotten.
    Taken,
    /// As `Taken`, and an older block was requeued by it: search from the start again.
    TakenLast,
    /// It cannot be taken: active again, or gone.
    Stale,
    /// It has children, or leases; the end of the last one requeues it.
    Deferred,
    /// It keeps its place, for now.
    Spared,
    /// It keeps its place, and no more candidates are wanted.
    Stop,
    /// It has a new place.
    Requeued,
}

impl Timeline {
    /// A timeline for `capacity` slots and `lists` lists; with `sweeps` cursors are hands (see `sweep`).
    pub(crate) fn new(capacity: usize, lists: usize, sweeps: bool) -> Timeline {
        // Three times the live slots, so that a slide meets mostly stale entries. And words for
        // the seam, and so that a small pool's ring has 32 words of room, or others would fill
        // it while one thread is stalled.
        let room = 2 * capacity / WORD as usize;
        let spare = if cfg!(loom) { 3 } else { 32usize.saturating_sub(room).max(3) } * WORD as usize;
        let size = (3 * capacity + spare).next_multiple_of(WORD as usize);
        let atomics = |n: usize| -> Box<[AtomicU64]> { (0..n).map(|_| AtomicU64::new(0)).collect() };
        Timeline {
            sweeps,
            size: size as u32,
            threshold: (2 * capacity + capacity / 2 + WORD as usize) as u64,
            ring: atomics(size),
            lists: (0..lists)
                .map(|_| {
                    let cursor = AtomicU64::new(Position::FIRST.0);
                    CachePadded(List { bits: atomics(size / WORD as usize), cursor })
                })
                .collect(),
            tail: CachePadded(AtomicU64::new(Position::FIRST.0)),
            head: CachePadded(AtomicU64::new(Position::FIRST.0)),
            compactor: CachePadded(Compactor::new()),
        }
    }

    fn head(&self) -> Position {
        // Acquire: pairs with the Release in `compact`: the entries before the head were seen stale.
        Position(self.head.load(Acquire))
    }

    fn tail(&self) -> Position {
        // Acquire: pairs with the Release in `reserve`.
        Position(self.tail.load(Acquire))
    }

    /// The number of positions that were given before this one.
    pub(crate) fn number(&self, position: u64) -> u64 {
        let position = Position(position);
        u64::from(position.lap()) * u64::from(self.size) + position.index() as u64
    }

    /// The number of positions given so far.
    pub(crate) fn clock(&self) -> u64 {
        self.number(self.tail().0)
    }

    /// Takes `n ≤ 64` positions for slots whose only reference the caller holds.
    pub(crate) fn reserve(&self, slots: &[Slot], n: u32) -> Result<Reserved<'_>, Full> {
        let mut tail = self.tail();
        loop {
            let used = tail.since(self.head(), self.size) + u64::from(n);
            if used > self.threshold {
                // Eight steps for each push: the pass ends long before the ring does.
                self.compact(slots, 8 * n as usize);
                if used > u64::from(self.size - WORD) && !self.make_room(slots, n) {
                    return Err(Full);
                }
            }
            let end = tail.plus(n, self.size);
            // AcqRel: Release pairs with `tail()`; Acquire, on success and failure, with a Release here.
            match self.tail.compare_exchange_weak(tail.0, end.0, AcqRel, Acquire) {
                Ok(_) => return Ok(Reserved::new(self, tail)),
                Err(seen) => tail = Position(seen),
            }
        }
    }

    #[cold]
    fn make_room(&self, slots: &[Slot], n: u32) -> bool {
        // Two passes: one that another thread left half done, and a whole one.
        for _ in 0..2 {
            self.compact(slots, 2 * self.size as usize);
        }
        self.tail().since(self.head(), self.size) + u64::from(n) <= u64::from(self.size - WORD)
    }

    /// Puts an inactive slot that kept its place, or was deferred, into its list: sets its ticket's bit.
    pub(crate) fn relist(&self, slots: &[Slot], slot: u32) {
        self.relist_unless(slots, slot, NO_TICKET);
    }

    /// As [`relist`](Timeline::relist), unless the ticket is `done`: the compactor may move it at any time.
    #[inline]
    fn relist_unless(&self, slots: &[Slot], slot: u32, mut done: u64) {
        let slot = &slots[slot as usize];
        loop {
            let ticket = slot.ticket();
            if ticket == NO_TICKET || ticket == done {
                return;
            }
            // Relaxed: the slot is inactive and may be taken at any time; a wrong bit is harmless (I6).
            let list = usize::from(slot.list.load(Relaxed));
            self.set_bits(list, Position(ticket).word_start(), Position(ticket).bit());
            if skipped!("timeline_relist_once") {
                return;
            }
            done = ticket;
        }
    }

    fn set_bits(&self, list: usize, word: Position, mask: u64) {
        // A slot that was taken and registered anew since its list was read may be in none.
        let Some(list) = self.lists.get(list) else { return };
        // Release: a thread that sees the bit sees entry and ticket; pairs with the Acquire in `take_oldest`.
        list.bits[word.word()].fetch_or(mask, Release);
        // Dekker with `advance`: see the header.
        if !skipped!("timeline_list_no_fence") {
            fence(SeqCst);
        }
        if !self.sweeps {
            list.pull_back(word);
        }
    }

    /// Passes the oldest slots of a list to `judge`, until `wanted` were taken or none is left.
    pub(crate) fn take_oldest(
        &self,
        slots: &[Slot],
        list: usize,
        wanted: usize,
        mut judge: impl FnMut(Candidate, &Slot) -> Verdict,
    ) -> usize {
        let mut taken = 0;
        while taken < wanted {
            let Some((word, bits)) = self.oldest_word(list) else { break };
            let (found, go_on) = self.take_from_word(slots, list, word, bits, wanted - taken, &mut judge);
            taken += found;
            if !go_on {
                break;
            }
        }
        taken
    }

    /// As `take_oldest`, but the list's cursor is a hand that continues from its last place (SIEVE).
    pub(crate) fn sweep(
        &self,
        slots: &[Slot],
        list: usize,
        wanted: usize,
        mut judge: impl FnMut(Candidate, &Slot) -> Verdict,
    ) -> usize {
        // Relaxed, here and below: the hand's place decides only fairness; two sweepers may share it.
        let hand = &self.lists[list].cursor;
        let (mut taken, mut at, mut rounds) = (0, Position(hand.load(Relaxed)), 0);
        while taken < wanted {
            // The tail first, as in `oldest_word`.
            let (tail, head) = (self.tail(), self.head());
            if at >= tail {
                // Twice round without a victim: the first round may have spared all.
                rounds += 1;
                if rounds > if skipped!("timeline_sweep_one_round") { 1 } else { 2 } {
                    break;
                }
                at = head;
            }
            at = at.max(head);
            let word = at.word_start();
            // Acquire: pairs with the Release in `set_bits`.
            let bits = self.lists[list].bits[word.word()].load(Acquire) & (at.bit().wrapping_neg());
            if bits == 0 {
                let (next, last) = (word.plus(WORD, self.size), tail.word_start());
                at = self.lists[list].first_set(next, last, self.size).unwrap_or(next.max(last));
                continue;
            }
            let bit = bits.trailing_zeros();
            let (found, go_on) = self.take_from_word(slots, list, word, 1 << bit, 1, &mut judge);
            taken += found;
            at = Position(word.0 + u64::from(bit)).plus(1, self.size);
            if !go_on {
                break;
            }
        }
        hand.store(at.0, Relaxed);
        taken
    }

    /// The first word of the list with a bit set.
    fn oldest_word(&self, list: usize) -> Option<(Position, u64)> {
        let list = &self.lists[list];
        loop {
            // First, so that it is no more than a lap from the head, and so are the words read below.
            let tail = self.tail();
            // Relaxed: a place to begin at; `advance` makes sure of the words that are passed.
            let cursor = Position(list.cursor.load(Relaxed));
            let head = self.head().word_start();
            if cursor < head {
                // No live entry is before the head (I5). Relaxed: as in `advance`; else another moved it.
                let _ = list.cursor.compare_exchange(cursor.0, head.0, Relaxed, Relaxed);
                continue;
            }
            // Acquire: pairs with the Release in `set_bits`.
            let bits = list.bits[cursor.word()].load(Acquire);
            if bits != 0 {
                return Some((cursor, bits));
            }
            let last = tail.word_start();
            if cursor >= last {
                // Empty, unless other threads have put and taken slots up to here since.
                match self.tail().word_start() > cursor {
                    true => continue,
                    false => return None,
                }
            }
            // Passes all empty words at once: an exchange and a fence per word cost twenty times a load.
            let next = list.first_set(cursor, last, self.size).unwrap_or(last);
            list.advance(cursor, next, self.size);
        }
    }

    fn take_from_word(
        &self,
        slots: &[Slot],
        list: usize,
        word: Position,
        bits: u64,
        wanted: usize,
        judge: &mut impl FnMut(Candidate, &Slot) -> Verdict,
    ) -> (usize, bool) {
        let mut ahead = Bits(bits);
        for bit in ahead.by_ref().take(wanted.min(AHEAD)) {
            self.prefetch_slot(slots, word.index() + bit as usize);
        }
        let (mut taken, mut done, mut go_on) = (0, 0u64, true);
        let mut left = Bits(bits);
        while taken < wanted && go_on {
            let Some(bit) = left.next() else { break };
            if let Some(bit) = ahead.next() {
                self.prefetch_slot(slots, word.index() + bit as usize);
            }
            match self.live_slot(slots, list, word, bit).map(|slot| {
                let ticket = word.0 + u64::from(bit);
                (slot, judge(Candidate { slot, ticket }, &slots[slot as usize]))
            }) {
                Some((slot, Verdict::Deferred)) => self.defer(slots, list, word, bit, slot),
                Some((_, verdict @ (Verdict::Taken | Verdict::TakenLast))) => {
                    taken += 1;
                    done |= 1 << bit;
                    go_on = verdict == Verdict::Taken;
                }
                Some((_, Verdict::Requeued)) => {
                    done |= 1 << bit;
                    // The push may have compacted: entries behind have slid to bits that were not set,
                    // and a leftover bit may be at the new place. Acquire: as in `oldest_word`.
                    left = Bits(self.lists[list].bits[word.word()].load(Acquire) & (!1 << bit));
                }
                Some((_, Verdict::Stale)) | None => done |= 1 << bit,
                Some((_, Verdict::Spared)) => {}
                Some((_, Verdict::Stop)) => go_on = false,
            }
        }
        self.clear_bits(slots, list, word, done);
        (taken, go_on)
    }

    #[inline]
    fn prefetch_slot(&self, slots: &[Slot], index: usize) {
        // Relaxed: a hint; an entry of another lap names a slot too.
        let slot =
            self.ring.get(index).and_then(|entry| slots.get(Entry(entry.load(Relaxed)).slot() as usize));
        if let Some(slot) = slot {
            prefetch(slot);
        }
    }

    /// The slot at a position, if its entry is live (I1) and of this list: the bit
    /// may be another slot's (I6).
    fn live_slot(&self, slots: &[Slot], list: usize, word: Position, bit: u32) -> Option<u32> {
        let position = Position(word.0 + u64::from(bit));
        // Acquire: pairs with the Release in `Reserved::put`.
        let entry = Entry(self.ring[position.index()].load(Acquire));
        if entry.lap() != position.lap() {
            return None;
        }
        let slot = &slots[entry.slot() as usize];
        // Relaxed: written before the ticket that was just acquired.
        (slot.ticket() == position.0 && usize::from(slot.list.load(Relaxed)) == list).then_some(entry.slot())
    }

    /// Clears bits that an evictor has dealt with. A bit that was set meanwhile is set again: for another
    /// slot (compactor), for a slot that became inactive, or in another lap, if the evictor stalled.
    fn clear_bits(&self, slots: &[Slot], list: usize, word: Position, mask: u64) {
        if mask == 0 {
            return;
        }
        // AcqRel: if the bit was set anew before, the check below sees the earlier
        // writes; if after, it stays.
        self.lists[list].bits[word.word()].fetch_and(!mask, AcqRel);
        if skipped!("timeline_clear_no_recheck") {
            return;
        }
        for bit in Bits(mask) {
            // Acquire: pairs with the Release in `Reserved::put`. The entry may be of any lap.
            let entry = Entry(self.ring[word.index() + bit as usize].load(Acquire));
            let now = Position::new(entry.lap(), word.index() as u32);
            if let Some(slot) = self.live_slot(slots, list, now, bit)
                && is_left_inactive(&slots[slot as usize])
            {
                self.set_bits(list, now, 1 << bit);
            }
        }
    }

    /// Takes a marked parent out of its list: clears its bit, then marks it again. If its last child went in
    /// between, `defer_if_parent` returns false, and the bit is set again.
    fn defer(&self, slots: &[Slot], list: usize, word: Position, bit: u32, slot: u32) {
        // AcqRel: as in `clear_bits`.
        self.lists[list].bits[word.word()].fetch_and(!(1 << bit), AcqRel);
        let parent = &slots[slot as usize];
        let back = !parent.defer_if_parent(parent.word().generation()) && is_left_inactive(parent);
        if back && !skipped!("timeline_deferred_once") {
            self.relist(slots, slot);
        }
        // The compactor, or another lap, may have put another slot here. Acquire: as in `clear_bits`.
        let entry = Entry(self.ring[word.index() + bit as usize].load(Acquire));
        if entry.slot() != slot {
            self.clear_bits(slots, list, word, 1 << bit);
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let bits: usize = self.lists.iter().map(|list| size_of_val(list) + size_of_val(&*list.bits)).sum();
        size_of::<Self>() + self.ring.len() * 8 + bits
    }
}

impl List {
    /// Moves the cursor from `from` to `to`, and back to the first bit that was set behind it.
    fn advance(&self, from: Position, to: Position, size: u32) {
        // Relaxed, here and below: the fences decide, and a cursor publishes nothing.
        if self.cursor.compare_exchange(from.0, to.0, Relaxed, Relaxed).is_err() {
            return;
        }
        // Dekker with `set_bits`: see the header.
        if !skipped!("timeline_advance_no_fence") {
            fence(SeqCst);
        }
        let to = if skipped!("timeline_advance_looks_once") { from.plus(WORD, size) } else { to };
        if let Some(word) = self.first_set(from, to, size) {
            self.pull_back(word);
        }
    }

    /// Returns the first word with a bit set, from one word's start to another's, at most once round.
    fn first_set(&self, from: Position, to: Position, size: u32) -> Option<Position> {
        let mut at = from;
        while at < to {
            let places = to.since(at, size).min(u64::from(size) - at.index() as u64) as u32;
            let words = &self.bits[at.word()..][..(places / WORD) as usize];
            // Relaxed: a thread that takes from a word loads it again. Groups cost a load and an `or` a word.
            let any = |words: &[AtomicU64]| words.iter().fold(0, |any, word| any | word.load(Relaxed)) != 0;
            for (number, group) in words.chunks(GROUP).enumerate().filter(|(_, group)| any(group)) {
                if let Some(word) = group.iter().position(|word| word.load(Relaxed) != 0) {
                    return Some(at.plus((number * GROUP + word) as u32 * WORD, size));
                }
            }
            at = at.plus(places, size);
        }
        None
    }

    /// Makes sure that the cursor is not behind `word`.
    #[inline]
    fn pull_back(&self, word: Position) {
        // Relaxed: after the caller's fence, so no older than `advance`'s cursor before its own fence.
        // A thread that starts here and does not see the bit yet meets the same fences when it goes on.
        let mut cursor = self.cursor.load(Relaxed);
        while cursor > word.0 {
            match self.cursor.compare_exchange_weak(cursor, word.0, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(seen) => cursor = seen,
            }
        }
    }
}

/// Returns whether a slot is inactive, after the caller has cleared its bit where it saw the slot's
/// ticket. If not, the slot's holder sees that ticket too, and sets the bit again.
fn is_left_inactive(slot: &Slot) -> bool {
    slot.word().inactive() || {
        // Dekker with `set_bits`: see the header.
        if !skipped!("timeline_clear_no_fence") {
            fence(SeqCst);
        }
        slot.word().inactive()
    }
}
