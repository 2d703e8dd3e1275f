//! Conversations that were evicted completely: their number of turns, and their blocks below the trunk.
//!
//! ```text
//!   tag 20 | below 8 | turns 4          a word an entry, a third of the capacity; a later one overwrites
//! ```
//!
//! Relaxed throughout: an entry is one word, which stands for itself and is a hint.

use super::journal::Key;
use crate::sync::{AtomicU32, Relaxed};
use alloc::boxed::Box;

pub(super) struct Gone(Box<[AtomicU32]>);

impl Gone {
    pub(super) fn new(capacity: usize) -> Gone {
        let entries = if cfg!(loom) { 1 } else { (capacity / 3).max(16) };
        Gone((0..entries).map(|_| AtomicU32::new(0)).collect())
    }

    fn entry(&self, key: Key) -> &AtomicU32 {
        &self.0[key.place(self.0.len())]
    }

    pub(super) fn note(&self, key: Key, below: u32, turns: u32) {
        let word = (key.tag() & !0xfff) | (below.min(255) << 4) | turns.clamp(1, 15);
        self.entry(key).store(word, Relaxed);
    }

    /// Returns and forgets the conversation that begins with this block: its turns, and the blocks below it.
    pub(super) fn take(&self, key: Key) -> Option<(u32, u32)> {
        let entry = self.entry(key);
        let word = entry.load(Relaxed);
        if word == 0 || word >> 12 != key.tag() >> 12 {
            return None;
        }
        entry.store(0, Relaxed);
        Some((word & 15, (word >> 4) & 255))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn gone_key_is_taken_once() {
        let gone = Gone::new(3000);
        gone.note(Key::some(1), 7, 3);
        assert_eq!(gone.take(Key::some(2)), None, "another");
        assert_eq!(gone.take(Key::some(1)), Some((3, 7)));
        assert_eq!(gone.take(Key::some(1)), None);
        gone.note(Key::some(1), 1000, 0);
        assert_eq!(gone.take(Key::some(1)), Some((1, 255)), "as much as there is room for");
    }

    /// Entries are overwritten, and confused only where tags collide.
    #[test]
    fn gone_table_when_full_overwrites_older_entries() {
        let gone = Gone::new(1);
        (0..1000).for_each(|number| gone.note(Key::some(number), 0, 1));
        let left = (0..1000).filter(|number| gone.take(Key::some(*number)).is_some()).count();
        assert_eq!(left, 16, "an entry each");
    }
}
