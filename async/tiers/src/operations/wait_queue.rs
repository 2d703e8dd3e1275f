//! The wait queue for blocks of the device: first come, first served, each request whole.
//!
//! ```text
//!   released, freed ──► first entry: gathered ▓▓▓░░ of need ──► second ──► …
//!                       victims are sent down for the blocks that the first still needs
//! ```
//!
//! Invariants
//! - I1: only the first entry gathers blocks, so two never hold a part each and wait for the other's.
//! - I2: while there is an entry, blocks that become free go to it, and no caller passes it to the pool's
//!   free ones.
//! - I3: an entry needs no more blocks than the tier has.
//! - I4: an entry leaves when it has all of its blocks, whatever they then wait for, or by its
//!   deadline (`deadlines.rs`).
//! - I5: a request for blocks of several groups enters all of their queues at once; and only when it has its
//!   tenants' credits for all of them (`waiting_for_quota.rs`, which says why no requests wait in a circle).

#[cfg(test)]
pub(crate) mod tests;

use crate::engine::inner::Inner;
use crate::state::{
    Down, DownId, Entry, GroupId, Have, Late, Left, Traffic, Up, UpId, Waits, Want, Wants, Whose,
};
use crate::tier::Tier;
use crate::transfer::{Cause, Class, Failure};
use kvstrata_core::{BlockId, SequenceHash, TenantId};
use std::time::Duration;

impl Traffic {
    /// Enters a request into the queues of all groups that it wants blocks of (I3: at most those that
    /// each tier has). If one of its tenants has a quota, or it has joined a block of a held request, it
    /// is held first. Transfers leave the queues by their onboarding's deadline, a caller by its own.
    /// Returns the number of the first entry; the others have the next ones.
    pub(crate) fn enter_queues(&mut self, inner: &Inner, wants: Wants, due: Option<Duration>) -> u64 {
        let Wants { parts, joined } = wants;
        if parts.is_empty() {
            return self.next_serial();
        }
        self.drop_guesses(inner);
        let owners = |of: &Want| inner.group(of.group()).device.owners();
        let unlimited = joined.is_empty() && parts.iter().all(|of| owners(of).limit(of.tenant()).is_none());
        let first = self.next_serial();
        let mut entries = Vec::with_capacity(if unlimited { 0 } else { parts.len() });
        for want in parts {
            let number = self.serial();
            // Without a limit there are always some.
            let credited = unlimited && owners(&want).take(want.tenant(), want.need());
            debug_assert_eq!(credited, unlimited);
            let group = want.group();
            want.transfers().for_each(|transfer| self.ups[transfer].waits_in(number));
            let came = self.came_at(inner, group);
            let entry = Entry::new(want, (number, first), due, came);
            self.due(due, Waits::Place { group, number });
            // Before the wait queue is served: from now on, each release checks it.
            inner.waiting.enter();
            match unlimited {
                true => self.groups[group].queue.push(entry),
                false => entries.push((group, entry)),
            }
        }
        if !unlimited {
            self.waiting_for_quota.hold(entries, joined);
        }
        first
    }

    /// Removes the entry of a caller that has given up.
    pub(crate) fn quit_queue(&mut self, inner: &Inner, group: GroupId, number: u64) {
        if let Some(Whose::Caller(to)) = self.take_from_queue(inner, group, number) {
            self.effects.dismiss(to);
        }
    }

    pub(crate) fn late_in_queue(&mut self, inner: &Inner, group: GroupId, number: u64) {
        let queue = &self.groups[group].queue;
        // The queue's gathered blocks are given back with the place in it.
        let available = inner.group(group).device.pool().available() + queue.gathered();
        let in_queue = queue.position(number);
        let ahead = in_queue.unwrap_or_else(|| queue.len() + self.waiting_for_quota.before(group, number));
        let late = Late { ahead, available };
        if let Some(Whose::Caller(to)) = self.take_from_queue(inner, group, number) {
            self.effects.late(to, late);
        }
    }

    fn take_from_queue(&mut self, inner: &Inner, group: GroupId, number: u64) -> Option<Whose> {
        let in_queue = self.groups[group].queue.remove(number);
        let credited = in_queue.is_some();
        let entry = in_queue.or_else(|| self.waiting_for_quota.take(number))?;
        Some(self.left_queue(inner, group, entry, credited))
    }

    /// Ends an entry: its blocks and its credits become available.
    fn left_queue(&mut self, inner: &Inner, group: GroupId, entry: Entry, credited: bool) -> Whose {
        self.not_due(entry.due(), Waits::Place { group, number: entry.number() });
        inner.waiting.leave();
        inner.group(group).device.owners().give(entry.tenant(), if credited { entry.need() } else { 0 });
        let (gathered, whose) = entry.end();
        gathered.into_iter().for_each(|block| self.freed(inner, group, block));
        whose
    }

