//! One model of the pool for property tests and fuzzing: a string of [`Operation`]s, run on a [`BlockPool`] and on an oracle
//! made of a map and a list, and compared after each.
//!
//! The oracle knows all but the order in which policies other than LRU evict: there it checks that the victims were allowed to go
//! (unreferenced, unpinned, no resident child, nothing of a lower class left), and takes note of them.

use kvstrata_core::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Hashes, classes and numbers are taken modulo what there is, so every string of operations makes sense.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Allocate blocks and drop them again, every other one after filling it partly.
    AllocateAndDrop { count: u8 },
    /// Allocate, complete and register a chain of hashes `from, from + 1, …`, each the parent of the next; keep the references.
    Store { from: u8, count: u8 },
    /// The same, evicting by hand first.
    EvictThenStore { evict: u8, from: u8, count: u8 },
    /// Match a prefix and keep the references.
    Match { from: u8, count: u8 },
    /// Match in any position and keep the references.
    MatchAny { from: u8, step: u8 },
    /// Release some of the references held: the youngest, tail first, or the oldest, head first.
    Release { count: u8, tail_first: bool },
    /// Drop one reference.
    DropOne { which: u8 },
    /// Copy one reference.
    CloneOne { which: u8 },
    /// Set a held block's class.
    SetPriority { which: u8, class: u8 },
    /// Withdraw a hash's registration.
    Unregister { hash: u8 },
    /// Upgrade a weak reference taken earlier.
    Upgrade { which: u8 },
}

/// How the pool is built.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub policy: Policy,
    pub capacity: u8,
    pub page_size: u8,
}

struct Known {
    references: u32,
    parent: Option<(u64, BlockRef)>,
    children: u32,
    priority: Priority,
    /// When it became inactive last.
    stamp: u64,
    weak: BlockRef,
}

struct Oracle {
    policy: Policy,
    known: BTreeMap<u64, Known>,
    by_block: HashMap<u32, u64>,
    clock: u64,
    capacity: usize,
}

