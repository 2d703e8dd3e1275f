//! Estimates of how often blocks were used lately: a count-min sketch in memory of a fixed size.
//!
//! ```text
//!   hash ─► one cache line of 8 words, 16 counters of 4 bits each; its smallest counter of four is its count
//!           all counters are halved after 10 × blocks additions
//! ```
//!
//! # Orderings
//! Relaxed: counts are estimates and publish nothing.

use kvstrata_core::SequenceHash;
use kvstrata_core::hash::Placement;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Mixes a key anew, for bits that are independent of the line that it chose.
pub fn remix(key: u64) -> u64 {
    (key ^ (key >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// Words in a cache line.
pub const LINE: usize = 8;

/// Makes the words of so many cache lines, all zero.
#[must_use]
pub fn words(lines: usize) -> Box<[AtomicU64]> {
    (0..lines * LINE).map(|_| AtomicU64::new(0)).collect()
}

/// Returns the first word of the line of `key`.
pub fn line_of(words: &[AtomicU64], key: u64) -> usize {
    let lines = (words.len() / LINE) as u128;
    ((u128::from(key) * lines) >> 64) as usize * LINE
}

/// How often keys were added lately, up to 15: a count-min sketch.
#[derive(Debug)]
pub struct Sketch {
    place: Placement,
    words: Box<[AtomicU64]>,
    additions: AtomicUsize,
    period: usize,
}

impl Sketch {
    const ROWS: usize = 4;
    /// The largest count.
    pub const MOST: u64 = 15;

    /// Makes a sketch for a tier of so many blocks.
    #[must_use]
    pub fn new(blocks: usize, seed: u64) -> Sketch {
        let lines = blocks.next_power_of_two().div_ceil(LINE);
        let additions = AtomicUsize::new(0);
        Sketch { place: Placement::new(seed), words: words(lines), additions, period: 10 * blocks }
    }

    /// Returns the key that stands for a hash in the other calls.
    pub fn key(&self, hash: SequenceHash) -> u64 {
        self.place.of(hash)
    }

    /// Returns the word and the shift of the key's counter in each row; a row has two words of its line,
    /// 32 counters.
    fn counters(&self, key: u64) -> impl Iterator<Item = (&AtomicU64, u32)> {
        let line = line_of(&self.words, key);
        let places = remix(key) >> 44;
        (0..Sketch::ROWS).map(move |row| {
            let place = (places >> (5 * row)) as usize % 32;
            (&self.words[line + 2 * row + place / 16], (place as u32 % 16) * 4)
        })
    }

    /// Returns the bytes of its counters.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// Returns the count of a key.
    #[must_use]
    pub fn count(&self, key: u64) -> u64 {
        self.counters(key).map(|(word, shift)| (word.load(Relaxed) >> shift) & 15).min().unwrap_or(0)
    }

    /// Counts a use of a key.
    pub fn add(&self, key: u64) {
        for (word, shift) in self.counters(key) {
            // An error means that the counter is full.
            let _ = word.fetch_update(Relaxed, Relaxed, |counters| {
                ((counters >> shift) & 15 < 15).then(|| counters + (1 << shift))
            });
        }
        if self.additions.fetch_add(1, Relaxed) + 1 == self.period {
            self.halve();
        }
    }

    #[cold]
    fn halve(&self) {
        for word in &self.words {
            word.store((word.load(Relaxed) >> 1) & 0x7777_7777_7777_7777, Relaxed);
        }
        self.additions.store(self.period / 2, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> SequenceHash {
        SequenceHash::from_u128(
            u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 32 | u128::from(number),
        )
    }

    #[test]
    fn sketch_counts_are_never_less_than_the_truth() {
        let sketch = Sketch::new(10_000, 1);
        for number in 0..10_000 {
            (0..number % 6).for_each(|_| sketch.add(sketch.key(hash(number))));
        }
        let count = |number: u64| sketch.count(sketch.key(hash(number)));
        assert!((0..10_000).all(|number| count(number) >= number % 6));
        let more = (0..10_000).filter(|number| count(*number) > number % 6).count();
        assert!(more < 1000, "{more} of 10,000");
        (0..40).for_each(|_| sketch.add(sketch.key(hash(1))));
        assert_eq!(count(1), 15);
    }
}
