//! Transfers down that wait for host memory, and the order in which they get it.
//!
//! ```text
//!   free host memory ─► victims ─► the headroom ─► copies by choice     blocks of the host tier
//!                    ─► victims ─► urgent reads ─► copies by choice     staging, where there is no host tier
//! ```
//!
//! A request waits for a victim's block. A copy by choice keeps its block where it is, and may come
//! later, or not at all.
//!
//! Invariants
//! - I1: no copy by choice gets host memory for which a victim waits, nor the last of the host tier's
//!   headroom, nor a block of staging for which an urgent read waits.
//! - I2: copies by choice that wait here count as waiting in their path's queue (`transfer.queue`): more
//!   are put off, or refused and counted so. Beyond that are a list that has found room and goes whole, a
//!   preempted request's, victims that were turned back, and transfers by layers after their next step has
//!   opened: no more than the device has blocks. Transfers by layers wait for the engine and move nothing
//!   meanwhile. They are not counted before: others would be refused for their sake for a whole pass.
//! - I3: each transfer here waits for transfers that own all that they need, or for room in a queue of
//!   such: where there are none it is dropped.
//! - I4: a request that waits for blocks of the device, or for its credits there, waits for no copy by
//!   choice that is here, unless a caller has asked for that copy.
//! - I5: a copy that no caller has asked for, and for which no host block is available, is put off. No
//!   other of its kind is tried before more blocks of the host are available than were. It is not marked
//!   as one that need not be copied.

use crate::engine::inner::Inner;
use crate::engine::rules::WriteMode;
use crate::state::{Down, DownId, GroupId, Have, Slot, Traffic};
use crate::tier::Tier;
use crate::transfer::{Cause, Class, Failure};
use kvstrata_core::{BlockId, BlockRef};

impl Traffic {
    /// Puts a transfer down among those that wait for host memory.
    pub(crate) fn wait_for_host(&mut self, group: GroupId, key: DownId) {
        let Some(down) = self.downs.get(key) else { return };
        let waiting = &mut self.groups[group].waiting_for_host;
        match down.source() {
            Have::Owned(_) => {
                waiting.add_victim(key);
            }
            Have::Held(_) | Have::Leased(_) => waiting.add_chosen(key, down.class()),
        }
    }

    /// Returns the first victim that waits. Those before it that were turned back become copies by choice.
    fn first_victim(&mut self, group: GroupId) -> Option<DownId> {
        loop {
            let key = self.groups[group].waiting_for_host.first_victim()?;
            let source = self.downs.get(key).map(|down| down.source());
            if matches!(source, Some(Have::Owned(_))) {
                return Some(key);
            }
            self.groups[group].waiting_for_host.pop_victim();
            self.wait_for_host(group, key);
        }
    }

    /// Takes out the victim that gets host memory next.
    pub(crate) fn pop_victim(&mut self, group: GroupId) -> Option<DownId> {
        self.first_victim(group)?;
        self.groups[group].waiting_for_host.pop_victim()
    }

    /// Serves victims: as many of the host's are on their way as they need, or they are dropped.
    pub(crate) fn serve_victims(&mut self, inner: &Inner, group: GroupId) {
        while let Some(key) = self.first_victim(group) {
            let Some(down) = self.downs.get(key) else { return };
            let (source, class, tenant) = (down.source(), down.class(), down.tenant());
            let state = &self.groups[group];
            let (host, sinking) = (&inner.group(group).host, state.on_their_way.host_victims());
            let none_free = host.as_ref().is_some_and(|host| host.pool().free() == 0);
            let enough = none_free && sinking >= state.waiting_for_host.victims();
            let waits = self.may_wait_below(inner, group);
            if enough && waits {
                return self.press_sinking(group);
            }
            match self.host_slot(inner, group, source, class) {
                Slot::Now(block) => self.freed_host(inner, group, block),
                // A transfer that waits for the engine gives it up.
                Slot::Soon if host.is_none() && self.reclaim_staging(inner, group) => {}
                // No victim was sent down: one will be when another has landed. Staging comes back.
                Slot::Soon if self.groups[group].on_their_way.host_victims() == sinking => {
                    return self.press_sinking(group);
                }
                Slot::Soon => {}
                Slot::Never => {
                    let cause = match host {
                        Some(_) if !waits => {
                            self.note_slow(inner, group, tenant);
                            Cause::Slow
                        }
                        Some(_) => {
                            self.without_room(inner, group, (Tier::Device, Tier::Host), source, tenant);
                            Cause::Cancelled
                        }
                        None => Cause::Device,
                    };
                    self.groups[group].waiting_for_host.pop_victim();
                    self.down_failed(inner, key, Failure::of(cause));
                }
            }
        }
    }

