//! [`KvBlockManager`]: KV blocks over device (G1), host (G2) and disk (G3), for an LLM engine to embed.
//! Remote stores (G4) are not supported yet.
//!
//! The manager makes the tiers from its settings, and runs them ([`kvstrata_tiers`]) on the caller's tokio
//! runtime, or on one of its own. The crate's root has the same types, and a [guide](crate).

// | file | contents |
// |---|---|
// | `builder.rs` | a manager over an engine's own device memory |
// | `build.rs`, `rules.rs` | a manager from settings, or from parts |
// | `error.rs` | errors of building a manager |
// | `device.rs`, `devices.rs`, `volumes.rs`, `volume_files.rs` | the device and the disk of a group |
// | `memory.rs`, `agree.rs` | refusals: missing memory; parts that contradict settings |
// | `hash_key.rs` | the secret of the block hashes |
// | `attendance.rs`, `own.rs` | the clock, the timer, the tasks; the manager's own runtime |

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
pub(crate) use error::given;
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
pub(crate) use own::run_detached;
pub use volumes::DiskError;

use crate::config::ManagerConfig;
use crate::metrics::Endpoint;
use attendance::Attendance;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

/// KV blocks over the tiers of a machine, with the runtime that runs them. Clones are the same manager.
///
/// A manager derefs to [`Tiers`], which has its calls for all groups: iterations, tenants, figures,
/// [`shutdown`](Tiers::shutdown). [`default_group`](Tiers::default_group) returns the [`Group`] with the
/// calls for blocks: [`acquire`](Group::acquire), [`allocate`](Group::allocate), [`offload`](Group::offload).
///
/// `async/examples/embed.rs` is the smallest engine over a manager; `async/examples/engine.rs` also batches,
/// preempts and decodes.
#[derive(Clone)]
pub struct KvBlockManager {
    tiers: Tiers,
    attendance: Arc<Attendance>,
}

impl KvBlockManager {
    /// Builds a manager from settings, on the current tokio runtime, or else on one of its own.
    ///
    /// ```
    /// use kvstrata::{KvBlockManager, ManagerConfig, Tier};
    ///
    /// let config = ManagerConfig::builder().device_blocks(64).host_blocks(256).build()?;
    /// let manager = KvBlockManager::open(&config)?;
    /// assert_eq!(manager.default_group().capacity(Tier::Host), 256);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`BuildError`], if memory, a device, a volume, the runtime's threads or an address is not available.
    pub fn open(config: &ManagerConfig) -> Result<KvBlockManager, BuildError> {
        KvBlockManager::builder(config).build()
    }

    /// Builds a manager from parts. For tiers that no setting makes, such as your own
    /// [`TierPort`](kvstrata_tiers::transfer::TierPort), and for tests and benchmarks; see
    /// `async/tests/manager/below.rs`. An engine with its own device memory uses
    /// [`builder`](KvBlockManager::builder).
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/tests/manager/below.rs)
    ///
    /// # Errors
    /// [`BuildError`], if the parts do not fit together, or contradict the given settings.
    pub fn of_parts(config: &ManagerConfig, parts: Parts) -> Result<KvBlockManager, BuildError> {
        build::of_parts(config, parts)
    }

    /// Returns the address at which the figures are served (`metrics.listen`), until the end of a
    /// [`shutdown`](Tiers::shutdown).
    ///
    /// ```
    /// # use kvstrata::{KvBlockManager, ManagerConfig};
    /// let listen = "127.0.0.1:0".parse()?; // port 0: any free port
    /// let config = ManagerConfig::builder().device_blocks(8).metrics_listen(Some(listen)).build()?;
    /// let manager = KvBlockManager::open(&config)?;
    /// assert!(manager.metrics_address().is_some_and(|address| address.port() != 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
