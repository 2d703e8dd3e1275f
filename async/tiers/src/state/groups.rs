//! The state of each group of layers: its queue for blocks, its transfers, and its host memory.

use crate::state::{GroupId, OnTheirWay, OwnLooks, Staging, WaitQueue, WaitingForHost, WaitsBelow};
use crate::tier::Tier;
use kvstrata_core::TenantId;
use std::collections::HashMap;
use std::ops::{Index, IndexMut};

/// The state of one group.
#[derive(Debug)]
pub(crate) struct GroupState {
    /// Requests that wait for blocks of the device.
    pub(crate) queue: WaitQueue,
    /// Blocks that transfers down will free.
    pub(crate) on_their_way: OnTheirWay,
    /// Transfers down that wait for a host block.
    pub(crate) waiting_for_host: WaitingForHost,
    /// Blocks of host memory for staging.
    pub(crate) staging: Staging,
    /// Looks for tenants' victims.
    pub(crate) own_looks: TenantLooks,
    /// How long its requests wait for writes to the tier below.
    pub(crate) below: WaitsBelow,
}

impl GroupState {
    pub(crate) fn new(below: WaitsBelow, staging: Staging) -> GroupState {
        GroupState {
            queue: WaitQueue::default(),
            on_their_way: OnTheirWay::default(),
            waiting_for_host: WaitingForHost::default(),
            staging,
            own_looks: TenantLooks::default(),
            below,
        }
    }
}

/// By tier and tenant: looks for the tenant's victims.
#[derive(Debug, Default)]
pub(crate) struct TenantLooks(HashMap<(Tier, TenantId), OwnLooks>);

impl TenantLooks {
    /// Returns the looks for a tenant's victims in a tier.
    pub(crate) fn of(&mut self, tier: Tier, tenant: TenantId) -> &mut OwnLooks {
        self.0.entry((tier, tenant)).or_default()
    }

    /// Returns the same looks, if there were any.
    pub(crate) fn known(&self, tier: Tier, tenant: TenantId) -> Option<&OwnLooks> {
        self.0.get(&(tier, tenant))
    }

    /// Forgets tenants that are gone.
    pub(crate) fn forget(&mut self, is_gone: impl Fn(&TenantId) -> bool) {
        self.0.retain(|(_, tenant), _| !is_gone(tenant));
    }
}

/// All groups, by number.
pub(crate) struct Groups(Box<[GroupState]>);

impl Groups {
    pub(crate) fn new(groups: Box<[GroupState]>) -> Groups {
        Groups(groups)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the numbers of all groups.
    pub(crate) fn numbers(&self) -> impl DoubleEndedIterator<Item = GroupId> + Clone + use<> {
        GroupId::all(self.0.len())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &GroupState> {
        self.0.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut GroupState> {
        self.0.iter_mut()
    }
}

impl Index<GroupId> for Groups {
    type Output = GroupState;

    fn index(&self, group: GroupId) -> &GroupState {
        &self.0[group.index()]
    }
}

impl IndexMut<GroupId> for Groups {
    fn index_mut(&mut self, group: GroupId) -> &mut GroupState {
        &mut self.0[group.index()]
    }
}
