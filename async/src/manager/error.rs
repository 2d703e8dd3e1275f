//! Errors of building a manager.

use super::hash_key::HashKeyError;
use super::volumes::DiskError;
use crate::config::ManagerConfig;
use kvstrata_backends::movers::{CudaMoverError, ThreadsError};
use kvstrata_ffi::arena::ArenaError;
use kvstrata_ffi::probe::Bound as Bounded;
use kvstrata_ffi::shown::shown;
use kvstrata_tiers::PartsError;
use kvstrata_tiers::transfer::MemoryError;
use std::error::Error;
use std::fmt::Display;

/// Why an engine's device was not opened.
pub type DeviceError = Box<dyn Error + Send + Sync>;

/// Why a manager cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Host memory cannot be allocated.
    #[error("{given}, for host memory of group {}: {source}", shown(group))]
    Memory {
        /// The settings with their values.
        given: String,
        /// The group.
        group: String,
        /// The error.
        source: MemoryError,
    },
    /// The settings need more memory than is available.
    #[error(
        "{given}: needs {needed}, but {bound} leaves {available}; use fewer or smaller blocks{}",
        if matches!(bound, Bounded::Machine) { "" } else { ", or raise that limit" }
    )]
    Room {
        /// The setting that needs most of it, with its value.
        given: String,
        /// The memory needed, by purpose.
        needed: String,
        /// The memory available.
        available: String,
        /// The limit.
        bound: Bounded,
    },
    /// The simulated device cannot be allocated.
    #[error("{given}, for the simulated device of group {}: {source}", shown(group))]
    Device {
        /// The settings with their values.
        given: String,
        /// The group.
        group: String,
        /// The error.
        source: ArenaError,
    },
    /// The disk tier cannot be opened.
    #[error("{given}, for the disk tier of group {}: {source}", shown(group))]
    Disk {
        /// The settings with their values.
        given: String,
        /// The group.
        group: String,
        /// The error.
        source: Box<DiskError>,
    },
    /// The manager's own runtime cannot be started.
    #[error(
        "{given}: cannot start the runtime's threads: {source}; use fewer, build inside a runtime, or raise ulimit -u \
         or the cgroup's pids.max"
    )]
    Runtime {
        /// The setting with its value.
        given: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The runtime has no timers, which deadlines need.
    #[error(
        "the tokio runtime has no timers; call enable_time() on its builder, or build the manager outside a runtime"
    )]
    Timers,
    /// A GPU cannot be used.
    #[error("{given}, for group {}: {source}; device.kind may also be auto or sim", shown(group))]
    Cuda {
        /// The settings with their values.
        given: String,
        /// The group.
        group: String,
        /// The error.
        source: CudaMoverError,
    },
    /// The engine's own device failed to open.
    #[error("the engine's device for group {}: {source}", shown(group))]
    OwnDevice {
        /// The group.
        group: String,
        /// The error.
        source: DeviceError,
    },
    /// Copying threads cannot be started.
    #[error("{given}: {source}; use 1 to 256, or remove the setting")]
    Threads {
        /// The setting with its value.
        given: String,
        /// The error.
        source: ThreadsError,
    },
    /// The figures cannot be served.
    #[error("{given}: cannot listen there: {source}; choose another address or port, or remove the setting")]
    Metrics {
        /// The setting with its value.
        given: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The secret of the block hashes cannot be read or made.
    #[error(transparent)]
    HashKey(#[from] HashKeyError),
    /// Parts that do not agree with the settings.
    #[error("group {}: {why}", shown(group))]
    Parts {
        /// The group.
        group: String,
        /// The disagreement.
        why: String,
    },
    /// Parts that do not fit together.
    #[error(transparent)]
    Tiers(#[from] PartsError),
}

/// Formats settings with their values and origins, as messages of the configuration do.
pub(crate) fn given(config: &ManagerConfig, settings: &[(&str, &dyn Display)]) -> String {
    let said =
        |(key, value): &(&str, &dyn Display)| format!("{key} = {} ({})", shown(value), config.origin(key));
    settings.iter().map(said).collect::<Vec<_>>().join(" and ")
}
