//! Blocks to fill.

use super::blocks::BlocksMut;
use super::down::Left;
use super::inner::Inner;
use super::line::{Late, Whose};
use super::tenants::TenantId;
use super::traffic::Traffic;
use crate::transfer::Class;
use kvstrata_core::BlockId;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::oneshot;

/// Why there are no blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
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
        "{requested} blocks were not to be had in {waited:?}: {available} of {capacity} are free or evictable, and {ahead} waited before; \
         release some, or preempt a request"
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
        /// Requests in line before this one.
        ahead: usize,
    },
    /// More than the tenant's quota: never.
    #[error(
        "{requested} blocks were asked for, and the tenant may have {quota} of the device's {capacity}; ask for fewer, or raise quota.device"
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
}

/// Blocks at once, or in line.
pub(super) async fn allocate(
    inner: &Arc<Inner>,
    stack: u16,
    count: usize,
    deadline: Duration,
    tenant: TenantId,
) -> Result<BlocksMut, AllocateError> {
    let (pool, owners) = (&inner.stack(stack).device.pool, &inner.stack(stack).device.owners);
    let capacity = pool.capacity();
    if count > capacity {
        return Err(AllocateError::TooMany { requested: count, capacity });
    }
    if let Some(quota) = owners.limit(tenant).filter(|quota| count > *quota) {
        return Err(AllocateError::Quota { requested: count, quota, capacity });
    }
    if let Some(blocks) = free_ones(inner, stack, count, tenant) {
        return Ok(blocks);
    }
    let (to, blocks) = oneshot::channel();
    let due = inner.due_in(deadline);
    let entered = inner.with(|traffic| match (traffic.refusing, traffic.is_purging(tenant)) {
        (true, _) => Err(AllocateError::Closed),
        (_, true) => Err(AllocateError::Purging),
        _ => Ok(traffic.enter_line(inner, stack, count, Whose::Caller(to), tenant, due)),
    });
    let number = entered?;
    let mut place = InLine { inner, stack, number, served: false };
    let answer = blocks.await;
    place.served = true;
    match answer {
        Ok(Ok(blocks)) => Ok(blocks),
        Ok(Err(Late { ahead, available })) => {
            inner.counts.late();
            let (requested, waited) = (count, deadline);
            Err(AllocateError::Deadline { requested, waited, available, capacity, ahead })
        }
        // Dismissed.
        Err(_) if inner.look().refusing => Err(AllocateError::Closed),
        Err(_) => Err(AllocateError::Purging),
    }
}

/// Free blocks, if nobody waits for some; a purge waits, too.
fn free_ones(inner: &Arc<Inner>, stack: u16, count: usize, tenant: TenantId) -> Option<BlocksMut> {
    if inner.refusing.load(Relaxed) || inner.waiting.anyone() {
        return None;
    }
    let device = &inner.stack(stack).device;
    let mut ids = Vec::with_capacity(count);
    if !device.owners.take(tenant, count) {
        return None;
    }
    if device.pool.allocate_free_ids(count, &mut ids).is_err() {
        device.owners.give(tenant, count);
        return None;
    }
    Some(BlocksMut::new(Arc::clone(inner), stack, ids, tenant))
}

/// Free blocks, and those of victims that need not be copied.
pub(super) fn try_allocate(
    inner: &Arc<Inner>,
    stack: u16,
    count: usize,
    tenant: TenantId,
) -> Option<BlocksMut> {
    free_ones(inner, stack, count, tenant).or_else(|| {
        let ids = inner.with(|traffic| {
            let earlier = traffic.lines[stack as usize].held.iter().any(|entry| entry.tenant == tenant);
            let may = !earlier && !traffic.is_purging(tenant);
            if !may || !traffic.take_credits(inner, stack, tenant, count, Class::Offload) {
                return None;
            }
            let ids = traffic.take_at_once(inner, stack, count);
            if ids.is_none() {
                inner.stack(stack).device.owners.give(tenant, count);
            }
            ids
        })?;
        Some(BlocksMut::new(Arc::clone(inner), stack, ids, tenant))
    })
}

/// A place in line; left when dropped.
struct InLine<'i> {
    inner: &'i Arc<Inner>,
    stack: u16,
    number: u64,
    /// Or answered otherwise.
    served: bool,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        if !self.served {
            self.inner.with(|traffic| traffic.quit_line(self.inner, self.stack, self.number));
        }
    }
}

impl Traffic {
    fn take_at_once(&mut self, inner: &Inner, stack: u16, count: usize) -> Option<Vec<BlockId>> {
        let pool = &inner.stack(stack).device.pool;
        if self.refusing || !self.lines[stack as usize].is_empty() || pool.available() < count {
            return None;
        }
        let mut got = Vec::with_capacity(count);
        while got.len() < count {
            let missing = count - got.len();
            let free = pool.free().min(missing);
            if free > 0 && pool.allocate_free_ids(free, &mut got).is_ok() {
                continue;
            }
            let mut victims = std::mem::take(&mut self.victims);
            if self.evict(inner, stack, missing, &mut victims) == 0 {
                self.victims = victims;
                break;
            }
            let before = got.len();
            for (block, hash) in victims.drain(..) {
                let name = inner.stack(stack).device.name(block, hash);
                if let Left::Free(block) = self.victim(inner, stack, block, name, Class::Offload) {
                    got.push(block);
                }
            }
            self.victims = victims;
            // The others are on their way down, so that the next call finds them.
            if got.len() == before {
                break;
            }
        }
        if got.len() == count {
            return Some(got);
        }
        pool.give_back_ids(got);
        None
    }
}
