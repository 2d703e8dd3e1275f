//! Blocks to fill.

use crate::calls::blocks::BlocksMut;
use crate::engine::inherited::INHERITED;
use crate::engine::inner::Inner;
use crate::engine::notices::About;
use crate::engine::request_span;
use crate::engine::tenants::TenantUse;
use crate::metrics::Call;
use crate::state::{Grant, GroupId, Home, Late, Traffic, Want, Wants};
use crate::transfer::Class;
use futures_channel::oneshot;
use kvstrata_core::{BlockId, TenantId};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tracing::{Instrument, Span};

/// How blocks are asked for.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct AllocateOptions {
    /// Whose it is, for who reads spans. 0: nobody's. Who came first is served first all the same.
    pub request: u64,
    /// How long to wait at most; the manager's `deadline.allocate` unless told.
    pub deadline: Option<Duration>,
}

impl AllocateOptions {
    pub(crate) fn within(deadline: Duration) -> AllocateOptions {
        AllocateOptions { deadline: Some(deadline), ..AllocateOptions::default() }
    }

    fn wait(self, inner: &Inner) -> Duration {
        self.deadline.unwrap_or(inner.rules.allocate_deadline)
    }
}

/// Why there are no blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// More than the tier has: never.
    #[error("{requested} blocks were asked for, and the device has {capacity}; ask for fewer")]
    TooMany {
        /// Asked for.
        requested: usize,
        /// Of the tier.
        capacity: usize,
    },
    /// Not in time.
    #[error(
        "{requested} block(s) did not come within {waited:?}: {}{available} of {capacity} are free or evictable, and {ahead} waited before; \
         release some, or preempt a request", at_quota(*.requested, *.tenant)
    )]
    Deadline {
        /// Asked for.
        requested: usize,
        /// How long it has waited.
        waited: Duration,
        /// Blocks that allocation can have.
        available: usize,
        /// Of the tier.
        capacity: usize,
        /// Requests in the queue before this one.
        ahead: usize,
        /// What the tenant has of the device, and may have; none: it has no quota.
        tenant: Option<TenantUse>,
    },
    /// Not a number for each group.
    #[error(
        "numbers of blocks were given for {given} groups, and the model has {groups}; give one for each, 0 for none"
    )]
    Groups {
        /// Given.
        given: usize,
        /// Of the model.
        groups: usize,
    },
    /// More than the tenant's quota: never.
    #[error(
        "{requested} blocks were asked for, and the tenant may have {quota} of the device's {capacity}; {}", crate::engine::tenants::more_room(*.quota)
    )]
    Quota {
        /// Asked for.
        requested: usize,
        /// The tenant's.
        quota: usize,
        /// Of the tier.
        capacity: usize,
    },
    /// The tenant gets nothing until then.
    #[error("the tenant is being purged; wait for the purge's end")]
    Purging,
    /// The manager has been shut down.
    #[error("the manager is shut down")]
    Closed,
    /// This process was forked from the manager's.
    #[error("{INHERITED}")]
    Inherited,
}

/// That it is the tenant's quota which is used up, whatever is free besides.
fn at_quota(requested: usize, tenant: Option<TenantUse>) -> String {
    match tenant {
        Some(TenantUse { blocks, quota: Some(quota) }) if blocks + requested > quota => {
            format!("the tenant has {blocks} of the {quota} that it may have, though of the device ")
        }
        _ => String::new(),
    }
}

/// Blocks at once, or in the queue.
pub(crate) async fn allocate(
    inner: &Arc<Inner>,
    group: GroupId,
    count: usize,
    options: AllocateOptions,
    tenant: TenantId,
) -> Result<BlocksMut, AllocateError> {
    check(inner, group, count, tenant)?;
    let (since, span) = (inner.watch.now(), request_span::allocate(options.request, count, tenant));
    let answer = at_once_or_in_queue(inner, group, count, options.wait(inner), tenant, &span).await;
    inner.watch.answered(Call::Allocate, since);
    if let Ok(blocks) = &answer {
        request_span::served(&span, blocks.ids().iter().copied());
    }
    answer
}

async fn at_once_or_in_queue(
    inner: &Arc<Inner>,
    group: GroupId,
    count: usize,
    deadline: Duration,
    tenant: TenantId,
    span: &Span,
) -> Result<BlocksMut, AllocateError> {
    if let Some(blocks) = free_ones(inner, group, count, tenant) {
        return Ok(blocks);
    }
    let place = match take_or_wait(inner, group, count, deadline, tenant)? {
        Taken::All(ids) => return Ok(BlocksMut::new(Arc::clone(inner), group, ids, tenant)),
        Taken::Place(place) => place,
    };
    let in_queue = InQueue { inner, tenant, places: VecDeque::from([place]) };
    // One that was asked for.
    in_queue.all(deadline).instrument(span.clone()).await?.into_iter().next().ok_or(AllocateError::Closed)
}

