//! The end of a transfer down: what has landed is known below, and the transfer gives back all that it had.
//!
//! ```text
//!   landed ─┬─ well: registered below, or staged and on to the disk; but for a copy of some layers: the next ones
//!           ├─ not, and may pass: a pause, and once more
//!           └─ not: the bytes stay where they are; a victim is dropped
//! ```
//!
//! Invariants
//! - I1: what a transfer had, it gives back once: target, slot, credit, source; where a failed device keeps
//!   them, never.

use crate::engine::group_tiers::{give_credit, last_used, let_go};
use crate::engine::inner::Inner;
use crate::engine::notices::About;
use crate::state::{At, Down, DownId, Have, HostSlot, Traffic, TransferId, Waits};
use crate::tier::Tier;
use crate::transfer::{Cause, Failure, Path};
use kvstrata_core::classes::below;
use kvstrata_core::{BlockRef, TenantId};

impl Traffic {
    /// A part of it has ended.
    pub(crate) fn land_down(&mut self, inner: &Inner, key: DownId, path: Path, outcome: Result<(), Failure>) {
        let is_unwanted = |down: &Down| {
            down.is_withdrawn()
                || self.is_purging(down.tenant())
                || self.is_forgotten(down.group(), down.name().hash)
        };
        let unwanted = self.downs.get(key).is_some_and(is_unwanted);
        // What has been written to the disk is known there: it will be found, and go then.
        if path == Path::DeviceToHost && unwanted {
            // One that ended well has moved, as any.
            if let (Err(failure), Some(down)) = (outcome, self.downs.get(key)) {
                inner.counts.failed(path, failure.cause, About::of(down.group(), down.tenant()));
            }
            return self.down_failed(inner, key, Failure::of(Cause::Cancelled));
        }
        let closed = self.is_closed();
        let Some(down) = self.downs.get_mut(key) else { return };
        let group = inner.group(down.group());
        if path == Path::DeviceToHost && outcome.is_ok() {
            down.copied();
            if down.layers().start < group.layers {
                return self.queue_layers(inner, key);
            }
        }
        match (outcome, path, &group.host) {
            (Ok(()), Path::DeviceToHost, Some(host)) => {
                let (name, tenant) = (down.name(), down.tenant());
                let class = below(group.device.class(down.source().id()));
                down.spends_credit();
                // Idleness goes on: it is the device's use that counts.
                let used = last_used(&group.device, down.source(), inner.now());
                let (landed, on) = (down.leaves_host(), down.group());
                let kept = landed.and_then(|block| host.register(block.block(), name, tenant, class));
                self.ended_down(inner, key, Ok(()));
                if let Some(block) = kept {
                    self.write_on(inner, on, block);
                    host.release(block, used);
                }
            }
            // Staged: on to the disk, unless a purge has its slot.
            (Ok(()), Path::DeviceToHost, None) if down.unwritten().is_none() => {
                let tenant = down.tenant();
                match self.give_slot(inner, key, tenant) {
                    true => self.queue_below(inner, key),
                    false => self.without_slot(inner, key),
                }
            }
            (Ok(()), Path::DeviceToHost, None) => self.queue_below(inner, key),
            (Ok(()), _, host) => {
                down.note_written();
                let tenant = down.tenant();
                let of = if down.from() == Tier::Host { host.as_ref() } else { Some(&group.device) };
                let class = of.map(|of| of.class(down.source().id()));
                let (slot, hash) = (down.slot(), down.name().hash);
                if let Some((number, slot)) = slot
                    && let Some(lower) = group.lower(number)
                {
                    class.into_iter().for_each(|class| lower.classify(slot, hash, class));
                    lower.owners.stir(slot);
                }
                self.look_again(tenant);
                if unwanted || !self.goes_on_below(inner, key) {
                    self.ended_down(inner, key, Ok(()));
                }
            }
            (Err(failure), ..) => {
                inner.counts.failed(path, failure.cause, About::of(down.group(), down.tenant()));
                let again = failure.retryable && !down.is_quarantined() && path == Path::DeviceToHost;
                let goes_below = matches!(path, Path::ToBelow(_));
                // Another volume may take it.
                let lost = matches!(failure.cause, Cause::Lost | Cause::Away) && goes_below;
                let once_more =
                    (again || lost) && !unwanted && down.may_try_again(inner.rules.retries) && !closed;
                if once_more {
                    down.tries_again();
                }
                let tenant = down.tenant();
                if goes_below {
                    // One whose bytes are not the block's has not been written.
                    let written = failure.cause != Cause::Mismatch;
                    let whose = if written { tenant } else { TenantId::NOBODY };
                    let was = down.write_failed();
                    self.purges.note_left([whose, was], failure.cause == Cause::Lost);
                    self.slot_failed(inner, key);
                }
                if once_more && lost && self.give_slot(inner, key, tenant) {
                    // It has been admitted.
                    return self.queue_down(inner, key, path);
                }
                if once_more && !lost {
                    return self.pause_down(inner, key);
                }
                // Bytes that have rotted go nowhere.
                let goes_on = goes_below && !unwanted && failure.cause != Cause::Mismatch;
                if !goes_on || !self.goes_on_below(inner, key) {
                    self.down_failed(inner, key, failure);
                }
            }
        }
    }

