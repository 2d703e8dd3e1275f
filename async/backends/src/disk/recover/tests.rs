//! Recovery from good and bad records.

use super::*;
use kvstrata_core::{BlockRef, EventSink, PoolConfig, SequenceHash};
use kvstrata_ffi::disk::{Label, Name};
use std::cell::RefCell;
use std::sync::{Arc, Mutex};

fn hash(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number) << 32 | 1)
}

fn record(slot: u32, number: u64, parent: Option<u64>, sequence: u64) -> Recovered {
    let owner = OwnerId(number % 3);
    let label = Name { hash: hash(number), parent: parent.map(hash), owner }.into();
    Recovered { slot, label, sequence, payload_bytes: 1 }
}

type Heard = Arc<Mutex<Vec<(SequenceHash, Option<u32>)>>>;

/// Remembers stored blocks, with their parents' block numbers.
struct Sink(Heard);

impl EventSink for Sink {
    fn stored(&self, _block: BlockRef, hash: SequenceHash, parent: Option<BlockRef>) {
        self.0.lock().expect("no panic").push((hash, parent.map(|parent| parent.id.0)));
    }

    fn removed(&self, _block: BlockRef, _hash: SequenceHash) {}
}

fn pool(blocks: u32) -> (BlockPool, Heard) {
    let heard = Heard::default();
    let config = PoolConfig::new(blocks).events(Box::new(Sink(Arc::clone(&heard))));
    (BlockPool::new(config).expect("possible"), heard)
}

/// Recovers, and checks that nothing is lost or held. Returns the number of recovered blocks, and the
/// forgotten slots.
fn recover(pool: &BlockPool, blocks: &[Recovered], linked: bool) -> (u64, Vec<u32>) {
    let forgotten = RefCell::new(Vec::new());
    let (recovered, owners) = register(pool, blocks, linked, &|slot| forgotten.borrow_mut().push(slot));
    let census = pool.census();
    assert_eq!((census.active, census.owned), (0, 0), "I1");
    assert_eq!(census.inactive as u64, recovered);
    assert_eq!(census.free + census.inactive, pool.capacity());
    let registered = |block: &&Recovered| {
        pool.registered(BlockId(block.slot)).is_some_and(|(_, hash)| hash == block.label.hash)
    };
    let whose = blocks.iter().filter(registered).map(|block| (BlockId(block.slot), block.label.owner));
    let whose: HashMap<_, _> = whose.filter(|(_, owner)| *owner != OwnerId::NONE).collect();
    assert_eq!((owners.len(), owners.into_iter().collect::<HashMap<_, _>>()), (whose.len(), whose));
    (recovered, forgotten.into_inner())
}

/// Returns the hashes of all blocks in eviction order.
fn eviction_order(pool: &BlockPool) -> Vec<SequenceHash> {
    let mut victims = Vec::new();
    while pool.evict(1, &mut victims) > 0 {}
    victims.iter().map(|victim| victim.hash()).collect()
}

#[test]
fn recovered_blocks_keep_slots_and_leave_by_age() {
    for linked in [false, true] {
        let (pool, _) = pool(100);
        let slots = [17, 3, 99, 0, 50];
        let blocks: Vec<_> = slots.iter().zip(0..).map(|(slot, n)| record(*slot, n, None, n)).collect();
        assert_eq!(recover(&pool, &blocks, linked), (5, vec![]));
        let mut victims = Vec::new();
        while pool.evict(1, &mut victims) > 0 {}
        let left: Vec<_> = victims.iter().map(|victim| (victim.id().0, victim.hash())).collect();
        assert_eq!(left, slots.into_iter().zip([0, 1, 2, 3, 4].map(hash)).collect::<Vec<_>>());
    }
}

#[test]
fn empty_volume_leaves_an_empty_pool() {
    let (pool, heard) = pool(3);
    assert_eq!(recover(&pool, &[], true), (0, vec![]));
    assert!(heard.lock().expect("no panic").is_empty());
}

