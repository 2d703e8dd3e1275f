//! Many threads on one pool. Each block has a word of "memory": its owner writes the hash there before registering, and whoever
//! holds a reference must read that hash, at first and at last. At rest nothing may be lost and nothing be in two places.
//!
//! `KVSTRATA_STRESS_ROUNDS` scales it (default 1); ThreadSanitizer and AddressSanitizer run it too (`ci/test`).

use kvstrata_core::*;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const THREADS: u64 = 4;

fn rounds() -> u64 {
    std::env::var("KVSTRATA_STRESS_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

/// xorshift64*: each thread's own dice.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }
}

fn hash(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

/// Plain words, not atomics: if the pool did not order these accesses, ThreadSanitizer would complain.
struct Memory(Vec<UnsafeCell<u64>>);

// SAFETY: a word is written only by the owner of its block, and read only by holders of a reference; that the pool
// keeps the two apart is what this test is about.
unsafe impl Sync for Memory {}

impl Memory {
    fn write(&self, block: BlockId, number: u64) {
        // SAFETY: the caller owns the block.
        unsafe { *self.0[block.index()].get() = number }
    }
    fn read(&self, block: BlockId) -> u64 {
        // SAFETY: the caller holds a reference to the block, or owns it.
        unsafe { *self.0[block.index()].get() }
    }
    fn check(&self, block: &ImmutableBlock<'_>, number: u64) {
        assert_eq!(self.read(block.id()), number, "{block:?} holds other bytes");
        assert_eq!(block.hash(), hash(number), "{block:?} has another hash");
    }
}

struct Worker<'p> {
    pool: &'p BlockPool,
    memory: &'p Memory,
    dice: Dice,
    universe: u64,
    held: Vec<(u64, ImmutableBlock<'p>)>,
    free: Vec<MutableBlock<'p>>,
    found: Vec<ImmutableBlock<'p>>,
    victims: Vec<EvictedBlock<'p>>,
    weak: Vec<(u64, BlockRef)>,
}

impl<'p> Worker<'p> {
    fn step(&mut self) {
        match self.dice.roll(16) {
            0..4 => self.store(),
            4..9 => self.find(),
            9..14 => self.release(),
            14 => self.evict(),
            _ => self.oddities(),
        }
    }

    fn store(&mut self) {
        let count = 1 + self.dice.roll(5);
        let first = self.dice.roll(self.universe);
        if self.pool.allocate(count as usize, &mut self.free).is_err() {
            return self.release();
        }
        let mut parent = None;
        for (i, block) in self.free.drain(..).enumerate() {
            let number = (first + i as u64) % self.universe;
            self.memory.write(block.id(), number);
            let complete = block.complete(hash(number)).expect("a new block is Reset");
            let block = self.pool.register(complete, parent.map(|at: usize| &self.held[at].1)).into_block();
            self.memory.check(&block, number);
            parent = Some(self.held.len());
            self.held.push((number, block));
        }
    }

    fn find(&mut self) {
        let first = self.dice.roll(self.universe);
        let numbers: Vec<u64> = (0..8).map(|i| (first + i) % self.universe).collect();
        let hashes: Vec<_> = numbers.iter().map(|number| hash(*number)).collect();
        self.pool.match_prefix(&hashes, &mut self.found);
        for (number, block) in numbers.into_iter().zip(self.found.drain(..)) {
            self.memory.check(&block, number);
            self.weak.push((number, block.downgrade()));
            self.held.push((number, block));
        }
        self.weak.truncate(64);
    }

    fn release(&mut self) {
        let count = self.dice.roll(12).min(self.held.len() as u64) as usize;
        let from = self.held.len() - count;
        for (number, block) in &self.held[from..] {
            self.memory.check(block, *number);
        }
        self.pool.release(self.held.drain(from..).rev().map(|(_, block)| block));
        if self.held.len() > 40 {
            self.held.truncate(20);
        }
    }

    fn evict(&mut self) {
        self.pool.evict(self.dice.roll(4) as usize, &mut self.victims);
        for victim in self.victims.drain(..) {
            let number = self.memory.read(victim.id());
            assert_eq!(victim.hash(), hash(number), "a victim's bytes are still its own");
        }
    }

    fn oddities(&mut self) {
        let Some((number, weak)) = self.weak.pop() else { return };
        match self.dice.roll(3) {
            0 => drop(self.pool.unregister(weak)),
            1 => {
                if let Some(block) = self.pool.upgrade(weak) {
                    self.memory.check(&block, number);
                    let class = [Priority::Low, Priority::Normal, Priority::High][self.dice.roll(3) as usize];
                    block.set_priority(class);
                }
            }
            _ => {
                if let Some(block) = self.pool.lookup(hash(number)) {
                    self.memory.check(&block, number);
                    self.held.push((number, block.clone()));
                }
            }
        }
    }
}

fn run(policy: Policy, capacity: u32, steps: u64) {
    let pool = BlockPool::new(PoolConfig::new(capacity).policy(policy).lanes(4)).expect("a valid setup");
    let memory = Memory((0..capacity).map(|_| UnsafeCell::new(u64::MAX)).collect());
    let ready = AtomicU64::new(0);
    thread::scope(|scope| {
        // Joined by hand: ThreadSanitizer does not see how a scope waits by itself.
        let start = |number| {
            let (pool, memory, ready) = (&pool, &memory, &ready);
            scope.spawn(move || {
                let dice = Dice(0x9e37_79b9 + number * 0x1234_5677 + 1);
                let universe = u64::from(capacity) * 2;
                let (held, free, found, victims, weak) = (vec![], vec![], vec![], vec![], vec![]);
                let mut worker = Worker { pool, memory, dice, universe, held, free, found, victims, weak };
                ready.fetch_add(1, Ordering::Relaxed);
                while ready.load(Ordering::Relaxed) < THREADS {
                    spin_loop();
                }
                for _ in 0..steps {
                    worker.step();
                }
            })
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
    let census = pool.census();
    assert_eq!((census.active, census.owned), (0, 0), "{policy}: all was given back: {census:?}");
    assert_eq!(census.free + census.inactive, pool.capacity());
    assert_eq!(
        (census.free, census.inactive),
        (pool.free(), pool.inactive()),
        "{policy}: the counters agree"
    );
    let stats = pool.stats();
    assert_eq!(
        stats.stored - stats.removed,
        census.inactive as u64,
        "{policy}: registered = stored - removed"
    );
    assert!(stats.evicted > 0 && stats.deduplicated > 0, "{policy}: the run did something: {stats:?}");
    // Every inactive block can be found by eviction: none was lost from the timeline.
    let mut all = vec![];
    pool.allocate(pool.capacity(), &mut all)
        .unwrap_or_else(|error| panic!("{policy}: {error}, {:?}", pool.census()));
}

#[test]
fn four_threads_and_a_small_pool() {
    for policy in Policy::ALL {
        run(policy, 48, 30_000 * rounds());
    }
}

#[test]
fn four_threads_and_a_larger_pool() {
    for policy in Policy::ALL {
        run(policy, 1000, 30_000 * rounds());
    }
}
