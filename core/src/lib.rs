//! Lock-free bookkeeping of KV blocks: the content, the holders and the bytes of each block.
//!
//! `no_std` with `alloc`. The core knows no thread, file, socket, clock or GPU. After construction no
//! call allocates, blocks or makes a system call.
//!
//! ```
//! use kvstrata_core::{BlockPool, PoolConfig, SequenceHash};
//!
//! let pool = BlockPool::new(PoolConfig::new(64))?;
//! let mut blocks = Vec::new();
//! pool.allocate(2, &mut blocks)?;
//! // … the engine fills both blocks, then:
//! let hashes = [SequenceHash::from_u128(1), SequenceHash::from_u128(2)];
//! let mut held = Vec::new();
//! for (block, hash) in blocks.drain(..).zip(hashes) {
//!     let complete = block.complete(hash).map_err(|refused| refused.error)?;
//!     held.push(pool.register(complete, held.last()).into_block());
//! }
//! pool.release(held.drain(..).rev()); // tail first
//!
//! assert_eq!(pool.match_prefix(&hashes, &mut held), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The life of a block
//!
//! 1. **Hash.** [`TokenBlockSequence`] turns tokens into blocks with one [`SequenceHash`] each: the name
//!    of its tokens and of all tokens before them. The [`Salt`] keeps tenants apart.
//! 2. **Match.** [`BlockPool::match_prefix`] finds the longest registered prefix, and holds its blocks
//!    as [`ImmutableBlock`]s.
//! 3. **Allocate.** [`BlockPool::allocate`] gives the missing blocks as [`MutableBlock`]s, and evicts if
//!    too few are free. The engine fills them; [`MutableBlock::complete`] names each by its hash.
//! 4. **Register.** [`BlockPool::register_sequence`] publishes the blocks. If another request has
//!    registered the same content first, the caller gets that block, and its own copy is freed.
//! 5. **Release.** [`BlockPool::release`] gives the references back, tail first. The blocks stay until
//!    eviction needs their room; [`BlockPool::evict`] hands victims out with their bytes, to be saved in
//!    another tier.
//!
//! [`BlockPool`] has an example of each group of calls.
//!
//! # Which policy
//!
//! [`Policy`] decides which unreferenced block leaves first. Under each policy, low [`Priority`] leaves
//! first, pinned blocks stay, and a parent stays until its children have left. `Lru` is the default of a
//! pool: simple and exact. `Reuse` learns which blocks of conversations come back; it needs more memory,
//! and its hits never fall far behind those of `Lru`. The other policies follow their papers, which
//! [`Policy`] names. `kvstrata policies` prints the hits of each policy on a recorded trace.
//!
//! # Threads and memory orderings
//!
//! Pools and request tables are `Send + Sync`, take `&self`, and never wait for a stalled thread. A
//! lookup that finds a block sees all bytes written before its registration (Release and Acquire on the
//! block's state word), and the new owner of a freed or evicted block sees all writes of its former
//! holders. Between a lookup and an eviction of one block exactly one succeeds. Writes by devices are
//! outside this order: wait for a copy to end before the call that publishes or frees its block. Counts
//! such as [`BlockPool::free`] hold for that moment only.
//!
//! # Bring your own memory
//!
//! The core computes addresses and never follows one. An engine keeps its own allocations: it describes
//! them by a [`Layout`] over [`Region`](layout::Region)s (an [`Arrangement`], or tensors with strides),
//! and a [`CopyPlan`](plan::CopyPlan) between two layouts lists the copies. [`ByoStorage`] makes any
//! memory a [`Storage`] that keeps its owner alive. [`DevicePort`] is the port for copies to and from
//! device memory; an [`EventSink`] receives each registration and its end.
//!
//! # The ten types to know first
//!
//! - [`BlockPool`]: the blocks of one tier; [`PoolConfig`]: its settings
//! - [`MutableBlock`]: a block to fill; [`ImmutableBlock`]: a reference to a registered block
//! - [`EvictedBlock`]: a victim whose bytes are intact; [`BlockRef`]: a weak reference of eight bytes
//! - [`TokenBlockSequence`]: tokens in, blocks and hashes out
//! - [`RequestTable`]: blocks reserved and released by request
//! - [`Layout`]: the address of each byte; [`CopyPlan`](plan::CopyPlan): the fewest copies between two
//!
//! # Modules
//!
//! | purpose | modules |
//! |---|---|
//! | blocks of a tier | [`pool`], [`request`], [`events`] |
//! | names of content | [`tokens`], [`hash`] |
//! | bytes and copies | [`layout`], [`plan`], [`storage`] |
//! | tenants, and waiting for blocks | [`owners`], [`waiting`] |
//! | facts that tiers keep about blocks: idle times, classes, parents | [`ages`], [`classes`], [`parents`] |
#![cfg_attr(not(any(test, loom)), no_std)]

extern crate alloc;

pub mod ages;
pub mod classes;
pub mod events;
pub mod hash;
pub mod layout;
pub mod owners;
pub mod parents;
pub mod plan;
pub mod pool;
pub mod request;
pub mod storage;
pub mod tokens;
pub mod waiting;

// The private modules, which `pool` is made of:
//
//   slot       one block's metadata: 64 bytes, one state word
//   free       free slots: a bitmap in stripes, with credits
//   registry   `SequenceHash → slot`: a hash table threaded through the slots
//   timeline   one order of events for all eviction lists
//   policy     LRU, LFU, SIEVE, S3-FIFO, ARC, 2Q, and learned reuse, over the timeline
//   sync       the atomics, which loom replaces; site! and skipped!, the mutations
//   lane, prefetch, id, error    lanes of threads, cache hints, names of blocks, errors
mod error;
mod free;
mod id;
mod lane;
mod policy;
mod prefetch;
mod registry;
mod slot;
mod sync;
mod timeline;

pub use ages::Ages;
pub use classes::Classes;
pub use error::{ConfigError, OutOfBlocks, Reason, Refused, TransitionError};
pub use events::EventSink;
pub use hash::{BlockHash, BlockHasher, Hasher, Keyed, Salt, SaltParts, SequenceHash, Xxh3};
pub use id::{BlockId, BlockRef};
pub use layout::{Arrangement, DType, Layout, LayoutConfig, LayoutError};
pub use owners::{Owners, TenantId};
pub use parents::Parents;
pub use policy::{Policy, ReuseStats, UnknownPolicy};
pub use pool::{
    BlockPool, Census, CompleteBlock, Duplicates, EvictedBlock, ImmutableBlock, MutableBlock, PoolConfig,
    Registered, RegistrationHandle, Stats, VictimsSeen,
};
pub use request::{RequestId, RequestTable, ReserveError};
pub use slot::{Priority, State};
pub use storage::{ByoStorage, DeviceError, DevicePort, Storage, StorageKind};
pub use tokens::{Token, TokenBlock, TokenBlockSequence};
pub use waiting::Waiting;