    /// Takes a transfer out of its entry: it needs its block no more.
    pub(crate) fn leave_queue(&mut self, inner: &Inner, group: GroupId, number: u64, transfer: UpId) {
        let queue = &mut self.groups[group].queue;
        let in_queue = queue.position(number);
        let credited = in_queue.is_some();
        let entry = match in_queue {
            Some(at) => queue.get_mut(at),
            None => self.waiting_for_quota.find(number),
        };
        let Some(entry) = entry else { return };
        let fewer = entry.leave(transfer);
        inner.group(group).device.owners().give(entry.tenant(), if credited { fewer } else { 0 });
        if entry.need() == 0 {
            return self.quit_queue(inner, group, number);
        }
        entry.take_spare().into_iter().for_each(|block| self.freed(inner, group, block));
        // There may be credits for the rest.
        self.waiting_for_quota.look_again(number);
    }

    /// Frees a block of the device: for the first entry, if that lacks one, or for the pool.
    pub(crate) fn freed(&mut self, inner: &Inner, group: GroupId, block: BlockId) {
        match self.groups[group].queue.first_mut() {
            Some(entry) if entry.missing() > 0 => entry.gathered_mut().push(block),
            _ => _ = inner.group(group).device.pool().give_back_ids([block]),
        }
    }

    /// Serves the wait queue as far as there are blocks, and sends victims down for the missing ones.
    pub(crate) fn serve_queue(&mut self, inner: &Inner, group: GroupId) {
        let pool = &inner.group(group).device.pool();
        loop {
            let Some(entry) = self.groups[group].queue.first_mut() else { return };
            let missing = entry.missing();
            if missing == 0 {
                self.serve_first(inner, group);
                continue;
            }
            let free = pool.free().min(missing);
            if free > 0 && pool.allocate_free_ids(free, entry.gathered_mut()).is_ok() {
                continue;
            }
            let need = entry.need();
            let wanted = missing.saturating_sub(self.draining(inner, group));
            let given = need - wanted;
            let mut victims = self.scratch.lend_victims();
            if wanted == 0 || self.evict(inner, group, wanted, given, &mut victims) == 0 {
                self.scratch.return_victims(victims);
                let called_off = wanted > 0
                    && (self.call_off_chosen(inner, group, wanted)
                        || self.call_off_draining(inner, group, wanted));
                if called_off {
                    continue;
                }
                return self.hurry(inner, group);
            }
            for (block, hash) in victims.drain(..) {
                let name = inner.group(group).device.name(block, hash);
                if let Left::Free(block) = self.victim(inner, group, block, name, Class::Urgent) {
                    self.freed(inner, group, block);
                }
            }
            self.scratch.return_victims(victims);
        }
    }

    /// Whether a copy that is `such` leases a block of the device without a holder: the block counts as
    /// available and is not. It will be when the copy has ended, and so will its parent. `such` gets the
    /// key, too: the end of others' copies changes nothing for a tenant at its quota.
    pub(crate) fn is_copying(
        &self,
        inner: &Inner,
        group: GroupId,
        such: impl Fn(DownId, &Down) -> bool,
    ) -> bool {
        let pool = &inner.group(group).device.pool();
        let unheld = |down: &Down| match down.source() {
            Have::Leased(block) => pool.evictable(block).is_some(),
            Have::Owned(_) | Have::Held(_) => false,
        };
        let of_device = |down: &Down| (down.group(), down.from()) == (group, Tier::Device);
        self.downs.iter().any(|(key, down)| of_device(down) && such(key, down) && unheld(down))
    }

    /// Takes victims of the device. If the policy has none left, and some blocks have no holder, it takes
    /// blocks that the policy keeps for the sake of their children: these are held, perhaps by the waiter
    /// itself. Of these blocks, too, lower classes leave first. `given` counts the blocks that were given
    /// before, or are on their way.
    pub(crate) fn evict(
        &mut self,
        inner: &Inner,
        group: GroupId,
        wanted: usize,
        given: usize,
        victims: &mut Vec<(BlockId, SequenceHash)>,
    ) -> usize {
        let tier_pool = &inner.group(group).device;
        let ready = self.take_ready(inner, (group, Tier::Device), wanted, victims);
        let evicted = ready + tier_pool.pool().evict_ids_behind(wanted - ready, given + ready, victims);
        if evicted > 0
            || !tier_pool.links()
            || tier_pool.pool().available() == 0
            || self.is_copying(inner, group, |_, _| true)
        {
            return evicted;
        }
        #[cfg(test)]
        tests::WALKS.with(|walks| walks.set(walks.get() + 1));
        let capacity = tier_pool.pool().capacity() as u32;
        let (hand, mut taken) = (self.groups[group].queue.cursor(), 0);
        let order = (hand..capacity).chain(0..hand.min(capacity)).map(BlockId);
        let unheld = |block| tier_pool.pool().registered(block).map(|(there, _)| there);
        let mut kept = order.filter_map(unheld).filter(|block| tier_pool.pool().evictable(*block).is_some());
        // Lower classes first: where there are several, all blocks are examined.
        let mut by_class = Vec::new();
        if !tier_pool.are_of_one_class() {
            by_class.extend(kept.by_ref());
            by_class.sort_by_key(|block| tier_pool.class(block.id));
        }
        for block in by_class.into_iter().chain(kept) {
            let Ok(victim) = tier_pool.pool().evict_this(block) else { continue };
            self.groups[group].queue.move_cursor_behind(block.id);
            let hash = victim.hash();
            victims.push((victim.into_mutable().into_id(), hash));
            taken += 1;
            if taken == wanted {
                break;
            }
        }
        taken
    }

