//! Brings blocks up before a request asks for them: on a hint, or because they are hot. A guess, so it
//! goes last and is the first to be dropped.
//!
//! ```text
//!   hints    [ request 7: h0 h1 h2 h3 … ] [ request 9: … ]    the oldest first, block by block, as far as
//!                                                             `prefetch.blocks` allows; each at most as long
//!                                                             as the device has blocks
//!   hot      h h h                                            victims of the device that were used often:
//!                                                             into free blocks, or in place of the next
//!                                                             victim, if that is cold and has its copy below
//! ```
//!
//! Invariants
//! - I1: prefetching takes no block of the device while a request is in the queue for one. Guesses that
//!   have not begun to move are dropped then.
//! - I2: it waits for nothing: without a free block, or a victim that is free at once, it is put off.

use crate::engine::inner::Inner;
use crate::state::{GroupId, Guess, Left, Source, Traffic, Up, UpId};
use crate::transfer::{Cause, Class, Failure};
use kvstrata_core::{BlockId, SequenceHash, TenantId};
use kvstrata_ffi::disk::Name;

impl Traffic {
    /// Takes a hint; the oldest gives way if there are too many.
    pub(crate) fn hint(
        &mut self,
        inner: &Inner,
        group: GroupId,
        hashes: &[SequenceHash],
        tenant: TenantId,
    ) -> u64 {
        let number = self.serial();
        if inner.rules.prefetch_blocks == 0 || self.refuses() {
            return number;
        }
        // More than its capacity cannot be in the device at a time; and a hint is to keep no more memory.
        let most = hashes.len().min(inner.group(group).device.pool().capacity());
        inner.counts.hint_cut(hashes.len() - most);
        let hashes = &hashes[..most];
        // Blocks that the device has must not leave for the rest; they are used when the request comes.
        let mut there = Vec::with_capacity(hashes.len());
        let next = inner.group(group).device.pool().touch_refs(hashes, &mut there);
        for block in there.into_iter().rev() {
            inner.group(group).device.release(block, inner.now());
        }
        self.guesses.hint((number, group, tenant), hashes, next, inner.rules.prefetch_hints as usize);
        number
    }

    /// Notes a victim of the device that was used often: it may come up again once it is below.
    pub(crate) fn note_leaving(&mut self, inner: &Inner, group: GroupId, name: Name) {
        match self.downs.find((group, name.hash)).and_then(|key| self.downs.get_mut(key)) {
            Some(down) => down.note_hot(),
            None => self.note_hot(inner, group, name),
        }
    }

    /// Notes a hot block that is below.
    pub(crate) fn note_hot(&mut self, inner: &Inner, group: GroupId, name: Name) {
        self.guesses.note_hot(group, name, inner.rules.prefetch_hints as usize);
    }

    pub(crate) fn withdraw_hint(&mut self, inner: &Inner, number: u64) {
        self.guesses.withdraw(number);
        let of_hint = |key: &UpId| self.ups.get(*key).is_some_and(|up| up.request() == number);
        let transfers: Vec<UpId> = self.guesses.under_way().filter(of_hint).collect();
        transfers.into_iter().for_each(|key| self.recall_guess(inner, key));
    }

    /// Drops guesses that have not begun to move: others need the room (I1).
    pub(crate) fn drop_guesses(&mut self, inner: &Inner) {
        let transfers: Vec<UpId> = self.guesses.under_way().collect();
        transfers.into_iter().for_each(|key| self.recall_guess(inner, key));
    }

    pub(crate) fn recall_guess(&mut self, inner: &Inner, key: UpId) {
        let Some(at) = self.ups.get(key).map(|up| up.at()) else { return };
        if self.recall(at) {
            self.up_failed(inner, key, Failure::of(Cause::Cancelled));
        }
    }

