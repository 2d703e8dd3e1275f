//! kvstrata: a tiered KV-cache block manager for LLM inference.
//!
//! Blocks live in strata: device memory (G1), host memory (G2), NVMe (G3); remote stores (G4) are not there
//! yet. The bookkeeping is in `kvstrata-core`, lock-free and `no_std`; what touches memory, devices and files
//! is in `kvstrata-ffi`; this crate puts them together.
//!
//! Types are at the root: [`KvBlockManager`], its [`ManagerConfig`], a [`Group`] of layers, and what their
//! calls take and give. When a call begins, and what dropping its future means, is one rule:
//! [`Tiers`](Tiers#calls-futures-and-drops).
//!
//! | module | what |
//! |---|---|
//! | [`config`] | the settings of a manager: files, variables, calls; the reference |
//! | [`costs`] | what copies cost on this machine's devices, as it was measured and stored |
//! | [`metrics`] | what a manager's operator watches: figures, Prometheus text, an endpoint |
//! | [`disk`] | the disk tier: found again after a restart, with admission and a write budget |
//! | [`movers`] | who moves bytes between the tiers |
//! | `otel` | spans for an OpenTelemetry collector: of the feature `otel` |
//! | [`manager`] | [`KvBlockManager`]: what an engine embeds |
//! | [`scheduler`] | when transfers may touch blocks in use, and which blocks have been idle |
//! | [`tier`], [`transfer`] | the tiers; transfers between them, and the ports of who moves bytes |
//!
//! A sequence's blocks, computed once and found again:
//!
//! ```
//! # use kvstrata::{KvBlockManager, ManagerConfig};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let manager = KvBlockManager::open(&ManagerConfig::builder().device_blocks(64).build()?)?;
//! let group = manager.default_group();
//! let tokens: Vec<u32> = (0..100).collect(); // six full blocks of 16 tokens, and four tokens
//! let hashes = group.hashes_of(&tokens, manager.salt("a model", "", &[]));
//!
//! let mut blocks = group.acquire(&hashes).more(1).await?;
//! assert_eq!((blocks.held.len(), blocks.fresh.len()), (0, 7));
//! // … the model fills the blocks, then:
//! let computed = blocks.fresh.split_to(6).register(&hashes, Some(&blocks.held))?;
//! drop((blocks, computed)); // with the block of the last four tokens
//!
//! let again = group.acquire(&hashes).await?;
//! assert_eq!((again.held.len(), again.fresh.len()), (6, 0));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod manager;
pub mod metrics;
#[cfg(feature = "otel")]
pub mod otel;
#[doc(hidden)]
pub mod shared;

pub use config::{ConfigError, ManagerConfig, ManagerConfigBuilder};
pub use kvstrata_backends::{costs, disk, memory, movers};
pub use kvstrata_config::{self as config, model};
pub use kvstrata_core::{
    BlockId, BlockRef, DevicePort, Policy, PoolConfig, Priority, Salt, SequenceHash, Token,
    TokenBlockSequence,
};
pub use kvstrata_tiers::{scheduler, tier, transfer};
pub use manager::{
    Acquire, AcquireError, Acquired, Ahead, Allocate, AllocateError, AllocateGroups, Allocation, Answer,
    Blocks, BlocksMut, BuildError, Census, Device, DeviceError, DiskError, Group, GroupMatch, GroupsMatch,
    GroupsOnboarded, HashKeyError, Iteration, KvBlockManager, ManagerBuilder, ManagerStats, Needs, Offload,
    OffloadOptions, Offloaded, Onboard, OnboardError, OnboardGroups, OnboardOptions, Onboarded,
    OriginalNames, OwnRuntime, Parts, PartsError, PathStats, Preempted, Prefetch, PrefixMatch, Purge,
    PurgeError, Purged, PurgedTier, Refusal, RegisterError, RegisterFault, Resumed, StackParts, TenantError,
    TenantId, TenantUse, TierCensus, TierParts, Tiers, TooManyReferences,
};
pub use scheduler::{Gate, Misuse};
pub use tier::Tier;
pub use transfer::{Cause, Class};
