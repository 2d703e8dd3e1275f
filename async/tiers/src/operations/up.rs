//! Transfers up: one block on its way to the device, for all requests that wait for it.
//!
//! ```text
//!   Wants ──► Queued(host → device) ──► Moving ─► … one range of layers after the other … ─► registered:
//!     │            ▲                                                                  each waiter holds it
//!     │            └─────────────────────────────┐
//!     └─► Queued(below → device) ──► Moving ──► staged       a failure: each waiter has a miss of that cause
//! ```
//!
//! Invariants
//! - I1: a hash has at most one transfer up in a group; further requests join it.
//! - I2: from `Queued` on, a transfer owns its device block and holds its source, until it ends. A
//!   `Moving` transfer ends with its landing only.
//! - I3: a block is registered when all of its layers have landed, and never otherwise.
//! - I4: a transfer that has no waiter any more, and is no guess, ends at once. If it is `Moving`, it
//!   ends when that has landed, registered if none of it is left to come.
//! - I5: where the policy knows parents, an awaited block is registered behind its parent if the parent's
//!   transfer began before, is at least as urgent, has its device block, and has all of this one's
//!   waiters, too. Such a parent ends, whatever this transfer does. This one is `Behind` until then, or
//!   until it has no waiter, or one that is more urgent or has no use for the parent. So reads that come
//!   in any order are one path to the policy. And no caller that was told that all layers are there waits
//!   for another's block, or loses this one with it.

use crate::engine::group_tiers::GroupTiers;
use crate::engine::inner::Inner;
use crate::engine::notices::About;
use crate::state::{At, GroupId, HostSlot, Link, Piece, Source, Traffic, TransferId, Up, UpId, Waits};
use crate::transfer::{Cause, Class, Copy, Failure, HostSide, Path, TierRead};
use kvstrata_core::{BlockId, Priority, TenantId};
use kvstrata_ffi::disk::Urgency;
use std::sync::Arc;

impl Traffic {
    /// Lets a transfer go that now has its device block.
    pub(crate) fn depart(&mut self, inner: &Inner, key: UpId, device: BlockId) {
        let Some(up) = self.ups.get_mut(key) else { return };
        up.has_device(device);
        self.groups[up.group()].queue.note_change();
        self.wanted(inner, TransferId::Up(key));
        self.queue_or_wait(inner, key);
    }

    pub(crate) fn queue_up(&mut self, inner: &Inner, key: UpId) {
        let Some(up) = self.ups.get_mut(key) else { return };
        let (path, group) = (up.path(), inner.group(up.group()));
        let bytes = match path {
            Path::FromBelow(_) => group.block_bytes,
            _ => group.bytes_of(&up.layers(group.layers)),
        };
        let (class, request, lane) = (up.class(), up.request(), up.lane());
        self.enqueue(inner, (path, lane), class, request, bytes, TransferId::Up(key));
    }

    /// Starts the transfer: its turn has come.
    pub(crate) fn start_up(&mut self, inner: &Arc<Inner>, key: UpId, path: Path, bytes: u64) {
        let Some(up) = self.ups.get_mut(key) else { return };
        let group = inner.group(up.group());
        up.starts();
        let (token, urgent, whose) =
            (TransferId::Up(key).token(), up.class() == Class::Urgent, About::of(up.group(), up.tenant()));
        let Some(memory) = &group.memory else { return };
        if let Path::FromBelow(number) = path {
            let Source::Below(_, block, _) = up.source() else { return };
            let staging = &mut self.groups[up.group()].staging;
            let staged = staging.take();
            let (buffer, lower) = (staged.map(|staged| memory.write(staged.number())), group.lower(number));
            let (Some(staged), Some(Ok(buffer)), Some(lower)) = (staged, buffer, lower) else {
                // A device that was given up still writes there: this staging block is tried again last.
                staged.into_iter().for_each(|staged| staging.give_to_end(staged));
                self.transfer_busy(inner, TransferId::Up(key), path, bytes, whose);
                return self.up_failed(inner, key, Failure::of(Cause::Busy));
            };
            up.stages(staged);
            let urgency = if urgent { Urgency::Urgent } else { Urgency::Ordinary };
            let (of, slot, hash, request) = (up.group(), block.id, up.name().hash, up.request());
            self.note_staged(inner, of, staged, TransferId::Up(key));
            let landing = inner.landing().of_read(token);
            let read = TierRead { token, slot, hash, urgency, buffer, landing };
            return self.effects.read(Arc::clone(&lower.port), read, request);
        }
        let (from, verify) = match up.source() {
            Source::Host(block) => (block.id.0, inner.rules.verify_host),
            Source::Below(.., staged) => (staged.map_or(u32::MAX, HostSlot::number), false),
        };
        match (memory.read(from), up.device()) {
            (Ok(bytes), Some(device)) => {
                let layers = up.layers(group.layers);
                let copy = Copy::new(token, device, HostSide::Read(bytes), layers, verify);
                self.effects.copy(
                    || self.scratch.copies(),
                    group.mover.blocks_at_once(),
                    (up.group(), path),
                    copy,
                );
            }
            _ => {
                self.transfer_busy(inner, TransferId::Up(key), path, bytes, whose);
                self.up_failed(inner, key, Failure::of(Cause::Busy));
            }
        }
    }

