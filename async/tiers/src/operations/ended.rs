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
                if matches!(path, Path::ToBelow(_)) {
                    // One whose bytes are not the block's has not been written.
                    let written = failure.cause != Cause::Mismatch;
                    let tenant = if written { down.tenant() } else { TenantId::NOBODY };
                    let was = down.write_failed();
                    self.purges.note_left([tenant, was], failure.cause == Cause::Lost);
                }
                // The slot was the port's, and is gone.
                let again = failure.retryable && !down.is_quarantined() && path == Path::DeviceToHost;
                // Another volume may take it.
                let lost =
                    matches!(failure.cause, Cause::Lost | Cause::Away) && matches!(path, Path::ToBelow(_));
                if (again || lost) && !unwanted && down.may_try_again(inner.rules.retries) && !closed {
                    down.tries_again();
                    if lost {
                        let tenant = down.tenant();
                        if let Some((number, lost)) = down.loses_slot()
                            && let Some(lower) = group.lower(number)
                        {
                            lower.owners.hand_over(lost, TenantId::NOBODY);
                        }
                        // It has been admitted.
                        if self.give_slot(inner, key, tenant) {
                            return self.queue_down(inner, key, path);
                        }
                        if self.goes_on_below(inner, key) {
                            return;
                        }
                        return self.down_failed(inner, key, failure);
                    }
                    down.pauses();
                    let serial = down.serial();
                    let again = inner.due_in(inner.rules.retry_after);
                    self.due(again, Waits::Retry(TransferId::Down(key), serial));
                } else if unwanted || path == Path::DeviceToHost || !self.goes_on_below(inner, key) {
                    self.down_failed(inner, key, failure);
                }
            }
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
            // What is called off nobody is to have any more: its tenant's blocks go, or all do.
            if failure.cause != Cause::Cancelled {
                inner.counts.goes_no_further(down.source(), down.from());
            }
            // Called off: what has moved is counted where it lands, and what is late for whoever has asked
            // was counted then.
            match down.at() {
                At::Moving => {}
                _ if down.asked().iter().any(|asked| self.is_late(*asked)) => {}
                At::Queued(path, _) => {
                    inner.counts.failed(path, failure.cause, About::of(down.group(), down.tenant()))
                }
                At::Wants | At::Pausing | At::Behind | At::Gated(_) => {
                    inner.counts.failed(
                        Path::DeviceToHost,
                        failure.cause,
                        About::of(down.group(), down.tenant()),
                    );
                }
            }
        }
        self.ended_down(inner, key, Err(failure.cause));
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
                (_, source) => self.groups[down.group()].on_their_way.host_block_ended(source),
            }
            self.slot_left(inner, down.group(), down.unwritten(), down.slot_was());
            self.quarantine_ends_of_down(inner, &down);
            for asked in down.asked() {
                self.offload_answered(*asked, outcome);
            }
            return self.forget_again(inner, down.group(), down.name().hash);
        }
        self.slot_left(inner, down.group(), down.unwritten(), down.slot_was());
        if let Some(slot) = down.slot().filter(|_| outcome.is_err() && down.unwritten().is_none()) {
            // The port has freed it, and another transfer may have taken it already, and ended.
            let flies = self
                .downs
                .iter()
                .any(|(_, other)| other.group() == down.group() && other.slot() == Some(slot));
            if let Some(lower) = of.lower(slot.0).filter(|_| !flies)
                && lower.port.pool().registered(slot.1).is_none()
            {
                lower.owners.hand_over(slot.1, TenantId::NOBODY);
            }
        }
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
                self.groups[down.group()].on_their_way.host_block_ended(down.source());
                self.freed_host_by(inner, down.group(), down.tenant(), HostSlot::of(block));
            }
            (_, kept) => {
                let state = &mut self.groups[down.group()];
                state.on_their_way.host_block_ended(kept);
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
        inner.counts.offloaded(down.from(), outcome);
        for asked in down.asked() {
            self.offload_answered(*asked, outcome);
        }
        if down.is_hot() && outcome.is_ok() && down.is_victim() {
            self.note_hot(inner, down.group(), down.name());
        }
        self.forget_again(inner, down.group(), down.name().hash);
    }
}

fn kept_ref(have: Have) -> BlockRef {
    match have {
        Have::Held(block) | Have::Leased(block) => block,
        Have::Owned(id) => BlockRef { id, generation: 0 },
    }
}
