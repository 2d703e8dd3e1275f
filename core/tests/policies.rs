//! Policies against a plain reading of their papers, on a long skewed trace: the same victims in the
//! same order. For ARC and 2Q a request's victims differ from a block's many times: they are in
//! `policy_requests.rs`, S3-FIFO is in both.

use kvstrata_core::*;
use std::collections::{HashMap, VecDeque};

/// The smallest pool; sizes that no tenth, quarter or bitmap word divides; one that
/// all divide; several words.
const CAPACITIES: [usize; 5] = [1, 7, 19, 100, 333];

fn hash(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

/// A skewed trace with one-hit wonders and phases, then also loops that are too long: numbers of the
/// requested blocks.
fn trace(capacity: usize) -> impl Iterator<Item = u64> {
    let of_capacity = move |percent: u64| percent * capacity as u64 / 100;
    let mut state = 0x1234_5678_9abc_def1u64;
    (0..60_000u64).map(move |i| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
        let skewed = |blocks: f64| match state.is_multiple_of(5) {
            true => 1_000_000 + i,
            false => (blocks * uniform * uniform * uniform) as u64,
        };
        match i / 300 % 3 {
            _ if i < 30_000 => skewed(4.0 * capacity as f64) + i / 10_000 * of_capacity(50),
            0 => 5000 + i % (of_capacity(190) + 1),
            1 => skewed(0.9 * capacity as f64),
            _ => 5000 + i % (of_capacity(120) + 1),
        }
    })
}

/// Runs the trace, one block at a time. Returns the victims in their order.
fn victims_of_pool(policy: Policy, capacity: usize) -> Vec<u64> {
    let pool = BlockPool::new(PoolConfig::new(capacity as u32).policy(policy)).expect("a valid setup");
    let (mut blocks, mut victims, mut gone) = (vec![], vec![], vec![]);
    let numbers: HashMap<SequenceHash, u64> = trace(capacity).map(|number| (hash(number), number)).collect();
    for number in trace(capacity) {
        if pool.lookup(hash(number)).is_some() {
            continue;
        }
        if pool.free() == 0 {
            pool.evict(1, &mut victims);
            gone.extend(victims.drain(..).map(|victim| numbers[&victim.hash()]));
        }
        pool.allocate(1, &mut blocks).expect("one was evicted");
        let complete = blocks.pop().expect("one").complete(hash(number)).expect("a new block is Reset");
        drop(pool.register(complete, None));
    }
    gone
}

#[track_caller]
fn assert_same<O: FnMut(u64) -> Option<u64>>(policy: Policy, oracle: impl Fn(usize) -> O) {
    for capacity in CAPACITIES {
        let expected: Vec<u64> = trace(capacity).filter_map(oracle(capacity)).collect();
        let found = victims_of_pool(policy, capacity);
        assert!(expected.len() > 10_000, "the trace evicts");
        if let Some(at) = (0..expected.len().min(found.len())).find(|i| expected[*i] != found[*i]) {
            panic!("{policy}, {capacity} blocks: victim {at} is {}, should be {}", found[at], expected[at]);
        }
        assert_eq!(found.len(), expected.len(), "{policy}, {capacity} blocks: victims");
    }
}

#[test]
fn lru_victims_match_the_oracle() {
    assert_same(Policy::Lru, |capacity| {
        let mut order: VecDeque<u64> = VecDeque::new();
        move |number| {
            let hit = order.iter().position(|other| *other == number);
            if let Some(at) = hit {
                order.remove(at);
            }
            order.push_back(number);
            if hit.is_none() && order.len() > capacity { order.pop_front() } else { None }
        }
    });
}

#[test]
fn lfu_victims_match_the_oracle() {
    assert_same(Policy::Lfu, |capacity| {
        // Worth: age at the last use plus uses, the first included, at most 15; ties by recency.
        let (mut known, mut age, mut clock) = (HashMap::<u64, (u64, u64, u64)>::new(), 0, 0u64);
        move |number| {
            clock += 1;
            if let Some((uses, worth, stamp)) = known.get_mut(&number) {
                *uses = (*uses + 1).min(15);
                (*worth, *stamp) = (age + *uses, clock);
                return None;
            }
            let mut victim = None;
            if known.len() == capacity {
                let (first, (_, worth, _)) =
                    known.iter().min_by_key(|(_, (_, worth, stamp))| (*worth, *stamp)).expect("full");
                (victim, age) = (Some(*first), *worth);
                known.remove(&victim.expect("just set"));
            }
            known.insert(number, (1, age + 1, clock));
            victim
        }
    });
}

