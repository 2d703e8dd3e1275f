//! What was learned, for all to read: the index of each class at each age, LRU's horizon, and how many ghosts are allowed.
//!
//! ```text
//!   heads of the lists, by class ─► index at their age ─► the least, among those that the guard allows
//! ```
//!
//! Relaxed throughout: each word stands for itself and publishes nothing, and one that is read late, or two that are not of the same
//! moment, are a choice that was right a moment ago.

use super::ages::{Ages, BUCKETS, not_before};
use super::curve::Row;
use super::{CLASSES, TRUNK};
use crate::sync::{AtomicU32, CachePadded, Relaxed};

/// The youngest segment of a list goes before its oldest, once that lead is there, if its index is less by this.
pub(super) const YOUNG: f32 = 0.9;
/// Lists that have a youngest segment to be chosen: all but those of trunks and leaves.
pub(super) const YOUNG_LISTS: usize = if TRUNK < CLASSES { TRUNK } else { CLASSES };

pub(super) struct Orders {
    ages: Ages,
    rows: [[AtomicU32; BUCKETS + 1]; CLASSES],
    horizon: CachePadded<AtomicU32>,
    /// The oldest block goes unless another's index is below so much of its own; 1 with a lead that is proof enough. An `f32`.
    margin: AtomicU32,
    /// How many ghosts more are allowed, an `i32`: evictors count them down, who learns sets it anew.
    room: CachePadded<AtomicU32>,
}

/// The first block of a list, as it was met.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    /// Its place on the timeline.
    pub(crate) place: u64,
    /// When it was released.
    pub(crate) stamp: u32,
    pub(super) index: f32,
}

/// The first block of each list of a class; none where there is none.
pub(super) type Heads = [Option<Head>; CLASSES];

/// What goes next.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Choice {
    /// The head of this list.
    Oldest(usize),
    /// What is left of the youngest segment of this list.
    Youngest(usize),
}

impl Orders {
    pub(super) fn new(ages: Ages, clock: u32, margin: f32) -> Orders {
        let word = AtomicU32::new;
        Orders {
            ages,
            rows: core::array::from_fn(|_| core::array::from_fn(|_| word(0))),
            horizon: CachePadded(word(clock)),
            margin: word(margin.to_bits()),
            room: CachePadded(word(0)),
        }
    }

    pub(super) fn set_row(&self, class: usize, row: &Row) {
        for (index, value) in self.rows[class].iter().zip(row) {
            index.store(value.to_bits(), Relaxed);
        }
    }

    pub(super) fn set(&self, horizon: u32, margin: f32, room: i32) {
        // The line of the horizon is every hit's: it is written when it moves only.
        if self.horizon.load(Relaxed) != horizon {
            self.horizon.store(horizon, Relaxed);
        }
        if self.margin.load(Relaxed) != margin.to_bits() {
            self.margin.store(margin.to_bits(), Relaxed);
        }
        self.room.store(room as u32, Relaxed);
    }

    /// Whether LRU has what was released then.
    #[inline]
    pub(super) fn lru_has(&self, stamp: u32) -> bool {
        not_before(stamp, self.horizon.load(Relaxed))
    }

    /// A ghost more.
    pub(super) fn risk_one(&self) {
        // Below 0 it stays for two thousand million ghosts, and is set anew long before.
        self.room.fetch_sub(1, Relaxed);
    }

    /// The index of a block of the class at this age: linear between the edges.
    #[inline]
    pub(super) fn index(&self, class: usize, age: u32) -> f32 {
        let b = self.ages.bucket(age);
        let (low, high) = self.ages.span(b);
        let part = (age.min(high) - low) as f32 / (high - low) as f32;
        let at = |b: usize| f32::from_bits(self.rows[class][b].load(Relaxed));
        at(b) + (at(b + 1) - at(b)) * part
    }

    /// What goes next: the least index, among those that the guard allows; the oldest of all is preferred by the margin, and what LRU does
    /// not have costs nothing against it. `young`: the index of the youngest segments. None: there is no head.
    #[inline]
    pub(super) fn choose(&self, heads: &Heads, young: &[f32; YOUNG_LISTS]) -> Option<Choice> {
        let (mut chosen, mut oldest) = (CLASSES, u64::MAX);
        for (list, head) in heads.iter().enumerate() {
            if let Some(head) = head
                && head.place < oldest
            {
                (chosen, oldest) = (list, head.place);
            }
        }
        let first = heads.get(chosen).copied().flatten()?;
        let tight = (self.room.load(Relaxed) as i32) <= 0;
        if tight && self.lru_has(first.stamp) {
            return Some(Choice::Oldest(chosen));
        }
        let margin = f32::from_bits(self.margin.load(Relaxed));
        let mut least = first.index * margin;
        for (list, head) in heads.iter().enumerate() {
            if let Some(head) = head
                && head.index < least
                && !(tight && self.lru_has(head.stamp))
            {
                (least, chosen) = (head.index, list);
            }
        }
        let mut choice = Choice::Oldest(chosen);
        if !tight && margin == 1.0 {
            for (list, index) in young.iter().enumerate() {
                if index * YOUNG < least {
                    (least, choice) = (index * YOUNG, Choice::Youngest(list));
                }
            }
        }
        Some(choice)
    }
}
