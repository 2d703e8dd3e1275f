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
///
/// # A block's life
///
/// ```
/// use kvstrata_core::{BlockPool, CompleteBlock, PoolConfig, SequenceHash};
/// let pool = BlockPool::new(PoolConfig::new(8).page_size(16))?;
/// let hashes: Vec<_> = (1..=3).map(SequenceHash::from_u128).collect();
/// let mut blocks = Vec::new();
/// pool.allocate(3, &mut blocks)?; // and the engine writes keys and values into them
/// let full = blocks.drain(..).zip(&hashes).map(|(block, hash)| block.complete(*hash));
/// let mut full: Vec<CompleteBlock> = full.collect::<Result<_, _>>().map_err(|refused| refused.error)?;
/// let mut held = Vec::new();
/// assert_eq!(pool.register_sequence(&mut full, None, &mut held), 0); // none of them existed
/// let weak = held[2].downgrade();
/// pool.release(held.drain(..).rev()); // tail first
///
/// assert_eq!(pool.match_prefix(&hashes, &mut held), 3); // another request with the same prompt
/// pool.release(held.drain(..).rev());
/// let unknown = SequenceHash::from_u128(9);
/// assert_eq!(pool.match_any(&[unknown, hashes[1]], &mut held), 1);
/// assert!(pool.contains(hashes[0]) && pool.lookup(unknown).is_none());
/// let tail = pool.find(hashes[2]).expect("registered"); // as `lookup`, but not counted as use
/// assert_eq!(pool.upgrade(weak).map(|block| block.id()), Some(tail.id()));
///
/// // A copy of the same content beside the first one, behind the same parent; then unused blocks go back.
/// pool.allocate(2, &mut blocks)?;
/// let copy = blocks.pop().expect("two").complete(tail.hash()).map_err(|refused| refused.error)?;
/// let copy = pool.register_beside(copy, Some(&held[0]));
/// assert_ne!(copy.id(), tail.id());
/// pool.give_back(blocks.drain(..));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Eviction
///
/// ```
/// use kvstrata_core::pool::{Passed, VictimsSeen};
/// use kvstrata_core::{BlockPool, Policy, PoolConfig, SequenceHash};
/// let pool = BlockPool::new(PoolConfig::new(4).policy(Policy::Lru))?;
/// let mut blocks = Vec::new();
/// pool.allocate_free(4, &mut blocks)?; // never evicts
/// for (block, hash) in blocks.drain(..).zip(1..) {
///     let full = block.complete(SequenceHash::from_u128(hash)).map_err(|refused| refused.error)?;
///     drop(pool.register(full, None)); // released at once: inactive, and found by lookups
/// }
/// assert!(pool.allocate_free(1, &mut blocks).is_err());
///
/// // Looks at the next victims take nothing: all at once, in parts, or only some of the blocks.
/// let (mut next, mut seen, mut parts) = (Vec::new(), VictimsSeen::default(), Vec::new());
/// pool.next_victims(4, &mut next);
/// pool.victims_behind(&mut seen, 1, &mut parts);
/// pool.victims_behind(&mut seen, 3, &mut parts);
/// assert_eq!(next, parts);
/// let (first, hash) = next[0];
/// assert_eq!(pool.evictable(first), Some(hash));
/// let (mut passed, mut own) = (Passed::default(), Vec::new());
/// pool.next_victims_among(&mut passed, 1, |block| block != first, &mut own);
/// assert_eq!(own, [next[1].0]);
///
/// // Victims are the caller's, with their bytes: save them, then use the blocks anew.
/// let mut victims = Vec::new();
/// assert_eq!(pool.evict(1, &mut victims), 1);
/// assert_eq!(victims[0].hash(), hash);
/// let chosen = pool.evict_this(next[2].0)?; // counts as evicted
/// let taken = pool.take_out(next[3].0)?; // counts as removed only
/// drop((chosen.into_mutable(), taken.into_mutable(), victims));
/// assert_eq!((pool.free(), pool.stats().evicted), (3, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Blocks by number
///
/// For callers that keep numbers, such as an engine's block table, instead of handles:
///
/// ```
/// use kvstrata_core::{BlockPool, PoolConfig, SequenceHash};
/// let pool = BlockPool::new(PoolConfig::new(6))?;
/// let hashes: Vec<_> = (1..=2).map(SequenceHash::from_u128).collect();
/// let (mut ids, mut held) = (Vec::new(), Vec::new());
/// pool.allocate_free_ids(6, &mut ids)?;
/// pool.register_ids(&ids[..2], &hashes, None, &mut held)?; // each the parent of the next
/// pool.register_ids_apart(&ids[2..3], &[SequenceHash::from_u128(3)], &mut held)?; // no parent
/// let again = pool.hold_again(held[0]).expect("it is held");
/// assert_eq!(pool.release_refs(held.drain(..).rev().chain([again])), 0); // none was left alone
///
/// assert_eq!(pool.match_refs(&hashes, &mut held), 2);
/// assert_eq!(pool.touch_refs(&hashes, &mut held), 2); // needed later: not a use
/// held.extend(pool.lookup_ref(hashes[1]));
/// pool.release_refs(held.drain(..).rev());
///
/// // A number or a reference becomes a handle again, once.
/// let block = pool.adopt_mutable(ids[3])?;
/// let reference = pool.lookup(hashes[0]).expect("registered").into_ref();
/// drop((block, pool.adopt_immutable(reference)?));
///
/// let mut victims = Vec::new();
/// assert_eq!(pool.evict_ids(1, &mut victims), 1);
/// assert_eq!(pool.evict_ids_behind(1, 1, &mut victims), 1); // one request for two blocks
/// assert_eq!(pool.give_back_ids(victims.iter().map(|(id, _)| *id).chain(ids.drain(4..))), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Leases and withdrawal
///
/// ```
/// use kvstrata_core::{BlockPool, PoolConfig, SequenceHash};
/// let pool = BlockPool::new(PoolConfig::new(4))?;
/// let mut blocks = Vec::new();
/// pool.allocate(3, &mut blocks)?;
/// let mut full = blocks.drain(..).zip(1..).map(|(block, hash)| {
///     block.complete(SequenceHash::from_u128(hash)).map_err(|refused| refused.error)
/// });
/// let [scoped, shared, plain] = [full.next(), full.next(), full.next()].map(|block| block.expect("three"));
///
/// // A copy reads the block: the lease keeps it from eviction, and is not a use.
/// let plain = pool.register(plain?, None).into_block().downgrade();
/// assert!(pool.lease(plain) && pool.is_leased(plain) && pool.has_children(plain));
/// pool.end_lease(plain);
/// pool.unregister(plain)?;
///
/// // Content that ends with a scope, for example a session: lookups miss after the last handle.
/// let (registered, handle) = pool.register_scoped(scoped?, None);
/// let hash = registered.into_block().hash();
/// drop(handle);
/// assert!(!pool.contains(hash));
///
/// // A holder withdraws a block: it takes the block when its own reference is the only one.
/// let held = pool.register(shared?, None).into_block().into_ref();
/// assert_eq!(pool.registered(held.id).map(|(block, _)| block), Some(held));
/// assert!(pool.withdraw_held(held));
/// let (other, _) = pool.hold_withdrawn(held.id).expect("held, and withdrawn");
/// assert!(pool.take_withdrawn(held).is_none());
/// pool.release_refs([other]);
/// assert!(pool.take_withdrawn(held).is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Figures
///
/// ```
/// use kvstrata_core::{BlockPool, Policy, PoolConfig};
/// let pool = BlockPool::new(PoolConfig::new(100).policy(Policy::Reuse).page_size(32))?;
/// assert_eq!((pool.capacity(), pool.page_size(), pool.policy()), (100, 32, Policy::Reuse));
/// let mut blocks = Vec::new();
/// pool.allocate(3, &mut blocks)?;
/// assert_eq!((pool.free(), pool.active(), pool.inactive(), pool.available()), (97, 3, 0, 97));
/// assert_eq!((pool.stats().stored, pool.census().owned), (0, 3));
/// assert!(pool.reuse_stats().is_some() && pool.memory_bytes() >= 64 * 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    /// Example: [figures](BlockPool#figures).
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
    ///
    /// Example: [figures](BlockPool#figures).
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Tokens per page.
    ///
    /// Example: [figures](BlockPool#figures).
    pub fn page_size(&self) -> u32 {
        self.page_size
    }

    /// The eviction policy.
    ///
    /// Example: [figures](BlockPool#figures).
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
