//! Requests that wait for credits, whole: a request is in no queue until it has the credits of every
//! group that it wants blocks of.
//!
//! ```text
//!                   group 0         group 1
//!   held   A of a   wants 2         wants 2      a has too few credits of group 1: A is in neither queue
//!          B of a   wants 1                      behind A: the same tenant, the same group
//!   ──────────────────────────────────────────── credits of all parts, taken under one lock
//!   queues          C ─ D ─ E       C ─ E        a request that has entered is in all of its queues,
//!                                                in one order
//! ```
//!
//! A request has one part for each group, and within a group one part for each tenant that owns blocks it
//! brings up. While one of its parts has too few credits, it takes nothing of the others. A place in
//! their queues would give it blocks that other requests wait for, and these may have what it waits for.
//!
//! Invariants
//! - I1: a held request has no credit, and no block except those that it came with; a request in a queue
//!   has the credits of all its parts.
//! - I2: a request enters all of its queues at once. Of two requests in queues, one was first, and is
//!   before the other in each queue that both are in.
//! - I3: a request enters when no held request brings up a block that it has joined: so the one that
//!   brings the block was first.
//! - I4: no requests wait in a circle for blocks of the queues and credits of the quotas. A request in a
//!   queue waits for blocks, and for transfers that it has joined. If a waiter has a block that it lacks,
//!   that waiter was first in the same queue before it (`wait_queue.rs` I1), and so entered before it
//!   (I2). The request that brings a joined block has entered before it, too (I3). A held request waits
//!   for requests that are held longer, and for credits: a request in a queue has these, or no waiter has
//!   (I1). So each waits for earlier ones only. A request keeps the blocks that it came with while it
//!   waits: a run that it has found, an engine's own blocks. Two requests that each have what the other
//!   lacks in this way wait until one of them is late.
//! - I5: of one tenant with a quota, in one group, the request that came first enters first.

use crate::engine::inner::Inner;
use crate::state::{GroupId, Traffic};
use crate::transfer::Class;

impl Traffic {
    /// Puts those held requests into the queues that can have all of their credits by now.
    pub(crate) fn serve_waiting_for_quota(&mut self, inner: &Inner) {
        // Credits that an earlier request waits for, and groups in which a look took place.
        let (mut waiting, mut looked) = (Vec::new(), Vec::new());
        let mut at = 0;
        while let Some(request) = self.waiting_for_quota.get(at) {
            let behind =
                request.parts().iter().any(|(group, entry)| waiting.contains(&(*group, entry.tenant())));
            let free = !behind && !request.joined().iter().any(|entry| self.waiting_for_quota.has(*entry));
            if free && !self.is_as_before(inner, at) {
                let Err((group, number, state)) = self.take_all_credits(inner, at) else {
                    for (group, entry) in self.waiting_for_quota.remove(at) {
                        self.groups[group].queue.push(entry);
                    }
                    continue;
                };
                self.waiting_for_quota.note_look(at, number, state);
                looked.push(group);
            }
            let parts =
                self.waiting_for_quota[at].parts().iter().map(|(group, entry)| (*group, entry.tenant()));
            waiting.extend(
                parts.filter(|(group, tenant)| inner.group(*group).device.owners().limit(*tenant).is_some()),
            );
            at += 1;
        }
        for group in self.groups.numbers() {
            let changed = looked.contains(&group) || self.groups[group].queue.has_changed();
            if changed && waiting.iter().any(|(of, _)| *of == group) {
                self.hurry(inner, group);
            }
        }
    }

    /// Whether a request lacks what it lacked at the last look.
    fn is_as_before(&self, inner: &Inner, at: usize) -> bool {
        let request = &self.waiting_for_quota[at];
        let Some((number, state)) = request.looked() else { return false };
        let part = request.parts().iter().find(|(_, entry)| entry.number() == number);
        part.is_some_and(|(group, entry)| inner.group(*group).device.state_of(entry.tenant()) == state)
    }

    /// Takes the credits of all parts, or of none. If there are too few, returns the group and the entry,
    /// and the state there before the look: a change meanwhile makes it another state.
    fn take_all_credits(&mut self, inner: &Inner, at: usize) -> Result<(), (GroupId, u64, [u32; 3])> {
        let parts = self.waiting_for_quota[at].parts().len();
        let part = |traffic: &Traffic, part: usize| {
            let (group, entry) = &traffic.waiting_for_quota[at].parts()[part];
            (*group, entry.tenant(), entry.need(), entry.number())
        };
        // No group's blocks leave for a request that another group keeps out.
        for of in (0..parts).filter(|_| parts > 1) {
            let (group, tenant, need, number) = part(self, of);
            let state = inner.group(group).device.state_of(tenant);
            if !self.has_credits(inner, group, tenant, need) {
                return Err((group, number, state));
            }
        }
        for of in 0..parts {
            let (group, tenant, need, number) = part(self, of);
            let state = inner.group(group).device.state_of(tenant);
            if !self.take_credits(inner, group, tenant, need, Class::Urgent) {
                for earlier in 0..of {
                    let (group, tenant, need, _) = part(self, earlier);
                    inner.group(group).device.owners().give(tenant, need);
                }
                return Err((group, number, state));
            }
        }
        Ok(())
    }
}
