//! Records in any order, and the resulting content of LRU.

use super::*;

/// A shadow of a full pool of 256 blocks: two a chunk.
fn full() -> Shadow {
    let mut shadow = Shadow::new(256, 0);
    shadow.released(0, 256);
    shadow.keep_within(256, 255);
    shadow
}

/// I2: sums over the chunks.
fn check(shadow: &Shadow) {
    let live = &shadow.chunks[shadow.first..shadow.end];
    assert_eq!(live.iter().map(|chunk| i64::from(chunk.blocks)).sum::<i64>(), shadow.total);
    assert_eq!(live.iter().map(|chunk| i64::from(chunk.ghosts)).sum::<i64>(), shadow.ghosts);
    assert!(live.windows(2).all(|pair| pair[0].since < pair[1].since));
}

#[test]
fn shadow_beyond_its_room_loses_the_oldest() {
    let mut shadow = full();
    assert_eq!((shadow.total, shadow.horizon()), (256, 0));
    shadow.released(256, 10);
    shadow.keep_within(256, 265);
    assert_eq!((shadow.total, shadow.horizon()), (256, 10));
    // Used and released: the blocks are at another place, and LRU loses none.
    shadow.out(100, 20);
    shadow.released(266, 20);
    shadow.keep_within(256, 285);
    assert_eq!((shadow.total, shadow.horizon()), (256, 10));
    // LRU has lost all of these except the last two.
    shadow.out(2, 10);
    assert_eq!((shadow.total, shadow.horizon()), (254, 10));
    check(&shadow);
}

/// I2: a block leaves before its release is read, and that comes late.
#[test]
fn shadow_records_in_any_order_give_the_same_total() {
    let mut shadow = full();
    shadow.out(300, 4);
    assert_eq!(shadow.total, 252);
    shadow.released(320, 4);
    shadow.released(300, 4);
    shadow.keep_within(256, 323);
    assert_eq!((shadow.total, shadow.horizon()), (256, 4), "four more than there is room for");
    check(&shadow);
}

#[test]
fn shadow_ghost_is_hit_or_lost_once() {
    let mut shadow = full();
    (0..4).for_each(|number| shadow.evicted(Key::some(number), number as u32));
    shadow.missed(Key::some(9));
    shadow.missed(Key::some(3));
    shadow.missed(Key::some(3));
    assert_eq!((shadow.ghosts(), shadow.total, shadow.deficit()), (3, 255, 1), "once");
    shadow.released(256, 3);
    shadow.keep_within(256, 258);
    shadow.missed(Key::some(0));
    shadow.evicted(Key::some(5), 1);
    assert_eq!((shadow.ghosts(), shadow.total, shadow.deficit()), (1, 256, 1), "LRU has lost it, too");
    check(&shadow);
}

/// I3: a forgotten ghost counts as LRU's hit.
#[test]
fn shadow_ghosts_without_a_place_count_as_hits() {
    let mut shadow = Shadow::new(8, 0);
    shadow.released(0, 40);
    assert_eq!(shadow.table.len(), 16);
    (0..20).for_each(|number| shadow.evicted(Key::some(number), number as u32));
    let kept = shadow.table.iter().filter(|entry| entry.1 != 0).count() as u32;
    assert!(kept >= 8 && shadow.ghosts() == kept);
    assert_eq!((shadow.total, shadow.deficit()), (20 + i64::from(kept), 20 - i64::from(kept)));
    check(&shadow);
}

/// I5.
#[test]
fn shadow_with_a_count_too_low_loses_little() {
    let mut shadow = full();
    let mut clock = 255;
    for _ in 0..10 {
        shadow.released(clock + 1, 8);
        clock += 8;
        shadow.keep_within(1, clock);
    }
    assert_eq!((shadow.total, shadow.horizon()), (256 - 4, 84), "eighty for eighty, and two chunks");
    // LRU has room for them again, and loses none until that is full.
    shadow.released(clock + 1, 4);
    shadow.keep_within(256, clock + 4);
    assert_eq!((shadow.total, shadow.horizon()), (256, 84));
    check(&shadow);
}

