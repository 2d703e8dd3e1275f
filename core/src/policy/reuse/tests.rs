//! The guard's figures through the pool: blocks in use, held, of another priority, or evicted by
//! another's choice.

use super::Reuse;
use super::ages::Ages;
use super::notes::{TRUNK, TURNS};
use crate::id::BlockRef;
use crate::policy::AnyPolicy;
use crate::sync::Relaxed;
use crate::{BlockPool, ImmutableBlock, Policy, PoolConfig, Priority, SequenceHash};
use alloc::vec::Vec;

fn hash(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number) << 32)
}

fn pool() -> BlockPool {
    BlockPool::new(PoolConfig::new(100).policy(Policy::Reuse).lanes(2).lane_of(|| 0)).expect("a valid setup")
}

fn policy(pool: &BlockPool) -> &Reuse {
    let AnyPolicy::Reuse(policy) = pool.any_policy() else { panic!("another policy") };
    policy
}

fn store(pool: &BlockPool, number: u64) -> BlockRef {
    let mut blocks = Vec::new();
    pool.allocate(1, &mut blocks).expect("there is room");
    let complete = blocks.pop().expect("one").complete(hash(number)).expect("a new block is Reset");
    pool.register(complete, None).into_block().downgrade()
}

/// Returns whether LRU has an inactive block, by the published horizon.
fn lru_has(pool: &BlockPool, block: BlockRef) -> bool {
    let stamp = pool.all_slots()[block.id.index()].stamp.load(Relaxed);
    policy(pool).orders.lru_has(stamp)
}

/// Uses a block until the learner has asked for room more than once.
fn go_round(pool: &BlockPool, number: u64) {
    (0..200).for_each(|_| drop(pool.lookup(hash(number))));
}

/// A block in use takes room from LRU, and its old place takes none. So LRU has the inactive blocks, as
/// we have, until a new one comes.
#[test]
fn block_in_use_takes_room_from_lru_once() {
    type Take = for<'p> fn(&'p BlockPool, u64) -> Option<ImmutableBlock<'p>>;
    let ways: [(&str, Take); 2] = [
        ("used", |pool, number| pool.lookup(hash(number))),
        ("held and not used", |pool, number| pool.find(hash(number))),
    ];
    for (way, take) in ways {
        let pool = pool();
        let all: Vec<BlockRef> = (0..100).map(|number| store(&pool, number)).collect();
        let held: Vec<_> = (50..100).map(|number| take(&pool, number)).collect();
        go_round(&pool, 1);
        assert!(lru_has(&pool, all[0]), "{way}: it waits still");
        let waiting = if way == "used" { 50 } else { 100 };
        assert_eq!(policy(&pool).books(), Some([waiting, 0, 0, waiting]), "{way}");
        drop(held);
        go_round(&pool, 1);
        assert!(lru_has(&pool, all[0]), "{way}: none has come");
        assert_eq!(policy(&pool).books(), Some([100, 0, 0, 100]), "{way}");
    }
}

/// A new block takes a place of LRU's, too: LRU loses its oldest, though we have evicted another.
#[test]
fn new_block_takes_room_from_lru() {
    let pool = pool();
    let all: Vec<BlockRef> = (0..100).map(|number| store(&pool, number)).collect();
    (10..40).for_each(|number| drop(pool.evict_this(all[number]).expect("nobody holds it")));
    (100..130).for_each(|number| _ = store(&pool, number));
    go_round(&pool, 129);
    assert!(!lru_has(&pool, all[0]), "30 have come, and it was the oldest");
    assert!(lru_has(&pool, all[45]), "and it was not among the first 30");
}

/// The shadow tracks no blocks of other priorities, in use or not; they take room.
#[test]
fn block_of_another_priority_takes_room() {
    let pool = pool();
    let all: Vec<BlockRef> = (0..100).map(|number| store(&pool, number)).collect();
    for number in 60..100 {
        pool.find(hash(number)).expect("registered").set_priority(Priority::High);
    }
    let held: Vec<_> = (80..100).map(|number| pool.lookup(hash(number))).collect();
    go_round(&pool, 1);
    assert!(lru_has(&pool, all[0]));
    assert_eq!(policy(&pool).books(), Some([60, 0, 0, 60]));
    drop(held);
    assert_eq!(policy(&pool).books(), Some([60, 0, 0, 60]));
}

/// A block that another evictor chooses is a ghost like one that we choose: LRU may have hit it.
#[test]
fn block_evicted_by_another_caller_becomes_a_ghost() {
    let pool = pool();
    let all: Vec<BlockRef> = (0..100).map(|number| store(&pool, number)).collect();
    drop(pool.evict_this(all[50]).expect("nobody holds it"));
    assert_eq!(policy(&pool).books(), Some([100, 1, 0, 99]));
    store(&pool, 50);
    assert_eq!(policy(&pool).books(), Some([100, 0, 1, 100]), "a hit of LRU's");
    drop(pool.take_out(all[51]).expect("nobody holds it"));
    assert_eq!(policy(&pool).books(), Some([99, 0, 1, 99]), "LRU loses it with us");
}

