//! Ghosts: fingerprints of recently evicted blocks, in queues with the oldest first.
//! Any ghost can be removed.
//!
//! ```text
//!   a queue    │ · │ 1 │ 1 │ 0 │ 1 │ 1 │ · │ · │     a bit a number: its ghost is still there
//!                  tail ▲              ▲ head             numbers wrap; eight times as many as ghosts
//!   the table  │ fingerprint : queue : number │     a key is in one of two buckets of eight such words
//! ```
//!
//! A ghost goes when its block comes back ([`Ghosts::take`]), when its queue is cut ([`Ghosts::trim`]),
//! or as the oldest when a new one needs room. Except for equal fingerprints a queue is exact, as its
//! paper has it. With half of the table empty, two buckets are hardly ever both full. A number is reused
//! while its last ghost is still there only if seven of eight ghosts are removed before they are old.
//!
//! I1. A ghost is there while its bit is set. The thread that clears the bit, by a read-modify-write,
//!     owns the ghost and counts it out: so it is counted in and out once.
//! I2. A table entry of a ghost that is gone is ignored: its number is before the tail, or its bit is
//!     not set. But numbers wrap. Between its look at an entry and at the entry's bit a thread may stall
//!     until as many ghosts have come as there are bits; it then clears the bit of another ghost. So may
//!     a thread that finds an entry that was not overwritten for 2^31 ghosts. Then a ghost is lost, and
//!     the counts still match the bits (I1).
//! I3. No bit before the tail is set, or a thread is about to clear it.
//!
//! # Orderings
//! Entries and bits are Relaxed: each is one word, by which nothing else is published. Bit and tail are
//! Dekker's problem. An inserting thread sets a bit, then looks at the tail. A thread that moves the
//! tail has seen no bit, and looks again. Both do it by a read-modify-write of the tail, AcqRel: of two
//! such, the later one sees the writes before the earlier one (I3).

use crate::hash::{Placement, SequenceHash};
use crate::prefetch::prefetch;
use crate::sync::{AcqRel, AtomicU32, AtomicU64, CachePadded, Relaxed, site, skipped};
use alloc::boxed::Box;
use core::array;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

/// Entries of a bucket: a cache line of them.
const WAYS: usize = if cfg!(loom) { 2 } else { 8 };
/// Numbers per ghost that there is room for.
const NUMBERS: usize = if cfg!(loom) { 2 } else { 8 };
/// Tries to write an entry while other threads change the place that was found.
const TRIES: usize = 4;

/// One queue or two, over one table.
pub(crate) struct Ghosts {
    /// A key's first bucket is its place's upper half, and its fingerprint the lower one. The
    /// fingerprint stands for the key, except for false hits with a probability of 2^-31.
    place: Placement,
    table: Box<[Bucket]>,
    queues: Box<[Queue]>,
    room: usize,
}

#[cfg_attr(not(loom), repr(align(64)))]
struct Bucket([AtomicU64; WAYS]);

struct Queue {
    /// A power of two words.
    bits: Box<[AtomicU64]>,
    ends: CachePadded<Ends>,
}

struct Ends {
    /// The next number.
    head: AtomicU32,
    /// The oldest ghost's number, or an earlier one.
    tail: AtomicU32,
    /// Number of ghosts; below 0 for a moment, if a ghost is removed before its inserter has counted it.
    len: AtomicU32,
}

/// `fingerprint : 31 | queue : 1 | number : 32`; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry(u64);

impl Entry {
    fn new(print: u32, queue: usize, number: u32) -> Entry {
        Entry((u64::from(print >> 1) << 33) | ((queue as u64) << 32) | u64::from(number))
    }
    fn is_of(self, print: u32) -> bool {
        self.0 >> 33 == u64::from(print >> 1)
    }
    fn queue(self) -> usize {
        (self.0 >> 32) as usize & 1
    }
    fn number(self) -> u32 {
        self.0 as u32
    }
}

impl Ghosts {
    /// Ghosts in one or two queues, with room for `room` in all.
    pub(super) fn new(queues: usize, room: usize, place: Placement) -> Ghosts {
        let buckets = (2 * room).div_ceil(WAYS);
        Ghosts {
            place,
            table: (0..buckets).map(|_| Bucket(array::from_fn(|_| AtomicU64::new(0)))).collect(),
            queues: (0..queues).map(|_| Queue::new(NUMBERS * room)).collect(),
            room,
        }
    }

    /// Number of ghosts of a queue.
    #[inline]
    pub(super) fn len(&self, queue: usize) -> usize {
        (self.queues[queue].ends.len.load(Relaxed) as i32).max(0) as usize
    }