#[test]
fn parents_written_after_their_children_are_named_in_the_events() {
    let (pool, heard) = pool(10);
    // Tail first, as blocks come down: 2 follows 1 follows 0; 5 follows 4, which is absent.
    let blocks = [
        record(7, 2, Some(1), 10),
        record(5, 1, Some(0), 11),
        record(1, 5, Some(4), 12),
        record(3, 0, None, 13),
    ];
    assert_eq!(recover(&pool, &blocks, true), (4, vec![]));
    let stored = heard.lock().expect("no panic").clone();
    assert_eq!(stored, [(hash(0), None), (hash(1), Some(3)), (hash(2), Some(5)), (hash(5), None)]);
    assert_eq!(eviction_order(&pool), [2, 1, 5, 0].map(hash), "as old as they were");
}

#[test]
fn unlinked_blocks_have_no_parents() {
    let (pool, heard) = pool(10);
    recover(&pool, &[record(7, 2, Some(1), 10), record(5, 1, None, 11)], false);
    assert_eq!(*heard.lock().expect("no panic"), [(hash(2), None), (hash(1), None)]);
}

/// Two hashes with one key: XXH3 promises nothing against a search for them.
fn twins() -> [SequenceHash; 2] {
    // XXH3 mixes short inputs with these: then one half is 0, and the rest is added to the other half's
    // bytes, reversed.
    let (low, high) = (0x6782_737b_ea42_39b9, 0xaf56_bc3b_0996_523a);
    let of = |low: u64, high: u64| SequenceHash::from_u128(u128::from(high) << 64 | u128::from(low));
    [of(low, high ^ 77), of(low ^ 77_u64.swap_bytes(), high)]
}

#[test]
fn key_of_two_hashes_links_only_the_one_written_next() {
    let [one, other] = twins();
    assert!(one != other && HashKey::of(one) == HashKey::of(other));
    let of = |slot, hash, parent: Option<SequenceHash>| Recovered {
        slot,
        label: Label { hash, parent: parent.and_then(HashKey::of), owner: OwnerId::NONE },
        sequence: slot.into(),
        payload_bytes: 1,
    };
    for (blocks, linked) in [
        // The child's parent is `other`; `one` may come before or after it.
        (vec![of(0, hash(0), Some(other)), of(1, hash(1), None), of(2, one, None), of(3, other, None)], None),
        (vec![of(0, one, None), of(1, other, None), of(2, hash(0), Some(other))], None),
        (vec![of(0, one, None), of(1, hash(0), Some(other)), of(2, other, None)], Some(2)),
    ] {
        let (pool, heard) = pool(10);
        recover(&pool, &blocks, true);
        let heard = heard.lock().expect("no panic").clone();
        assert!(heard.contains(&(hash(0), linked)), "{heard:?}");
        assert_eq!(heard.len(), blocks.len());
    }
}

#[test]
fn parents_in_a_circle_are_recovered() {
    let (pool, _) = pool(10);
    let blocks = [
        record(0, 0, Some(2), 1),
        record(1, 1, Some(0), 2),
        record(2, 2, Some(1), 3),
        record(3, 3, Some(3), 4),
    ];
    assert_eq!(recover(&pool, &blocks, true), (4, vec![]));
    assert_eq!(eviction_order(&pool).len(), 4, "all of them can leave");
}

#[test]
fn duplicate_and_misplaced_records_are_left_out() {
    for linked in [false, true] {
        let (pool, _) = pool(4);
        let blocks = [
            record(0, 7, None, 1),
            record(1, 7, None, 2),
            record(0, 8, None, 3),
            record(4, 9, None, 4),
            record(u32::MAX, 10, Some(7), 5),
        ];
        assert_eq!(recover(&pool, &blocks, linked), (1, vec![1]));
        assert!(pool.contains(hash(7)) && !pool.contains(hash(8)) && !pool.contains(hash(9)));
    }
}

#[test]
fn long_chain_is_recovered_without_deep_recursion() {
    let (pool, heard) = pool(200_000);
    let parent = |n: u64| (n < 199_999).then_some(n + 1);
    let blocks: Vec<_> = (0..200_000).map(|n| record(n as u32, n, parent(n), n)).collect();
    assert_eq!(recover(&pool, &blocks, true), (200_000, vec![]));
    let parents = heard.lock().expect("no panic").iter().filter(|(_, parent)| parent.is_some()).count();
    assert_eq!(parents, 199_999);
}