    /// Another attempt, when a while has passed.
    fn pause_down(&mut self, inner: &Inner, key: DownId) {
        let Some(down) = self.downs.get_mut(key) else { return };
        down.pauses();
        let serial = down.serial();
        let again = inner.due_in(inner.rules.retry_after);
        self.due(again, Waits::Retry(TransferId::Down(key), serial));
    }

    /// The slot was the port's, which has freed it: it is nobody's, unless another transfer has taken it already, or has written it
    /// since.
    fn slot_failed(&mut self, inner: &Inner, key: DownId) {
        let Some(down) = self.downs.get_mut(key) else { return };
        let (Some(slot), group) = (down.loses_slot(), down.group()) else { return };
        let flies = self.downs.iter().any(|(_, other)| other.group() == group && other.slot() == Some(slot));
        if let Some(lower) = inner.group(group).lower(slot.0).filter(|_| !flies)
            && lower.port.pool().registered(slot.1).is_none()
        {
            lower.owners.hand_over(slot.1, TenantId::NOBODY);
        }
    }

    /// It is written to the tier below whose slot it has.
    fn queue_below(&mut self, inner: &Inner, key: DownId) {
        let Some(number) = self.downs.get(key).map(Down::below) else { return };
        self.queue_down(inner, key, Path::ToBelow(number));
    }

    /// The pause before another attempt is over.
    pub(crate) fn resume_down(&mut self, inner: &Inner, key: DownId, serial: u64) {
        let same = |down: &Down| down.serial() == serial && matches!(down.at(), At::Pausing);
        if self.downs.get(key).is_some_and(same) {
            self.queue_down(inner, key, Path::DeviceToHost);
        }
    }

    /// The transfer's blocks are never used again, whatever comes; the failure that lands ends it.
    pub(crate) fn quarantine_down(&mut self, inner: &Inner, key: DownId) {
        if let Some(down) = self.downs.get_mut(key) {
            down.quarantine();
            inner.counts.parked(Path::DeviceToHost, About::of(down.group(), down.tenant()));
        }
    }

    /// The block is dropped, if nobody else has it.
    pub(crate) fn down_failed(&mut self, inner: &Inner, key: DownId, failure: Failure) {
        if let Some(down) = self.downs.get(key) {
            // `Slow` counts dropped blocks. A victim that another tier below has is called off, not dropped.
            let is_kept = failure.cause == Cause::Slow && Traffic::is_below(inner, down);
            let cause = if is_kept { Cause::Cancelled } else { failure.cause };
            // What is called off nobody is to have any more: its tenant's blocks go, or all do.
            if cause != Cause::Cancelled {
                self.goes_no_further(inner, down);
            }
            // Called off: what has moved is counted where it lands, and what is late for whoever has asked
            // was counted then.
            match down.at() {
                At::Moving => {}
                _ if down.asked().iter().any(|asked| self.is_late(*asked)) => {}
                At::Queued(path, _) => {
                    inner.counts.failed(path, cause, About::of(down.group(), down.tenant()))
                }
                At::Wants | At::Pausing | At::Behind | At::Gated(_) => {
                    inner.counts.failed(Path::DeviceToHost, cause, About::of(down.group(), down.tenant()));
                }
            }
        }
        self.ended_down(inner, key, Err(failure.cause));
    }

    /// A victim is lost, unless one of the tiers below has it; anything else stays where it is.
    pub(crate) fn goes_no_further(&self, inner: &Inner, down: &Down) {
        if !Traffic::is_below(inner, down) {
            inner.counts.goes_no_further(down.source(), down.from());
        }
    }