fn hash(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

impl Oracle {
    fn inactive(&self) -> usize {
        self.known.values().filter(|known| known.references == 0).count()
    }

    fn free(&self) -> usize {
        self.capacity - self.known.len()
    }

    fn evictable(&self) -> BTreeMap<(Priority, u64), u64> {
        let may_go = |known: &Known| {
            known.references == 0 && known.children == 0 && known.priority != Priority::Pinned
        };
        let key = |(hash, known): (&u64, &Known)| ((known.priority, known.stamp), *hash);
        self.known.iter().filter(|(_, known)| may_go(known)).map(key).collect()
    }

    /// A victim left: was it allowed to, and in LRU, was it its turn? `in_order`: victims are told in the pool's order.
    fn evicted(&mut self, hash: u64, in_order: bool) {
        let evictable = self.evictable();
        let ((class, _), first) = evictable.first_key_value().expect("something was evictable");
        let place = evictable.iter().find(|(_, other)| **other == hash);
        let ((victim_class, _), _) = place.unwrap_or_else(|| panic!("hash {hash} was not evictable"));
        if self.policy == Policy::Lru {
            assert_eq!(*first, hash, "LRU order");
        }
        if in_order && matches!(self.policy, Policy::Lru | Policy::Lfu) {
            assert_eq!(class, victim_class, "a lower class was left");
        }
        self.forget(hash);
    }

    fn forget(&mut self, hash: u64) {
        let gone = self.known.remove(&hash).expect("known");
        self.by_block.remove(&gone.weak.id.0);
        if let Some((parent, weak)) = gone.parent
            && let Some(parent) = self.known.get_mut(&parent).filter(|parent| parent.weak == weak)
        {
            parent.children -= 1;
        }
    }

    /// A block that outlived its parent gets the one that its sequence has now.
    fn adopt_orphan(&mut self, child: u64, parent: Option<(u64, BlockRef)>) {
        let orphaned = self.known[&child]
            .parent
            .is_some_and(|(old, weak)| self.known.get(&old).is_none_or(|known| known.weak != weak));
        if let Some((number, _)) = parent.filter(|(number, _)| orphaned && *number != child) {
            self.known.get_mut(&number).expect("held").children += 1;
            self.known.get_mut(&child).expect("held").parent = parent;
        }
    }

    fn acquired(&mut self, hash: u64) {
        self.known.get_mut(&hash).expect("known").references += 1;
    }

    fn released(&mut self, hash: u64) {
        self.clock += 1;
        let known = self.known.get_mut(&hash).expect("known");
        known.references -= 1;
        if known.references == 0 {
            known.stamp = self.clock;
        }
    }
}

struct Run<'p> {
    pool: &'p BlockPool,
    oracle: Oracle,
    held: Vec<(u64, ImmutableBlock<'p>)>,
    weak: Vec<(u64, BlockRef)>,
}

/// Runs operations on a pool and on the oracle; panics where they differ.
pub fn run(setup: Setup, operations: &[Operation]) {
    let capacity = u32::from(setup.capacity.max(1));
    let config =
        PoolConfig::new(capacity).policy(setup.policy).page_size(u32::from(setup.page_size.max(2))).lanes(2);
    let pool = BlockPool::new(config).expect("a valid setup");
    let oracle = Oracle {
        policy: setup.policy,
        known: BTreeMap::new(),
        by_block: HashMap::new(),
        clock: 0,
        capacity: pool.capacity(),
    };
    let mut run = Run { pool: &pool, oracle, held: vec![], weak: vec![] };
    for operation in operations {
        run.apply(*operation);
        run.check();
    }
    let held = std::mem::take(&mut run.held);
    pool.release(held.into_iter().rev().map(|(_, block)| block));
    let census = pool.census();
    assert_eq!((census.active, census.owned), (0, 0), "all was given back");
    assert_eq!(census.free + census.inactive, pool.capacity());
}

impl<'p> Run<'p> {
    fn universe(&self) -> u64 {
        (self.pool.capacity() as u64 * 2).max(4)
    }

    fn apply(&mut self, operation: Operation) {
        let universe = self.universe();
        match operation {
            Operation::AllocateAndDrop { count } => {
                let mut blocks = vec![];
                self.allocate(usize::from(count) % (self.pool.capacity() + 2), &mut blocks);
                for block in blocks.iter_mut().step_by(2) {
                    block.init_sequence(Salt::default()).expect("a new block is Reset");
                    block.add_token().expect("a page has room for one");
                }
            }
            Operation::Store { from, count } => self.store(u64::from(from) % universe, count),
            Operation::EvictThenStore { evict, from, count } => {
                self.evict(usize::from(evict % 8));
                self.store(u64::from(from) % universe, count);
            }
            Operation::Match { from, count } => {
                let wanted: Vec<u64> =
                    (0..u64::from(count % 16)).map(|i| (u64::from(from) + i) % universe).collect();
                let expected = wanted.iter().take_while(|hash| self.oracle.known.contains_key(hash)).count();
                self.matched(&wanted[..expected], &wanted, BlockPool::match_prefix);
            }
            Operation::MatchAny { from, step } => {
                let step = u64::from(step % 4) + 1;
                let wanted: Vec<u64> = (0..8).map(|i| (u64::from(from) + i * step) % universe).collect();
                let known = |hash: &u64| self.oracle.known.contains_key(hash);
                let expected: Vec<u64> = wanted.iter().copied().filter(known).collect();
                self.matched(&expected, &wanted, BlockPool::match_any);
            }
            Operation::Release { count, tail_first } => self.release(usize::from(count), tail_first),
            Operation::DropOne { which } => {
                if let Some(which) = index(which, self.held.len()) {
                    let (hash, block) = self.held.swap_remove(which);
                    drop(block);
                    self.oracle.released(hash);
                }
            }
            Operation::CloneOne { which } => {
                if let Some(which) = index(which, self.held.len()) {
                    let (hash, block) = &self.held[which];
                    let copy = (*hash, block.clone());
                    self.oracle.acquired(*hash);
                    self.held.push(copy);
                }
            }
            Operation::SetPriority { which, class } => {
                if let Some(which) = index(which, self.held.len()) {
                    let class = [Priority::Low, Priority::Normal, Priority::High, Priority::Pinned]
                        [usize::from(class % 4)];
                    let (hash, block) = &self.held[which];
                    block.set_priority(class);
                    self.oracle.known.get_mut(hash).expect("held").priority = class;
                }
            }
            Operation::Unregister { hash } => {
                let number = u64::from(hash) % universe;
                let Some(known) = self.oracle.known.get(&number) else { return };
                match self.pool.unregister(known.weak) {
                    Ok(()) => {
                        assert_eq!(known.references, 0);
                        self.oracle.forget(number);
                    }
                    Err(error) => {
                        assert_eq!(error.reason, Reason::Referenced { references: known.references });
                    }
                }
            }
            Operation::Upgrade { which } => {
                let Some(which) = index(which, self.weak.len()) else { return };
                let (hash, weak) = self.weak[which];
                let alive = self.oracle.known.get(&hash).is_some_and(|known| known.weak == weak);
                let block = self.pool.upgrade(weak);
                assert_eq!(block.is_some(), alive, "a weak reference lives as long as the registration");
                if let Some(block) = block {
                    self.oracle.acquired(hash);
                    self.held.push((hash, block));
                }
            }
        }
    }

    fn release(&mut self, count: usize, tail_first: bool) {
        let count = count.min(self.held.len());
        let start = if tail_first { self.held.len() - count } else { 0 };
        let mut released: Vec<_> = self.held.drain(start..start + count).collect();
        if tail_first {
            released.reverse();
        }
        for (hash, _) in &released {
            self.oracle.released(*hash);
        }
        self.pool.release(released.into_iter().map(|(_, block)| block));
    }

    fn matched(
        &mut self,
        expected: &[u64],
        wanted: &[u64],
        find: impl Fn(&'p BlockPool, &[SequenceHash], &mut Vec<ImmutableBlock<'p>>) -> usize,
    ) {
        let hashes: Vec<_> = wanted.iter().map(|number| hash(*number)).collect();
        let mut found = vec![];
        assert_eq!(find(self.pool, &hashes, &mut found), expected.len(), "hits");
        for (number, block) in expected.iter().zip(found) {
            assert_eq!(block.hash(), hash(*number));
            assert_eq!(block.downgrade(), self.oracle.known[number].weak);
            self.oracle.acquired(*number);
            self.held.push((*number, block));
        }
    }

    fn evict(&mut self, count: usize) {
        let mut victims = vec![];
        let evictable = self.oracle.evictable().len();
        let found = self.pool.evict(count, &mut victims);
        assert!(found >= count.min(evictable), "{found} victims, {count} asked for, {evictable} evictable");
        for victim in &victims {
            let hash = self.oracle.by_block[&victim.id().0];
            assert_eq!(victim.hash(), self::hash(hash), "a victim keeps its hash");
            self.oracle.evicted(hash, true);
        }
    }

    fn allocate(&mut self, count: usize, out: &mut Vec<MutableBlock<'p>>) -> bool {
        let before: BTreeSet<u64> = self.oracle.known.keys().copied().collect();
        let needed = count.saturating_sub(self.oracle.free());
        let result = self.pool.allocate(count, out);
        let mut gone: BTreeSet<u64> =
            before.into_iter().filter(|number| !self.pool.contains(hash(*number))).collect();
        let evicted = gone.len();
        // Taken in the oracle's own order; so for LRU the set must be the right one.
        while !gone.is_empty() {
            let evictable = self.oracle.evictable();
            let next =
                evictable.values().find(|number| gone.contains(number)).copied().expect("it was evictable");
            gone.remove(&next);
            self.oracle.evicted(next, false);
        }
        match result {
            Ok(()) => {
                assert_eq!((out.len(), evicted), (count, needed), "no more was evicted than was needed")
            }
            Err(error) => {
                assert_eq!(error.requested, count);
                assert!(error.available < count);
                assert!(out.is_empty(), "all or nothing");
            }
        }
        result.is_ok()
    }

    fn store(&mut self, from: u64, count: u8) {
        let universe = self.universe();
        let count = usize::from(count % 6).min(self.pool.capacity());
        let mut blocks = vec![];
        if !self.allocate(count, &mut blocks) {
            return;
        }
        let first = self.held.len();
        for (i, block) in blocks.into_iter().enumerate() {
            let number = (from + i as u64) % universe;
            let complete = block.complete(hash(number)).expect("a new block is Reset");
            let parent = self.held[first..].last();
            match self.pool.register(complete, parent.map(|(_, block)| block)) {
                Registered::New(block) => {
                    assert!(!self.oracle.known.contains_key(&number));
                    let weak = block.downgrade();
                    let parent = parent.map(|(number, block)| (*number, block.downgrade()));
                    if let Some((parent, _)) = &parent {
                        self.oracle.known.get_mut(parent).expect("held").children += 1;
                    }
                    let known = Known {
                        references: 1,
                        parent,
                        children: 0,
                        priority: Priority::Normal,
                        stamp: 0,
                        weak,
                    };
                    self.oracle.by_block.insert(block.id().0, number);
                    self.oracle.known.insert(number, known);
                    self.weak.push((number, weak));
                    self.held.push((number, block));
                }
                Registered::Deduplicated(block) => {
                    self.oracle.acquired(number);
                    let parent = parent.map(|(number, block)| (*number, block.downgrade()));
                    self.oracle.adopt_orphan(number, parent);
                    self.held.push((number, block));
                }
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.pool.free(), self.oracle.free(), "free blocks");
        assert_eq!(self.pool.inactive(), self.oracle.inactive(), "inactive blocks");
        let stats = self.pool.stats();
        assert_eq!(
            stats.stored - stats.removed,
            self.oracle.known.len() as u64,
            "registered = stored - removed"
        );
        assert_eq!(stats.displaced, 0);
        for (number, known) in &self.oracle.known {
            assert!(self.pool.contains(hash(*number)), "hash {number}, references {}", known.references);
        }
    }
}

fn index(which: u8, len: usize) -> Option<usize> {
    (len > 0).then(|| usize::from(which) % len)
}
