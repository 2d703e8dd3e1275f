//! Two conversations of ten blocks, and published figures set by hand: a search does not learn.

use super::super::ages::BUCKETS;
use super::super::{CLASSES, LEAF, Reuse, YOUNG_LISTS};
use super::*;
use crate::policy::AnyPolicy;
use crate::{BlockPool, ImmutableBlock, Policy, PoolConfig, SequenceHash};
use alloc::vec::Vec;

/// The list of all blocks of a first turn of ten blocks, except the last.
const RUN: usize = 1;

fn hash(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number) << 32)
}

fn pool() -> BlockPool {
    BlockPool::new(PoolConfig::new(64).policy(Policy::Reuse).lanes(1).lane_of(|| 0)).expect("a valid setup")
}

fn policy(pool: &BlockPool) -> &Reuse {
    let AnyPolicy::Reuse(policy) = pool.any_policy() else { panic!("another policy") };
    policy
}

/// Stores a path of `blocks` blocks, with hashes from `first`, and releases it tail first.
fn store(pool: &BlockPool, first: u64, blocks: usize) {
    store_behind(pool, None, first, blocks);
}

fn store_behind(pool: &BlockPool, parent: Option<&ImmutableBlock<'_>>, first: u64, blocks: usize) {
    let (mut fresh, mut complete, mut held) = (Vec::new(), Vec::new(), Vec::<ImmutableBlock<'_>>::new());
    pool.allocate(blocks, &mut fresh).expect("there is room");
    for (number, block) in (first..).zip(fresh) {
        complete.push(block.complete(hash(number)).expect("a new block is Reset"));
    }
    pool.register_sequence(&mut complete, parent, &mut held);
    pool.release(held.drain(..).rev());
}

/// Publishes each class's index at all ages, and the number of ghosts allowed. LRU has all
/// blocks, and the lead is sufficient.
fn publish(pool: &BlockPool, index: impl Fn(usize, usize) -> f32, room: i32) {
    let orders = &policy(pool).orders;
    (0..CLASSES).for_each(|class| orders.set_row(class, &core::array::from_fn(|age| index(class, age))));
    orders.set(0, 1.0, 0, room);
}

fn evict(pool: &BlockPool, n: usize) -> Vec<u64> {
    let mut victims = Vec::new();
    pool.evict(n, &mut victims);
    victims.iter().map(|victim| (victim.hash().to_u128() >> 32) as u64).collect()
}

fn next(pool: &BlockPool, n: usize) -> Vec<u64> {
    let mut next = Vec::new();
    pool.next_victims(n, &mut next);
    next.iter().map(|(_, hash)| (hash.to_u128() >> 32) as u64).collect()
}

/// Leaves first, then young blocks of `RUN`, then the rest.
fn young_first(class: usize, age: usize) -> f32 {
    match class {
        LEAF => 0.0,
        RUN => 0.01 + age as f32 / BUCKETS as f32,
        _ => 1.0,
    }
}

fn two_paths() -> BlockPool {
    let pool = pool();
    store(&pool, 0, 10);
    store(&pool, 100, 10);
    pool
}

#[test]
fn youngest_segment_goes_deepest_first_then_the_oldest() {
    let pool = two_paths();
    publish(&pool, young_first, 100);
    let young = policy(&pool).young[RUN].load(Relaxed);
    let expected: Vec<u64> = [9, 109].into_iter().chain((100..109).rev()).chain((0..9).rev()).collect();
    assert_eq!(next(&pool, 20), expected);
    assert_eq!(evict(&pool, 4), expected[..4]);
    assert_eq!(policy(&pool).young[RUN].load(Relaxed), young + 2, "what was taken is not walked again");
    // One by one, too. The figures at a release do not matter, for no block is released.
    for victim in &expected[4..11] {
        assert_eq!(next(&pool, 1), [*victim]);
        assert_eq!(evict(&pool, 1), [*victim]);
    }
    assert_eq!(evict(&pool, 9), expected[11..]);
    assert!(
        policy(&pool).young.iter().take(YOUNG_LISTS).all(|place| place.load(Relaxed) == 0),
        "all are over"
    );
}

/// Compaction moves old entries to the place where the segment began, before its own.
#[test]
fn youngest_segment_ends_at_an_older_block() {
    let pool = two_paths();
    publish(&pool, young_first, 100);
    assert_eq!(evict(&pool, 2), [9, 109]);
    let deepest = pool.find(hash(108)).expect("it is there").downgrade();
    let slot = &pool.all_slots()[deepest.id.index()];
    slot.stamp.store(slot.stamp.load(Relaxed).wrapping_sub(30), Relaxed);
    // Only the old block's parent waits for it.
    assert_eq!(evict(&pool, 2), [8, 7], "the segment is over at a block with a child");
    assert_eq!(policy(&pool).young[RUN].load(Relaxed), 0);
}

/// The search itself counts down the ghosts that the guard allows, until the learner publishes again.
#[test]
fn search_counts_down_the_allowed_ghosts() {
    let pool = two_paths();
    // Old blocks of the run are useful, leaves are not: two ghosts, then LRU's order.
    publish(&pool, |class, _| if class == LEAF { 0.1 } else { 1.0 }, 2);
    assert_eq!(next(&pool, 4), [9, 109, 8, 7]);
    assert_eq!(evict(&pool, 4), [9, 109, 8, 7]);
    assert!(policy(&pool).orders.leave(0).tight);
}

/// Runs are less useful than leaves: a search reaches parents first, and takes each behind its child. A
/// look shows the same order, by parts of any size.
#[test]
fn look_shows_children_before_their_parents() {
    let worst_run = |class: usize, _| if class == LEAF { 0.5 } else { 0.1 };
    let worst_old_leaf = |class: usize, age: usize| match class {
        LEAF => 0.6 - age as f32 / BUCKETS as f32,
        _ => 0.55 - age as f32 / BUCKETS as f32,
    };
    for part in [1, 2, 3, 7, 20] {
        let index: [&dyn Fn(usize, usize) -> f32; 2] = [&worst_run, &worst_old_leaf];
        for (shape, index) in index.into_iter().enumerate() {
            let pool = two_paths();
            publish(&pool, index, 100);
            assert_eq!(in_parts(&pool, part).len(), 20);
            // A block that a search has deferred is in no list: a look finds it all the same.
            for left in [20, 19] {
                let shown = in_parts(&pool, part);
                assert_eq!((shown.len(), shown[0] < 10), (left, true));
                assert_eq!(evict(&pool, 1), shown[..1], "by {part}, {shape}");
                assert_eq!(in_parts(&pool, part), shown[1..], "by {part}, {shape}");
            }
            let shown = in_parts(&pool, part);
            assert_eq!(shown, evict(&pool, 30), "by {part}, {shape}");
        }
    }
}

/// A leaf that is in use keeps its path.
#[test]
fn look_passes_parents_of_children_in_use() {
    let pool = two_paths();
    publish(&pool, |class, _| if class == LEAF { 0.5 } else { 0.1 }, 100);
    let held = pool.find(hash(9));
    for part in [1, 3, 30] {
        assert_eq!(in_parts(&pool, part), (100..110).rev().collect::<Vec<u64>>(), "by {part}");
    }
    assert_eq!(evict(&pool, 30).len(), 10);
    drop(held);
}

fn in_parts(pool: &BlockPool, part: usize) -> Vec<u64> {
    let (mut seen, mut out) = (crate::VictimsSeen::default(), Vec::new());
    (0..30).for_each(|_| pool.victims_behind(&mut seen, part, &mut out));
    out.iter().map(|(_, hash)| (hash.to_u128() >> 32) as u64).collect()
}

/// A look in parts continues from its last place, also in a youngest segment, and shows each block once.
#[test]
fn look_in_parts_shows_each_block_once() {
    let pool = two_paths();
    publish(&pool, young_first, 15);
    let all = next(&pool, 100);
    for part in [1, 3, 7] {
        let (mut seen, mut out) = (crate::VictimsSeen::default(), Vec::new());
        (0..20).for_each(|_| pool.victims_behind(&mut seen, part, &mut out));
        let hashes: Vec<u64> = out.iter().map(|(_, hash)| (hash.to_u128() >> 32) as u64).collect();
        assert_eq!(hashes, all, "by {part}");
    }
    let mut each = all;
    each.sort_unstable();
    assert_eq!(each, (0..10).chain(100..110).collect::<Vec<u64>>());
}

/// A parent that a search deferred and a holder has held since is in its list again: it is shown once.
#[test]
fn look_shows_a_parent_held_while_deferred_once() {
    let pool = two_paths();
    publish(&pool, |class, _| if class == LEAF { 0.1 } else { 0.5 }, 100);
    assert_eq!(evict(&pool, 1), [9]);
    (0..9).for_each(|number| drop(pool.find(hash(number))));
    for part in [1, 3, 30] {
        let mut shown = in_parts(&pool, part);
        shown.sort_unstable();
        assert_eq!(shown, (0..9).chain(100..110).collect::<Vec<u64>>(), "by {part}");
    }
}

/// A path with some blocks deferred, one held and in its list again, and one used with a new place.
#[test]
fn look_after_holds_and_uses_omits_no_block() {
    for (held, used) in [(4, 6), (3, 5)] {
        let pool = two_paths();
        let index = |class: usize, _| if class == LEAF { 0.1 } else { 0.5 };
        publish(&pool, index, 100);
        assert_eq!(evict(&pool, 1), [9]);
        drop(pool.find(hash(held)));
        drop(pool.lookup(hash(used)));
        publish(&pool, index, 100);
        let mut shown = in_parts(&pool, 30);
        assert_eq!(shown.iter().filter(|number| **number < 100).count(), 9, "{shown:?}");
        shown.sort_unstable();
        assert_eq!(shown, (0..9).chain(100..110).collect::<Vec<u64>>());
    }
}

/// The block that ends a youngest segment is at each place of the ring once, at its last too.
#[test]
fn youngest_segment_ending_at_the_ring_seam_is_found() {
    let pool = pool();
    for first in (0..3000).map(|round| 1000 * round) {
        // 23 places a round, so that it reaches each of them.
        (200..203).for_each(|single| store(&pool, first + single, 1));
        store(&pool, first, 10);
        store(&pool, first + 100, 10);
        publish(&pool, young_first, 15);
        // Its parent has a child that stays: the segment ends within a part, behind a block that was shown.
        let held = pool.find(hash(first + 104));
        let (all, mut seen, mut out) = (next(&pool, 100), crate::VictimsSeen::default(), Vec::new());
        (0..10).for_each(|_| pool.victims_behind(&mut seen, 4, &mut out));
        let parts: Vec<u64> = out.iter().map(|(_, hash)| (hash.to_u128() >> 32) as u64).collect();
        assert_eq!(parts, all, "{first}");
        drop(held);
        assert_eq!(evict(&pool, 64).len(), 23);
    }
}

/// A pool whose scan cache stands for 64 victims, and 16 paths of 64 blocks each; their leaves go first
/// and then the oldest.
fn many_paths() -> BlockPool {
    let pool = BlockPool::new(PoolConfig::new(4096).policy(Policy::Reuse).lanes(1).lane_of(|| 0))
        .expect("a valid setup");
    (0..16).for_each(|path| store(&pool, 100 * path, 64));
    publish(&pool, |class, age| if class == LEAF { 0.0 } else { 1.0 - age as f32 / BUCKETS as f32 }, 2000);
    pool
}

/// Victims that are requested one by one come in a batch's order.
#[test]
fn victims_one_by_one_come_in_batch_order() {
    let by_ones: Vec<u64> = (0..500).scan(many_paths(), |pool, _| evict(pool, 1).pop()).collect();
    assert_eq!(by_ones, evict(&many_paths(), 500));
}

/// I6: one-by-one evictions continue a segment for as long as the guard allows, and no further.
#[test]
fn young_run_by_ones_ends_with_the_allowance() {
    let pool = many_paths();
    publish(&pool, |class, age| if class == LEAF { 0.0 } else { 0.01 + age as f32 / BUCKETS as f32 }, 2000);
    assert_eq!(evict(&pool, 16).len(), 16, "the leaves");
    assert_eq!((0..3).flat_map(|_| evict(&pool, 1)).collect::<Vec<u64>>(), [1562, 1561, 1560]);
    let of_guard = policy(&pool).orders.leave(0);
    policy(&pool).orders.set(0, 1.0, 0, 0);
    assert!(policy(&pool).orders.leave(0) != of_guard);
    assert_eq!(evict(&pool, 1), [62], "the oldest");
}

/// The same for a run of a list's old end that is not the oldest of all.
#[test]
fn old_run_by_ones_ends_with_the_allowance() {
    let pool = many_paths();
    assert_eq!((0..3).flat_map(|_| evict(&pool, 1)).collect::<Vec<u64>>(), [63, 163, 263]);
    policy(&pool).orders.set(0, 1.0, 0, 0);
    assert_eq!(evict(&pool, 1), [62], "the oldest");
}

/// Another search has taken the rest of a segment.
#[test]
fn run_whose_blocks_were_taken_ends() {
    let pool = many_paths();
    publish(&pool, |class, age| if class == LEAF { 0.0 } else { 0.01 + age as f32 / BUCKETS as f32 }, 2000);
    assert_eq!(evict(&pool, 16).len(), 16, "the leaves");
    assert_eq!((0..2).flat_map(|_| evict(&pool, 1)).collect::<Vec<u64>>(), [1562, 1561]);
    policy(&pool).young.iter().for_each(|place| place.store(0, Relaxed));
    assert_eq!((0..40).flat_map(|_| evict(&pool, 1)).count(), 40);
}

/// A requeued parent is older than its list's first block, or it is not.
#[test]
fn requeued_parent_goes_in_its_order() {
    for reverse in [false, true] {
        let pool = many_paths();
        // Of two paths, the leaf of one goes first, and then the oldest block: with its parent
        // requeued that is the one or the other.
        let age_of = move |class: usize, age: usize| match class {
            LEAF if reverse => 0.5 + age as f32,
            LEAF => 0.5 - 0.01 * age as f32,
            _ => 0.9 - 0.01 * age as f32,
        };
        publish(&pool, age_of, 2000);
        let by_ones: Vec<u64> = (0..200).flat_map(|_| evict(&pool, 1)).collect();
        let other = many_paths();
        publish(&other, age_of, 2000);
        assert_eq!(by_ones, evict(&other, 200), "{reverse}");
    }
}

/// The rivals of a run are computed anew once another list has a new head.
#[test]
fn run_is_compared_with_a_requeued_parent() {
    let pool = many_paths();
    evict(&pool, 1024);
    (0..3).for_each(|single| store(&pool, 5000 + single, 1));
    (0..2).for_each(|path| store(&pool, 6000 + 100 * path, 10));
    publish(&pool, |class, _| if class == LEAF { 0.5 } else { 0.1 }, 5000);
    let by_ones: Vec<u64> = (0..7).flat_map(|_| evict(&pool, 1)).collect();
    assert_eq!(by_ones, [5000, 5001, 5002, 6009, 6008, 6007, 6006]);
}

/// The same in a youngest segment, whose last block has a trunk as its parent.
#[test]
fn youngest_segment_is_left_for_a_requeued_trunk() {
    let pool = many_paths();
    evict(&pool, 1024);
    let child = |root: u64, first: u64| {
        let root = pool.find(hash(root)).expect("it is there");
        store_behind(&pool, Some(&root), first, 10);
    };
    (0..2).for_each(|root| store(&pool, 9000 + root, 1));
    (1..6).for_each(|nth| child(9000, 9000 + 100 * nth));
    let list_of = |number| {
        let block = pool.find(hash(number)).expect("it is there").downgrade();
        usize::from(pool.all_slots()[block.id.index()].list.load(Relaxed))
    };
    let list = list_of(9500);
    let segment = policy(&pool).young[list].load(Relaxed);
    child(9001, 9600);
    assert_eq!((list_of(9508), list_of(9608)), (list, list));
    publish(&pool, |_, age| 0.9 - 0.01 * age as f32, 5000);
    assert!(evict(&pool, 40).iter().all(|number| *number < 9500), "four children");
    // Two paths are one segment.
    policy(&pool).young[list].store(segment, Relaxed);
    let young = |age| 0.01 + age as f32 / BUCKETS as f32;
    publish(&pool, |class, age| if class == list { young(age) } else { 0.0 }, 5000);
    assert_eq!(evict(&pool, 2), [9509, 9609]);
    let by_ones: Vec<u64> = (0..11).flat_map(|_| evict(&pool, 1)).collect();
    assert_eq!(by_ones, [9508, 9507, 9506, 9505, 9504, 9503, 9502, 9501, 9500, 9000, 9608]);
}

/// A block back in its old place is passed until the cached heads have stood for their number of victims.
#[test]
fn released_block_is_found_within_64_victims() {
    let pool = many_paths();
    let held = pool.find(hash(63)).expect("it is there");
    assert_eq!(evict(&pool, 15), (1..16).map(|path| 100 * path + 63).collect::<Vec<u64>>());
    assert_eq!(evict(&pool, 1), [162], "there is no leaf that is not held");
    drop(held);
    let by_ones: Vec<u64> = (0..100).flat_map(|_| evict(&pool, 1)).collect();
    let back = by_ones.iter().position(|number| *number == 63);
    assert!(back.is_some_and(|nth| nth <= 64), "{back:?}");
}

/// Cached heads whose blocks were all taken by others do not hide the rest.
#[test]
fn cached_heads_taken_by_others_hide_no_block() {
    let pool = many_paths();
    assert_eq!(evict(&pool, 1), [63]);
    assert_eq!(evict(&pool, 900).len(), 900);
    let left: Vec<u64> = (0..200).flat_map(|_| evict(&pool, 1)).collect();
    assert_eq!(left.len(), 16 * 64 - 901);
    // New ones are found, too.
    store(&pool, 5000, 3);
    assert_eq!((0..9).flat_map(|_| evict(&pool, 1)).count(), 3);
}

/// A search that finds the cached heads in use scans for itself.
#[test]
fn search_with_cached_heads_in_use_scans_itself() {
    let pool = many_paths();
    let taken = policy(&pool).sight.with(|_| evict(&pool, 1));
    assert_eq!(taken, Some(alloc::vec![63]));
}

/// I5: one eviction does not pass all blocks released since the last one, and none of them is missed.
#[test]
fn eviction_of_one_block_passes_few_parents() {
    let many = 4096;
    let pool = BlockPool::new(PoolConfig::new(many).policy(Policy::Reuse).lanes(1).lane_of(|| 0));
    let pool = pool.expect("a valid setup");
    (0..u64::from(many) / 16).for_each(|path| store(&pool, 100 * path, 16));
    let deferred =
        || pool.all_slots().iter().filter(|slot| slot.is_deferred(slot.word().generation())).count();
    assert_eq!(evict(&pool, 1).len(), 1);
    assert!((1..=2 * PASSED as usize).contains(&deferred()), "{}", deferred());
    assert_eq!(evict(&pool, 64).len(), 64);
    assert!(deferred() <= 67 * PASSED as usize, "{}", deferred());
    assert_eq!(evict(&pool, many as usize).len(), many as usize - 65);
}

/// I5: a list of more parents than are passed at a time, with all other lists empty: the blocks behind
/// them are found.
#[test]
fn victim_behind_many_parents_is_found() {
    let pool = BlockPool::new(PoolConfig::new(4096).policy(Policy::Reuse).lanes(1).lane_of(|| 0));
    let pool = pool.expect("a valid setup");
    (0..40).for_each(|path| store(&pool, 100 * path, 16));
    store(&pool, 9000, 1);
    let leaves: Vec<_> = (0..40).map(|path| pool.find(hash(100 * path + 15)).expect("it is there")).collect();
    assert_eq!(evict(&pool, 2), [9000]);
    drop(leaves);
    assert_eq!(evict(&pool, 1000).len(), 640);
}
