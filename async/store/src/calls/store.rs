//! [`Store`]: the calls.

use crate::calls::attendant::StoreAttendant;
use crate::calls::batch::Batch;
use crate::calls::client::Client;
use crate::calls::options::{BatchOptions, Until};
use crate::engine::inner::Inner;
use crate::outcome::{JobId, Kind};
use crate::state::{Job, Sink};
use crate::stats::{SizeClassStats, StoreStats};
use futures_channel::oneshot;
use kvstrata_core::{BlockPool, SequenceHash};
use kvstrata_ffi::arena::HostArena;
use kvstrata_tiers::Tier;
use std::fmt;
use std::io;
use std::sync::{Arc, Weak};

/// Blocks by key, in host memory and in a tier below. Clones are the same store.
///
/// - A key stands for bytes that never change. To store a key that is there does nothing.
/// - [`contains`](Store::contains) and [`find`](Store::find) touch no device, take no lock, and are no use
///   of a block. [`load`](Store::load) and [`store`](Store::store) are.
/// - Each key of a batch has its own answer. One that fails is a miss, and the others stay good.
/// - A batch owns the lent memory until nothing touches it any more, also if its future is dropped.
pub struct Store {
    inner: Arc<Inner>,
}

/// Where a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The tier.
    pub tier: Tier,
    /// The length of its bytes.
    pub bytes: usize,
}

/// Why a batch has not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The numbers of keys and of lent blocks differ.
    #[error("keys: {keys}, blocks of lent memory: {blocks}; lend one block for each key")]
    Lengths {
        /// The number of keys.
        keys: usize,
        /// The number of blocks of the lent memory.
        blocks: usize,
    },
    /// This process was forked from the one that opened the store.
    #[error("the store was opened in another process; open a store in this process, after the fork")]
    Forked,
    /// The store is closed.
    #[error("the store is closed; open it again")]
    Closed,
    /// As many batches are under way as may wait.
    #[error("batches under way: {batches}; wait for some of them to end")]
    Busy {
        /// The number of batches.
        batches: usize,
    },
}

impl Store {
    pub(crate) fn of(inner: Arc<Inner>) -> Store {
        Store { inner }
    }

    /// Returns where each key is now. A key under way to a tier is not there yet.
    #[must_use]
    pub fn find(&self, key: SequenceHash) -> Option<Found> {
        if self.inner.is_inherited() || self.inner.is_closed() {
            return None;
        }
        let now = self.inner.fixed.now();
        let found = self.inner.fixed.classes.iter().find_map(|class| class.find(key, now));
        found.map(|(tier, bytes)| Found { tier, bytes })
    }

    /// Returns whether a key can be loaded now: false while the tier that has it takes too long.
    #[must_use]
    pub fn contains(&self, key: SequenceHash) -> bool {
        self.find(key).is_some()
    }

    /// Returns the number of leading keys that can be loaded now.
    #[must_use]
    pub fn leading(&self, keys: &[SequenceHash]) -> usize {
        keys.iter().take_while(|key| self.contains(**key)).count()
    }

    /// Stores block `i` of the lent memory under `keys[i]`. It begins at once.
    ///
    /// # Errors
    /// [`SubmitError`]: nothing has begun, and the memory is the caller's.
    pub fn store(
        &self,
        keys: &[SequenceHash],
        memory: Arc<HostArena>,
        options: BatchOptions,
    ) -> Result<Batch, SubmitError> {
        self.batch(Kind::Store, keys, Some(memory), options)
    }

    /// Loads the bytes of `keys[i]` into block `i` of the lent memory, which is as long as they are. It
    /// begins at once. The memory of a key that is answered as a miss may have been overwritten.
    ///
    /// # Errors
    /// [`SubmitError`]: nothing has begun, and the memory is the caller's.
    pub fn load(
        &self,
        keys: &[SequenceHash],
        memory: Arc<HostArena>,
        options: BatchOptions,
    ) -> Result<Batch, SubmitError> {
        self.batch(Kind::Load, keys, Some(memory), options)
    }

    /// Forgets keys: from the answer on, no lookup finds them until they are stored again. A transfer of a
    /// key that is under way ends first. A crash soon after may bring keys back; an orderly end does not.
    ///
    /// # Errors
    /// [`SubmitError`]: nothing has begun.
    pub fn forget(&self, keys: &[SequenceHash]) -> Result<Batch, SubmitError> {
        self.batch(Kind::Forget, keys, None, BatchOptions::default())
    }

    /// Makes a client: completions by a descriptor to poll.
    ///
    /// # Errors
    /// The system's error, if it gives no descriptor.
    pub fn client(&self) -> io::Result<Client> {
        Client::new(self.clone())
    }

