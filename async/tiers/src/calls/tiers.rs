//! The tiers: the calls for all groups of layers.

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
/// Its own calls are for all groups of layers. Look-ups, allocations and copies of blocks are
/// calls of a [`Group`]: the [default group](Tiers::default_group) is a model's only one, or the
/// first of a hybrid model.
///
/// # Calls, futures and drops
///
/// A call begins when it is made: it takes its place in the queue, holds the blocks that it found, and
/// queues its transfers. Its future only waits for the answer. A call with options
/// ([`allocate`](Group::allocate), [`acquire`](Group::acquire), [`allocate_groups`](Tiers::allocate_groups))
/// is made by `.await`, or by [`into_future`](std::future::IntoFuture::into_future).
///
/// Dropping the future, polled or not, withdraws a request for blocks or for a prefix in the device. The
/// request leaves its place, and the blocks that it has gathered go back. A transfer under way goes on,
/// and owns its memory until it has ended.
///
/// Requests that gather no blocks for the caller go on without their future: an
/// [`offload`](Group::offload), the copies that a [`persist`](Group::persist) has queued, a
/// [purge](Tiers::purge), a [shutdown](Tiers::shutdown)'s refusals.
/// [`Onboard::layer_ready`](crate::Onboard::layer_ready) and
/// [`Preempted::settled`](crate::Preempted::settled) begin nothing: they only wait.
#[derive(Clone)]
pub struct Tiers {
    default_group: Group,
    pub(crate) name: Option<Arc<str>>,
}

impl Tiers {
    pub(crate) fn over(inner: Arc<Inner>) -> Tiers {
        Tiers { default_group: Group::new(Handle::over(inner), GroupId::FIRST), name: None }
    }

    /// Returns the same tiers, called for a tenant of this name.
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

    /// Returns the first group of layers: the only one, unless the model is hybrid.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/embed.rs)
    #[must_use]
    pub fn default_group(&self) -> &Group {
        &self.default_group
    }

    /// Returns a group of layers, by its number in the configuration. None if there are not so
    /// many ([`groups`](Tiers::groups)).
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn group(&self, group: usize) -> Option<Group> {
        let number = Some(group).filter(|group| *group < self.groups()).map(GroupId::new)?;
        Some(Group::new(self.handle().clone(), number))
    }

    /// Returns the time, by the runtime's clock.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/tests/manager/below.rs)
    #[must_use]
    pub fn now(&self) -> Duration {
        self.inner().elapsed()
    }

    /// Returns whether calls are refused: a shutdown has begun.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn is_refusing(&self) -> bool {
        self.inner().refusing.load(Relaxed)
    }

    /// Returns whether this process was forked from the one that made the tiers. In such a process no
    /// call does anything.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.inner().is_inherited()
    }

    /// Returns the deployment's hash function, with its secret: for salts and sequences that are made
    /// outside of the manager.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn hasher(&self) -> &Hasher {
        &self.inner().hasher
    }

    /// Describes tiers, sizes and the ways that bytes take, for people.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/layerwise.rs)
    #[must_use]
    pub fn describe(&self) -> String {
        if self.inner().is_inherited() {
            inherited::INHERITED.to_owned()
        } else {
            describe::describe(self.inner())
        }
    }

    /// Returns the manager's counters.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/engine.rs)
    #[must_use]
    pub fn stats(&self) -> ManagerStats {
        self.inner().counts.snapshot(self.inner().elapsed())
    }

    /// Returns all figures that an operator watches. While others go on, sums are a moment old. In a
    /// forked child: the counts at the fork, without disk figures, tenants, and waiting work.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        metrics::metrics(self.inner())
    }

    /// Reports the engine's requests, for the figures that a router asks of a worker
    /// ([`WorkerMetrics`](crate::metrics::WorkerMetrics)). The manager knows blocks, but neither request
    /// slots nor requests that wait outside of it.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub fn tell_requests(&self, requests: Requests) {
        self.inner().watch.tell(requests);
    }

    /// Returns where every block is. Exact at rest only; for tests and diagnosis.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn census(&self) -> Census {
        // A forked child cannot know.
        if self.inner().is_inherited() { Census::default() } else { census::census(self.inner()) }
    }

    /// Shuts down: no call begins anything new, and transfers and callers' requests under way are waited
    /// for. Work that is not over by the deadline (`deadline.shutdown`) goes on alone, and owns its
    /// memory until the hardware has answered. Returns whether all work was over. If so, the disk tier
    /// is closed with the mark of a clean end, even if handles remain, and figures are no longer served:
    /// the next manager with these settings may be made at once. Without a shutdown, dropping the last
    /// handle does this, and its thread waits for it as long.
    ///
    /// Blocks of device and host are not written to the disk, except deferred copies of
    /// `offload.mode = "write-through"` that find room. [Persist](Group::persist) blocks that are to
    /// outlive the process before.
    ///
    /// It begins at once: from the call on no blocks are given. Dropping the answer ends nothing: work
    /// under way ends with the last handle.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/embed.rs)
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