/// A block that was popular and is used no more leaves, though all new ones are used once.
#[test]
fn lfu_ages_by_blocks_used_once() {
    let family = Family::new();
    for popular in 0..4 {
        drop(family.store(popular, None));
        family.hit(popular, 5);
    }
    // The first four fill the pool; the later ones come four at a time, worth one
    // more than those before them.
    let mut left = vec![];
    for number in 4..40 {
        if family.pool.free() == 0 {
            left.extend(family.evict(1, false));
        }
        drop(family.store(number, None));
    }
    let popular: Vec<usize> =
        (0..4).filter_map(|number| left.iter().position(|gone| *gone == number)).collect();
    assert_eq!(popular, [20, 21, 22, 23], "worth 6, and older than what is worth as much: {left:?}");
}

#[test]
fn sieve_victims_match_the_oracle() {
    assert_same(Policy::Sieve, |capacity| {
        // Oldest first; `hand` is the index to look at next.
        let (mut queue, mut hand) = (Vec::<(u64, bool)>::new(), 0);
        move |number| {
            if let Some(entry) = queue.iter_mut().find(|(other, _)| *other == number) {
                entry.1 = true;
                return None;
            }
            let mut victim = None;
            if queue.len() == capacity {
                loop {
                    if hand >= queue.len() {
                        hand = 0;
                    }
                    if !std::mem::take(&mut queue[hand].1) {
                        break;
                    }
                    hand += 1;
                }
                victim = Some(queue.remove(hand).0);
            }
            queue.push((number, false));
            victim
        }
    });
}

#[test]
fn s3fifo_victims_match_the_oracle() {
    assert_same(Policy::S3Fifo, |capacity| {
        let [mut small, mut main, mut ghosts] = std::array::from_fn(|_| VecDeque::<u64>::new());
        let mut heat = HashMap::<u64, u8>::new();
        move |number| {
            if let Some(heat) = heat.get_mut(&number) {
                *heat = (*heat + 1).min(3);
                return None;
            }
            let mut victim = None;
            if small.len() + main.len() == capacity {
                if small.len() >= (capacity / 10).max(1) {
                    while let Some(first) = small.pop_front() {
                        if heat[&first] <= 1 {
                            victim = Some(first);
                            ghosts.push_back(first);
                            if ghosts.len() > capacity * 9 / 10 {
                                ghosts.pop_front();
                            }
                            break;
                        }
                        heat.insert(first, 0);
                        main.push_back(first);
                    }
                }
                while victim.is_none() {
                    let first = main.pop_front().expect("small is short of a tenth, or was promoted");
                    match heat[&first] {
                        0 => victim = Some(first),
                        left => {
                            heat.insert(first, left - 1);
                            main.push_back(first);
                        }
                    }
                }
                heat.remove(&victim.expect("the loop's end"));
            }
            let ghost = ghosts.iter().position(|other| *other == number);
            let list = if ghost.and_then(|at| ghosts.remove(at)).is_some() { &mut main } else { &mut small };
            list.push_back(number);
            heat.insert(number, 0);
            victim
        }
    });
}

/// To hold a block by its number, for example to copy it, is no use of it: it may become the youngest,
/// but gains no worth. Under LRU and 2Q no block ever gains worth, and reuse has a test of its own.
#[test]
fn hold_by_number_is_not_counted_as_use() {
    for policy in [Policy::Lfu, Policy::Sieve, Policy::S3Fifo, Policy::Arc] {
        let pool = BlockPool::new(PoolConfig::new(4).policy(policy)).expect("a valid setup");
        let mut blocks = vec![];
        pool.allocate(4, &mut blocks).expect("four for four");
        let mut weak = vec![];
        for (number, block) in (0..).zip(blocks.drain(..)) {
            let complete = block.complete(hash(number)).expect("a new block is Reset");
            weak.push(pool.register(complete, None).into_block().downgrade());
        }
        (0..2).for_each(|_| drop(pool.lookup(hash(1))));
        // After the used one: if this were a use too, it would have the highest worth, and be the last.
        (0..3).for_each(|_| drop(pool.upgrade(weak[0]).expect("registered")));
        let mut victims = vec![];
        pool.evict(4, &mut victims);
        let victims: Vec<SequenceHash> = victims.iter().map(|victim| victim.hash()).collect();
        // The FIFO family leaves it where it is.
        let order = match policy {
            Policy::Sieve | Policy::S3Fifo => [0, 2, 3, 1],
            _ => [2, 3, 0, 1],
        };
        assert_eq!(victims, order.map(hash), "{policy}");
    }
}