/// A touch is no use: the block becomes the youngest of its class, and its wait counts from its last use.
#[test]
fn touch_is_not_counted_as_use() {
    let pool = pool();
    let blocks: Vec<BlockRef> = (0..100).map(|number| store(&pool, number)).collect();
    let sampled = blocks.iter().position(|block| policy(&pool).notes(block.id.0).is_sampled());
    let number = sampled.expect("one of sixteen");
    let block = blocks[number];
    let turns = || policy(&pool).notes(block.id.0).get(TURNS);
    let hits = || policy(&pool).journal.learn(|learner, _| learner.hits()).expect("nobody else learns");
    let touch = || {
        let mut there = Vec::new();
        assert_eq!(pool.touch_refs(&[hash(number as u64)], &mut there), 1);
        there
    };
    go_round(&pool, (number as u64 + 1) % 100);
    pool.release_refs(touch());
    assert_eq!((turns(), policy(&pool).books()), (1, Some([100, 0, 0, 100])));
    let mut victims = Vec::new();
    pool.next_victims(100, &mut victims);
    assert_eq!(victims.last().map(|victim| victim.0), Some(block), "the youngest of its class");
    let before = hits();
    drop(pool.lookup(hash(number as u64)));
    policy(&pool).books();
    let more = hits().into_iter().zip(before).position(|(now, before)| now > before);
    let age = more.map(|bucket| Ages::new(100).span(bucket).0);
    assert_eq!((turns(), age >= Some(100)), (2, true), "one use, at the age it has: {age:?}");
    // Touched and used before its release.
    let there = touch();
    drop(pool.lookup(hash(number as u64)));
    drop(pool.lookup(hash(number as u64)));
    assert_eq!(turns(), 3, "once");
    pool.release_refs(there);
    assert_eq!(policy(&pool).books(), Some([100, 0, 0, 100]));
}

/// The statistics match the shadow's figures: one block that LRU has and we have not, and a request for it.
#[test]
fn reuse_stats_match_the_figures_of_the_shadow() {
    let pool = pool();
    let stats = |pool: &BlockPool| {
        policy(pool).books();
        go_round(pool, 1);
        pool.reuse_stats().expect("under this policy")
    };
    assert_eq!(
        BlockPool::new(PoolConfig::new(100)).expect("a valid setup").reuse_stats(),
        None,
        "LRU itself"
    );
    let all: Vec<BlockRef> = (0..100).map(|number| store(&pool, number)).collect();
    let at_first = stats(&pool);
    assert_eq!((at_first.ahead, at_first.ghosts, at_first.setbacks, at_first.unheard), (0, 0, 0, 0));
    assert!(at_first.ghosts_allowed > 0, "the first try has a stake");
    // The youngest goes by another's choice: LRU would still have it.
    drop(pool.evict_this(all[99]).expect("nobody holds it"));
    let at_once = pool.reuse_stats().expect("under this policy");
    assert_eq!(at_once.ghosts_allowed, at_first.ghosts_allowed - 1, "before anybody has heard of it");
    let one = stats(&pool);
    assert_eq!((one.ahead, one.ghosts), (0, 1));
    _ = store(&pool, 99);
    let hit = stats(&pool);
    assert_eq!((hit.ahead, hit.ghosts), (-1, 0), "LRU would have had it");
}

/// A block that is being copied, again and again while its only child comes, is no trunk;
/// one with five children is.
#[test]
fn lease_is_not_counted_as_sibling() {
    let pool = pool();
    let above = store(&pool, 0);
    let add = |number: u64| {
        let mut blocks = Vec::new();
        pool.allocate(1, &mut blocks).expect("there is room");
        let complete = blocks.pop().expect("one").complete(hash(number)).expect("a new block is Reset");
        let held = pool.find(hash(0)).expect("it is there");
        pool.register(complete, Some(&held)).into_block().downgrade()
    };
    let is_trunk = || policy(&pool).notes(above.id.0).is(TRUNK);
    for number in 1..10 {
        assert!(pool.lease(above) && pool.lease(above));
        let child = add(number);
        pool.end_lease(above);
        pool.end_lease(above);
        assert!(pool.unregister(child).is_ok() && !is_trunk(), "{number}");
    }
    (10..14).for_each(|number| _ = add(number));
    assert!(!is_trunk());
    add(14);
    assert!(is_trunk());
}