    /// Lets the copies that keep blocks from leaving go without an iteration's budget: a request waits
    /// for blocks, and no block leaves. The next iteration may wait for these blocks.
    pub(crate) fn hurry(&mut self, inner: &Inner, group: GroupId) {
        self.groups[group].queue.looked_at();
        if !self.queues.has_budget() {
            return;
        }
        #[cfg(test)]
        tests::HURRIES.with(|hurries| hurries.set(hurries.get() + 1));
        let pool = &inner.group(group).device.pool();
        // A victim waits for host memory, and each transfer that has some is before it.
        let waiting = !self.groups[group].waiting_for_host.is_empty();
        let keeps = |down: &Down| match (down.from(), down.source()) {
            _ if waiting && down.host().is_some() => true,
            (_, Have::Owned(_)) | (Tier::Device, Have::Leased(_)) => true,
            // The transfer's reference, and this look's.
            (Tier::Device, Have::Held(block)) => {
                pool.upgrade(block).is_some_and(|held| held.references() <= 2)
            }
            _ => false,
        };
        let of_stack = |down: &Down| down.group() == group && down.class() > Class::Urgent;
        let downs = self.downs.keys_of(|down| of_stack(down) && keeps(down));
        downs.into_iter().for_each(|key| self.promote_down(key));
        // Transfers up have blocks, too; those of guesses have been taken back.
        let has = |up: &Up| up.group() == group && up.device().is_some();
        let waits = |up: &Up| has(up) && matches!(up.class(), Class::Offload | Class::Background);
        let ups = self.ups.keys_of(waits);
        ups.into_iter().for_each(|key| self.promote(inner, key, Class::Urgent));
        if waiting && inner.group(group).host.is_none() {
            self.press(inner, group);
        }
    }

    /// Serves the first entry, which has all its blocks.
    fn serve_first(&mut self, inner: &Inner, group: GroupId) {
        let Some(entry) = self.groups[group].queue.pop_first() else { return };
        inner.waiting.leave();
        self.not_due(entry.due(), Waits::Place { group, number: entry.number() });
        self.served_in_queue(inner, group, entry.came());
        let tenant = entry.tenant();
        let (gathered, whose) = entry.end();
        match whose {
            Whose::Caller(to) => self.effects.grant(to, group, gathered, tenant),
            Whose::Transfers(transfers) => {
                for (key, block) in transfers.into_iter().zip(gathered) {
                    self.depart(inner, key, block);
                }
            }
        }
    }

    /// Dismisses all entries of the queue with nothing.
    pub(crate) fn dissolve_queue(&mut self, inner: &Inner, group: GroupId) {
        self.dismiss_if(inner, group, |_| true);
    }

    /// Dismisses a tenant's entries with nothing.
    pub(crate) fn dismiss(&mut self, inner: &Inner, group: GroupId, tenant: TenantId) {
        self.dismiss_if(inner, group, |whose| whose == tenant);
    }

    fn dismiss_if(&mut self, inner: &Inner, group: GroupId, whom: impl Fn(TenantId) -> bool) {
        // All of them before the blocks of any: returned blocks are for the entries that stay.
        let go = self.groups[group].queue.take_if(|entry| whom(entry.tenant()));
        let held = self.waiting_for_quota.take_if(|of, entry| of == group && whom(entry.tenant()));
        let held = held.into_iter().map(|entry| (entry, false));
        for (entry, credited) in go.into_iter().map(|entry| (entry, true)).chain(held) {
            match self.left_queue(inner, group, entry, credited) {
                // Told when the lock has been released.
                Whose::Caller(to) => self.effects.dismiss(to),
                Whose::Transfers(transfers) => {
                    for key in transfers {
                        self.up_failed(inner, key, Failure::of(Cause::Cancelled));
                    }
                }
            }
        }
    }
}
