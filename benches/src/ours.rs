//! The operations on our pool. The peer's are in `peers/src/kvbm.rs`, under the same names.

use crate::clock::thread_time;
use crate::inputs::{self, Scattered, sequence};
use crate::work::{Timed, Work};
use crate::{CYCLE, PAGE, PREFIX, TOKENS};
use kvstrata_core::hash::Keyed;
use kvstrata_core::tokens::TokenBlockSequence;
use kvstrata_core::{
    BlockPool, CompleteBlock, EvictedBlock, ImmutableBlock, MutableBlock, Policy, PoolConfig, Salt,
    SequenceHash,
};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Sequences from here on are in no pool yet.
const FRESH: u64 = 1 << 32;

/// Makes a pool of `capacity` free blocks.
pub fn pool(capacity: u32) -> BlockPool {
    pool_by(Policy::Lru, capacity)
}

/// Makes the same with another policy.
pub fn pool_by(policy: Policy, capacity: u32) -> BlockPool {
    // Threads are numbered, as `PoolConfig::lane_of` advises with std: the default guesses, and two may
    // share a lane.
    let config = PoolConfig::new(capacity).policy(policy).page_size(PAGE).lane_of(thread_number);
    BlockPool::new(config).expect("a valid configuration")
}

fn thread_number() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // Relaxed: a number, nothing is published with it.
        static NUMBER: usize = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// Fills the pool with inactive blocks, in sequences of [`PREFIX`], and returns the hashes of each.
pub fn fill(pool: &BlockPool) -> Vec<Vec<SequenceHash>> {
    let prefixes = (0..pool.capacity() / PREFIX).map(|number| {
        let mut hashes = Vec::with_capacity(PREFIX);
        sequence(number as u64, PREFIX, &mut hashes);
        let (mut blocks, mut complete, mut held) = (Vec::new(), Vec::new(), Vec::new());
        pool.allocate(PREFIX, &mut blocks).expect("room");
        register(pool, &mut blocks, &mut complete, &hashes, &mut held);
        pool.release(held.into_iter().rev());
        hashes
    });
    prefixes.collect()
}

/// Fills blocks and registers them as one sequence, as the peer does too.
pub fn register<'p>(
    pool: &'p BlockPool,
    blocks: &mut Vec<MutableBlock<'p>>,
    complete: &mut Vec<CompleteBlock<'p>>,
    hashes: &[SequenceHash],
    held: &mut Vec<ImmutableBlock<'p>>,
) {
    let filled =
        blocks.drain(..).zip(hashes).map(|(block, hash)| block.complete(*hash).expect("a fresh block"));
    complete.extend(filled);
    pool.register_sequence(complete, None, held);
}

/// Allocates `n` blocks and frees them.
pub struct AllocateFree<'p> {
    pool: &'p BlockPool,
    n: usize,
    held: Vec<MutableBlock<'p>>,
}

impl<'p> AllocateFree<'p> {
    /// Takes `n` blocks of `pool`, which has free ones.
    pub fn new(pool: &'p BlockPool, n: usize) -> Self {
        // Several lines long, so that two threads' buffers do not share one.
        AllocateFree { pool, n, held: Vec::with_capacity(n.max(64)) }
    }
}

impl Work for AllocateFree<'_> {
    fn items(&self) -> u64 {
        self.n as u64
    }

    #[inline]
    fn run(&mut self) {
        self.pool.allocate(self.n, &mut self.held).expect("room");
        // Several blocks go back as a batch; a single block goes back by its drop.
        if self.n == 1 {
            self.held.clear();
        } else {
            self.pool.give_back(self.held.drain(..));
        }
    }
}

/// [`CYCLE`] blocks: allocated by eviction, filled, registered, released, matched, released.
pub struct LifeCycle<'p> {
    pool: &'p BlockPool,
    hashes: Vec<SequenceHash>,
    next: usize,
    number: u64,
    blocks: Vec<MutableBlock<'p>>,
    complete: Vec<CompleteBlock<'p>>,
    held: Vec<ImmutableBlock<'p>>,
}

impl<'p> LifeCycle<'p> {
    /// Works in `pool`, which [`fill`] has filled.
    pub fn new(pool: &'p BlockPool) -> Self {
        let (blocks, complete, held) =
            (Vec::with_capacity(CYCLE), Vec::with_capacity(CYCLE), Vec::with_capacity(CYCLE));
        LifeCycle { pool, hashes: Vec::new(), next: 0, number: FRESH, blocks, complete, held }
    }
}

impl Work for LifeCycle<'_> {
    fn items(&self) -> u64 {
        CYCLE as u64
    }

    fn prepare(&mut self, runs: u64) {
        self.hashes.clear();
        self.next = 0;
        for _ in 0..runs {
            sequence(self.number, CYCLE, &mut self.hashes);
            self.number += 1;
        }
    }

    #[inline]
    fn run(&mut self) {
        let hashes = &self.hashes[self.next..][..CYCLE];
        self.next += CYCLE;
        self.pool.allocate(CYCLE, &mut self.blocks).expect("all are evictable");
        register(self.pool, &mut self.blocks, &mut self.complete, hashes, &mut self.held);
        self.pool.release(self.held.drain(..).rev());
        assert_eq!(self.pool.match_prefix(hashes, &mut self.held), CYCLE);
        self.pool.release(self.held.drain(..).rev());
    }
}