    /// Takes the landing of one part of a transfer up.
    pub(crate) fn land_up(&mut self, inner: &Inner, key: UpId, path: Path, outcome: Result<(), Failure>) {
        let purging = self.ups.get(key).is_some_and(|up| self.is_purging(up.tenant()));
        let closed = self.is_closed();
        let in_the_way = matches!(path, Path::FromBelow(_)) && self.is_in_the_way(key);
        let Some(up) = self.ups.get_mut(key) else { return };
        let layers = inner.group(up.group()).layers;
        match outcome {
            // It has moved, as well as any; but no request is to have it.
            Ok(()) if in_the_way || purging => {
                self.up_failed(inner, key, Failure::of(Cause::Cancelled));
            }
            Ok(()) if matches!(path, Path::FromBelow(_)) => self.queue_up(inner, key),
            Ok(()) => {
                let landed = up.lands(layers);
                let to = landed.end;
                self.layers_landed(key, landed);
                if to < layers {
                    self.queue_up(inner, key);
                    return self.drop_if_unwanted(inner, key);
                }
                match self.parent_to_come(inner, key) {
                    Some(parent) => {
                        // The parent may be the one that needs it.
                        self.unstage(key);
                        let up = &mut self.ups[key];
                        up.waits_behind();
                        let serial = up.serial();
                        self.ups[parent].has_child(&mut self.waiting_for_parent, key, serial);
                    }
                    None => self.arrived(inner, key),
                }
            }
            Err(failure) => {
                inner.counts.failed(path, failure.cause, About::of(up.group(), up.tenant()));
                let again = failure.retryable && !purging && up.may_try_again(inner.rules.retries);
                if again && !closed {
                    up.pauses();
                    let serial = up.serial();
                    self.unstage(key);
                    let again = inner.due_in(inner.rules.retry_after);
                    self.due(again, Waits::Retry(TransferId::Up(key), serial));
                } else {
                    self.up_failed(inner, key, failure);
                }
            }
        }
        self.drop_if_unwanted(inner, key);
    }

    /// Ends the pause before another attempt.
    pub(crate) fn resume_up(&mut self, inner: &Inner, key: UpId, serial: u64) {
        let same = |up: &Up| up.serial() == serial && matches!(up.at(), At::Pausing);
        if self.ups.get(key).is_some_and(same) {
            self.queue_up(inner, key);
        }
    }

    /// Keeps the transfer's blocks from ever being used again; the failure that lands ends the transfer.
    pub(crate) fn quarantine_up(&mut self, inner: &Inner, key: UpId) {
        if let Some(up) = self.ups.get_mut(key) {
            up.quarantine();
            inner.counts.quarantined(Path::HostToDevice, About::of(up.group(), up.tenant()));
        }
    }

    /// Gives up the transfer's staging: it was for this read, and a failed read left nothing there.
    fn unstage(&mut self, key: UpId) {
        let Some(up) = self.ups.get_mut(key) else { return };
        if let Some(staged) = up.unstages() {
            let (group, tenant) = (up.group(), up.tenant());
            if !self.hand_to_purge(tenant, Piece::Staged(group, staged)) {
                self.groups[group].staging.give(staged);
            }
        }
    }

    /// Returns the transfer behind which this one is registered (I5).
    fn parent_to_come(&self, inner: &Inner, key: UpId) -> Option<UpId> {
        let up = self.ups.get(key).filter(|up| up.first().is_some())?;
        let device = &inner.group(up.group()).device;
        let parent = up.name().parent.filter(|_| device.links())?;
        let key = self.ups.find((up.group(), parent))?;
        let before = self.ups.get(key)?;
        let will_end =
            before.serial() < up.serial() && before.device().is_some() && before.class() <= up.class();
        let is_theirs = || self.waiters(up).all(|link| self.waits_before(link, key));
        (will_end && !device.pool().contains(parent) && is_theirs()).then_some(key)
    }

