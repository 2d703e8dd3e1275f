//! The models' common parts: a pool of a few blocks, and "memory" in loom's cells, which notice every
//! access that the pool does not order.
#![allow(dead_code)]

mod search;

#[allow(unused_imports)]
pub use search::{model, model_within, spawn};

use kvstrata_core::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;

pub struct Rig {
    pub pool: BlockPool,
    memory: Vec<UnsafeCell<u64>>,
}

// SAFETY: a cell is written only by the one owner of its block and read only by holders of a reference
// to it. The models check that the pool makes this so, and loom's cells report any violation.
unsafe impl Sync for Rig {}
// SAFETY: nothing in it is tied to a thread.
unsafe impl Send for Rig {}

/// The hash of a number. Under loom the registry has two chains; numbers below 100 are in the
/// first, the others in the second.
pub fn hash(number: u64) -> SequenceHash {
    let chain = u64::from(number >= 100);
    let in_chain = |key: &u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == chain;
    let key = (number * 16 + 1..).find(in_chain).expect("half of all keys are");
    SequenceHash::from_u128(u128::from(key))
}

impl Rig {
    pub fn new(capacity: u32, policy: Policy) -> Arc<Rig> {
        Rig::with(capacity, |config| config.policy(policy))
    }

    /// A pool of one lane, with the changes by `set`.
    pub fn with(capacity: u32, set: impl FnOnce(PoolConfig) -> PoolConfig) -> Arc<Rig> {
        let config = set(PoolConfig::new(capacity).lanes(1).lane_of(|| 0));
        let memory = (0..capacity).map(|_| UnsafeCell::new(u64::MAX)).collect();
        Arc::new(Rig { pool: BlockPool::new(config).expect("a valid setup"), memory })
    }

    pub fn write(&self, block: BlockId, number: u64) {
        self.memory[block.index()].with_mut(|cell| {
            // SAFETY: the caller owns the block; loom reports a race if the pool gave it to two.
            unsafe { *cell = number }
        });
    }

    pub fn read(&self, block: BlockId) -> u64 {
        // SAFETY: the caller holds a reference; loom reports a race with a writer.
        self.memory[block.index()].with(|cell| unsafe { *cell })
    }

    /// Allocates a block, fills it and registers it under `hash(number)`.
    pub fn store(&self, number: u64) -> Option<ImmutableBlock<'_>> {
        let mut blocks = Vec::with_capacity(1);
        self.pool.allocate(1, &mut blocks).ok()?;
        Some(self.register(blocks.pop().expect("one"), number, None))
    }

    pub fn register<'p>(
        &'p self,
        block: MutableBlock<'p>,
        number: u64,
        parent: Option<&ImmutableBlock<'p>>,
    ) -> ImmutableBlock<'p> {
        self.write(block.id(), number);
        let complete = block.complete(hash(number)).expect("a new block is Reset");
        let block = self.pool.register(complete, parent).into_block();
        self.check(&block, number);
        block
    }

    /// Checks that a held block has the bytes and the hash of the requested one.
    pub fn check(&self, block: &ImmutableBlock<'_>, number: u64) {
        assert_eq!(self.read(block.id()), number, "bytes of another block");
        assert_eq!(block.hash(), hash(number));
    }

    pub fn lookup(&self, number: u64) -> Option<ImmutableBlock<'_>> {
        let block = self.pool.lookup(hash(number))?;
        self.check(&block, number);
        Some(block)
    }

    /// At rest: nothing is lost, and every inactive block can be evicted.
    pub fn at_rest(&self) {
        let census = self.pool.census();
        assert_eq!((census.active, census.owned), (0, 0), "all was given back: {census:?}");
        assert_eq!(census.free + census.inactive, self.pool.capacity(), "conservation");
        assert_eq!(census.inactive, self.pool.inactive(), "the counter agrees");
        let stats = self.pool.stats();
        assert_eq!(stats.stored - stats.removed, census.inactive as u64, "registered = stored - removed");
        let mut victims = Vec::with_capacity(8);
        assert_eq!(
            self.pool.evict(self.pool.capacity(), &mut victims),
            census.inactive,
            "none is lost to eviction"
        );
    }
}
