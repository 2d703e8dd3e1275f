//! One model of the pool for property tests and fuzzing: a string of [`Operation`]s, run on a
//! [`BlockPool`] with a request table and an event sink, and on an [`Oracle`], and compared after each.
//!
//! After each operation must hold: free + owned + active + inactive = capacity, block by block;
//! stored − removed = registered; the sink has received the oracle's events, in its order; each hash
//! is found exactly if the oracle has it.

mod leases;
mod numbers;
mod operation;
mod oracle;
mod owned;
mod registered;

use kvstrata_core::*;
pub use operation::{Back, How, Operation, Setup, Then};
use oracle::{Event, Oracle, Owner, hash};
use owned::request_id;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Records the events.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Event>>>);

impl Log {
    fn drain(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }
}

impl EventSink for Log {
    fn stored(&self, block: BlockRef, hash: SequenceHash, parent: Option<BlockRef>) {
        self.0.lock().expect("no panic").push(Event::Stored(block, hash, parent));
    }
    fn removed(&self, block: BlockRef, hash: SequenceHash) {
        self.0.lock().expect("no panic").push(Event::Removed(block, hash));
    }
}

/// A handle that was given up.
enum Given {
    Mutable(BlockId),
    Immutable(BlockRef),
}

struct Run<'p> {
    pool: &'p BlockPool,
    oracle: Oracle,
    log: Log,
    requests: RequestTable<'p>,
    limit: usize,
    held: Vec<ImmutableBlock<'p>>,
    mutable: Vec<MutableBlock<'p>>,
    victims: Vec<EvictedBlock<'p>>,
    scoped: Vec<(BlockRef, RegistrationHandle<'p>)>,
    given: Vec<Given>,
    weak: Vec<BlockRef>,
    leased: Vec<BlockRef>,
}

/// Runs operations on a pool and on the oracle; panics where they differ.
pub fn run(setup: Setup, operations: &[Operation]) {
    let log = Log::default();
    let config = PoolConfig::new(u32::from(setup.capacity.max(1)))
        .policy(setup.policy)
        .duplicates(setup.duplicates)
        .page_size(u32::from(setup.page_size.max(2)))
        .lanes(2)
        .events(Box::new(log.clone()));
    let pool = BlockPool::new(config).expect("a valid setup");
    let unique = setup.duplicates == Duplicates::Reject;
    let limit = usize::from(setup.requests % 8);
    let mut run = Run {
        pool: &pool,
        oracle: Oracle::new(setup.policy, unique, pool.capacity()),
        log,
        requests: RequestTable::new(&pool, limit),
        limit,
        held: vec![],
        mutable: vec![],
        victims: vec![],
        scoped: vec![],
        given: vec![],
        weak: vec![],
        leased: vec![],
    };
    for operation in operations {
        run.apply(*operation);
        run.check();
    }
    run.finish();
}

impl<'p> Run<'p> {
    fn universe(&self) -> u64 {
        (self.pool.capacity() as u64 * 2).max(4)
    }

