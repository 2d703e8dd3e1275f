//! Effects of a change, carried out once the lock is released: movers started, waiters woken, blocks
//! handed over. `operations/effects.rs` carries them out.

use crate::state::{Grant, GroupId, Late};
use crate::transfer::{Copy, HostMemory, Path, TierPort, TierRead, TierWrite};
use futures_channel::oneshot;
use kvstrata_core::{BlockId, TenantId};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use std::vec::Drain;

/// A read, and the number of its request.
pub(crate) type Reading = (Arc<dyn TierPort>, TierRead, u64);
/// Copies of a group on a path.
pub(crate) type Copying = (GroupId, Path, Vec<Copy>);
/// A caller, and the blocks that it gets, of a group and for a tenant.
pub(crate) type Granting = (oneshot::Sender<Grant>, GroupId, Vec<BlockId>, TenantId);
/// A write, the memory with the sums for its bytes, and the number of its request.
pub(crate) type Writing = (Arc<dyn TierPort>, TierWrite, Option<Arc<HostMemory>>, u64);

/// Work that must not be done under the lock.
#[derive(Default)]
pub(crate) struct Effects {
    wakes: Vec<Waker>,
    copies: Vec<Copying>,
    reads: Vec<Reading>,
    writes: Vec<Writing>,
    grants: Vec<Granting>,
    /// Callers that get no blocks: dropping the sender tells them.
    gone: Vec<oneshot::Sender<Grant>>,
    /// Callers that get no blocks in time.
    late: Vec<(oneshot::Sender<Grant>, Late)>,
    /// Futures that a moment has come for.
    come: Vec<oneshot::Sender<()>>,
    /// Slots of lower tiers were given back.
    given_back: bool,
    /// A new earliest deadline.
    wake_at: Option<Duration>,
    /// Nothing is under way, and a caller waits for that.
    idle: bool,
}

impl Effects {
    /// Adds a copy to a list of its group and path; a list has at most `most` copies.
    pub(crate) fn copy(
        &mut self,
        memory: impl FnOnce() -> Vec<Copy>,
        most: usize,
        (group, path): (GroupId, Path),
        copy: Copy,
    ) {
        let fits = |(of, by, list): &&mut (GroupId, Path, Vec<Copy>)| {
            (*of, *by) == (group, path) && list.len() < most
        };
        // The last list of its kind: those before it are full.
        match self.copies.iter_mut().rev().find(fits) {
            Some((_, _, list)) => list.push(copy),
            None => {
                let mut list = memory();
                list.push(copy);
                self.copies.push((group, path, list));
            }
        }
    }

    pub(crate) fn read(&mut self, tier: Arc<dyn TierPort>, read: TierRead, request: u64) {
        self.reads.push((tier, read, request));
    }

    /// Adds a write. With `memory`, the bytes are first compared with its sums.
    pub(crate) fn write(
        &mut self,
        tier: Arc<dyn TierPort>,
        write: TierWrite,
        memory: Option<Arc<HostMemory>>,
        request: u64,
    ) {
        self.writes.push((tier, write, memory, request));
    }

    pub(crate) fn grant(
        &mut self,
        to: oneshot::Sender<Grant>,
        group: GroupId,
        blocks: Vec<BlockId>,
        tenant: TenantId,
    ) {
        self.grants.push((to, group, blocks, tenant));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.wakes.is_empty()
            && self.copies.is_empty()
            && self.reads.is_empty()
            && self.writes.is_empty()
            && self.grants.is_empty()
            && self.gone.is_empty()
            && self.late.is_empty()
            && self.come.is_empty()
            && !self.given_back
            && self.wake_at.is_none()
            && !self.idle
    }

    /// Wakes futures.
    pub(crate) fn wake(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        self.wakes.extend(wakers);
    }

    /// Tells a caller that it gets no blocks.
    pub(crate) fn dismiss(&mut self, to: oneshot::Sender<Grant>) {
        self.gone.push(to);
    }

    /// Tells a caller that it gets no blocks in time.
    pub(crate) fn late(&mut self, to: oneshot::Sender<Grant>, late: Late) {
        self.late.push((to, late));
    }

    /// Tells a future that its moment has come.
    pub(crate) fn moment_has_come(&mut self, tell: oneshot::Sender<()>) {
        self.come.push(tell);
    }

    /// Notes that a slot of a lower tier was given back.
    pub(crate) fn slot_given_back(&mut self) {
        self.given_back = true;
    }

    /// Sets the timer: there is a new earliest deadline.
    pub(crate) fn wake_at(&mut self, at: Duration) {
        self.wake_at = Some(at);
    }

    /// Notes that nothing is under way.
    pub(crate) fn idle(&mut self) {
        self.idle = true;
    }
}

/// Takes each kind of effect, to carry it out.
impl Effects {
    pub(crate) fn take_reads(&mut self) -> Drain<'_, Reading> {
        self.reads.drain(..)
    }

    pub(crate) fn take_copies(&mut self) -> Drain<'_, Copying> {
        self.copies.drain(..)
    }

    pub(crate) fn take_writes(&mut self) -> Drain<'_, Writing> {
        self.writes.drain(..)
    }

    pub(crate) fn take_given_back(&mut self) -> bool {
        std::mem::take(&mut self.given_back)
    }

    pub(crate) fn take_late(&mut self) -> Drain<'_, (oneshot::Sender<Grant>, Late)> {
        self.late.drain(..)
    }

    pub(crate) fn take_grants(&mut self) -> Drain<'_, Granting> {
        self.grants.drain(..)
    }

    pub(crate) fn take_dismissed(&mut self) -> Drain<'_, oneshot::Sender<Grant>> {
        self.gone.drain(..)
    }

    pub(crate) fn take_moments(&mut self) -> Drain<'_, oneshot::Sender<()>> {
        self.come.drain(..)
    }

    pub(crate) fn take_wake_at(&mut self) -> Option<Duration> {
        self.wake_at.take()
    }

    pub(crate) fn take_idle(&mut self) -> bool {
        std::mem::take(&mut self.idle)
    }

    pub(crate) fn take_wakes(&mut self) -> Drain<'_, Waker> {
        self.wakes.drain(..)
    }
}
