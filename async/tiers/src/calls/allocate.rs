//! Blocks to fill, without waiting: free blocks, and those of victims that need no copy.

use crate::calls::allocate_error::AllocateError;
use crate::calls::blocks::BlocksMut;
use crate::calls::in_queue::{InQueue, Place, may_wait};
use crate::engine::inner::Inner;
use crate::state::GroupId;
use crate::transfer::Class;
use kvstrata_core::TenantId;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The blocks that a caller gets at once, or its place in the queue.
pub(crate) enum Taken {
    All(BlocksMut),
    Place(Place),
}

/// Allocates at once, or enters the queue with the blocks that there were.
pub(crate) fn take_or_wait(
    inner: &Arc<Inner>,
    group: GroupId,
    count: usize,
    patience: Duration,
    tenant: TenantId,
) -> Result<Taken, AllocateError> {
    if let Some(blocks) = free_ones(inner, group, count, tenant) {
        return Ok(Taken::All(blocks));
    }
    let taken = inner.take(|traffic| {
        may_wait(traffic, tenant)?;
        let mut gathered = Vec::with_capacity(count);
        let owners = &inner.group(group).device.owners();
        // All blocks at once, if no caller is ahead and no victim has to be copied.
        let first =
            traffic.none_waits() && traffic.guesses.under_way().len() == 0 && owners.limit(tenant).is_none();
        if first && traffic.gather(inner, group, count, true, &mut gathered) && owners.take(tenant, count) {
            inner.watch.allocated_at_once(group);
            return Ok(Err(gathered));
        }
        Ok(Ok(InQueue::enter_one(traffic, inner, (group, tenant), (count, gathered), patience)))
    });
    taken.map(|taken| match taken {
        Ok(place) => Taken::Place(place),
        Err(ids) => Taken::All(BlocksMut::new(Arc::clone(inner), group, ids, tenant)),
    })
}

/// Refuses a count that can never be satisfied.
pub(crate) fn check(
    inner: &Inner,
    group: GroupId,
    count: usize,
    tenant: TenantId,
) -> Result<(), AllocateError> {
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

/// Returns free blocks, unless a caller or a purge waits for some. A request for 0 blocks passes waiters.
pub(crate) fn free_ones(
    inner: &Arc<Inner>,
    group: GroupId,
    count: usize,
    tenant: TenantId,
) -> Option<BlocksMut> {
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

/// Returns free blocks, and those of victims that need no copy.
pub(crate) fn try_allocate(
    inner: &Arc<Inner>,
    group: GroupId,
    count: usize,
    tenant: TenantId,
) -> Option<BlocksMut> {
    // A caller may ask for any number. Above the capacity there may be no memory for the list, and there
    // are never enough credits, however long room is made.
    if inner.is_inherited() || count > inner.group(group).device.pool().capacity() {
        return None;
    }
    free_ones(inner, group, count, tenant).or_else(|| {
        if count == 0 {
            // The manager is shut down. A preempting caller still gets its empty list.
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
