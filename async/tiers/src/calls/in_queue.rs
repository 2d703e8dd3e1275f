//! A caller's places in the wait queues, and the blocks granted there.
//!
//! Invariants
//! - I1: dropping it leaves all queues: blocks that were granted meanwhile go back.

use crate::calls::allocate_error::AllocateError;
use crate::calls::blocks::BlocksMut;
use crate::engine::inner::Inner;
use crate::engine::notices::About;
use crate::engine::tenants::TenantUse;
use crate::state::{Grant, GroupId, Home, Late, Traffic, Want, Wants};
use futures_channel::oneshot;
use kvstrata_core::{BlockId, TenantId};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Places in queues. Dropping it leaves the places that have not been served.
pub(crate) struct InQueue {
    inner: Arc<Inner>,
    tenant: TenantId,
    /// The longest wait.
    patience: Duration,
    places: VecDeque<Place>,
    /// The blocks of the places before.
    served: Vec<BlocksMut>,
}

/// A place in the queue of one group.
pub(crate) struct Place {
    group: GroupId,
    number: u64,
    count: usize,
    blocks: oneshot::Receiver<Grant>,
}

impl InQueue {
    /// Enters the queue of one group, under the lock, with the blocks gathered already.
    pub(crate) fn enter_one(
        traffic: &mut Traffic,
        inner: &Inner,
        (group, tenant): (GroupId, TenantId),
        (count, gathered): (usize, Vec<BlockId>),
        patience: Duration,
    ) -> Place {
        let (to, blocks) = oneshot::channel();
        let want = Want::of_caller((group, tenant), count, gathered, to);
        let wants = Wants { parts: vec![want], ..Wants::default() };
        let number = traffic.enter_queues(inner, wants, inner.due_in(patience));
        Place { group, number, count, blocks }
    }

    /// Waits at a place.
    pub(crate) fn at(inner: &Arc<Inner>, place: Place, tenant: TenantId, patience: Duration) -> InQueue {
        let (places, served) = (VecDeque::from([place]), Vec::new());
        InQueue { inner: Arc::clone(inner), tenant, patience, places, served }
    }

    /// Enters the queues of these groups at once, with a number of blocks each.
    pub(crate) fn enter(
        inner: &Arc<Inner>,
        groups: impl Iterator<Item = (GroupId, usize)>,
        tenant: TenantId,
        patience: Duration,
    ) -> Result<InQueue, AllocateError> {
        let due = inner.due_in(patience);
        let (mut places, mut wants) = (VecDeque::new(), Wants::default());
        for (group, count) in groups {
            let (to, blocks) = oneshot::channel();
            places.push_back(Place { group, number: 0, count, blocks });
            wants.parts.push(Want::of_caller((group, tenant), count, Vec::new(), to));
        }
        let first = inner.with(|traffic| {
            may_wait(traffic, tenant)?;
            Ok(traffic.enter_queues(inner, wants, due))
        })?;
        (first..).zip(&mut places).for_each(|(number, place)| place.number = number);
        Ok(InQueue { inner: Arc::clone(inner), tenant, patience, places, served: Vec::new() })
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Returns the blocks of each queue, when all have been served.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<BlocksMut>, AllocateError>> {
        if self.inner.is_inherited() {
            return Poll::Ready(Err(AllocateError::Inherited));
        }
        while let Some(place) = self.places.front_mut() {
            let answer = ready!(Pin::new(&mut place.blocks).poll(context));
            let (group, requested) = (place.group, place.count);
            // Served, or answered by an error.
            self.places.pop_front();
            match answer {
                Ok(Ok(granted)) => {
                    let blocks = BlocksMut::new(Arc::clone(&self.inner), group, granted.take(), self.tenant);
                    self.served.push(blocks);
                }
                Ok(Err(late)) => return Poll::Ready(Err(self.is_late(group, requested, late))),
                // The entry was dismissed.
                Err(_) if self.inner.look().refuses() => return Poll::Ready(Err(AllocateError::Closed)),
                Err(_) => return Poll::Ready(Err(AllocateError::Purging)),
            }
        }
        Poll::Ready(Ok(std::mem::take(&mut self.served)))
    }

    fn is_late(&self, group: GroupId, requested: usize, late: Late) -> AllocateError {
        self.inner.counts.late(About::of_group(group));
        self.inner.say();
        let Late { ahead, available } = late;
        let device = &self.inner.group(group).device;
        let (capacity, quota) = (device.pool().capacity(), device.owners().limit(self.tenant));
        let tenant = quota.map(|_| TenantUse { blocks: device.owners().used(self.tenant), quota });
        AllocateError::Deadline { requested, waited: self.patience, available, capacity, ahead, tenant }
    }
}

impl Drop for InQueue {
    fn drop(&mut self) {
        if self.inner.is_inherited() {
            return self.inner.keep();
        }
        if !self.places.is_empty() {
            // All queues are left at once. Blocks granted meanwhile go back after the lock, with the places.
            let left = self.places.iter();
            self.inner
                .with(|traffic| left.for_each(|of| traffic.quit_queue(&self.inner, of.group, of.number)));
        }
    }
}

/// Refuses a caller that would get nothing.
pub(crate) fn may_wait(traffic: &Traffic, tenant: TenantId) -> Result<(), AllocateError> {
    if traffic.refuses() {
        return Err(AllocateError::Closed);
    }
    if traffic.is_purging(tenant) { Err(AllocateError::Purging) } else { Ok(()) }
}

impl Home for Inner {
    fn take_back(self: Arc<Inner>, group: GroupId, blocks: Vec<BlockId>, tenant: TenantId) {
        drop(BlocksMut::new(self, group, blocks, tenant));
    }
}