    /// Lets as many of the host's victims as are waited for go to the disk before the others.
    fn press_sinking(&mut self, group: GroupId) {
        let waiting = &mut self.groups[group].waiting_for_host;
        if !waiting.take_changed() {
            return;
        }
        let waiting = waiting.victims();
        let sinks = |down: &Down| {
            (down.group(), down.from(), down.below()) == (group, Tier::Host, 0) && down.is_victim()
        };
        let sinking = self.downs.iter().filter(|(_, down)| sinks(down));
        let (urgent, others): (Vec<_>, Vec<_>) = sinking.partition(|(_, down)| down.class() == Class::Urgent);
        let most = waiting.saturating_sub(urgent.len());
        let pressed: Vec<DownId> = others.into_iter().take(most).map(|(key, _)| key).collect();
        pressed.into_iter().for_each(|key| self.promote_down(key));
    }

    /// Serves copies by choice, when victims and headroom have enough (I1).
    pub(crate) fn serve_chosen(&mut self, inner: &Inner, group: GroupId) {
        loop {
            let state = &self.groups[group];
            let (Some(key), 0) = (state.waiting_for_host.first_chosen(), state.waiting_for_host.victims())
            else {
                return;
            };
            let Some(down) = self.downs.get(key) else { return };
            let (source, class, whole, sinking) =
                (down.source(), down.class(), down.steps().is_none(), state.on_their_way.host_victims());
            let unasked = down.asked().is_empty();
            let host = &inner.group(group).host;
            if let Some(host) = host {
                let (free, headroom) = (host.pool().free(), inner.rules.host_headroom as usize);
                let enough = free + sinking >= headroom + state.waiting_for_host.chosen();
                if free <= headroom && enough {
                    return;
                }
            }
            match self.host_slot(inner, group, source, class) {
                Slot::Now(block) => {
                    self.groups[group].waiting_for_host.pop_chosen();
                    self.give_host(inner, key, block);
                }
                // A block that is written waits for no transfer that waits for the engine.
                Slot::Soon if host.is_none() && whole && self.reclaim_staging(inner, group) => {}
                Slot::Soon if self.groups[group].on_their_way.host_victims() == sinking => return,
                Slot::Soon => {}
                // No caller has asked for it: put off until there is room again.
                Slot::Never if host.is_some() && unasked => {
                    self.groups[group].waiting_for_host.pop_chosen();
                    self.called_off(inner, group, key);
                }
                Slot::Never => {
                    let cause = if host.is_some() { Cause::Cancelled } else { Cause::Device };
                    self.groups[group].waiting_for_host.pop_chosen();
                    self.down_failed(inner, key, Failure::of(cause));
                }
            }
        }
    }

    /// Returns up to `wanted` copies by choice that no caller has asked for, that wait themselves, and
    /// that alone keep a `such` block of the device from leaving; with the block.
    pub(crate) fn kept_by_choice(
        &self,
        inner: &Inner,
        group: GroupId,
        wanted: usize,
        such: impl Fn(BlockId) -> bool,
    ) -> Vec<(DownId, BlockRef)> {
        let pool = &inner.group(group).device.pool();
        let kept = |key: DownId| {
            let down = self.downs.get(key).filter(|down| down.asked().is_empty())?;
            let Have::Leased(block) = down.source() else { return None };
            // A block that a caller holds would not become free.
            let keeps = such(block.id) && pool.evictable(block).is_some();
            keeps.then_some((key, block))
        };
        let waiting = &self.groups[group].waiting_for_host;
        waiting.iter_chosen().filter_map(kept).take(wanted).collect()
    }

    /// Calls such copies off, in the order of their keys. Their blocks may leave, as victims;
    /// write-through copies are deferred.
    pub(crate) fn call_off(&mut self, inner: &Inner, group: GroupId, copies: &[DownId]) {
        if copies.is_empty() {
            return;
        }
        self.groups[group].waiting_for_host.retain(|key| copies.binary_search(key).is_err());
        copies.iter().for_each(|key| self.called_off(inner, group, *key));
    }

    fn called_off(&mut self, inner: &Inner, group: GroupId, key: DownId) {
        let source = self.downs.get(key).map(|down| down.source());
        self.down_failed(inner, key, Failure::of(Cause::Cancelled));
        if let Some(Have::Leased(block)) = source.filter(|_| inner.rules.mode != WriteMode::Back) {
            self.defer(inner, (group, Tier::Device), block);
        }
    }

    /// Calls off up to `wanted` copies by choice that alone keep blocks of the device for which a request
    /// waits (I4). Returns whether there was one.
    pub(crate) fn call_off_chosen(&mut self, inner: &Inner, group: GroupId, wanted: usize) -> bool {
        let mut copies: Vec<DownId> =
            self.kept_by_choice(inner, group, wanted, |_| true).into_iter().map(|(key, _)| key).collect();
        copies.sort_unstable();
        self.call_off(inner, group, &copies);
        !copies.is_empty()
    }
}
