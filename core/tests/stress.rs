//! Many threads on one pool, its request table and its sink. At rest no block may be
//! lost, or be in two places.
//!
//! - **Content.** Each block has a word of "memory". Its owner writes the hash there before registering,
//!   and each holder of a reference or a lease must read that hash, at first and at last; so must an
//!   evictor. So a reference to a recycled block is noticed.
//! - **Events.** The sink knows the registration of each block. A Store of a registered block is wrong
//!   at any time, and so is a Remove of one that is not registered, or of another generation or hash. At
//!   rest the sink has the pool's registrations, block by block, and a unique hash at most once.
//! - **Order.** A block that is not free, not owned and not pinned can be evicted at the end:
//!   none is lost from the timeline.
//!
//! `KVSTRATA_STRESS_ROUNDS` scales it (default 1); ThreadSanitizer and AddressSanitizer run it too
//! (`ci/test`).

use kvstrata_core::*;
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::hint::spin_loop;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::thread;

const THREADS: u64 = 4;
/// Requests that all threads reserve for, release and detach.
const SHARED_REQUESTS: u64 = 3;

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

// SAFETY: a word is written only by the owner of its block, and read only by holders of a reference or a
// lease. This test checks that the pool keeps the two apart.
unsafe impl Sync for Memory {}

impl Memory {
    fn write(&self, block: BlockId, number: u64) {
        // SAFETY: the caller owns the block.
        unsafe { *self.0[block.index()].get() = number }
    }
    fn read(&self, block: BlockId) -> u64 {
        // SAFETY: the caller holds a reference to the block or a lease, or owns it.
        unsafe { *self.0[block.index()].get() }
    }
    fn check(&self, block: &ImmutableBlock<'_>, number: u64) {
        assert_eq!(self.read(block.id()), number, "{block:?} holds other bytes");
        assert_eq!(block.hash(), hash(number), "{block:?} has another hash");
    }
}

/// The sink's records. Relaxed, all of it: the sink must not add an order that the pool lacks.
struct Heard {
    numbers: HashMap<SequenceHash, u64>,
    /// Stored less removed, a hash.
    balance: Vec<AtomicI64>,
    /// The registration of each block: generation and hash, or `UNREGISTERED`.
    blocks: Vec<AtomicU64>,
}

const UNREGISTERED: u64 = u64::MAX;

impl Heard {
    fn new(capacity: u32, universe: u64) -> Heard {
        Heard {
            numbers: (0..universe).map(|number| (hash(number), number)).collect(),
            balance: (0..universe).map(|_| AtomicI64::new(0)).collect(),
            blocks: (0..capacity).map(|_| AtomicU64::new(UNREGISTERED)).collect(),
        }
    }

    fn change(&self, block: BlockRef, hash: SequenceHash, stored: bool) {
        let number = self.numbers[&hash];
        self.balance[number as usize].fetch_add(if stored { 1 } else { -1 }, Relaxed);
        let registered = (u64::from(block.generation) << 32) | number;
        let (old, new) = if stored { (UNREGISTERED, registered) } else { (registered, UNREGISTERED) };
        let found = self.blocks[block.id.index()].swap(new, Relaxed);
        assert_eq!(found, old, "{block:?}, hash {number}, stored: {stored}");
    }

    /// At rest: each reported registration exists, and no other.
    fn check(&self, pool: &BlockPool, memory: &Memory, unique: bool) {
        let mut registered = 0;
        for (id, heard) in self.blocks.iter().enumerate() {
            let heard = heard.load(Relaxed);
            if heard == UNREGISTERED {
                continue;
            }
            registered += 1;
            let block = BlockRef { id: BlockId(id as u32), generation: (heard >> 32) as u32 };
            memory.check(&pool.upgrade(block).expect("it was told of"), heard & 0xffff_ffff);
        }
        assert_eq!(registered, pool.inactive(), "blocks registered, as the sink has heard");
        for (number, balance) in self.balance.iter().enumerate() {
            let balance = balance.load(Relaxed);
            assert!(balance >= 0 && (balance <= 1 || !unique), "hash {number}: stored - removed = {balance}");
            assert_eq!(pool.contains(hash(number as u64)), balance > 0, "hash {number} is registered");
        }
    }
}

struct Sink(Arc<Heard>);

impl EventSink for Sink {
    fn stored(&self, block: BlockRef, hash: SequenceHash, _parent: Option<BlockRef>) {
        self.0.change(block, hash, true);
    }
    fn removed(&self, block: BlockRef, hash: SequenceHash) {
        self.0.change(block, hash, false);
    }
}

struct Worker<'p> {
    pool: &'p BlockPool,
    requests: &'p RequestTable<'p>,
    memory: &'p Memory,
    dice: Dice,
    universe: u64,
    /// The worker's own request, and its blocks.
    own_request: RequestId,
    reserved: Vec<BlockId>,
    held: Vec<(u64, ImmutableBlock<'p>)>,
    free: Vec<MutableBlock<'p>>,
    complete: Vec<CompleteBlock<'p>>,
    found: Vec<ImmutableBlock<'p>>,
    victims: Vec<EvictedBlock<'p>>,
    weak: Vec<(u64, BlockRef)>,
    pinned: Vec<BlockRef>,
    leased: Vec<(u64, BlockRef)>,
    scopes: Vec<RegistrationHandle<'p>>,
}