    fn apply(&mut self, operation: Operation) {
        let (universe, capacity) = (self.universe(), self.pool.capacity());
        let number = |byte: u8| u64::from(byte) % universe;
        match operation {
            Operation::Store { from, count, how } => {
                self.store(number(from), usize::from(count % 6).min(capacity), how);
            }
            Operation::Match { from, count, numbers } => {
                let wanted: Vec<u64> =
                    (0..u64::from(count % 16)).map(|i| (number(from) + i) % universe).collect();
                self.matched(
                    &wanted,
                    true,
                    if numbers { numbers::match_refs } else { BlockPool::match_prefix },
                );
            }
            Operation::MatchAny { from, step } => {
                let step = u64::from(step % 4) + 1;
                let wanted: Vec<u64> = (0..8).map(|i| (number(from) + i * step) % universe).collect();
                self.matched(&wanted, false, BlockPool::match_any);
            }
            Operation::Lookup { hash, numbers } => {
                self.matched(&[number(hash)], true, |pool, hashes, out| {
                    out.extend(if numbers {
                        numbers::lookup_ref(pool, hashes[0])
                    } else {
                        pool.lookup(hashes[0])
                    });
                    out.len()
                })
            }
            Operation::Release { count, tail_first, numbers } => {
                self.release(usize::from(count), tail_first, numbers);
            }
            Operation::DropOne { which } => {
                if let Some(which) = index(which, self.held.len()) {
                    let block = self.held.swap_remove(which);
                    self.oracle.released(block.id().0);
                    drop(block);
                }
            }
            Operation::CloneOne { which, numbers } => {
                if let Some(which) = index(which, self.held.len()) {
                    let copy = if numbers { self.hold_again(which) } else { self.held[which].clone() };
                    self.oracle.acquired(copy.id().0);
                    self.held.push(copy);
                }
            }
            Operation::SetPriority { which, class } => {
                if let Some(which) = index(which, self.held.len()) {
                    self.held[which].set_priority(class);
                    self.oracle.known.get_mut(&self.held[which].id().0).expect("held").priority = class;
                }
            }
            Operation::Evict { count, then } => self.evict(usize::from(count % 8), then),
            Operation::DropVictims => self.drop_victims(),
            Operation::Allocate { count } => {
                self.allocate(usize::from(count) % (capacity + 2));
            }
            Operation::AllocateFree { count, numbers } => {
                self.allocate_free(usize::from(count) % (capacity + 2), numbers);
            }
            Operation::GiveBack { count, back } => self.give_back(usize::from(count), back),
            Operation::Withdraw { which } => {
                if let Some(which) = index(which, self.scoped.len()) {
                    let (weak, handle) = self.scoped.swap_remove(which);
                    drop(handle);
                    self.oracle.scope_ended(weak);
                }
            }
            Operation::Unregister { hash } => {
                if let Some(weak) = self.oracle.find(number(hash)).map(|known| known.weak) {
                    self.unregister(weak);
                }
            }
            Operation::UnregisterWeak { which, what } => {
                if let Some(weak) = self.weak(which, what) {
                    self.unregister(weak);
                }
            }
            Operation::TakeOut { which, what } => {
                if let Some(weak) = self.weak(which, what) {
                    self.take_out(weak);
                }
            }
            // Mostly a block that may be there.
            Operation::Lease { which, what } => {
                if let Some(weak) = self.weak(which, what.saturating_sub(250)) {
                    self.lease(weak);
                }
            }
            Operation::EndLease { which } => self.end_lease(which),
            Operation::Upgrade { which } => {
                if let Some(which) = index(which, self.weak.len()) {
                    self.upgrade(self.weak[which]);
                }
            }
            Operation::UpgradeForged { which, beyond } => {
                let Some(at) = index(which, self.weak.len()) else { return };
                self.upgrade(if beyond { self.beyond(which) } else { next(self.weak[at]) });
            }
            Operation::IntoId { which, mutable } => self.give_up(which, mutable),
            Operation::Adopt { which } => self.adopt(which),
            Operation::AdoptRefused { block } => {
                self.adopt_mutable_refused(u32::from(block) % (capacity as u32 + 2));
                self.adopt_immutable_refused(self.beyond(block));
                if let Some(which) = index(block, self.weak.len()) {
                    self.adopt_immutable_refused(self.weak[which]);
                }
            }
            Operation::Reserve { request, count } => {
                self.reserve(request_id(request), usize::from(count) % (capacity + 2));
            }
            Operation::ReleaseRequest { request } => self.release_request(request_id(request)),
            Operation::Detach { request } => self.detach(request_id(request)),
        }
    }

    fn check(&mut self) {
        let census = self.oracle.census();
        assert_eq!(self.pool.census(), census, "where each block is");
        assert_eq!((self.pool.free(), self.pool.inactive()), (census.free, census.inactive), "the counters");
        let (available, in_flight) = (self.oracle.available(), census.active + census.owned);
        assert_eq!((self.pool.available(), self.pool.active()), (available, in_flight));
        assert_eq!((self.requests.available(), self.requests.in_flight()), (available, in_flight));
        // All counts. The rest (no place on the timeline) is 0 with one thread.
        let stats = self.oracle.stats;
        assert_eq!(self.pool.stats(), stats);
        assert_eq!(stats.stored - stats.removed, self.oracle.known.len() as u64, "stored - removed");
        assert_eq!(self.log.drain(), std::mem::take(&mut self.oracle.expected), "events");
        for number in 0..self.universe() {
            let (found, expected) = (self.pool.contains(hash(number)), self.oracle.find(number).is_some());
            assert_eq!(found, expected, "hash {number} is registered");
        }
        for block in &self.held {
            let known = &self.oracle.known[&block.id().0];
            assert_eq!((block.hash(), block.downgrade()), (hash(known.number), known.weak));
            assert_eq!((block.references(), block.priority()), (known.references, known.priority));
        }
    }

    /// Everything goes back; then every registered block can be evicted: none was lost.
    fn finish(mut self) {
        while !self.given.is_empty() {
            self.adopt(0);
        }
        while !self.leased.is_empty() {
            self.end_lease(0);
            self.check();
        }
        self.release(usize::MAX, true, false);
        self.check();
        self.drop_victims();
        drop(self.unkeep(usize::MAX));
        for (weak, handle) in std::mem::take(&mut self.scoped) {
            drop(handle);
            self.oracle.scope_ended(weak);
        }
        self.oracle.owned.retain(|_, owner| !matches!(owner, Owner::Request(_)));
        self.requests = RequestTable::new(self.pool, 0);
        self.check();
        for weak in self.oracle.known.values().map(|known| known.weak).collect::<Vec<_>>() {
            self.upgrade(weak);
        }
        for block in &self.held {
            block.set_priority(Priority::High);
            self.oracle.known.get_mut(&block.id().0).expect("held").priority = Priority::High;
        }
        self.release(usize::MAX, false, true);
        self.check();
        self.evict(usize::MAX, Then::Drop);
        self.check();
        assert_eq!(self.pool.free(), self.pool.capacity(), "nothing was lost");
    }
}

fn next(weak: BlockRef) -> BlockRef {
    BlockRef { generation: weak.generation.wrapping_add(1), ..weak }
}

fn index(which: u8, len: usize) -> Option<usize> {
    (len > 0).then(|| usize::from(which) % len)
}
