//! kvstrata's core: lock-free bookkeeping of KV blocks, for one tier or many.
//!
//! `no_std` with `alloc`; it knows no thread, file, socket, clock or GPU. After construction no call
//! allocates, blocks or makes a system call. The modules:
//!
//! | module | concept |
//! |---|---|
//! | [`pool`] | a tier's blocks: allocate, register, match, release, evict; the typestate handles |
//! | `slot` | one block's metadata: 64 bytes, one state word |
//! | `free` | free slots: a bitmap in stripes, with credits |
//! | `registry` | `SequenceHash → slot`: a hash table threaded through the slots |
//! | `timeline` | one order of events for all eviction lists |
//! | `policy` | LRU, LFU, SIEVE, S3-FIFO, ARC, 2Q, and learned reuse, over the timeline |
//! | [`request`] | the request-level view: reserve and release by request |
//! | [`waiting`] | the count of waiters for blocks, by which a releaser knows whether to wake one |
//! | [`owners`] | tenants: the owner of each block, and the number of blocks each may have |
//! | [`ages`] | idle times of blocks, and whether they have a copy below |
//! | [`classes`], [`parents`] | data that moves along with a block's bytes from tier to tier |
//! | [`tokens`], [`hash`] | tokens to blocks to chained hashes |
//! | [`layout`], [`plan`] | where a block's bytes lie; the fewest moves from there to anywhere |
//! | [`storage`] | the ports that hardware implements |
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
