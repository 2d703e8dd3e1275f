//! Why no blocks to fill are given.

use crate::engine::inherited::INHERITED;
use crate::engine::tenants::TenantUse;
use std::time::Duration;

/// Why an allocation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// More than the device has: this can never succeed.
    #[error("{requested} blocks were asked for, and the device has {capacity}; ask for fewer")]
    TooMany {
        /// Blocks asked for.
        requested: usize,
        /// Blocks of the device.
        capacity: usize,
    },
    /// The blocks did not come in time.
    #[error(
        "{requested} block(s) did not come within {waited:?}: {}{available} of {capacity} are free or evictable, and {ahead} waited before; \
         release some, or preempt a request", at_quota(*.requested, *.tenant)
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
        "numbers of blocks were given for {given} groups, and the model has {groups}; give one for each, 0 for none"
    )]
    Groups {
        /// Numbers given.
        given: usize,
        /// Groups of the model.
        groups: usize,
    },
    /// More than the tenant's quota: this can never succeed.
    #[error(
        "{requested} blocks were asked for, and the tenant may have {quota} of the device's {capacity}; {}", crate::engine::tenants::more_room(*.quota)
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
    #[error("the tenant is being purged; wait for the purge's end")]
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
            format!("the tenant has {blocks} of the {quota} that it may have, though of the device ")
        }
        _ => String::new(),
    }
}