impl<'p> Worker<'p> {
    fn step(&mut self) {
        match self.dice.roll(22) {
            0..4 => self.store(),
            4..9 => self.find(),
            9..14 => self.release(),
            14 => self.evict(),
            15 => self.oddities(),
            16 => self.pin(),
            17 => self.end_scopes(),
            18 => self.own_request(),
            19..21 => self.lease(),
            _ => self.shared_request(),
        }
    }

    fn store(&mut self) {
        let count = 1 + self.dice.roll(5);
        if self.pool.allocate(count as usize, &mut self.free).is_err() {
            return self.release();
        }
        self.register();
    }

    /// Fills and registers the free blocks as one sequence, in one of three ways.
    fn register(&mut self) {
        let (first, how) = (self.dice.roll(self.universe), self.dice.roll(4));
        let numbers = (0..).map(|i| (first + i) % self.universe);
        let blocks = mem::take(&mut self.free);
        let start = self.held.len();
        for (number, block) in numbers.clone().zip(blocks) {
            self.memory.write(block.id(), number);
            let complete = block.complete(hash(number)).expect("a new block is Reset");
            let parent = self.held[start..].last().map(|(_, parent)| parent);
            match how {
                0 => {
                    self.complete.push(complete);
                    continue;
                }
                1 => {
                    let (registered, scope) = self.pool.register_scoped(complete, parent);
                    self.scopes.push(scope);
                    self.held.push((number, registered.into_block()));
                }
                _ => self.held.push((number, self.pool.register(complete, parent).into_block())),
            }
        }
        self.pool.register_sequence(&mut self.complete, None, &mut self.found);
        self.held.extend(numbers.zip(self.found.drain(..)));
        for (number, block) in &self.held[start..] {
            self.memory.check(block, *number);
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
        let released = self.held.drain(from..).rev().map(|(_, block)| block);
        if self.dice.roll(2) == 0 {
            assert_eq!(self.pool.release_refs(released.map(ImmutableBlock::into_ref)), 0);
        } else {
            self.pool.release(released);
        }
        if self.held.len() > 40 {
            self.held.truncate(20);
        }
    }

    fn evict(&mut self) {
        self.pool.evict(self.dice.roll(4) as usize, &mut self.victims);
        for victim in &self.victims {
            let number = self.memory.read(victim.id());
            assert_eq!(victim.hash(), hash(number), "a victim's bytes are still its own");
        }
        if self.dice.roll(2) == 0 {
            self.free.extend(self.victims.drain(..).map(EvictedBlock::into_mutable));
            self.register();
        }
        self.victims.clear();
    }

    fn oddities(&mut self) {
        let Some((number, weak)) = self.weak.pop() else { return };
        match self.dice.roll(4) {
            0 => drop(self.pool.unregister(weak)),
            1 => {
                if let Ok(victim) = self.pool.take_out(weak) {
                    assert_eq!(self.memory.read(victim.id()), number, "a victim's bytes are still its own");
                }
            }
            2 => {
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

    /// Leases a block, and ends older leases, so that the leased are a small part of the pool.
    fn lease(&mut self) {
        if let Some((number, weak)) = self.weak.pop().filter(|(_, weak)| self.pool.lease(*weak)) {
            assert_eq!(self.memory.read(weak.id), number, "leased, with other bytes");
            self.leased.push((number, weak));
        }
        self.end_leases(self.leased.len().saturating_sub(3));
    }

    fn end_leases(&mut self, count: usize) {
        for (number, weak) in self.leased.drain(..count.min(self.leased.len())) {
            assert_eq!(self.memory.read(weak.id), number, "{weak:?} was recycled under its lease");
            self.pool.end_lease(weak);
        }
    }

    /// Pins a block that it holds, and unpins older ones, so that the pinned are a small part of the pool.
    fn pin(&mut self) {
        if let Some((_, block)) = self.held.last() {
            block.set_priority(Priority::Pinned);
            self.pinned.push(block.downgrade());
        }
        if self.pinned.len() as u64 > self.universe / 64 {
            self.unpin();
        }
    }

    fn unpin(&mut self) {
        for block in self.pinned.drain(..).filter_map(|weak| self.pool.upgrade(weak)) {
            block.set_priority(Priority::Normal);
        }
    }

    /// Ends scopes. Their blocks may be held, inactive, evicted or recycled by now, and
    /// other scopes may have them.
    fn end_scopes(&mut self) {
        for _ in 0..self.dice.roll(8).min(self.scopes.len() as u64) {
            let which = self.dice.roll(self.scopes.len() as u64) as usize;
            drop(self.scopes.swap_remove(which));
        }
    }

    /// Uses the worker's own request. No other thread may touch its blocks.
    fn own_request(&mut self) {
        let secret = UNREGISTERED - self.own_request;
        if self.dice.roll(2) == 0 {
            let from = self.reserved.len();
            let count = self.dice.roll(4) as usize;
            if self.requests.reserve(self.own_request, count, &mut self.reserved).is_ok() {
                self.reserved[from..].iter().for_each(|block| self.memory.write(*block, secret));
            }
            return;
        }
        for block in &self.reserved {
            assert_eq!(self.memory.read(*block), secret, "{block} is this request's alone");
            let refused = self.pool.adopt_mutable(*block).map(MutableBlock::into_id);
            assert_eq!(refused.expect_err("it is a request's").reason, Reason::Reserved);
        }
        assert_eq!(self.requests.release(self.own_request), self.reserved.len());
        self.reserved.clear();
    }

    /// Uses a shared request: any thread may release or detach the blocks that this one reserves.
    fn shared_request(&mut self) {
        let request = self.dice.roll(SHARED_REQUESTS);
        match self.dice.roll(4) {
            0..2 => {
                let mut blocks = vec![];
                let _full = self.requests.reserve(request, self.dice.roll(4) as usize, &mut blocks);
            }
            2 => {
                self.requests.release(request);
            }
            _ => {
                self.requests.detach(request, &mut self.free);
                self.register();
            }
        }
    }
}

fn run(policy: Policy, duplicates: Duplicates, capacity: u32, steps: u64) {
    let (universe, name) = (u64::from(capacity) * 2, format!("{policy}, {duplicates:?}"));
    let heard = Arc::new(Heard::new(capacity, universe));
    let config = PoolConfig::new(capacity).policy(policy).duplicates(duplicates).lanes(4);
    let pool = BlockPool::new(config.events(Box::new(Sink(heard.clone())))).expect("a valid setup");
    // Not enough for all: now and then a request finds no entry.
    let requests = RequestTable::new(&pool, THREADS as usize - 1);
    let memory = Memory((0..capacity).map(|_| UnsafeCell::new(UNREGISTERED)).collect());
    let ready = AtomicU64::new(0);
    thread::scope(|scope| {
        // Joined by hand: ThreadSanitizer does not see how a scope waits by itself.
        let start = |number| {
            let (pool, requests, memory, ready) = (&pool, &requests, &memory, &ready);
            scope.spawn(move || {
                let mut worker = Worker {
                    pool,
                    requests,
                    memory,
                    dice: Dice(0x9e37_79b9 + number * 0x1234_5677 + 1),
                    universe,
                    own_request: SHARED_REQUESTS + number,
                    reserved: vec![],
                    held: vec![],
                    free: vec![],
                    complete: vec![],
                    found: vec![],
                    victims: vec![],
                    weak: vec![],
                    pinned: vec![],
                    leased: vec![],
                    scopes: vec![],
                };
                ready.fetch_add(1, Relaxed);
                while ready.load(Relaxed) < THREADS {
                    spin_loop();
                }
                for _ in 0..steps {
                    worker.step();
                }
                worker.unpin();
                worker.end_leases(usize::MAX);
                requests.release(worker.own_request);
            })
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
    assert_eq!(requests.in_flight(), pool.census().owned, "{name}: only shared requests have blocks");
    drop(requests);
    let census = pool.census();
    assert_eq!((census.active, census.owned), (0, 0), "{name}: all was given back: {census:?}");
    assert_eq!(census.free + census.inactive, pool.capacity());
    assert_eq!((census.free, census.inactive), (pool.free(), pool.inactive()), "{name}: the counters agree");
    assert_eq!(pool.available(), pool.capacity(), "{name}: nothing is pinned");
    let stats = pool.stats();
    assert_eq!(stats.stored - stats.removed, census.inactive as u64, "{name}: registered = stored - removed");
    assert!(stats.evicted > 0 && stats.removed > stats.evicted, "{name}: the run did something: {stats:?}");
    let unique = duplicates == Duplicates::Reject;
    assert_eq!(stats.deduplicated > 0, unique, "{name}: {stats:?}");
    heard.check(&pool, &memory, unique);
    // Every inactive block can be found by eviction: none was lost from the timeline.
    let mut all = vec![];
    pool.allocate(pool.capacity(), &mut all)
        .unwrap_or_else(|error| panic!("{name}: {error}, {:?}", pool.census()));
    heard.check(&pool, &memory, unique);
}

fn run_all(capacity: u32, steps: u64) {
    for policy in Policy::ALL {
        for duplicates in [Duplicates::Reject, Duplicates::Keep] {
            run(policy, duplicates, capacity, steps * rounds());
        }
    }
}

#[test]
fn small_pool_under_four_threads_stays_consistent() {
    run_all(48, 40_000);
}

#[test]
fn larger_pool_under_four_threads_stays_consistent() {
    run_all(1000, 40_000);
}
