//! Words read in groups, against words read one after another.

use super::position::{Position, WORD};
use super::{GROUP, Timeline};
use crate::sync::Relaxed;

/// From any word to any other, over the seam too: the first word with a bit set.
#[test]
fn scan_by_groups_finds_the_first_word_with_a_bit() {
    // The words are no whole number of groups.
    let timeline = Timeline::new(640, 1, false);
    let (list, size) = (&timeline.lists[0], timeline.size);
    let words = size / WORD;
    assert_ne!(words as usize % GROUP, 0);
    let mut seed = 1u64;
    for _ in 0..2000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let [set, begin, count] = [seed >> 33, seed >> 40, seed >> 48].map(|of| of as u32 % words);
        list.bits.iter().for_each(|word| word.store(0, Relaxed));
        // One bit, or two, one of them perhaps out of the range.
        list.bits[set as usize].store(1 << (seed % 64), Relaxed);
        list.bits[(set as usize * 7 + 3) % words as usize].fetch_or(seed >> 63, Relaxed);
        let from = Position::FIRST.plus(begin * WORD, size);
        let to = from.plus(count * WORD, size);
        let places = (0..count).map(|word| from.plus(word * WORD, size));
        let first = places.clone().find(|place| list.bits[place.word()].load(Relaxed) != 0);
        assert!(list.first_set(from, to, size) == first, "{count} words from {begin}, {set} is set");
    }
}