    /// Prefetches the buckets that `insert` and `take` will read.
    #[inline]
    pub(super) fn prefetch(&self, key: SequenceHash) {
        self.buckets(key).into_iter().for_each(prefetch);
    }

    /// Adds the ghost of an evicted block as the youngest of a queue. Without room for it, the oldest of
    /// the queue `to_drop` goes, or, if that is empty, of another.
    pub(super) fn insert(&self, queue: usize, key: SequenceHash, to_drop: impl FnOnce() -> usize) {
        let all: usize = (0..self.queues.len()).map(|queue| self.len(queue)).sum();
        if all >= self.room && !self.queues[to_drop()].drop_oldest() {
            self.queues.iter().any(Queue::drop_oldest);
        }
        let number = self.queues[queue].push();
        if !self.enter(key, Entry::new(self.print(key), queue, number)) {
            self.queues[queue].remove(number);
        }
    }

    /// Removes the ghost of a block that came back. Returns its queue, if there was one.
    pub(super) fn take(&self, key: SequenceHash) -> Option<usize> {
        let (seen, print) = (self.seen(), self.print(key));
        for bucket in self.buckets(key) {
            for way in &bucket.0 {
                let entry = Entry(way.load(Relaxed));
                if entry.is_of(print) && seen.is_there(entry) && self.forget(entry) {
                    // If it fails, another ghost has the entry already.
                    let _ = way.compare_exchange(entry.0, 0, Relaxed, Relaxed);
                    return Some(entry.queue());
                }
            }
        }
        None
    }

    /// Drops the oldest of a queue, until `len` are left.
    pub(super) fn trim(&self, queue: usize, len: usize) {
        while self.len(queue) > len && self.queues[queue].drop_oldest() {}
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let bits: usize = self.queues.iter().map(|queue| size_of_val(&*queue.bits)).sum();
        size_of_val(&*self.table) + size_of_val(&*self.queues) + bits
    }

    fn print(&self, key: SequenceHash) -> u32 {
        // The models choose buckets and fingerprints by the key.
        if cfg!(loom) { (key.to_u128() >> 32) as u32 } else { self.place.of(key) as u32 }
    }

    fn buckets(&self, key: SequenceHash) -> [&Bucket; 2] {
        let mixed = self.print(key).wrapping_mul(0x9e37_79b9);
        let first = if cfg!(loom) { key.to_u128() as u32 } else { (self.place.of(key) >> 32) as u32 };
        [first, mixed].map(|number| {
            let index = (u64::from(number) * self.table.len() as u64) >> 32;
            &self.table[index as usize]
        })
    }

    fn seen(&self) -> Seen {
        let ends = |queue: usize| self.queues.get(queue).map_or([0; 2], |queue| queue.ends.seen());
        Seen([ends(0), ends(1)])
    }

    /// Removes an entry's ghost from its queue; false if another thread has.
    fn forget(&self, entry: Entry) -> bool {
        self.queues[entry.queue()].remove(entry.number())
    }

    /// Writes an entry: into the emptier of its buckets, or over the oldest of both.
    fn enter(&self, key: SequenceHash, entry: Entry) -> bool {
        let seen = self.seen();
        (0..TRIES).any(|_| {
            let [one, other] = self.buckets(key).map(|bucket| seen.place_in(bucket));
            let place = if (one.empty, one.age) >= (other.empty, other.age) { one } else { other };
            let entered = place.way.compare_exchange(place.seen.0, entry.0, Relaxed, Relaxed).is_ok();
            if entered && place.empty == 0 {
                self.forget(place.seen);
            }
            entered
        })
    }
}

/// A snapshot of the queues' heads and tails. It may be out of date: entries then seem
/// younger, or seem to be there.
struct Seen([[u32; 2]; 2]);

impl Seen {
    /// Returns whether an entry's ghost is there, as far as the tail tells.
    #[inline]
    fn is_there(&self, entry: Entry) -> bool {
        let [_, tail] = self.0[entry.queue()];
        // No branch, since it could not be predicted.
        (entry.0 != 0) & (tail.wrapping_sub(entry.number()) as i32 <= 0)
    }

    /// The number of ghosts that came into its queue after an entry.
    fn age(&self, entry: Entry) -> u32 {
        let [head, _] = self.0[entry.queue()];
        (head.wrapping_sub(entry.number()) as i32).max(0) as u32
    }

