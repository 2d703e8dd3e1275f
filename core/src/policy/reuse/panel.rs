//! The sampler: for each sampled key, resident or evicted, since when its block waits and in which
//! class. So hits and time at risk are counted without bias.
//!
//! ```text
//!   set of 8:  tag 32 (22 of them differ) | stamp 32 | seen 32 | class 8   13 bytes an entry, capacity × 3/8
//! ```
//!
//! I1. An entry stands for a block that waits: a use ends it, and the next release begins another. So
//!     no time in use is time at risk.
//! I2. Time at risk is the time since `seen`. An entry older than 2³¹ releases is
//!     forgotten, before its age wraps.

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

    /// Ends a time at risk with a hit: a sampled key was used.
    pub(super) fn used(&mut self, key: Key, clock: u32, curve: &mut Curve) {
        if let (_, Some(at)) = self.find(key) {
            self.settle(at, clock, curve);
            if self.classes[at] != FREE {
                curve.hit(usize::from(self.classes[at]), clock.wrapping_sub(self.stamps[at]));
                self.classes[at] = FREE;
            }
        }
    }

    /// Begins a time at risk: a sampled key was released.
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

    /// Adds the time at risk of the next `entries` entries.
    pub(super) fn scan(&mut self, entries: u32, clock: u32, curve: &mut Curve) {
        for _ in 0..entries {
            let at = self.scan;
            self.scan = if at + 1 == self.tags.len() { 0 } else { at + 1 };
            self.settle(at, clock, curve);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::reuse::ages::Ages;

    fn panel() -> (Panel, Curve) {
        (Panel::new(1000), Curve::new(1000, Ages::new(1000)))
    }

    /// I1: from its release to its use, in the class of its release.
    #[test]
    fn panel_wait_counts_as_time_and_use_as_hit() {
        let (mut panel, mut curve) = panel();
        panel.waits(Key::some(1), 3, 100, &mut curve);
        panel.used(Key::some(2), 150, &mut curve);
        assert_eq!(curve.evidence(3), (0.0, 0.0), "another");
        panel.used(Key::some(1), 400, &mut curve);
        assert_eq!(curve.evidence(3), (1.0, 300.0));
        // In use: neither time at risk nor another hit.
        panel.used(Key::some(1), 500, &mut curve);
        panel.scan(1000, 900, &mut curve);
        assert_eq!(curve.evidence(3), (1.0, 300.0));
    }

    /// I2: each release is at risk once, however often it is scanned; a key that is
    /// released again begins anew.
    #[test]
    fn panel_time_at_risk_is_counted_once() {
        let (mut panel, mut curve) = panel();
        let entries = panel.tags.len() as u32;
        panel.waits(Key::some(1), 3, 0, &mut curve);
        for clock in [10, 10, 200, 700] {
            panel.scan(entries, clock, &mut curve);
        }
        assert_eq!(curve.evidence(3), (0.0, 700.0));
        panel.waits(Key::some(1), 4, 800, &mut curve);
        panel.scan(entries, 900, &mut curve);
        assert_eq!((curve.evidence(3).1, curve.evidence(4).1), (700.0, 100.0));
        panel.scan(entries, 800 + (1 << 31), &mut curve);
        assert_eq!(curve.evidence(4).1, 100.0, "forgotten before its age goes round");
    }

    /// A full set forgets the entry that has waited longest, after counting its time.
    #[test]
    fn panel_when_full_forgets_the_oldest() {
        let (mut panel, mut curve) = (Panel::new(1), Curve::new(1, Ages::new(1)));
        let entries = panel.tags.len() as u32;
        (0..2 * entries).for_each(|number| panel.waits(Key::some(number.into()), 0, number, &mut curve));
        (0..2 * entries).for_each(|number| panel.used(Key::some(number.into()), 2 * entries, &mut curve));
        let (hits, time) = curve.evidence(0);
        assert!(hits >= 8.0 && hits <= entries as f32 && time > 0.0, "{hits} {time}");
        panel.waits(Key::some(0), 0, 100, &mut curve);
        panel.used(Key::some(0), 101, &mut curve);
        assert_eq!(curve.evidence(0).0, hits + 1.0);
    }
}