/// Lower classes go first, pinned blocks never, children before parents; under every policy.
#[test]
fn victims_of_any_policy_respect_class_pin_and_children() {
    for policy in Policy::ALL {
        let pool = BlockPool::new(PoolConfig::new(8).policy(policy)).expect("a valid setup");
        let store = |number: u64, priority: Priority, parent: Option<&ImmutableBlock<'_>>| {
            let mut blocks = vec![];
            pool.allocate(1, &mut blocks).expect("eight for eight");
            let complete = blocks.pop().expect("one").complete(hash(number)).expect("a new block is Reset");
            // The parent's pool is this one.
            let parent = parent.map(|parent| pool.lookup(parent.hash()).expect("held"));
            let block = pool.register(complete, parent.as_ref()).into_block();
            block.set_priority(priority);
            block
        };
        drop(store(0, Priority::Pinned, None));
        drop(store(1, Priority::High, None));
        drop(store(2, Priority::Normal, None));
        drop(store(3, Priority::Low, None));
        // A parent that is older than its child, and released first.
        let parent = store(4, Priority::Low, None);
        let child = store(5, Priority::Low, Some(&parent));
        drop((parent, child));
        let mut victims = vec![];
        while pool.evict(1, &mut victims) == 1 {}
        let order: Vec<u64> = victims
            .iter()
            .map(|victim| (0..8).find(|n| hash(*n) == victim.hash()).expect("stored"))
            .collect();
        assert_eq!(order, [3, 5, 4, 2, 1], "{policy}");
        assert!(pool.contains(hash(0)), "{policy}: pinned");
        // Once it is not pinned any more it can go.
        pool.lookup(hash(0)).expect("registered").set_priority(Priority::Normal);
        assert_eq!(pool.evict(1, &mut victims), 1, "{policy}");
    }
}

/// A parent that has waited for its child is worth the age, at most: it gains no worth
/// when the wheel has turned.
#[test]
fn lfu_parent_after_waiting_is_worth_the_age() {
    let pool = BlockPool::new(PoolConfig::new(8).policy(Policy::Lfu)).expect("a valid setup");
    fn store<'p>(
        pool: &'p BlockPool,
        number: u64,
        parent: Option<&ImmutableBlock<'p>>,
    ) -> ImmutableBlock<'p> {
        let mut blocks = vec![];
        pool.allocate(1, &mut blocks).expect("enough");
        let complete = blocks.pop().expect("one").complete(hash(number)).expect("a new block is Reset");
        pool.register(complete, parent).into_block()
    }
    let evict = || {
        let mut victims = vec![];
        assert_eq!(pool.evict(1, &mut victims), 1);
        victims[0].hash()
    };
    let use_it = |number, times| (0..times).for_each(|_| drop(pool.lookup(hash(number))));
    let [parent, child, dear, dearer] = [1, 2, 3, 4];
    let held = store(&pool, parent, None);
    let of_child = store(&pool, child, Some(&held));
    drop(held);
    drop(store(&pool, dear, None));
    use_it(dear, 3);
    assert_eq!(evict(), hash(dear), "the parent, worth 1, waits for its child; the age is 4 now");
    drop(store(&pool, dearer, None));
    use_it(dearer, 1);
    drop(of_child);
    assert_eq!(evict(), hash(child), "worth 5");
    assert_eq!(evict(), hash(parent), "worth 1, long ago");
    assert_eq!(evict(), hash(dearer), "worth 6");
}

/// A pool of LFU and the worth of its blocks, for parents and children.
struct Family {
    pool: BlockPool,
}

impl Family {
    fn new() -> Family {
        Family { pool: BlockPool::new(PoolConfig::new(8).policy(Policy::Lfu)).expect("a valid setup") }
    }

    fn store<'p>(&'p self, number: u64, parent: Option<&ImmutableBlock<'p>>) -> ImmutableBlock<'p> {
        let mut blocks = vec![];
        self.pool.allocate(1, &mut blocks).expect("enough");
        let complete = blocks.pop().expect("one").complete(hash(number)).expect("a new block is Reset");
        self.pool.register(complete, parent).into_block()
    }

    fn hit(&self, number: u64, times: usize) {
        (0..times).for_each(|_| drop(self.pool.lookup(hash(number))));
    }

    /// The next victims, one at a time or together.
    fn evict(&self, n: usize, together: bool) -> Vec<u64> {
        let mut victims = vec![];
        for _ in 0..if together { 1 } else { n } {
            self.pool.evict(if together { n } else { 1 }, &mut victims);
        }
        let number = |victim: &EvictedBlock| (0..64).find(|number| hash(*number) == victim.hash());
        victims.iter().map(|victim| number(victim).expect("a small number")).collect()
    }
}

