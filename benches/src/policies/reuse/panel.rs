//! Sampled keys, resident or evicted: what waits, since when and as what, so that hits and time at risk are counted without bias.
//!
//! ```text
//!   set of 8:  tag 32 | stamp 32 | seen 32 | class 8          13 bytes an entry, 3/8 of the capacity
//! ```
//!
//! I1. `stamp <= seen <= clock` in each entry that is not free: what is exposed is what passed since `seen`.

use super::curve::Curve;
use super::place;

pub(super) struct Panel {
    tags: Box<[u32]>,
    stamps: Box<[u32]>,
    seen: Box<[u32]>,
    classes: Box<[u8]>,
    sets: usize,
    scan: usize,
}

const FREE: u8 = u8::MAX;

impl Panel {
    pub(super) fn new(capacity: usize) -> Panel {
        let sets = (capacity * 3 / 8).div_ceil(8).max(4);
        Panel {
            tags: vec![0; sets * 8].into(),
            stamps: vec![0; sets * 8].into(),
            seen: vec![0; sets * 8].into(),
            classes: vec![FREE; sets * 8].into(),
            sets,
            scan: 0,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.tags.len() * 13
    }

    fn find(&self, key: u64) -> (usize, Option<usize>) {
        let set = place(key, self.sets) * 8;
        let found = (set..set + 8).find(|i| self.tags[*i] == key as u32 && self.classes[*i] != FREE);
        (set, found)
    }

    /// Adds the time at risk of an entry up to now.
    fn settle(&mut self, at: usize, clock: u32, curve: &mut Curve) {
        let (class, stamp) = (self.classes[at], self.stamps[at]);
        if class != FREE {
            curve.expose(class, self.seen[at] - stamp, clock - stamp);
            self.seen[at] = clock;
        }
    }

    /// A touch of a sampled key ends a time at risk, with a hit.
    pub(super) fn observe(&mut self, key: u64, clock: u32, curve: &mut Curve) {
        if let (_, Some(at)) = self.find(key) {
            self.settle(at, clock, curve);
            curve.hit(self.classes[at], clock - self.stamps[at]);
        }
    }

    /// A release of a sampled key begins one.
    pub(super) fn note(&mut self, key: u64, class: usize, clock: u32, curve: &mut Curve) {
        let (set, found) = self.find(key);
        let at = found.unwrap_or_else(|| {
            let rank = |i: &usize| if self.classes[*i] == FREE { 0 } else { self.stamps[*i] };
            let oldest = (set..set + 8).min_by_key(rank).unwrap_or(set);
            self.settle(oldest, clock, curve);
            oldest
        });
        self.tags[at] = key as u32;
        self.stamps[at] = clock;
        self.seen[at] = clock;
        self.classes[at] = class as u8;
    }

    /// Adds the time at risk of some that wait.
    pub(super) fn scan(&mut self, entries: usize, clock: u32, curve: &mut Curve) {
        for _ in 0..entries {
            let at = self.scan;
            self.scan = if at + 1 == self.tags.len() { 0 } else { at + 1 };
            self.settle(at, clock, curve);
        }
    }
}
