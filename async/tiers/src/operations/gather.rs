//! Takes free blocks of the device, and blocks of victims.

use crate::engine::inner::Inner;
use crate::state::{GroupId, Left, Traffic};
use crate::transfer::Class;
use kvstrata_core::BlockId;

impl Traffic {
    pub(crate) fn take_at_once(
        &mut self,
        inner: &Inner,
        group: GroupId,
        count: usize,
    ) -> Option<Vec<BlockId>> {
        let pool = &inner.group(group).device.pool();
        if self.refuses() || !self.groups[group].queue.is_empty() || pool.available() < count {
            return None;
        }
        let mut gathered = Vec::with_capacity(count);
        if self.gather(inner, group, count, false, &mut gathered) {
            return Some(gathered);
        }
        pool.give_back_ids(gathered);
        None
    }

    /// Takes free blocks, and those of victims that need no copy. Other victims are sent down; a caller
    /// that waits for them takes no further victims. Returns whether there are enough.
    pub(crate) fn gather(
        &mut self,
        inner: &Inner,
        group: GroupId,
        need: usize,
        waits: bool,
        gathered: &mut Vec<BlockId>,
    ) -> bool {
        let class = if waits { Class::Urgent } else { Class::Offload };
        let pool = &inner.group(group).device.pool();
        while gathered.len() < need {
            let missing = need - gathered.len();
            let free = pool.free().min(missing);
            if free > 0 && pool.allocate_free_ids(free, gathered).is_ok() {
                continue;
            }
            // Blocks on their way down count: a waiter that has gone, or the last look, sent them. But a
            // device may be slow, or have stopped: victims that need no copy are taken beside them.
            let draining = self.draining(inner, group);
            let wanted = match draining {
                0 => missing,
                _ => missing.saturating_sub(draining).max(self.clean_ahead(inner, group, missing)),
            };
            if wanted == 0 {
                return false;
            }
            let mut victims = self.scratch.lend_victims();
            self.evict(inner, group, wanted, gathered.len() + draining.min(missing), &mut victims);
            let (before, all) = (gathered.len(), gathered.len() + victims.len());
            for (block, hash) in victims.drain(..) {
                let name = inner.group(group).device.name(block, hash);
                if let Left::Free(block) = self.victim(inner, group, block, name, class) {
                    gathered.push(block);
                }
            }
            self.scratch.return_victims(victims);
            if gathered.len() == before || waits && gathered.len() < all {
                return false;
            }
        }
        true
    }
}
