//! The settings of a pool.

use crate::error::ConfigError;
use crate::events::EventSink;
use crate::hash::SequenceHash;
use crate::id::BlockRef;
use crate::policy::Policy;
use alloc::boxed::Box;

/// The treatment of a second block of the same hash by `register`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Duplicates {
    /// The caller gets the existing block; its copy is freed.
    #[default]
    Reject,
    /// Both stay; lookups find the newer one.
    Keep,
}

/// The settings of a [`BlockPool`](crate::BlockPool).
///
/// ```
/// use kvstrata_core::{BlockPool, Policy, PoolConfig};
/// let pool = BlockPool::new(PoolConfig::new(1024).policy(Policy::Lru).page_size(16))?;
/// assert_eq!(pool.free(), 1024);
/// # Ok::<(), kvstrata_core::ConfigError>(())
/// ```
pub struct PoolConfig {
    pub(super) capacity: u32,
    pub(super) policy: Policy,
    pub(super) page_size: u32,
    pub(super) duplicates: Duplicates,
    pub(super) lanes: usize,
    pub(super) lane_of: fn() -> usize,
    pub(super) seed: Option<u64>,
    pub(super) sink: Option<Box<dyn EventSink>>,
}

/// The most blocks of one pool.
pub const MAX_CAPACITY: u32 = 1 << 28;

impl PoolConfig {
    /// A pool of `capacity` blocks: LRU, pages of 16 tokens, duplicates rejected, 8 lanes.
    pub fn new(capacity: u32) -> PoolConfig {
        PoolConfig {
            capacity,
            policy: Policy::default(),
            page_size: 16,
            duplicates: Duplicates::default(),
            lanes: 8,
            lane_of: lane_of_stack,
            seed: None,
            sink: None,
        }
    }

    /// The number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.capacity
    }

    /// The eviction policy.
    pub fn policy(mut self, policy: Policy) -> PoolConfig {
        self.policy = policy;
        self
    }

    /// Tokens per page, 1 to 65,535.
    pub fn page_size(mut self, tokens: u32) -> PoolConfig {
        self.page_size = tokens;
        self
    }

    /// The treatment of a second block of the same hash.
    pub fn duplicates(mut self, duplicates: Duplicates) -> PoolConfig {
        self.duplicates = duplicates;
        self
    }

    /// The number of lanes (1 to 16) into which the free blocks are split, so that threads do not
    /// contend. One per core is right.
    pub fn lanes(mut self, lanes: usize) -> PoolConfig {
        self.lanes = lanes;
        self
    }

    /// Sets the function that finds a thread's lane; its result is taken modulo the lanes. The core
    /// knows no threads, so the default guesses from the stack's address, and two threads may share a
    /// lane. Give a thread-local number where there is one.
    pub fn lane_of(mut self, lane_of: fn() -> usize) -> PoolConfig {
        self.lane_of = lane_of;
        self
    }

    /// Decides where the pool's tables put each hash. Without a call it is 0 in the core; a manager
    /// gives its pools a random one, unless they have a seed. If untrusted callers can choose hashes,
    /// give a random number that they cannot learn. With a known seed they can put all their blocks into
    /// one chain, and lookups in that chain become slow for all callers. With equal seeds, policies that
    /// sample by hash choose equally.
    pub fn seed(mut self, seed: u64) -> PoolConfig {
        self.seed = Some(seed);
        self
    }

    /// The eviction policy that was set.
    #[must_use]
    pub fn given_policy(&self) -> Policy {
        self.policy
    }

    /// The seed that was set; none: it is 0.
    #[must_use]
    pub fn given_seed(&self) -> Option<u64> {
        self.seed
    }

    /// Adds a sink for Store and Remove events. With several sinks, each event goes to the first one first.
    pub fn events(mut self, sink: Box<dyn EventSink>) -> PoolConfig {
        self.sink = Some(match self.sink.take() {
            Some(first) => Box::new(Both(first, sink)),
            None => sink,
        });
        self
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let refuse = |field, value, allowed| Err(ConfigError { field, value, allowed });
        if self.capacity == 0 || self.capacity > MAX_CAPACITY {
            return refuse("capacity", u64::from(self.capacity), "from 1 to 268,435,456 blocks");
        }
        if self.page_size == 0 || self.page_size > 65_535 {
            return refuse("page_size", u64::from(self.page_size), "from 1 to 65,535 tokens");
        }
        if self.lanes == 0 || self.lanes > crate::free::MAX_STRIPES {
            return refuse("lanes", self.lanes as u64, "from 1 to 16");
        }
        Ok(())
    }
}

/// Two sinks.
struct Both(Box<dyn EventSink>, Box<dyn EventSink>);

impl EventSink for Both {
    fn stored(&self, block: BlockRef, hash: SequenceHash, parent: Option<BlockRef>) {
        self.0.stored(block, hash, parent);
        self.1.stored(block, hash, parent);
    }

    fn removed(&self, block: BlockRef, hash: SequenceHash) {
        self.0.removed(block, hash);
        self.1.removed(block, hash);
    }
}

/// Guesses a lane from the stack's address: threads' stacks lie megabytes apart. A
/// wrong guess costs only speed.
fn lane_of_stack() -> usize {
    let here = 0u8;
    let address = core::ptr::from_ref(&here).addr() as u64;
    ((address >> 20).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}
