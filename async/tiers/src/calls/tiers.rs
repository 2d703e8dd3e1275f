//! The tiers: the calls that concern all groups of layers.

use crate::calls::answer::Answer;
use crate::calls::census::Census;
use crate::calls::group::Group;
use crate::calls::handle::Handle;
use crate::calls::{census, describe, metrics};
use crate::engine::inherited;
use crate::engine::inner::Inner;
use crate::engine::names::TenantHandle;
use crate::metrics::{ManagerStats, Metrics, Requests};
use crate::state::GroupId;
use kvstrata_core::hash::Hasher;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tracing::field::Empty;
use tracing::{Instrument, info_span};

/// KV blocks over the tiers of a machine, for one tenant or for none. Clones are the same tiers.
///
/// Its own calls concern all groups of layers. Blocks are looked up, allocated and copied by a [`Group`]: the
/// [default group](Tiers::default_group) is a model's only one, or the first of a hybrid model.
///
/// # Calls, futures and drops
///
/// A call begins when it is made: its place in the queue is taken, its look-up is held, its transfers are
/// queued. The future that it gives only waits for the answer. A call that is built
/// ([`allocate`](Group::allocate), [`acquire`](Group::acquire), [`allocate_groups`](Tiers::allocate_groups)) is
/// made by `.await`, or by [`into_future`](std::future::IntoFuture::into_future).
///
/// Dropping the future, polled or not, withdraws a request for blocks or for a prefix in the device. Its place
/// is left, and the blocks that it has gathered go back. A transfer that is under way goes on, and owns its
/// memory until it has ended.
///
/// Requests that gather nothing for the caller go on without their future: an [`offload`](Group::offload),
/// what a [`persist`](Group::persist) has queued, a [purge](Tiers::purge).
#[derive(Clone)]
pub struct Tiers {
    default_group: Group,
    pub(crate) name: Option<Arc<str>>,
}

impl Tiers {
    pub(crate) fn over(inner: Arc<Inner>) -> Tiers {
        Tiers { default_group: Group::new(Handle::over(inner), GroupId::FIRST), name: None }
    }

    /// The same tiers, called for a tenant of this name.
    pub(crate) fn asked_by(&self, tenant: TenantHandle, name: Arc<str>) -> Tiers {
        let handle = self.handle().of_tenant(tenant);
        Tiers { default_group: Group::new(handle, GroupId::FIRST), name: Some(name) }
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.default_group.handle()
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.handle().inner
    }

    /// The first group of layers: the only one, unless the model is hybrid.
    #[must_use]
    pub fn default_group(&self) -> &Group {
        &self.default_group
    }

    /// A group of layers, by its number in the configuration; none if there are not so many.
    /// [`groups`](Tiers::groups) says how many there are.
    #[must_use]
    pub fn group(&self, group: usize) -> Option<Group> {
        let number = Some(group).filter(|group| *group < self.groups()).map(GroupId::new)?;
        Some(Group::new(self.handle().clone(), number))
    }

    /// The time, by the runtime's clock.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.inner().elapsed()
    }

    /// Whether calls are refused: a shutdown has begun.
    #[must_use]
    pub fn is_refusing(&self) -> bool {
        self.inner().refusing.load(Relaxed)
    }

    /// Whether this process was forked from the one that made the tiers: then no call does anything.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.inner().is_inherited()
    }

    /// The deployment's hash function, with its secret: for salts and sequences that are made outside of the
    /// manager.
    #[must_use]
    pub fn hasher(&self) -> &Hasher {
        &self.inner().hasher
    }

    /// Tiers, sizes and the ways that bytes take, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        if self.inner().is_inherited() {
            inherited::INHERITED.to_owned()
        } else {
            describe::describe(self.inner())
        }
    }

    /// What it has done.
    #[must_use]
    pub fn stats(&self) -> ManagerStats {
        self.inner().counts.snapshot(self.inner().elapsed())
    }

    /// The figures that an operator watches, all of them. Sums are a moment old while others go on. In a
    /// forked child: what had been counted at the fork, without the disk's figures, tenants and what waits.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        metrics::metrics(self.inner())
    }

    /// Tells of the engine's requests what a router asks of a worker
    /// ([`WorkerMetrics`](crate::metrics::WorkerMetrics)): the manager knows blocks, not slots, nor who waits
    /// before it is asked.
    pub fn tell_requests(&self, requests: Requests) {
        self.inner().watch.tell(requests);
    }

    /// Where every block is. Exact at rest only; for tests and diagnosis.
    #[must_use]
    pub fn census(&self) -> Census {
        // In a forked child nobody knows.
        if self.inner().is_inherited() { Census::default() } else { census::census(self.inner()) }
    }

    /// Ends what is under way: no more transfers begin; those that have are waited for, and so is what a
    /// caller waits for. What is not over by the deadline (`deadline.shutdown`) goes on without anybody, and
    /// owns its memory until the hardware has answered. Returns whether all was over. Then the disk tier is
    /// closed too, with the mark of a clean end, whoever still has a handle, and figures are not served any
    /// more: the next manager of the same settings may be made at once. Without a shutdown that is done when
    /// the last handle is dropped, whose thread waits for it as long.
    ///
    /// Blocks of device and host are not written to the disk for that, but for deferred copies by
    /// `offload.mode = "through"` and finds room: what is to outlive the process is
    /// [persisted](Group::persist) before.
    ///
    /// It begins at once: from the call on nothing more is given. Dropped, the answer ends nothing: what is
    /// under way ends with the last handle.
    pub fn shutdown(&self) -> Answer<bool> {
        let handle = self.handle().clone();
        if handle.inner.is_inherited() {
            return Answer::now(false);
        }
        let span = info_span!("shutdown", clean = Empty);
        let deadline = span.in_scope(|| handle.inner.begin_shutdown());
        Answer::later(async move {
            let clean = handle.inner.end_shutdown(deadline).instrument(span.clone()).await;
            span.record("clean", clean);
            clean
        })
    }
}

impl fmt::Debug for Tiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tiers({} groups, the first: {:?})", self.groups(), self.default_group)
    }
}