    /// Returns the figures.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        if self.inner.is_inherited() {
            return StoreStats::default();
        }
        let state = self.inner.look();
        let mut stats = state.tally.stats();
        stats.batches = state.jobs.len() as u64;
        let counts = |pool: &BlockPool| [pool.capacity() as u64, (pool.active() + pool.inactive()) as u64];
        for class in self.inner.fixed.class_ids() {
            let (of, lane) = (self.inner.fixed.class(class), &state.lanes[class.index()]);
            stats.classes.push(SizeClassStats {
                block_bytes: of.block_bytes,
                host_blocks: of.host.as_ref().map_or([0; 2], counts),
                host_free: of.host.as_ref().map_or(0, |host| host.free() as u64),
                held: of.host.as_ref().map_or(0, |host| host.active() as u64),
                staging: [lane.staging_blocks as u64, lane.staging.len() as u64],
                below_blocks: of.below.as_ref().map_or([0; 2], |below| counts(below.pool())),
                waiting: lane.waiting() as u64,
                moving: u64::from(lane.reads_moving + lane.writes_moving),
                slow: lane.breaker.is_open(),
                below: of.below.as_ref().and_then(|below| below.stats()),
            });
        }
        stats
    }

    /// Returns the sizes of blocks, from small to large.
    pub fn block_sizes(&self) -> impl Iterator<Item = usize> + '_ {
        self.inner.fixed.classes.iter().map(|class| class.block_bytes)
    }

    /// Closes the store: calls are refused from now on, and transfers that have not begun are cancelled. Ends
    /// when nothing moves any more and the tiers below are closed in order. A tier that hangs delays it.
    pub async fn close(&self) {
        if self.inner.is_inherited() {
            return;
        }
        let idle = self.inner.listen_idle();
        self.inner.close();
        let _ = idle.await;
        for class in self.inner.fixed.class_ids() {
            let below = self.inner.fixed.class(class).below.as_ref();
            let Some(close) = below.and_then(|below| below.close()) else { continue };
            let (tell, told) = oneshot::channel();
            let work = move || {
                close();
                let _ = tell.send(());
            };
            self.inner.fixed.runtime.run_blocking(Box::new(work), std::time::Duration::ZERO);
            let _ = told.await;
        }
    }

    /// Returns a handle for figures, which does not keep the store alive.
    #[must_use]
    pub fn watch(&self) -> StoreWatcher {
        StoreWatcher(self.inner.weak())
    }

    /// Returns the attendant of its deadlines, for the runtime.
    #[must_use]
    pub fn attendant(&self) -> StoreAttendant {
        StoreAttendant(self.inner.weak())
    }

    fn batch(
        &self,
        kind: Kind,
        keys: &[SequenceHash],
        memory: Option<Arc<HostArena>>,
        options: BatchOptions,
    ) -> Result<Batch, SubmitError> {
        let (to, ended) = oneshot::channel();
        let job = self.submit(kind, keys, memory, options, Sink::Future(to))?;
        Ok(Batch { job, ended })
    }

    /// Begins a batch.
    pub(crate) fn submit(
        &self,
        kind: Kind,
        keys: &[SequenceHash],
        memory: Option<Arc<HostArena>>,
        options: BatchOptions,
        sink: Sink,
    ) -> Result<JobId, SubmitError> {
        let inner = &self.inner;
        if inner.is_inherited() {
            return Err(SubmitError::Forked);
        }
        if let Some(blocks) =
            memory.as_ref().map(|memory| memory.blocks()).filter(|blocks| *blocks != keys.len())
        {
            return Err(SubmitError::Lengths { keys: keys.len(), blocks });
        }
        let rules = &inner.fixed.rules;
        let within = options.within.unwrap_or(match kind {
            Kind::Load => rules.load_deadline,
            Kind::Store | Kind::Forget => rules.store_deadline,
        });
        let id = JobId(inner.next_number());
        let deadline = inner.fixed.now().saturating_add(within);
        let until_host = options.until == Until::Host;
        let job = Job::new((id, kind), keys.len(), memory, deadline, (options.urgency, until_host), sink);
        inner.call(|state| {
            if state.is_closed {
                return Err(SubmitError::Closed);
            }
            let batches = state.jobs.len();
            if batches >= rules.queue {
                return Err(SubmitError::Busy { batches });
            }
            state.begin(job, |state, key| match kind {
                Kind::Store => state.store(inner, key, keys),
                Kind::Load => state.load(inner, key, keys),
                Kind::Forget => state.forget(inner, key, keys),
            });
            Ok(id)
        })
    }
}

/// Figures of a store that may be gone.
#[derive(Debug, Clone)]
pub struct StoreWatcher(Weak<Inner>);

impl StoreWatcher {
    /// Returns the figures; `None` if the store is gone.
    #[must_use]
    pub fn stats(&self) -> Option<StoreStats> {
        self.0.upgrade().map(|inner| Store::of(inner).stats())
    }

    /// Returns whether the store takes calls.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.upgrade().is_some_and(|inner| !inner.is_inherited() && !inner.look().is_closed)
    }
}

impl Clone for Store {
    fn clone(&self) -> Store {
        Store { inner: Arc::clone(&self.inner) }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.inner.is_inherited() {
            self.inner.keep();
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({:?})", self.block_sizes().collect::<Vec<_>>())
    }
}