/// A parent worth less than its child goes right after it, also if the child is worth more than the age.
#[test]
fn lfu_parent_follows_its_child() {
    for [of_parent, of_child] in [[1, 3], [3, 3]] {
        let family = Family::new();
        let parent = family.store(1, None);
        drop((family.store(2, Some(&parent)), parent));
        drop(family.store(3, None));
        family.hit(1, of_parent);
        family.hit(2, of_child);
        family.hit(3, 5);
        assert_eq!(family.evict(3, false), [2, 1, 3], "hit {of_parent}, {of_child} and 5 times");
    }
    for together in [false, true] {
        let family = Family::new();
        let first = family.store(1, None);
        let second = family.store(2, Some(&first));
        let third = family.store(3, Some(&second));
        drop((first, second, third));
        drop(family.store(4, None));
        (1..4).for_each(|number| family.hit(number, 2));
        family.hit(4, 4);
        assert_eq!(family.evict(4, together), [3, 2, 1, 4]);
    }
}

/// A parent that was used since it was deferred is worth its uses.
#[test]
fn lfu_parent_used_since_its_wait_is_worth_its_uses() {
    let family = Family::new();
    let parent = family.store(1, None);
    let child = family.store(2, Some(&parent));
    drop(parent);
    drop(family.store(3, None));
    family.hit(3, 1);
    assert_eq!(family.evict(1, false), [3], "the parent, worth 1, waits");
    drop(child);
    family.hit(1, 8);
    drop(family.store(4, None));
    family.hit(4, 3);
    assert_eq!(family.evict(3, false), [2, 4, 1]);
}

/// A hold that is no use does not delay a block's eviction, and a use keeps the block.
#[test]
fn reuse_hold_does_not_delay_eviction_and_use_does() {
    let pool = BlockPool::new(PoolConfig::new(8).policy(Policy::Reuse)).expect("a valid setup");
    for number in 0..4 {
        let mut blocks = vec![];
        pool.allocate(1, &mut blocks).expect("four of eight");
        let complete = blocks.pop().expect("one").complete(hash(number)).expect("a new block is Reset");
        drop(pool.register(complete, None));
    }
    drop(pool.find(hash(0)));
    let second = pool.find(hash(1)).expect("it is there");
    drop(pool.upgrade(second.downgrade()));
    drop(second);
    let order = |pool: &BlockPool| {
        let mut next = vec![];
        pool.next_victims(8, &mut next);
        next.into_iter().map(|(_, hash)| hash).collect::<Vec<_>>()
    };
    assert_eq!(order(&pool), [0, 1, 2, 3].map(hash), "nobody used any");
    drop(pool.lookup(hash(0)));
    // Used while a caller holds it without using it.
    let held = pool.find(hash(1));
    drop(pool.lookup(hash(1)));
    drop(held);
    assert_eq!(order(&pool), [2, 3, 0, 1].map(hash));
    let mut victims = vec![];
    pool.evict(4, &mut victims);
    assert_eq!(victims.iter().map(EvictedBlock::hash).collect::<Vec<_>>(), [2, 3, 0, 1].map(hash));
}

/// Conversations that come back once in four, among others that never do: reuse has
/// more hits on them than LRU.
#[test]
fn reuse_with_returning_conversations_beats_lru() {
    let hits = |policy| {
        let pool = BlockPool::new(PoolConfig::new(200).policy(policy).lanes(1).lane_of(|| 0))
            .expect("a valid setup");
        let (mut hits, mut fresh, mut complete, mut held) = (0, vec![], vec![], vec![]);
        for round in 0..20_000u64 {
            // Eight conversations in turn, each of ten blocks, and between two of them three of ten
            // blocks that are never requested again.
            let of = if round.is_multiple_of(4) { round / 4 % 8 } else { 100 + round };
            let hashes: Vec<SequenceHash> = (0..10).map(|block| hash(of * 10 + block)).collect();
            let found = pool.match_prefix(&hashes, &mut held);
            hits += found;
            pool.allocate(10 - found, &mut fresh).expect("nobody else has any");
            for (block, hash) in fresh.drain(..).zip(&hashes[found..]) {
                complete.push(block.complete(*hash).expect("a new block is Reset"));
            }
            let parent = held.last().cloned();
            pool.register_sequence(&mut complete, parent.as_ref(), &mut held);
            drop(parent);
            pool.release(held.drain(..).rev());
        }
        hits
    };
    let [lru, reuse] = [Policy::Lru, Policy::Reuse].map(hits);
    assert!(lru == 0 && reuse > 25_000, "LRU {lru}, reuse {reuse} of 50,000");
}
