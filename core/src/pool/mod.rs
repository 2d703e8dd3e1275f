//! The block pool: one tier's blocks, from free to registered and back.
//!
//! ```text
//!            allocate                 commit, register             release (last)
//!   free ───────────────► owned ───────────────────► active ◄──────────────────────► inactive
//!    ▲                     │ drop                       match_prefix, lookup            │
//!    └─────────────────────┴────────────────────────────────────────────────────────────┘ evict
//! ```
//!
//! I1. A slot is in exactly one place: free (its bit is set), owned (one typestate handle), active
//!     (`Registered`, referenced), inactive (`Registered`, unreferenced).
//! I2. After construction nothing here allocates, except a caller's `Vec` without room.
//! I3. Registered blocks = stored − removed, at rest.
//!
//! The operations are in separate files: `allocate`, `lookup`, `register`, `release`, `evict`, `lease`,
//! `withdraw`; for callers that keep numbers instead of handles, `by_number`.

mod allocate;
mod among;
mod by_number;
mod config;
mod evict;
mod handle;
mod lease;
mod lookup;
mod register;
mod release;
mod stats;
mod unplaced;
mod victims;
mod withdraw;

pub use among::Passed;
pub use config::{Duplicates, MAX_CAPACITY, PoolConfig};
pub use handle::{CompleteBlock, EvictedBlock, ImmutableBlock, MutableBlock};
pub use register::{Registered, RegistrationHandle};
pub use stats::{Census, Stats};
pub use victims::VictimsSeen;

use crate::error::ConfigError;
use crate::events::EventSink;
use crate::free::FreeMap;
use crate::hash::Placement;
use crate::id::{BlockId, BlockRef};
use crate::lane::wrap;
use crate::policy::{AnyPolicy, Eviction, Policy, Shape};
use crate::registry::Registry;
use crate::slot::Slot;
use crate::sync::CachePadded;
use crate::timeline::Timeline;
use alloc::boxed::Box;
use core::fmt;
use stats::Lane;

/// All blocks of one tier. `Send + Sync`; every method takes `&self`, and none blocks.
pub struct BlockPool {
    slots: Box<[Slot]>,
    free: FreeMap,
    registry: Registry,
    timeline: Timeline,
    unplaced: unplaced::Unplaced,
    policy: AnyPolicy,
    /// The policy's constants.
    shape: Shape,
    kind: Policy,
    page_size: u32,
    unique: bool,
    lanes: Box<[CachePadded<Lane>]>,
    lane_of: fn() -> usize,
    sink: Option<Box<dyn EventSink>>,
}

impl BlockPool {
    /// Builds a pool with all blocks free. All memory that the pool will ever use is allocated here.
    ///
    /// # Errors
    /// A setting is out of range: the error names it, its value and the allowed range.
    pub fn new(config: PoolConfig) -> Result<BlockPool, ConfigError> {
        config.check()?;
        let capacity = config.capacity as usize;
        let place = Placement::new(config.seed.unwrap_or(0));
        let policy = AnyPolicy::new(config.policy, capacity, place.again(), config.lanes, config.lane_of);
        let shape = policy.shape();
        Ok(BlockPool {
            slots: Slot::table(capacity),
            free: FreeMap::new(config.capacity, config.lanes),
            registry: Registry::new(capacity, place),
            timeline: Timeline::new(capacity, shape.lists, shape.swept),
            unplaced: unplaced::Unplaced::new(capacity),
            policy,
            shape,
            kind: config.policy,
            page_size: config.page_size,
            unique: config.duplicates == Duplicates::Reject,
            lanes: (0..config.lanes).map(|_| CachePadded(Lane::new())).collect(),
            lane_of: config.lane_of,
            sink: config.sink,
        })
    }

    /// The number of blocks.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Tokens per page.
    pub fn page_size(&self) -> u32 {
        self.page_size
    }

    /// The eviction policy.
    pub fn policy(&self) -> Policy {
        self.kind
    }

    #[cfg(test)]
    pub(crate) fn any_policy(&self) -> &AnyPolicy {
        &self.policy
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn all_slots(&self) -> &[Slot] {
        &self.slots
    }

    #[inline]
    fn slot(&self, id: BlockId) -> &Slot {
        &self.slots[id.index()]
    }

    #[inline]
    fn lane_number(&self) -> usize {
        (self.lane_of)()
    }

    #[inline]
    fn lane(&self) -> &Lane {
        let lanes = self.lanes.len();
        &self.lanes[wrap(self.lane_number(), lanes)]
    }

    fn reference(&self, id: BlockId) -> BlockRef {
        BlockRef { id, generation: self.slot(id).word().generation() }
    }
}

impl fmt::Debug for BlockPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (capacity, free, inactive) = (self.capacity(), self.free(), self.inactive());
        write!(f, "BlockPool({capacity} blocks, {free} free, {inactive} inactive, {})", self.kind)
    }
}
