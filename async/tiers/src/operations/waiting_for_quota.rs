//! Requests that wait for credits, whole: in no queue until they have those of every group that they want
//! blocks of.
//!
//! ```text
//!                   group 0          group 1
//!   held   A of a   wants 2          wants 2          a's credits: of group 1 there are too few, so A is in neither line
//!          B of a   wants 1                           behind A: the same tenant, the same group
//!   ───────────────────────────────────────────────── credits of all parts, taken under one lock
//!   lines           C ─ D ─ E        C ─ E            whoever has entered is in all of its queues, in one order
//! ```
//!
//! A request has a part a group, and of one group a part for each tenant that it brings up blocks of. It
//! wants nothing of the others while one of its parts has too few credits: a place in their lines would let
//! it have blocks there, for which others wait who have what it waits for.
//!
//! Invariants
//! - I1: a request that is held has no credit, and no block but those that it came with; one that is in a
//!   line has the credits of all its parts.
//! - I2: it enters all of its queues at once: of two that are in some line, one was first, and is before the
//!   other in each line that both are in.
//! - I3: it enters when nobody is held any more who brings up a block that it has joined: so who brings it
//!   was first.
//! - I4: nobody waits in a circle, for what the queues and the quotas give. Who is in a line waits for
//!   blocks, and for transfers that it has joined. A block that it lacks is in no hands that wait but of
//!   somebody who was first in that line before it (`wait_queue.rs` I1), and who so has entered before it
//!   (I2); so has who brings what it has joined (I3). Who is held waits for credits, of who is in a line or
//!   of nobody who waits (I1), and for who is held longer. So each waits for earlier ones only. What a
//!   request came with, a run that it has found, an engine's own blocks, it keeps while it waits: two that so
//!   have what the other lacks wait until one of them is late.
//! - I5: of one tenant with a quota, in one group, who came first enters first.

use crate::engine::inner::Inner;
use crate::state::{GroupId, Traffic};
use crate::transfer::Class;

impl Traffic {
    /// Puts those of the held into the queues who can have all of their credits by now.
    pub(crate) fn serve_waiting_for_quota(&mut self, inner: &Inner) {
        // Whose credits somebody waits for who came earlier, and in which groups something was looked for.
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

    /// Takes the credits of all parts, or of none. Otherwise the group and the entry for which there are too
    /// few, and how things were there before the look: what changes meanwhile is another state.
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
