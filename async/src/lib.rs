//! kvstrata: a tiered KV-cache block manager for LLM inference.
//!
//! An engine computes KV blocks; kvstrata keeps those that later requests may need in tiers: device memory
//! (G1), host memory (G2), NVMe drives (G3). Remote stores (G4) are not supported yet.
//!
//! # Guide
//!
//! ```
//! use kvstrata::{KvBlockManager, ManagerConfig};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Open. The settings may also come from a file or from variables.
//! let manager = KvBlockManager::open(&ManagerConfig::builder().device_blocks(64).build()?)?;
//! let group = manager.default_group();
//! let tokens: Vec<u32> = (0..100).collect(); // six full blocks of 16 tokens, and four tokens
//! let hashes = group.hashes_of(&tokens, manager.salt("a model", "", &[]));
//!
//! // Acquire: cached blocks come up to the device, the others are free blocks for the model to fill.
//! let mut blocks = group.acquire(&hashes).more(1).await?; // one more, for the last four tokens
//! assert_eq!((blocks.held.len(), blocks.fresh.len()), (0, 7));
//!
//! // Iterations tell when the model uses the blocks.
//! let pass = manager.begin_iteration()?;
//! pass.layer_done(0)?; // after the kernels of each layer
//! pass.end()?;
//!
//! // Register the full blocks, so that later requests find them. Dropped blocks stay cached.
//! let computed = blocks.fresh.split_to(6).register(&hashes, Some(&blocks.held))?;
//! drop((blocks, computed));
//!
//! let again = group.acquire(&hashes).await?;
//! assert_eq!((again.held.len(), again.fresh.len()), (6, 0));
//! drop(again);
//! assert!(manager.shutdown().await);
//! # Ok(())
//! # }
//! ```
//!
//! 1. **Open** a manager with [`KvBlockManager::open`], or with [`KvBlockManager::builder`] over the engine's
//!    own device memory. Settings: [`ManagerConfig::builder`], `docs/settings.md`.
//! 2. **Acquire** a request's blocks with [`Group::acquire`]. Its steps are calls of their own, too:
//!    [`match_prefix`](Group::match_prefix), [`onboard`](Group::onboard), [`allocate`](Group::allocate).
//! 3. **Register** computed blocks with [`BlocksMut::register`], and drop [`Blocks`] after the last kernel
//!    that reads them. If blocks run out, [`preempt`](Group::preempt) a request and
//!    [`resume`](Group::resume) it later.
//! 4. **Iterations**: [`begin_iteration`](Tiers::begin_iteration), [`layer_done`](Iteration::layer_done) and
//!    [`end`](Iteration::end) tell when transfers may touch blocks in use.
//! 5. **Shut down** with [`shutdown`](Tiers::shutdown): it waits for transfers, and closes the disk tier.
//!
//! One rule says when a call begins, and what dropping its future does:
//! [`Tiers`](Tiers#calls-futures-and-drops).
//!
//! # First types
//!
//! - [`KvBlockManager`]: the manager; it derefs to [`Tiers`], the calls for all groups of layers
//! - [`ManagerConfig`]: the settings, checked
//! - [`ManagerBuilder`], [`Device`]: a manager over the engine's own device memory
//! - [`Group`]: the calls for blocks of a group of layers
//! - [`Acquired`]: the blocks of a request, cached ones and new ones
//! - [`Blocks`], [`BlocksMut`]: registered blocks that are held, and owned blocks to fill
//! - [`Iteration`]: a pass of the model
//! - [`AllocateError`]: why a request got no blocks
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | the settings: files, variables, calls, the reference |
//! | [`metrics`] | figures as a struct and as Prometheus text, the HTTP endpoint |
//! | `otel` | spans for an OpenTelemetry collector (feature `otel`) |
//! | [`manager`] | [`KvBlockManager`] and its types |
//! | [`store`] | [`KvStore`](store::KvStore): blocks by key, for engines with their own memory |
//! | [`scheduler`] | gates: when transfers may touch blocks in use |
//! | [`tier`] | the tiers |
//! | [`backend`] | plumbing for tiers and devices of your own, tests and benchmarks |
#![forbid(unsafe_code)]

pub mod backend;
pub mod manager;
pub mod metrics;
#[cfg(feature = "otel")]
pub mod otel;
#[doc(hidden)]
pub mod shared;
pub mod store;

pub use config::{ConfigError, ManagerConfig, ManagerConfigBuilder};
pub use kvstrata_config::{self as config, model};
pub use kvstrata_core::{
    BlockId, BlockRef, DevicePort, Policy, PoolConfig, Priority, Salt, SequenceHash, Token,
    TokenBlockSequence,
};
pub use kvstrata_tiers::transfer::{Cause, Class};
pub use kvstrata_tiers::{scheduler, tier};
pub use manager::{
    Acquire, AcquireError, Acquired, Ahead, Allocate, AllocateError, AllocateGroups, Allocation, Answer,
    Blocks, BlocksMut, BuildError, Device, DeviceError, DiskError, Group, GroupMatch, GroupsMatch,
    GroupsOnboarded, HashKeyError, Iteration, KvBlockManager, ManagerBuilder, ManagerStats, Offload,
    OffloadOptions, Offloaded, Onboard, OnboardError, OnboardGroups, OnboardOptions, Onboarded,
    OriginalNames, PathStats, Preempted, Prefetch, PrefixMatch, Purge, PurgeError, Purged, PurgedTier,
    Refusal, RegisterError, RegisterFault, Resumed, TenantError, TenantId, TenantUse, Tiers,
    TooManyReferences,
};
pub use scheduler::{Gate, Misuse};
pub use tier::Tier;