enum Taken {
    All(Vec<BlockId>),
    Place(Place),
}

/// All that is asked for, if there is nobody before and no victim is to be copied; a place in the queue
/// otherwise, with what there was.
fn take_or_wait(
    inner: &Arc<Inner>,
    group: GroupId,
    need: usize,
    deadline: Duration,
    tenant: TenantId,
) -> Result<Taken, AllocateError> {
    inner.take(|traffic| {
        may_wait(traffic, tenant)?;
        let mut gathered = Vec::with_capacity(need);
        let owners = &inner.group(group).device.owners();
        let first =
            traffic.none_waits() && traffic.guesses.under_way().len() == 0 && owners.limit(tenant).is_none();
        if first && traffic.gather(inner, group, need, true, &mut gathered) && owners.take(tenant, need) {
            inner.watch.allocated_at_once(group);
            return Ok(Taken::All(gathered));
        }
        let (to, blocks) = oneshot::channel();
        let want = Want::of_caller((group, tenant), need, gathered, to);
        let wants = Wants { parts: vec![want], ..Wants::default() };
        let number = traffic.enter_queues(inner, wants, inner.due_in(deadline));
        Ok(Taken::Place(Place { group, number, count: need, blocks }))
    })
}

/// Blocks of every group, all or none. Who comes gets into all queues at once, and not before it has its
/// credits for all of them, so that of two none is before the other here and behind it there
/// (`waiting_for_quota.rs`).
pub(crate) async fn allocate_groups(
    inner: &Arc<Inner>,
    counts: &[usize],
    options: AllocateOptions,
    tenant: TenantId,
) -> Result<Vec<BlocksMut>, AllocateError> {
    if counts.len() != inner.groups.len() {
        return Err(AllocateError::Groups { given: counts.len(), groups: inner.groups.len() });
    }
    if inner.refusing.load(Relaxed) && !inner.is_inherited() {
        return Err(AllocateError::Closed);
    }
    let wanted = || GroupId::all(counts.len()).zip(counts.iter().copied());
    wanted().try_for_each(|(group, count)| check(inner, group, count, tenant))?;
    let since = inner.watch.now();
    let span = request_span::allocate(options.request, counts.iter().sum(), tenant);
    let answer = groups_at_once_or_in_queue(inner, counts, options.wait(inner), tenant, &span).await;
    inner.watch.answered(Call::Allocate, since);
    if let Ok(all) = &answer {
        request_span::served(&span, all.iter().flat_map(|blocks| blocks.ids().iter().copied()));
    }
    answer
}

async fn groups_at_once_or_in_queue(
    inner: &Arc<Inner>,
    counts: &[usize],
    deadline: Duration,
    tenant: TenantId,
    span: &Span,
) -> Result<Vec<BlocksMut>, AllocateError> {
    let wanted = || GroupId::all(counts.len()).zip(counts.iter().copied());
    let at_once = wanted().map(|(group, count)| free_ones(inner, group, count, tenant));
    if let Some(all) = at_once.collect() {
        return Ok(all);
    }
    let lines = wanted().filter(|(_, count)| *count > 0);
    let in_queue = InQueue::enter(inner, lines, tenant, deadline)?;
    let mut served = in_queue.all(deadline).instrument(span.clone()).await?.into_iter();
    let none = |group| BlocksMut::new(Arc::clone(inner), group, Vec::new(), tenant);
    let of = |(group, count)| if count > 0 { served.next() } else { Some(none(group)) };
    // As many as were asked for.
    wanted().map(of).collect::<Option<_>>().ok_or(AllocateError::Closed)
}

/// Refuses what will never be had.
fn check(inner: &Inner, group: GroupId, count: usize, tenant: TenantId) -> Result<(), AllocateError> {
    if inner.is_inherited() {
        return Err(AllocateError::Inherited);
    }
    let device = &inner.group(group).device;
    let capacity = device.pool().capacity();
    if count > capacity {
        return Err(AllocateError::TooMany { requested: count, capacity });
    }
    match device.owners().limit(tenant).filter(|quota| count > *quota) {
        Some(quota) => Err(AllocateError::Quota { requested: count, quota, capacity }),
        None => Ok(()),
    }
}

/// Free blocks, if nobody waits for some; a purge waits, too. None at all are nobody's to wait for.
fn free_ones(inner: &Arc<Inner>, group: GroupId, count: usize, tenant: TenantId) -> Option<BlocksMut> {
    if inner.refusing.load(Relaxed) || (count > 0 && inner.waiting.anyone()) {
        return None;
    }
    let device = &inner.group(group).device;
    let mut ids = Vec::with_capacity(count);
    if !device.owners().take(tenant, count) {
        return None;
    }
    if device.pool().allocate_free_ids(count, &mut ids).is_err() {
        device.owners().give(tenant, count);
        return None;
    }
    if count > 0 && !inner.group(group).lower.is_empty() {
        inner.watch.allocated_at_once(group);
    }
    Some(BlocksMut::new(Arc::clone(inner), group, ids, tenant))
}

