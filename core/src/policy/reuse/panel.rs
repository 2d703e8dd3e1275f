//! Sampled keys, resident or evicted: what waits, since when and as what, so that hits and time at risk are counted without bias.
//!
//! ```text
//!   set of 8:  tag 32 | stamp 32 | seen 32 | class 8          13 bytes an entry, 3/8 of the capacity
//! ```
//!
//! I1. An entry is of a block that waits: a use ends it, the next release begins another. So no time in use is time at risk.
//! I2. What is exposed is what has passed since `seen`. An entry older than 2³¹ releases is forgotten, before its age goes round.

use super::curve::Curve;
use super::journal::Key;
use alloc::boxed::Box;
use alloc::vec;

pub(super) struct Panel {
    tags: Box<[u32]>,
    stamps: Box<[u32]>,
    seen: Box<[u32]>,
    classes: Box<[u8]>,
    scan: usize,
}

const FREE: u8 = u8::MAX;

impl Panel {
    pub(super) fn new(capacity: usize) -> Panel {
        let entries = (capacity * 3 / 8).div_ceil(8).max(if cfg!(loom) { 1 } else { 4 }) * 8;
        let zeros = || vec![0; entries].into();
        Panel { tags: zeros(), stamps: zeros(), seen: zeros(), classes: vec![FREE; entries].into(), scan: 0 }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.tags.len() * 13
    }

    fn find(&self, key: Key) -> (usize, Option<usize>) {
        let set = key.place(self.tags.len() / 8) * 8;
        let found = (set..set + 8).find(|i| self.tags[*i] == key.tag() && self.classes[*i] != FREE);
        (set, found)
    }

    /// Adds the time at risk of an entry up to now.
    fn settle(&mut self, at: usize, clock: u32, curve: &mut Curve) {
        let class = self.classes[at];
        if class == FREE {
            return;
        }
        let age = |when: u32| when.wrapping_sub(self.stamps[at]);
        let (from, to) = (age(self.seen[at]), age(clock));
        if to > i32::MAX as u32 {
            self.classes[at] = FREE;
            return;
        }
        curve.expose(usize::from(class), from, to);
        self.seen[at] = clock;
    }

    /// A use of a sampled key ends a time at risk, with a hit.
    pub(super) fn used(&mut self, key: Key, clock: u32, curve: &mut Curve) {
        if let (_, Some(at)) = self.find(key) {
            self.settle(at, clock, curve);
            if self.classes[at] != FREE {
                curve.hit(usize::from(self.classes[at]), clock.wrapping_sub(self.stamps[at]));
                self.classes[at] = FREE;
            }
        }
    }

    /// A release of a sampled key begins one.
    pub(super) fn waits(&mut self, key: Key, class: usize, stamp: u32, curve: &mut Curve) {
        let (set, found) = self.find(key);
        let at = found.unwrap_or_else(|| {
            let age = |i: &usize| match self.classes[*i] {
                FREE => u32::MAX,
                _ => stamp.wrapping_sub(self.stamps[*i]),
            };
            let oldest = (set..set + 8).max_by_key(age).unwrap_or(set);
            self.settle(oldest, stamp, curve);
            oldest
        });
        self.tags[at] = key.tag();
        self.stamps[at] = stamp;
        self.seen[at] = stamp;
        self.classes[at] = class as u8;
    }

    /// Adds the time at risk of some that wait.
    pub(super) fn scan(&mut self, entries: u32, clock: u32, curve: &mut Curve) {
        for _ in 0..entries {
            let at = self.scan;
            self.scan = if at + 1 == self.tags.len() { 0 } else { at + 1 };
            self.settle(at, clock, curve);
        }
    }
}
