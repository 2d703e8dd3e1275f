//! Errors of opening a store.

use crate::manager::{DiskError, HashKeyError};
use kvstrata_core::ConfigError;
use kvstrata_ffi::arena::ArenaError;
use kvstrata_store::PartsError;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Parts of the fingerprint are missing. Without them a store would serve bytes of another model.
    #[error("{}: none; a store needs each of them, so that it never serves bytes of another model", missing.join(", "))]
    Fingerprint {
        /// The settings.
        missing: Vec<&'static str>,
    },
    /// There is no tier.
    #[error("disk.bytes, host.bytes: none; give the store at least one of them")]
    NoTier,
    /// A tier is too small for a block of each size.
    #[error("{given}: less than {least} bytes, a block of each of store.sizes; raise it")]
    Small {
        /// The setting with its value.
        given: String,
        /// The bytes of one block of each size.
        least: u64,
    },
    /// The settings need more memory than is available.
    #[error("{given}: needs {needed} bytes of memory, but {available} are available; use less")]
    Room {
        /// The setting with its value.
        given: String,
        /// The bytes needed.
        needed: u64,
        /// The bytes available.
        available: u64,
    },
    /// Host memory cannot be allocated.
    #[error("{given}: {source}")]
    Memory {
        /// The settings with their values.
        given: String,
        /// The error.
        source: ArenaError,
    },
    /// The disk tier cannot be opened.
    #[error("{given}: {source}")]
    Disk {
        /// The settings with their values.
        given: String,
        /// The error.
        source: Box<DiskError>,
    },
    /// Threads cannot be started.
    #[error(
        "{given}: cannot start threads: {source}; use fewer, or raise ulimit -u or the cgroup's pids.max"
    )]
    Threads {
        /// The setting with its value.
        given: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The figures cannot be served.
    #[error("{given}: cannot listen there: {source}; choose another address or port, or remove the setting")]
    Metrics {
        /// The setting with its value.
        given: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The secret of the keys cannot be read or made.
    #[error(transparent)]
    HashKey(#[from] HashKeyError),
    /// A pool cannot be made.
    #[error(transparent)]
    Pool(#[from] ConfigError),
    /// The parts do not fit together.
    #[error(transparent)]
    Parts(#[from] PartsError),
}
