//! Errors of making a manager.

use super::hash_key::HashKeyError;
use super::volumes::DiskError;
use crate::config::ManagerConfig;
use crate::movers::{CudaMoverError, ThreadsError};
use crate::transfer::MemoryError;
use kvstrata_ffi::arena::ArenaError;
use kvstrata_ffi::probe::Bound as Bounded;
use kvstrata_ffi::shown::shown;
use kvstrata_tiers::PartsError;
use std::error::Error;
use std::fmt::Display;

/// Why an engine's device was not opened.
pub type DeviceError = Box<dyn Error + Send + Sync>;

/// Why there is no manager.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Memory.
    #[error("{given}, for host memory of group {}: {source}", shown(group))]
    Memory {
        /// Settings that ask for it, with their values.
        given: String,
        /// Of which group.
        group: String,
        /// What is wrong.
        source: MemoryError,
    },
    /// More memory than there is.
    #[error(
        "{given}: needs {needed}, but {bound} leaves {available}; use fewer or smaller blocks{}",
        if matches!(bound, Bounded::Machine) { "" } else { ", or raise that limit" }
    )]
    Room {
        /// The setting that asks for most of it, with its value.
        given: String,
        /// What is needed, and for what.
        needed: String,
        /// What is there.
        available: String,
        /// What bounds it.
        bound: Bounded,
    },
    /// The simulated device.
    #[error("{given}, for the simulated device of group {}: {source}", shown(group))]
    Device {
        /// Settings that ask for it, with their values.
        given: String,
        /// Of which group.
        group: String,
        /// What is wrong.
        source: ArenaError,
    },
    /// The disk tier.
    #[error("{given}, for the disk tier of group {}: {source}", shown(group))]
    Disk {
        /// Settings that ask for it, with their values.
        given: String,
        /// Of which group.
        group: String,
        /// What is wrong.
        source: Box<DiskError>,
    },
    /// A runtime of the manager's own.
    #[error(
        "{given}: cannot start the runtime's threads: {source}; use fewer, build inside a runtime, or raise ulimit -u \
         or the cgroup's pids.max"
    )]
    Runtime {
        /// The setting that asks for them, with its value.
        given: String,
        /// What is wrong.
        source: std::io::Error,
    },
    /// The runtime that was handed in: whoever waits has a deadline.
    #[error(
        "the tokio runtime has no timers; call enable_time() on its builder, or build the manager outside a runtime"
    )]
    Timers,
    /// A GPU.
    #[error("{given}, for group {}: {source}; device.kind may also be auto or sim", shown(group))]
    Cuda {
        /// Settings that ask for it, with their values.
        given: String,
        /// Of which group.
        group: String,
        /// What is wrong.
        source: CudaMoverError,
    },
    /// An engine's own device.
    #[error("the engine's device for group {}: {source}", shown(group))]
    OwnDevice {
        /// Of which group.
        group: String,
        /// What is wrong.
        source: DeviceError,
    },
    /// Threads that copy.
    #[error("{given}: {source}; use 1 to 256, or remove the setting")]
    Threads {
        /// The setting that asks for them, with its value.
        given: String,
        /// What is wrong.
        source: ThreadsError,
    },
    /// Where figures are to be served.
    #[error("{given}: cannot listen there: {source}; choose another address or port, or remove the setting")]
    Metrics {
        /// The setting that asks for it, with its value.
        given: String,
        /// What is wrong.
        source: std::io::Error,
    },
    /// The secret of the block hashes.
    #[error(transparent)]
    HashKey(#[from] HashKeyError),
    /// Parts that do not fit together.
    #[error("group {}: {why}", shown(group))]
    Parts {
        /// Of which group.
        group: String,
        /// What does not fit.
        why: String,
    },
    /// The tiers' parts.
    #[error(transparent)]
    Tiers(#[from] PartsError),
}

/// Settings with their values, as messages of the configuration have them.
pub(super) fn given(config: &ManagerConfig, settings: &[(&str, &dyn Display)]) -> String {
    let said =
        |(key, value): &(&str, &dyn Display)| format!("{key} = {} ({})", shown(value), config.origin(key));
    settings.iter().map(said).collect::<Vec<_>>().join(" and ")
}
