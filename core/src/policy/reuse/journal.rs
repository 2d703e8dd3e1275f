//! Events that are not learned yet: all threads write records to a ring (`ring.rs`), and the
//! learner reads them.
//!
//! I1. A record that finds no room is lost. Its weight is counted, and the guard learns it as worse for
//!     us than is usual (`shadow.rs`). So a caller that finds the ring half full has the learner read it.
//! I2. Inactive blocks are counted along with the records on them, lost or not. A block that becomes
//!     inactive is counted before its record is written, and one that ceases to be after. So a count
//!     that is taken after a record was read can only be too high (`waiting`).

use super::lock::TryLock;
use super::path::Path;
use super::ring::{Ring, Weight};
use crate::hash::{Placement, SequenceHash};
use crate::lane::wrap;
use crate::sync::{AtomicU64, CachePadded, Relaxed};
use alloc::boxed::Box;

/// Words of a large pool's ring, per lane.
pub(super) const WORDS: usize = if cfg!(loom) { 12 } else { 512 };

/// Words per lane of the ring, times the lanes: at least two pages a lane, and no larger a share of a
/// small pool's memory than of a large one's.
pub(super) fn words(capacity: usize, lanes: usize) -> usize {
    if cfg!(loom) { WORDS } else { lanes * (capacity / 32).clamp(32, WORDS) }
}

/// The bits of a word that hold its kind of record.
const KIND: u64 = 7;

/// A block's key in the tables: 61 well-mixed bits of its hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key(u64);

impl Key {
    #[inline]
    pub(super) fn of(hash: SequenceHash, place: &Placement) -> Key {
        Key(place.of(hash) >> 3)
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn some(number: u64) -> Key {
        Key::of(SequenceHash::from_u128(u128::from(number)), &Placement::new(1))
    }

    /// The key's place in a table of `len` places.
    #[inline]
    pub(super) fn place(self, len: usize) -> usize {
        (((self.0 >> 29) * len as u64) >> 32) as usize
    }

    /// A second key of the same block, for its second place.
    #[inline]
    pub(super) fn again(self) -> Key {
        Key(self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 3)
    }

    #[inline]
    pub(super) fn tag(self) -> u32 {
        self.0 as u32
    }

    /// The key as far as a record has room for it beside a class: 51 bits.
    #[inline]
    pub(super) fn short(self) -> Key {
        Key(self.0 & !0x3ff)
    }
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Record {
    /// A block was registered.
    Missed(Key),
    /// A sampled block was used.
    Used(Key),
    /// A number of blocks were released, the first with this stamp; a number of paths began among them.
    Released { first: u32, blocks: u32, paths: u32 },
    /// The `nth` block of that release is sampled, and waits in a class.
    Waits { key: Key, class: usize, nth: u32 },
    /// Blocks that were released at this stamp and the ones right after it have left the shadow's list.
    Out { first: u32, blocks: u32 },
    /// A number of blocks were used that LRU had lost.
    Won(u32),
    /// A block that was released at this stamp was evicted. Takes a second word.
    Evicted(Key, u32),
}

impl Record {
    /// One word, or two; the second is 0 if there is none.
    #[inline]
    fn words(self) -> [u64; 2] {
        let pair = |stamp: u32, blocks: u32, kind| (u64::from(stamp) << 32) | u64::from(blocks << 8) | kind;
        match self {
            Record::Missed(key) => [(key.0 << 3) | 1, 0],
            Record::Used(key) => [(key.0 << 3) | 2, 0],
            Record::Released { first, blocks, paths } => [pair(first, blocks | (paths << 8), 3), 0],
            Record::Waits { key, class, nth } => {
                [(key.short().0 << 3) | ((class as u64) << 9) | (u64::from(nth) << 3) | 4, 0]
            }
            Record::Out { first, blocks } => [pair(first, blocks, 5), 0],
            Record::Won(blocks) => [pair(0, blocks, 6), 0],
            Record::Evicted(key, stamp) => [(key.0 << 3) | 7, pair(stamp, 0, 1)],
        }
    }

    /// Returns whether a record that begins with this word has a second one.
    #[inline]
    pub(super) fn is_double(word: u64) -> bool {
        word & KIND == 7
    }

    #[inline]
    pub(super) fn of(word: u64, second: u64) -> Record {
        let (key, first, blocks) = (Key(word >> 3), (word >> 32) as u32, (word as u32) >> 8);
        match word & KIND {
            1 => Record::Missed(key),
            2 => Record::Used(key),
            3 => Record::Released { first, blocks: blocks & 0xff, paths: blocks >> 8 & 0xff },
            4 => {
                let class = (word >> 9) as usize & 15;
                Record::Waits { key: key.short(), class, nth: (word >> 3) as u32 & 63 }
            }
            5 => Record::Out { first, blocks },
            6 => Record::Won(blocks),
            _ => Record::Evicted(key, (second >> 32) as u32),
        }
    }
}

/// The records of one call, gathered on its stack.
#[derive(Default)]
pub(super) struct Page {
    words: [u64; 16],
    len: usize,
    /// The weight of the records, for the guard.
    weight: Weight,
    /// Blocks that become inactive here, less those that cease to be.
    waiting: i32,
}

impl Page {
    #[inline]
    pub(super) fn new() -> Page {
        Page::default()
    }

    /// Returns whether there is nothing to be written or counted.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0 && self.waiting == 0
    }

    /// Returns whether there is room for four more words.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.len + 4 <= self.words.len()
    }

