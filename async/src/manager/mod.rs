//! [`KvBlockManager`]: KV blocks over device (G1), host (G2) and disk (G3), for an LLM engine to embed.
//! Remote stores (G4) are not there yet.
//!
//! The manager makes the tiers as its settings say, and runs them ([`kvstrata_tiers`]): on a tokio runtime,
//! with its own where there is none.
//!
//! | file | what |
//! |---|---|
//! | `builder.rs` | a manager over an engine's own device memory |
//! | `build.rs`, `rules.rs` | a manager of settings, or of parts |
//! | `error.rs` | errors of making one |
//! | `device.rs`, `devices.rs`, `volumes.rs`, `volume_files.rs` | the device and the disk of a group |
//! | `memory.rs`, `agree.rs` | memory that there is not, and parts that contradict settings: refused |
//! | `hash_key.rs` | the secret of the block hashes |
//! | `attendance.rs`, `own.rs` | the clock, the timer, the tasks; a runtime of the manager's own |

mod agree;
mod attendance;
mod build;
mod builder;
mod device;
mod devices;
mod error;
#[doc(hidden)]
pub mod hash_key;
#[doc(hidden)]
pub mod memory;
mod own;
mod rules;
#[doc(hidden)]
pub mod volume_files;
#[doc(hidden)]
pub mod volumes;

pub use build::Parts;
pub use builder::ManagerBuilder;
pub use device::Device;
pub use error::{BuildError, DeviceError};
pub use hash_key::HashKeyError;
pub use kvstrata_tiers::metrics::{ManagerStats, PathStats, Refusal};
pub use kvstrata_tiers::{
    Acquire, AcquireError, Acquired, Ahead, Allocate, AllocateError, AllocateGroups, Allocation, Answer,
    Blocks, BlocksMut, Census, Group, GroupMatch, GroupsMatch, GroupsOnboarded, Iteration, Needs, Offload,
    OffloadOptions, Offloaded, Onboard, OnboardError, OnboardGroups, OnboardOptions, Onboarded,
    OriginalNames, PartsError, Preempted, Prefetch, PrefixMatch, Purge, PurgeError, Purged, PurgedTier,
    RegisterError, RegisterFault, Resumed, StackParts, TenantError, TenantId, TenantUse, TierCensus,
    TierParts, Tiers, TooManyReferences,
};
pub use own::OwnRuntime;
pub use volumes::DiskError;

use crate::config::ManagerConfig;
use crate::metrics::Endpoint;
use attendance::Attendance;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

/// KV blocks over the tiers of a machine, and what runs them. Clones are the same manager. All calls are
/// those of [`Tiers`].
#[derive(Clone)]
pub struct KvBlockManager {
    tiers: Tiers,
    attendance: Arc<Attendance>,
}

impl KvBlockManager {
    /// A manager of settings, on the tokio runtime that this is called in, or on one of its own.
    ///
    /// # Errors
    /// [`BuildError`]: memory, a device or a volume that cannot be had.
    pub fn open(config: &ManagerConfig) -> Result<KvBlockManager, BuildError> {
        KvBlockManager::builder(config).build()
    }

    /// A manager of parts: for tiers that are made otherwise than by settings.
    ///
    /// # Errors
    /// [`BuildError`]: parts that do not fit together, or are not what the given settings say.
    pub fn of_parts(config: &ManagerConfig, parts: Parts) -> Result<KvBlockManager, BuildError> {
        build::of_parts(config, parts)
    }

    /// Where the figures are served (`metrics.listen`), while they are: until a [`shutdown`](Tiers::shutdown)
    /// is over.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        if self.tiers.is_inherited() {
            return None;
        }
        self.attendance.endpoint().as_ref().map(Endpoint::address)
    }
}

impl Deref for KvBlockManager {
    type Target = Tiers;

    fn deref(&self) -> &Tiers {
        &self.tiers
    }
}

impl fmt::Debug for KvBlockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KvBlockManager({:?})", self.tiers)
    }
}