    /// Whether one of the tiers below host memory has the block of a transfer to such a tier.
    fn is_below(inner: &Inner, down: &Down) -> bool {
        let of = inner.group(down.group());
        let to_lower = down.from() == Tier::Host || of.host.is_none();
        to_lower && of.any_lower_contains(down.name().hash)
    }

    /// Gives back all that the transfer had.
    pub(crate) fn ended_down(&mut self, inner: &Inner, key: DownId, outcome: Result<(), Cause>) {
        let down = self.downs.remove(key);
        inner.left(1);
        let of = inner.group(down.group());
        give_credit(of, down.tenant(), down.has_credit());
        if down.from() == Tier::Device {
            let waits = matches!(down.at(), At::Wants | At::Gated(_));
            if !waits {
                self.groups[down.group()].on_their_way.landing_over();
            }
        }
        if down.is_quarantined() {
            match (down.from(), down.source()) {
                (Tier::Device, Have::Owned(_)) => {
                    self.groups[down.group()].on_their_way.device_victim_ended()
                }
                (Tier::Device, _) => {}
                (_, source) => {
                    self.groups[down.group()].on_their_way.host_block_ended(source, down.below() > 0);
                }
            }
            self.slot_left(inner, down.group(), down.unwritten(), down.slot_was());
            self.quarantine_ends_of_down(inner, &down);
            self.answer_asked(inner, &down, outcome);
            return self.forget_again(inner, down.group(), down.name().hash);
        }
        self.slot_left(inner, down.group(), down.unwritten(), down.slot_was());
        match (down.from(), down.source()) {
            (Tier::Device, source) => {
                if let Some(host) = down.host() {
                    self.freed_host_by(inner, down.group(), down.tenant(), host);
                }
                match source {
                    Have::Owned(block) => {
                        self.groups[down.group()].on_their_way.device_victim_ended();
                        self.freed_by(inner, down.group(), down.tenant(), block);
                    }
                    kept => {
                        // What has failed for good is tried again when the block must go, and not before each
                        // iteration.
                        if !matches!(outcome, Err(Cause::Cancelled | Cause::Abandoned | Cause::Deadline)) {
                            of.device.ages().set_clean(kept_ref(kept));
                        }
                        let_go(&of.device, kept, inner.now());
                    }
                }
            }
            (_, Have::Owned(block)) => {
                self.groups[down.group()].on_their_way.host_block_ended(down.source(), down.below() > 0);
                self.freed_host_by(inner, down.group(), down.tenant(), HostSlot::of(block));
            }
            (_, kept) => {
                let state = &mut self.groups[down.group()];
                state.on_their_way.host_block_ended(kept, down.below() > 0);
                if let Some(host) = &of.host {
                    if !matches!(outcome, Err(Cause::Cancelled | Cause::Abandoned)) {
                        host.ages().set_clean(kept_ref(kept));
                    }
                    // Found by nobody, whoever holds it, and also if it is leased alone.
                    let rotten = outcome == Err(Cause::Mismatch);
                    let held = rotten && host.pool().withdraw_held(kept_ref(kept));
                    let_go(host, kept, inner.now());
                    if rotten && !held {
                        let _ = host.pool().unregister(kept_ref(kept));
                    }
                    if host.pool().evictable(kept_ref(kept)).is_some() {
                        state.waiting_for_host.not_full();
                    }
                }
            }
        }
        let outcome = if down.is_written() { Ok(()) } else { outcome };
        inner.counts.offloaded(down.from(), outcome);
        self.answer_asked(inner, &down, outcome);
        if down.is_hot() && outcome.is_ok() && down.is_victim() {
            self.note_hot(inner, down.group(), down.name());
        }
        self.forget_again(inner, down.group(), down.name().hash);
    }

    /// Tells who has asked for it. What one of the tiers below has is there, whatever becomes of it further down.
    fn answer_asked(&mut self, inner: &Inner, down: &Down, outcome: Result<(), Cause>) {
        let of = inner.group(down.group());
        let to_lower = down.from() == Tier::Host || of.host.is_none();
        let there = || to_lower && !down.is_written() && of.any_lower_contains(down.name().hash);
        let there = !down.asked().is_empty() && outcome.is_err() && there();
        for asked in down.asked() {
            match there {
                true => self.offload_there(*asked),
                false => self.offload_answered(*asked, if down.is_written() { Ok(()) } else { outcome }),
            }
        }
    }
}

fn kept_ref(have: Have) -> BlockRef {
    match have {
        Have::Held(block) | Have::Leased(block) => block,
        Have::Owned(id) => BlockRef { id, generation: 0 },
    }
}