/// Free blocks, and those of victims that need not be copied.
pub(crate) fn try_allocate(
    inner: &Arc<Inner>,
    group: GroupId,
    count: usize,
    tenant: TenantId,
) -> Option<BlocksMut> {
    // A caller may ask for any number: of most there is no memory for the list, nor are there credits,
    // however long one makes room for them.
    if inner.is_inherited() || count > inner.group(group).device.pool().capacity() {
        return None;
    }
    free_ones(inner, group, count, tenant).or_else(|| {
        if count == 0 {
            // Of a manager that is shut down: what preempts has its list.
            return Some(BlocksMut::new(Arc::clone(inner), group, Vec::new(), tenant));
        }
        let ids = inner.take(|traffic| {
            let earlier = traffic.waiting_for_quota.holds(group, tenant);
            let may = !earlier && !traffic.is_purging(tenant);
            if !may || !traffic.take_credits(inner, group, tenant, count, Class::Offload) {
                return None;
            }
            let ids = traffic.take_at_once(inner, group, count);
            if ids.is_none() {
                inner.group(group).device.owners().give(tenant, count);
            }
            ids
        })?;
        Some(BlocksMut::new(Arc::clone(inner), group, ids, tenant))
    })
}

/// Places in lines; left when dropped, those that have not been served.
struct InQueue<'i> {
    inner: &'i Arc<Inner>,
    tenant: TenantId,
    places: VecDeque<Place>,
}

struct Place {
    group: GroupId,
    number: u64,
    count: usize,
    blocks: oneshot::Receiver<Grant>,
}

impl<'i> InQueue<'i> {
    /// Gets into these lines, for so many blocks each.
    fn enter(
        inner: &'i Arc<Inner>,
        lines: impl Iterator<Item = (GroupId, usize)>,
        tenant: TenantId,
        deadline: Duration,
    ) -> Result<InQueue<'i>, AllocateError> {
        let due = inner.due_in(deadline);
        let (mut places, mut wants) = (VecDeque::new(), Wants::default());
        for (group, need) in lines {
            let (to, blocks) = oneshot::channel();
            places.push_back(Place { group, number: 0, count: need, blocks });
            wants.parts.push(Want::of_caller((group, tenant), need, Vec::new(), to));
        }
        let first = inner.with(|traffic| {
            may_wait(traffic, tenant)?;
            Ok(traffic.enter_queues(inner, wants, due))
        })?;
        (first..).zip(&mut places).for_each(|(number, place)| place.number = number);
        Ok(InQueue { inner, tenant, places })
    }

    /// The blocks of each line, when there are those of all.
    async fn all(mut self, waited: Duration) -> Result<Vec<BlocksMut>, AllocateError> {
        let mut all = Vec::with_capacity(self.places.len());
        while let Some(place) = self.places.front_mut() {
            let answer = (&mut place.blocks).await;
            let (group, requested) = (place.group, place.count);
            // Served, or answered otherwise.
            self.places.pop_front();
            match answer {
                Ok(Ok(granted)) => {
                    all.push(BlocksMut::new(Arc::clone(self.inner), group, granted.take(), self.tenant));
                }
                Ok(Err(Late { ahead, available })) => {
                    self.inner.counts.late(About::of_group(group));
                    self.inner.say();
                    let device = &self.inner.group(group).device;
                    let (capacity, quota) = (device.pool().capacity(), device.owners().limit(self.tenant));
                    let tenant =
                        quota.map(|_| TenantUse { blocks: device.owners().used(self.tenant), quota });
                    return Err(AllocateError::Deadline {
                        requested,
                        waited,
                        available,
                        capacity,
                        ahead,
                        tenant,
                    });
                }
                // Dismissed.
                Err(_) if self.inner.look().refuses() => return Err(AllocateError::Closed),
                Err(_) => return Err(AllocateError::Purging),
            }
        }
        Ok(all)
    }
}

impl Drop for InQueue<'_> {
    fn drop(&mut self) {
        if !self.places.is_empty() && !self.inner.is_inherited() {
            // Of all queues at once. What was granted meanwhile is given back behind the lock, with the
            // places.
            let left = self.places.iter();
            self.inner
                .with(|traffic| left.for_each(|of| traffic.quit_queue(self.inner, of.group, of.number)));
        }
    }
}

/// Refuses a caller that would get nothing.
fn may_wait(traffic: &Traffic, tenant: TenantId) -> Result<(), AllocateError> {
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
