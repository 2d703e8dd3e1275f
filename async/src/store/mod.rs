//! [`KvStore`]: blocks by key over host memory (G2) and disk (G3), for an engine that keeps its own device
//! and host memory.
//!
//! The store makes its tiers from the settings, and runs them on threads of its own: a caller needs no
//! runtime. Completions come by futures, or by a descriptor to poll ([`KvStore::client`](Store::client)).

// | file | contents |
// |---|---|
// | `open.rs` | a store from settings |
// | `error.rs` | why a store cannot be opened |
// | `namespace.rs` | keys, from a fingerprint and an engine's keys |
// | `files.rs` | the files of a store |
// | `copier.rs` | threads that copy in host memory |
// | `runtime.rs` | the clock, the timer and the threads |
// | `figures.rs` | the figures as Prometheus text |

mod copier;
mod error;
mod figures;
mod files;
mod namespace;
mod open;
mod runtime;

pub use copier::HostCopier;
pub use error::StoreError;
pub use figures::markdown as metrics_markdown;
pub use kvstrata_ffi::disk::Urgency;
pub use kvstrata_store::{
    Batch, BatchOptions, Client, Completion, Found, JobId, Kind, Miss, Outcome, SizeClassStats, Store,
    StoreStats, SubmitError, Until,
};
pub use namespace::Namespace;
pub use runtime::StoreRuntime;

use crate::config::ManagerConfig;
use crate::metrics::Endpoint;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Blocks by key. Clones are the same store. It derefs to [`Store`], which has the calls.
///
/// ```
/// use kvstrata::store::{BatchOptions, KvStore};
/// use kvstrata::ManagerConfig;
/// use kvstrata::backend::HostArena;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = ManagerConfig::builder()
///     .disk_bytes(Some(16 << 20)) // no path: a temporary file
///     .store_sizes(vec![64 << 10])
///     .store_model(Some("a model".into()))
///     .store_revision(Some("1".into()))
///     .store_dtype(Some("bfloat16".into()))
///     .store_layout(Some("a layout".into()))
///     .store_span(Some(16))
///     .store_ranks(Some("0of1".into()))
///     .build()?;
/// let store = KvStore::open(&config)?;
/// let key = store.namespace().key(b"the engine's key of a block");
///
/// // The engine's memory: here two blocks of an arena, elsewhere any memory that it lends.
/// let (from, to) = (HostArena::new(1, 64 << 10)?, HostArena::new(1, 64 << 10)?);
/// from.write(0)?.fill(7);
/// let stored = store.store(&[key], from, BatchOptions::default())?.await;
/// assert!(stored.is_some_and(|batch| batch.is_done()));
///
/// assert!(store.contains(key));
/// let loaded = store.load(&[key], to.clone(), BatchOptions::default())?.await;
/// assert!(loaded.is_some_and(|batch| batch.is_done()) && to.read(0)?.iter().all(|byte| *byte == 7));
/// store.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct KvStore {
    store: Store,
    namespace: Namespace,
    endpoint: Arc<Mutex<Option<Endpoint>>>,
    within: Duration,
}

impl KvStore {
    /// Opens a store from settings: those of `store`, `host`, `disk`, `hash`, `deadline`, `transfer`,
    /// `metrics` and `runtime`. It runs on threads of its own.
    ///
    /// # Errors
    /// [`StoreError`]: a part of the fingerprint is missing, or memory, a volume, a thread or an address is
    /// not available.
    pub fn open(config: &ManagerConfig) -> Result<KvStore, StoreError> {
        open::open(config)
    }

    /// Returns the namespace of the settings, which makes keys.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Returns the address at which the figures are served (`metrics.listen`).
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Endpoint::address)
    }

    /// Returns the figures as Prometheus text.
    #[must_use]
    pub fn metrics_text(&self) -> String {
        figures::text(&self.store.stats())
    }

    /// Returns how long a shutdown should take (`deadline.shutdown`).
    #[must_use]
    pub fn shutdown_deadline(&self) -> Duration {
        self.within
    }

    /// Closes the store: calls are refused, batches that have not begun are answered, and the volumes are
    /// closed with the mark of a clean end. Ends when that is done. Nothing depends on it: after a kill the
    /// next start recovers.
    pub async fn shutdown(&self) {
        self.store.close().await;
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Deref for KvStore {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl fmt::Debug for KvStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KvStore({:?})", self.store)
    }
}