    /// Replaces the first record by another of one word.
    pub(super) fn put_first(&mut self, record: Record) {
        self.words[0] = record.words()[0];
        self.count(record);
    }

    /// Counts blocks as no longer inactive, without a record: LRU need not learn of them.
    #[inline]
    pub(super) fn left(&mut self, blocks: u32) {
        self.waiting -= blocks as i32;
    }

    #[inline]
    fn count(&mut self, record: Record) {
        match record {
            Record::Released { blocks, .. } => self.waiting += blocks as i32,
            Record::Out { blocks, .. } => self.left(blocks),
            Record::Evicted(..) => self.left(1),
            _ => {}
        }
    }

    #[inline]
    pub(super) fn add(&mut self, record: Record) {
        self.count(record);
        let [word, second] = record.words();
        self.words[self.len] = word;
        self.len += 1;
        let weight = &mut self.weight;
        match record {
            Record::Missed(_) => weight.blocks += 1,
            Record::Evicted(..) => (weight.blocks, weight.evicted) = (weight.blocks + 1, weight.evicted + 1),
            Record::Out { blocks, .. } => weight.blocks += blocks,
            _ => {}
        }
        if second != 0 {
            self.words[self.len] = second;
            self.len += 1;
        }
    }
}

/// The state that the threads of one lane share.
struct Lane {
    /// Inactive blocks, wrapping: a block may come on one lane and leave on another.
    waiting: AtomicU64,
    /// The path between two of its releases, see `path.rs`.
    path: [AtomicU64; 2],
}

impl Lane {
    /// I2. Relaxed: a count.
    #[inline]
    fn count(&self, waiting: i32) {
        if waiting != 0 {
            self.waiting.fetch_add(i64::from(waiting) as u64, Relaxed);
        }
    }
}

/// The ring, and its reader: one thread at a time.
pub(super) struct Journal<T> {
    ring: CachePadded<Ring>,
    lanes: Box<[CachePadded<Lane>]>,
    lane_of: fn() -> usize,
    reader: CachePadded<TryLock<T>>,
}

impl<T> Journal<T> {
    pub(super) fn new(lanes: usize, lane_of: fn() -> usize, words: usize, reader: T) -> Journal<T> {
        let zero = || AtomicU64::new(0);
        let lane = || Lane { waiting: zero(), path: Path::default().words().map(AtomicU64::new) };
        Journal {
            ring: CachePadded(Ring::new(words)),
            lanes: (0..lanes).map(|_| CachePadded(lane())).collect(),
            lane_of,
            reader: CachePadded(TryLock::new(reader)),
        }
    }

    #[inline]
    fn lane(&self) -> &Lane {
        &self.lanes[wrap((self.lane_of)(), self.lanes.len())]
    }

