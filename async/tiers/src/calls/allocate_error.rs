//! Why no blocks to fill are given.

use crate::engine::inherited::INHERITED;
use crate::engine::tenants::TenantUse;
use std::time::Duration;

/// Why an allocation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// More than the device has: this can never succeed.
    #[error("{requested} blocks requested, but the device has {capacity}; request fewer")]
    TooMany {
        /// Blocks asked for.
        requested: usize,
        /// Blocks of the device.
        capacity: usize,
    },
    /// The blocks did not come in time.
    #[error(
        "block allocation timed out after {waited:?}: {requested} requested, {}{available} of {capacity} available, \
         {ahead} ahead in the queue; release blocks or preempt a request", at_quota(*.requested, *.tenant)
    )]
    Deadline {
        /// Blocks asked for.
        requested: usize,
        /// How long the request has waited.
        waited: Duration,
        /// Blocks that an allocation can get.
        available: usize,
        /// Blocks of the device.
        capacity: usize,
        /// Requests in the queue before this one.
        ahead: usize,
        /// The tenant's blocks of the device, and its quota; none: it has no quota.
        tenant: Option<TenantUse>,
    },
    /// The numbers given are not one for each group.
    #[error(
        "block counts given: {given}, groups of the model: {groups}; give one count for each group, 0 for none"
    )]
    Groups {
        /// Numbers given.
        given: usize,
        /// Groups of the model.
        groups: usize,
    },
    /// More than the tenant's quota: this can never succeed.
    #[error(
        "{requested} requested, but the tenant's quota is {quota} of {capacity} device blocks; {}", crate::engine::tenants::more_room(*.quota)
    )]
    Quota {
        /// Blocks asked for.
        requested: usize,
        /// The tenant's quota.
        quota: usize,
        /// Blocks of the device.
        capacity: usize,
    },
    /// The tenant is being purged, and gets nothing until the purge is over.
    #[error("the tenant is being purged; retry when the purge has ended")]
    Purging,
    /// The manager has been shut down.
    #[error("the manager is shut down")]
    Closed,
    /// This process was forked from the manager's.
    #[error("{INHERITED}")]
    Inherited,
}

/// Returns words on the tenant's quota, if that is used up, whatever is free besides.
fn at_quota(requested: usize, tenant: Option<TenantUse>) -> String {
    match tenant {
        Some(TenantUse { blocks, quota: Some(quota) }) if blocks + requested > quota => {
            format!("tenant's quota {blocks} of {quota} used, ")
        }
        _ => String::new(),
    }
}
