//! Why there are no blocks to fill.

use crate::engine::inherited::INHERITED;
use crate::engine::tenants::TenantUse;
use std::time::Duration;

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