    /// A bucket's entry for a new ghost: an empty one, else the oldest.
    fn place_in<'b>(&self, bucket: &'b Bucket) -> Place<'b> {
        let entries = bucket.0.each_ref().map(|way| Entry(way.load(Relaxed)));
        let mut empty = 0u32;
        for (way, entry) in entries.iter().enumerate() {
            empty |= u32::from(!self.is_there(*entry)) << way;
        }
        let oldest = || (0..WAYS).max_by_key(|way| self.age(entries[*way])).unwrap_or(0);
        let way = if empty == 0 { oldest() } else { empty.trailing_zeros() as usize };
        let age = if empty == 0 { self.age(entries[way]) } else { 0 };
        Place { way: &bucket.0[way], seen: entries[way], age, empty: empty.count_ones() }
    }
}

impl Ends {
    fn seen(&self) -> [u32; 2] {
        [&self.head, &self.tail].map(|end| end.load(Relaxed))
    }
}

/// A place for a new ghost, and its present entry.
struct Place<'b> {
    way: &'b AtomicU64,
    seen: Entry,
    age: u32,
    /// Entries of the bucket that are empty.
    empty: u32,
}

impl Queue {
    fn new(numbers: usize) -> Queue {
        let words = numbers.next_power_of_two().div_ceil(64);
        let [head, tail] = [1, 1].map(AtomicU32::new);
        Queue {
            bits: (0..words).map(|_| AtomicU64::new(0)).collect(),
            ends: CachePadded(Ends { head, tail, len: AtomicU32::new(0) }),
        }
    }

    fn bit(&self, number: u32) -> (&AtomicU64, u64) {
        let word = (number as usize / 64) & (self.bits.len() - 1);
        (&self.bits[word], 1 << (number % 64))
    }

    /// Takes the next number, and sets its bit.
    fn push(&self) -> u32 {
        let number = self.ends.head.fetch_add(1, Relaxed);
        // The last ghost of this bit goes first.
        let numbers = 64 * self.bits.len() as u32;
        while number.wrapping_sub(self.ends.tail.load(Relaxed)) >= numbers && self.drop_before(number) {}
        let (word, bit) = self.bit(number);
        if word.fetch_or(bit, Relaxed) & bit == 0 {
            self.ends.len.fetch_add(1, Relaxed);
        }
        // AcqRel: pairs with `pass` (I3).
        let tail = self.ends.tail.fetch_add(0, site!("ghost_tail_relaxed", AcqRel));
        if (number.wrapping_sub(tail) as i32) < 0 {
            self.remove(number);
        }
        number
    }

    /// Removes a ghost. False: it was already gone (I1).
    fn remove(&self, number: u32) -> bool {
        let (word, bit) = self.bit(number);
        let there = word.fetch_and(!bit, Relaxed) & bit != 0 || skipped!("ghost_counted_twice");
        if there {
            self.ends.len.fetch_sub(1, Relaxed);
        }
        there
    }

    /// Drops the oldest ghost. False: there is none.
    fn drop_oldest(&self) -> bool {
        self.drop_before(self.ends.head.load(Relaxed))
    }

    /// Drops the oldest, if its number is before this one.
    fn drop_before(&self, end: u32) -> bool {
        loop {
            let tail = self.ends.tail.load(Relaxed);
            let left = end.wrapping_sub(tail) as i32;
            if left <= 0 {
                return false;
            }
            let (word, bit) = self.bit(tail);
            // The bits from the tail on; bits behind the end are ignored below.
            let there = word.load(Relaxed) & bit.wrapping_neg();
            let step =
                if there == 0 { 64 - tail % 64 } else { there.trailing_zeros() - bit.trailing_zeros() };
            if step >= left as u32 {
                self.pass(tail, end);
                return false;
            }
            let oldest = tail.wrapping_add(step);
            if there == 0 {
                self.pass(tail, oldest);
            } else if self.remove(oldest) {
                self.pass(tail, oldest.wrapping_add(1));
                return true;
            }
        }
    }

    /// Moves the tail over numbers of one word, unless another thread has. Ghosts that came
    /// there since the look are removed.
    fn pass(&self, from: u32, to: u32) {
        // AcqRel: pairs with itself and with `push` (I3).
        let order = site!("ghost_tail_relaxed", AcqRel);
        if self.ends.tail.compare_exchange(from, to, order, Relaxed).is_err() || skipped!("ghost_pass_blind")
        {
            return;
        }
        let (word, first) = self.bit(from);
        let passed = (u64::MAX >> (64 - to.wrapping_sub(from))) << first.trailing_zeros();
        if word.load(Relaxed) & passed != 0 {
            (0..to.wrapping_sub(from)).for_each(|step| _ = self.remove(from.wrapping_add(step)));
        }
    }
}
