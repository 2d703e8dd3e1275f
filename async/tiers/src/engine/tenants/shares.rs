//! How many blocks of a run each tenant has, or is to have, in the device: never more than it may, or the run would wait for itself
//! (`quota.rs` I2).
//!
//! A block that is there already costs no credit, and counts all the same: the run holds it, so that it makes no room for one that is to come
//! up. Those that are there are never too many by themselves: in the device nothing is registered without a credit.

use super::TenantId;
use crate::engine::blocks::Blocks;
use crate::engine::inner::Inner;
use crate::engine::onboarding::State;
use crate::engine::traffic::Traffic;

/// By tenant: how many.
#[derive(Default)]
pub(in crate::engine) struct Shares(Vec<(TenantId, usize)>);

impl Shares {
    /// Counts the last block that an onboarding wants, behind those that were there. Whether its owner may have it too.
    pub(in crate::engine) fn has_room(
        &mut self,
        traffic: &Traffic,
        inner: &Inner,
        there: &Blocks,
        key: u32,
    ) -> bool {
        let owners = &inner.stack(there.stack()).device.owners;
        let Some(last) = traffic.onboardings[key as usize].wanted.last() else { return true };
        let tenant = match last.state {
            State::Here(block) => owners.owner(block.id),
            State::Coming(flight) => traffic.ups[flight].tenant,
            State::Failed(_) => return true,
        };
        let Some(limit) = owners.limit(tenant) else { return true };
        let known = self.0.iter().position(|(of, _)| *of == tenant);
        let at = known.unwrap_or_else(|| {
            let before = there.ids().filter(|block| owners.owner(*block) == tenant).count();
            self.0.push((tenant, before));
            self.0.len() - 1
        });
        self.0[at].1 += 1;
        self.0[at].1 <= limit
    }
}