    /// The lane's path as its threads last left it. Relaxed, as its counterpart: two threads that share
    /// a lane may mix up their paths, and then one path is taken for two.
    #[inline]
    pub(super) fn path(&self) -> [u64; 2] {
        let path = &self.lane().path;
        [path[0].load(Relaxed), path[1].load(Relaxed)]
    }

    #[inline]
    pub(super) fn set_path(&self, path: [u64; 2]) {
        let of = &self.lane().path;
        of[0].store(path[0], Relaxed);
        of[1].store(path[1], Relaxed);
    }

    /// Writes the records of a page and empties it. Returns whether the ring is half full.
    #[inline]
    pub(super) fn write(&self, page: &mut Page) -> bool {
        let words = &page.words[..core::mem::take(&mut page.len)];
        let weight = core::mem::take(&mut page.weight);
        let waiting = core::mem::take(&mut page.waiting);
        if waiting == 0 {
            return self.ring.write(words, weight);
        }
        let lane = self.lane();
        lane.count(waiting.max(0));
        let is_half_full = self.ring.write(words, weight);
        lane.count(waiting.min(0));
        is_half_full
    }

    /// Writes one record. Returns whether the ring is half full.
    pub(super) fn write_one(&self, record: Record) -> bool {
        let mut page = Page::new();
        page.add(record);
        self.write(&mut page)
    }

    /// Passes the reader to `work`, unless another thread holds it; `work` reads with [`Lanes::read`].
    #[inline]
    pub(super) fn learn<R>(&self, work: impl FnOnce(&mut T, Lanes<'_>) -> R) -> Option<R> {
        self.reader.with(|reader| work(reader, Lanes(&self.ring, &self.lanes)))
    }

    /// Bytes besides the struct itself.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.lanes) + self.ring.memory_bytes()
    }
}

/// The unread records, for the holder of the reader.
pub(super) struct Lanes<'j>(&'j Ring, &'j [CachePadded<Lane>]);

impl Lanes<'_> {
    /// Passes each record to `hear`, with the first stamp of its batch if it belongs to one. Returns the
    /// weight of the records that were lost.
    pub(super) fn read(&self, hear: impl FnMut(Record, u32)) -> Weight {
        self.0.read(hear)
    }

    /// Inactive blocks that the shadow counts. Relaxed: a count that is read during a change may break
    /// I2; the cost of that is bounded (`shadow.rs`, I5).
    pub(super) fn waiting(&self) -> u32 {
        let sum = self.1.iter().fold(0u64, |sum, lane| sum.wrapping_add(lane.waiting.load(Relaxed)));
        (sum as i64).clamp(0, i64::from(u32::MAX)) as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::{Arc, model, spawn};
    use alloc::vec::Vec;

    /// The ring is full, except for the records that are read meanwhile: each is read once, or
    /// counted as lost.
    #[test]
    fn reuse_records_of_a_full_ring_are_read_or_counted_once() {
        model(|| {
            let journal = Arc::new(Journal::new(1, || 0, 4, Vec::new()));
            let out = |first| Record::Out { first, blocks: 1 };
            (1..4).for_each(|number| _ = journal.write_one(out(number)));
            let other = journal.clone();
            let thread = spawn(move || {
                other.write_one(out(4));
                other.write_one(out(5));
            });
            let read = |heard: &mut Vec<Record>, lanes: Lanes<'_>| lanes.read(|record, _| heard.push(record));
            let lost = journal.learn(read).expect("nobody else reads").blocks;
            thread.join().expect("no panic");
            let (heard, lost) = journal
                .learn(|heard, lanes| {
                    let lost = lost + read(heard, lanes).blocks;
                    (heard.clone(), lost)
                })
                .expect("nobody else reads");
            assert_eq!(heard.len() as u32 + lost, 5, "none is lost in silence: {heard:?}");
            let numbers =
                heard.iter().map(|record| if let Record::Out { first, .. } = record { *first } else { 0 });
            assert!(numbers.is_sorted_by(|a, b| a < b), "in order, each once: {heard:?}");
        });
    }
}