/// Evicts [`CYCLE`] blocks and frees them, out of a pool of sequences with every other one used again.
pub struct Evict<'p> {
    pool: &'p BlockPool,
    number: u64,
    victims: Vec<EvictedBlock<'p>>,
}

impl<'p> Evict<'p> {
    /// Works in `pool`, which [`fill`] has filled.
    pub fn new(pool: &'p BlockPool) -> Self {
        Evict { pool, number: FRESH, victims: Vec::with_capacity(CYCLE) }
    }

    /// Fills the pool up.
    fn refill(&mut self) {
        let (mut blocks, mut complete, mut held, mut hashes) = (vec![], vec![], vec![], vec![]);
        while self.pool.allocate_free(CYCLE, &mut blocks).is_ok() {
            hashes.clear();
            sequence(self.number, CYCLE, &mut hashes);
            register(self.pool, &mut blocks, &mut complete, &hashes, &mut held);
            self.pool.release(held.drain(..).rev());
            if self.number.is_multiple_of(2) {
                self.pool.match_prefix(&hashes, &mut held);
                self.pool.release(held.drain(..).rev());
            }
            self.number += 1;
        }
    }
}

impl Timed for Evict<'_> {
    fn items(&self) -> u64 {
        CYCLE as u64
    }

    fn time(&mut self, runs: u64) -> Duration {
        // A quarter of the pool at a time, with a refill in between.
        let most = (self.pool.capacity() / 4 / CYCLE) as u64;
        let (mut left, mut time) = (runs, Duration::ZERO);
        while left > 0 {
            self.refill();
            let runs = left.min(most);
            let start = thread_time();
            for _ in 0..runs {
                self.pool.evict(CYCLE, &mut self.victims);
                assert_eq!(self.victims.len(), CYCLE);
                self.victims.clear();
            }
            time += thread_time() - start;
            left -= runs;
        }
        time
    }
}

/// Matches a prefix of [`PREFIX`] blocks and releases it; another prefix each time, over the whole pool.
pub struct MatchPrefix<'p> {
    pool: &'p BlockPool,
    prefixes: &'p [Vec<SequenceHash>],
    order: Scattered,
    held: Vec<ImmutableBlock<'p>>,
    /// References of other holders.
    _others: Vec<ImmutableBlock<'p>>,
}

impl<'p> MatchPrefix<'p> {
    /// Matches prefixes without holders.
    pub fn inactive(pool: &'p BlockPool, prefixes: &'p [Vec<SequenceHash>]) -> Self {
        let order = Scattered::new(prefixes.len());
        MatchPrefix { pool, prefixes, order, held: Vec::with_capacity(PREFIX), _others: Vec::new() }
    }

    /// Matches prefixes that another holder has, all of them.
    pub fn active(pool: &'p BlockPool, prefixes: &'p [Vec<SequenceHash>]) -> Self {
        let mut others = Vec::with_capacity(pool.capacity());
        for prefix in prefixes {
            assert_eq!(pool.match_prefix(prefix, &mut others), PREFIX);
        }
        MatchPrefix { _others: others, ..MatchPrefix::inactive(pool, prefixes) }
    }
}

impl Work for MatchPrefix<'_> {
    fn items(&self) -> u64 {
        PREFIX as u64
    }

    #[inline]
    fn run(&mut self) {
        let prefix = &self.prefixes[self.order.step()];
        assert_eq!(self.pool.match_prefix(prefix, &mut self.held), PREFIX);
        self.pool.release(self.held.drain(..).rev());
    }
}

/// A prompt of [`TOKENS`] to blocks with chained hashes.
pub struct Split {
    tokens: Vec<u32>,
    kept: Option<TokenBlockSequence>,
}

impl Split {
    /// Makes a new sequence each time, and drops it.
    pub fn anew() -> Self {
        Split { tokens: inputs::tokens(TOKENS), kept: None }
    }

    /// Clears one sequence each time: it has its memory already.
    pub fn again() -> Self {
        Split { kept: Some(empty()), ..Split::anew() }
    }
}

fn empty() -> TokenBlockSequence {
    let hasher = Keyed::new(&[7; 32]).into();
    let mut empty =
        TokenBlockSequence::new(PAGE as usize, Salt::default(), hasher).expect("a block has tokens");
    empty.reserve(TOKENS);
    empty
}

impl Work for Split {
    fn items(&self) -> u64 {
        TOKENS as u64
    }

    #[inline]
    fn run(&mut self) {
        let mut anew = None;
        let sequence = match &mut self.kept {
            Some(kept) => kept,
            None => anew.insert(empty()),
        };
        sequence.clear();
        sequence.extend(black_box(&self.tokens));
        assert_eq!(black_box(sequence.hashes()).len(), TOKENS / PAGE as usize);
    }
}