    /// Takes note of a new waiter for a transfer. If that is behind its parent, and the waiter has no use
    /// for the parent, it no longer waits (I5).
    pub(crate) fn joined_behind(&mut self, link: Link, key: UpId) {
        let Some(up) = self.ups.get(key).filter(|up| up.waits_for_parent()) else { return };
        let parent = up.name().parent.and_then(|parent| self.ups.find((up.group(), parent)));
        if !parent.is_some_and(|parent| self.waits_before(link, parent)) {
            self.wait_no_more(key);
        }
    }

    /// Ends a transfer's wait for its parent.
    pub(crate) fn wait_no_more(&mut self, key: UpId) {
        if let Some(up) = self.ups.get(key).filter(|up| up.waits_for_parent()) {
            self.waiting_for_parent.wait_no_more(key, up.serial());
        }
    }

    /// Completes the transfers that wait for no parent any more: it has ended, one way or the other, or
    /// the wait has.
    pub(crate) fn serve_behind(&mut self, inner: &Inner) {
        while let Some((key, serial)) = self.waiting_for_parent.pop_over() {
            let waits = |up: &Up| up.serial() == serial && up.waits_for_parent();
            if !self.ups.get(key).is_some_and(waits) {
                continue;
            }
            match self.ups.get(key).is_some_and(|up| self.is_purging(up.tenant())) {
                true => self.up_failed(inner, key, Failure::of(Cause::Cancelled)),
                false => self.arrived(inner, key),
            }
        }
    }

    /// Removes a transfer; its children wait no more.
    fn end_up(&mut self, key: UpId) -> Up {
        let up = self.ups.remove(key);
        self.waiting_for_parent.parent_ended(up.children());
        up
    }

    /// Registers a block: all of its layers are there (I3).
    fn arrived(&mut self, inner: &Inner, key: UpId) {
        self.unstage(key);
        let up = self.end_up(key);
        self.guess_over(up.class(), key);
        inner.left(1);
        let group = inner.group(up.group());
        let Some(device) = up.device() else { return };
        let class = match up.source() {
            Source::Host(block) => group.host.as_ref().map_or(Priority::Normal, |host| host.class(block.id)),
            Source::Below(number, block, _) => {
                group.lower(number).map_or(Priority::Normal, |lower| lower.class(block))
            }
        };
        // Ids that were announced are those that come: a caller computes with them, even if the hash has
        // been registered meanwhile. Nor does this block give way to one that a pass is still to write.
        let there = || group.device.pool().find(up.name().hash).map(|there| there.id());
        let unwritten = !self.unwritten.is_empty()
            && there().is_some_and(|there| self.unwritten.iteration(up.group(), there).is_some());
        let registered = match up.is_announced() || unwritten {
            true => group.device.register_beside(device, up.name(), up.tenant(), class),
            false => group.device.register(device, up.name(), up.tenant(), class),
        };
        inner.counts.onboarded(up.source().tier());
        let mut next = up.first();
        let owner = next;
        while let Some(link) = next {
            let held = registered.and_then(|block| match Some(link) == owner {
                true => Some(block),
                false => group.device.pool().hold_again(block),
            });
            next = self.came(inner, link, held.ok_or(Cause::Busy));
        }
        match owner {
            Some(link) => self.spend(link, up.source()),
            None => {
                if let Some(block) = registered {
                    group.device.release(block, inner.now());
                }
                self.put_down(inner, up.group(), up.source());
            }
        }
        self.forget_again(inner, up.group(), up.name().hash);
    }

    /// Ends a transfer that failed: each waiter has a miss, unless a tier further down has the bytes. A
    /// guess does not go on there: a request may wait for its block.
    pub(crate) fn up_failed(&mut self, inner: &Inner, key: UpId, failure: Failure) {
        let Some(up) = self.ups.get_mut(key) else { return };
        if up.is_quarantined() {
            return self.up_quarantined(inner, key, failure);
        }
        // Moved bytes are counted where they land, and a late transfer at its deadline.
        if !matches!(up.at(), At::Moving | At::Behind) && failure.cause != Cause::Deadline {
            inner.counts.failed(up.source().path(), failure.cause, About::of(up.group(), up.tenant()));
        }
        self.unstage(key);
        let Some(up) = self.ups.get_mut(key) else { return };
        let group = inner.group(up.group());
        if let Some(from) = next_source(up.source(), failure.cause)
            && up.class() != Class::Prefetch
            && let Some((number, block)) = group.find_lower(from, up.name().hash)
        {
            // Landed layers were verified, and a caller may compute with them: the transfer goes on
            // behind them.
            let (spoilt, tenant) = (up.source(), up.tenant());
            up.comes_from(number, block);
            match is_spoilt(spoilt, failure.cause) {
                true => give_back_spoilt(inner, group, spoilt, tenant),
                false => self.put_down(inner, group.number, spoilt),
            }
            return self.queue_up(inner, key);
        }
        let up = self.end_up(key);
        self.guess_over(up.class(), key);
        inner.left(1);
        if let Some(device) = up.device() {
            group.device.owners().give(up.tenant(), 1);
            self.freed_by(inner, up.group(), up.tenant(), device);
        }
        match is_spoilt(up.source(), failure.cause) {
            true => give_back_spoilt(inner, group, up.source(), up.tenant()),
            false => self.put_down(inner, up.group(), up.source()),
        }
        let mut next = up.first();
        while let Some(link) = next {
            next = self.came(inner, link, Err(failure.cause));
        }
        self.forget_again(inner, up.group(), up.name().hash);
    }

