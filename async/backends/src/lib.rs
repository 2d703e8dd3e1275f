//! Implementations of the ports of `kvstrata-tiers`: tiers and device movers.
//!
//! ```
//! use kvstrata_backends::memory::MemoryTier;
//! use kvstrata_core::{PoolConfig, SequenceHash};
//! use kvstrata_tiers::transfer::TierPort;
//!
//! // A tier of 16 blocks of 4 KiB, with one copying thread.
//! let tier = MemoryTier::new(PoolConfig::new(16), 4096, 1)?;
//! assert_eq!(tier.pool().capacity(), 16);
//! assert!(tier.find(SequenceHash::from_u128(1), true).is_none());
//! # Ok::<(), kvstrata_backends::memory::MemoryTierError>(())
//! ```
//!
//! - [`disk::DiskTier`]: a pool over volumes, found again after a restart
//! - [`disk::DiskMover`]: the same behind the port of tiers
//! - [`disk::TierOptions`], [`disk::AdmissionPolicy`]: which blocks are worth a write
//! - [`memory::MemoryTier`]: a tier in pageable host memory
//! - [`movers::ThreadsMover`], [`movers::PortMover`]: copies by threads, to a simulated device or by its port
//! - [`movers::CudaMover`], [`movers::CudaMoverOptions`]: copies between an engine's tensors and pinned
//!   memory
//! - [`costs`]: measured and stored copy costs of this machine's devices
#![forbid(unsafe_code)]

pub mod costs;
pub mod disk;
#[doc(hidden)]
pub mod files;
pub mod memory;
pub mod movers;