/// Blocks held for long are in one chunk with late records: LRU loses it all the same.
#[test]
fn shadow_chunk_grown_by_late_records_is_lost() {
    let mut shadow = full();
    (0..100).for_each(|_| shadow.released(1, 1));
    for clock in 0..300 {
        shadow.released(256 + clock, 1);
        shadow.keep_within(256, 256 + clock);
    }
    assert!(shadow.total <= 256 + 2 && shadow.horizon() > 256, "{} {}", shadow.total, shadow.horizon());
    check(&shadow);
}

/// With too many chunks, neighbours are merged.
#[test]
fn shadow_with_too_many_chunks_merges_neighbours() {
    let mut shadow = Shadow::new(256, 0);
    for nth in 0..2000 {
        shadow.released(2 * nth, 2);
        // One of two is used again.
        shadow.out(2 * nth, 1);
        shadow.keep_within(256, 2 * nth + 1);
        check(&shadow);
    }
    assert!((256..260).contains(&shadow.total), "{}", shadow.total);
    assert!(shadow.horizon().abs_diff(2 * (2000 - 256)) < 16, "{}", shadow.horizon());
}

/// Sweeps the table: one call a set, each of which releases one block.
fn sweep(shadow: &mut Shadow, clock: &mut u32) {
    for _ in 0..shadow.table.len() / 8 {
        *clock = clock.wrapping_add(1);
        shadow.released(*clock, 1);
        shadow.keep_within(256, *clock);
    }
}

/// I4: ghosts that LRU lost do not reappear when the stamps have wrapped.
#[test]
fn shadow_ghosts_lost_by_lru_stay_lost_after_wrapping() {
    let mut shadow = full();
    (0..256).for_each(|number| shadow.evicted(Key::some(number), number as u32));
    let mut clock = 255;
    // More than half of all stamps, with few evictions: each time LRU loses all that it had.
    for _ in 0..9 {
        clock += 1 << 28;
        shadow.released(clock - 511, 512);
        shadow.keep_within(256, clock);
        sweep(&mut shadow, &mut clock);
    }
    let before = (shadow.deficit(), shadow.ghosts());
    (0..256).for_each(|number| shadow.missed(Key::some(number)));
    assert_eq!((shadow.deficit(), shadow.ghosts()), before, "they are nobody's");
    assert!(shadow.table.iter().all(|ghost| ghost.1 == 0));
    check(&shadow);
}

/// I4: LRU has room for the blocks that it lost for their age, and would have hit them, too.
#[test]
fn shadow_blocks_lost_for_age_with_room_left_are_no_win() {
    let age_out = |shadow: &mut Shadow| {
        // One of the 256 is used again and again, until the others are too old.
        let mut stamp = 255;
        for hop in 1..6 {
            shadow.out(stamp, 1);
            stamp = 255 + hop * (1 << 28);
            shadow.released(stamp, 1);
            shadow.keep_within(256, stamp);
        }
        assert!(shadow.total <= 2 && shadow.aged >= 254, "{} {}", shadow.total, shadow.aged);
        stamp
    };
    let mut shadow = full();
    age_out(&mut shadow);
    shadow.won(254);
    assert_eq!(shadow.deficit(), 0);
    shadow.won(10);
    assert!(shadow.deficit() <= -9, "of what it lost for want of room: {}", shadow.deficit());
    // Later blocks have taken their room, except for 56.
    let mut shadow = full();
    let stamp = age_out(&mut shadow);
    shadow.released(stamp + 1, 199);
    shadow.keep_within(256, stamp + 199);
    shadow.won(254);
    assert!((-200..=-196).contains(&shadow.deficit()), "{}", shadow.deficit());
}