    /// As [`up_failed`](Traffic::up_failed), but gives nothing back that the device may reach.
    fn up_quarantined(&mut self, inner: &Inner, key: UpId, failure: Failure) {
        let up = self.end_up(key);
        self.guess_over(up.class(), key);
        inner.left(1);
        inner.group(up.group()).device.owners().give(up.tenant(), usize::from(up.device().is_some()));
        self.quarantine_ends_of_up(inner, &up);
        let mut next = up.first();
        while let Some(link) = next {
            next = self.came(inner, link, Err(failure.cause));
        }
        self.forget_again(inner, up.group(), up.name().hash);
    }

    /// Ends a transfer that has no waiter, if no part of it is moving (I4).
    pub(crate) fn drop_if_unwanted(&mut self, inner: &Inner, key: UpId) {
        let Some(up) = self.ups.get(key) else { return };
        if up.first().is_some() || up.class() == Class::Prefetch && !self.is_closed() {
            return;
        }
        let cause = up.left_by();
        match up.at() {
            At::Moving => return,
            At::Behind => return self.wait_no_more(key),
            At::Queued(path, ticket) => {
                self.queues.cancel(path, ticket);
            }
            At::Wants if up.device().is_some() => {}
            At::Wants => {
                let (group, entry) = (up.group(), up.entry());
                self.leave_queue(inner, group, entry, key);
            }
            At::Pausing | At::Gated(_) => {}
        }
        self.up_failed(inner, key, Failure::of(cause));
    }

    /// Releases a source.
    pub(crate) fn put_down(&mut self, inner: &Inner, group: GroupId, source: Source) {
        let of = inner.group(group);
        match source {
            Source::Host(block) => of.host.iter().for_each(|host| host.release(block, inner.now())),
            Source::Below(number, block, _) => of.lower(number).iter().for_each(|lower| lower.release(block)),
        }
    }
}

/// Returns the tier below host memory from which on a failed transfer may find another source. Returns
/// none if another source would not help.
fn next_source(source: Source, cause: Cause) -> Option<u8> {
    match source {
        Source::Below(number, ..) if cause == Cause::Away => Some(number + 1),
        Source::Below(number, ..) => is_spoilt(source, cause).then_some(number + 1),
        Source::Host(_) => is_spoilt(source, cause).then_some(0),
    }
}

/// Whether a source's bytes are not the block's, or lost. Otherwise they are as good as before.
fn is_spoilt(source: Source, cause: Cause) -> bool {
    match source {
        Source::Host(_) => cause == Cause::Mismatch,
        // The tier keeps a block of another length, which no request of this group can read.
        Source::Below(..) => matches!(cause, Cause::Rejected | Cause::Buffer | Cause::Tier | Cause::Lost),
    }
}

/// Releases a source with bytes that are lost or not the block's: no look-up finds it any more. Other
/// holders would keep the block from being registered, or written, anew: it goes with the last of them.
fn give_back_spoilt(inner: &Inner, group: &GroupTiers, source: Source, tenant: TenantId) {
    match source {
        Source::Host(block) => {
            if let Some(host) = &group.host {
                host.pool().withdraw_held(block);
                host.release(block, inner.now());
            }
        }
        Source::Below(number, block, _) => {
            let Some(lower) = group.lower(number) else { return };
            lower.port.pool().withdraw_held(block);
            lower.release(block);
            lower.port.forget(block);
            if lower.owners.owner(block.id) == tenant && lower.port.pool().registered(block.id).is_none() {
                // Others may still hold it, with the tenant's bytes.
                lower.owners.give_up_one(block.id);
            }
        }
    }
}