    /// Begins guesses as far as there is room.
    pub(crate) fn serve_guesses(&mut self, inner: &Inner) {
        while self.may_guess(inner) {
            let there = |group, hash| inner.group(group).device.pool().contains(hash);
            let Some(guess) = self.guesses.next_hint(there) else { break };
            if !self.guess(inner, guess, true) {
                return;
            }
            self.guesses.advance_hint();
        }
        while self.may_guess(inner) {
            let Some((group, name)) = self.guesses.last_hot() else { return };
            let is_free = inner.group(group).device.pool().free() > 0;
            if !is_free && !self.is_next_cold(inner, group) {
                return;
            }
            self.guesses.pop_hot();
            self.guess(inner, Guess { group, tenant: TenantId::NONE, hint: 0, name }, !is_free);
        }
    }

    /// Whether the device's next victim is worth less than a hot block: it is not hot, and leaves without
    /// a copy. So a block that leaves for a hot one never comes back for being hot.
    fn is_next_cold(&mut self, inner: &Inner, group: GroupId) -> bool {
        let of = inner.group(group);
        if self.groups[group].on_their_way.device_victims() > 0 {
            return false;
        }
        let next = self.scratch.next_victim(of.device.pool());
        next.is_some_and(|(block, hash)| {
            of.device.ages().is_clean(block) && !of.is_hot(hash, inner.rules.hot_from)
        })
    }

    fn may_guess(&self, inner: &Inner) -> bool {
        self.none_waits()
            && !self.refuses()
            && (self.guesses.under_way().len() as u32) < inner.rules.prefetch_blocks
    }

    /// Begins a guess. Returns false if there is no block for it now (I2). A block that no tier has ends
    /// its hint: the blocks behind it are of no use.
    fn guess(&mut self, inner: &Inner, guess: Guess, may_evict: bool) -> bool {
        let Guess { group, tenant, hint: request, name } = guess;
        if self.ups.has((group, name.hash)) || self.downs.has((group, name.hash)) {
            return true;
        }
        let of = inner.group(group);
        // A hot block may have come up for a request.
        if of.device.pool().contains(name.hash) {
            return true;
        }
        let host = of.host.as_ref().and_then(|host| host.pool().lookup_ref(name.hash)).map(Source::Host);
        let lower = || of.find_lower(0, name.hash).map(|(number, block)| Source::Below(number, block, None));
        let Some(source) = host.or_else(lower) else {
            self.guesses.end_hint(request);
            return true;
        };
        let tenant = self.owner_of(inner, group, source, tenant);
        // A guess displaces none of the tenant's own blocks.
        if self.is_purging(tenant) || !of.device.owners().take(tenant, 1) {
            self.put_down(inner, group, source);
            self.guesses.end_hint(request);
            return true;
        }
        let Some(device) = self.spare_block(inner, group, may_evict) else {
            of.device.owners().give(tenant, 1);
            self.put_down(inner, group, source);
            return false;
        };
        let serial = self.serial();
        let up = Up::new((group, name), source, tenant, (Class::Prefetch, request), of.layers, serial);
        let key = self.ups.insert(up);
        inner.entered(1);
        self.guesses.begin(key);
        self.depart(inner, key, device);
        true
    }

    /// Takes a device block that is free, or a victim's that is free at once.
    fn spare_block(&mut self, inner: &Inner, group: GroupId, may_evict: bool) -> Option<BlockId> {
        let pool = &inner.group(group).device.pool();
        let free = self.scratch.one_free(pool);
        if free.is_some() {
            return free;
        }
        // A block that is on its way out will do, once it is out.
        if !may_evict || self.groups[group].on_their_way.device_victims() > 0 {
            return None;
        }
        let mut victims = self.scratch.lend_victims();
        pool.evict_ids(1, &mut victims);
        let victim = victims.pop();
        self.scratch.return_victims(victims);
        let (block, hash) = victim?;
        let name = inner.group(group).device.name(block, hash);
        match self.victim(inner, group, block, name, Class::Prefetch) {
            Left::Free(block) => Some(block),
            Left::Soon => None,
        }
    }

    /// Ends a guess: its transfer has ended, or a caller waits for it now.
    pub(crate) fn guess_over(&mut self, class: Class, key: UpId) {
        if class == Class::Prefetch {
            self.guesses.end(key);
        }
    }
}
