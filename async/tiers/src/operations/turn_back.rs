//! Turns a block back that a request asks for on its way down: it is registered again where it comes
//! from, with the bytes that it still has.
//!
//! The transfer goes on: from then on it holds its source, which it owned. A tenant at its quota has no
//! credit for the block, and so a miss, until the block is below. A tenant that is being purged has a
//! miss, too.

use crate::engine::inner::Inner;
use crate::state::{DownId, Have, Traffic};
use crate::tier::Tier;
use kvstrata_core::BlockRef;

impl Traffic {
    /// Registers a block on its way down again where it comes from. Returns a reference for the caller.
    pub(crate) fn turn_back(&mut self, inner: &Inner, key: DownId) -> Option<(Tier, BlockRef)> {
        let tenant = self.downs.get(key)?.tenant();
        if self.is_purging(tenant) {
            return None;
        }
        let down = self.downs.get_mut(key)?;
        let of = inner.group(down.group());
        let (tier_pool, tier) = match (down.from(), &of.host) {
            (Tier::Device, _) => (&of.device, Tier::Device),
            (_, Some(host)) => (host, Tier::Host),
            (_, None) => return None,
        };
        let block = match down.source() {
            // It was evicted. If another copy has come meanwhile, the pool has that one.
            Have::Owned(block) => {
                if let Some(there) = tier_pool.pool().lookup_ref(down.name().hash) {
                    return Some((tier, there));
                }
                // At its quota, the tenant has a miss.
                if !tier_pool.owners().take(down.tenant(), 1) {
                    return None;
                }
                // An engine may register another copy at this moment: this one is being read, and must
                // not give way.
                let held =
                    tier_pool.register_beside(block, down.name(), down.tenant(), tier_pool.class(block))?;
                let on_their_way = &mut self.groups[down.group()].on_their_way;
                match tier {
                    Tier::Device => on_their_way.device_victim_ended(),
                    _ => on_their_way.host_victim_turned_back(down.below() > 0),
                }
                down.is_turned_back(held);
                held
            }
            Have::Held(block) | Have::Leased(block) => block,
        };
        let asked = match down.source() {
            // A use of it, as if it were not on its way.
            Have::Leased(_) => tier_pool.pool().lookup_ref(down.name().hash),
            _ => tier_pool.pool().hold_again(block),
        };
        Some((tier, asked?))
    }
}
