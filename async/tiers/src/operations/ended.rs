//! The end of a transfer down: its block is known below, and the transfer gives back all that it had.
//!
//! ```text
//!   landed ─┬─ a success: registered below, or staged and on to the disk; of a copy by layers: the next ones
//!           ├─ a failure that may pass: a pause, and another attempt
//!           └─ any other: the bytes stay where they are; a victim is dropped
//! ```
//!
//! Invariants
//! - I1: a transfer gives back each thing that it had (target, slot, credit, source) once; or never,
//!   where a failed device keeps it.

use crate::engine::group_tiers::{give_credit, last_used, let_go};
use crate::engine::inner::Inner;
use crate::engine::notices::About;
use crate::state::{At, Down, DownId, Have, HostSlot, Traffic, TransferId, Waits};
use crate::tier::Tier;
use crate::transfer::{Cause, Failure, Path};
use kvstrata_core::classes::below;
use kvstrata_core::{BlockRef, TenantId};

impl Traffic {
    /// Takes the landing of one part of a transfer down.
    pub(crate) fn land_down(&mut self, inner: &Inner, key: DownId, path: Path, outcome: Result<(), Failure>) {
        let is_unwanted = |down: &Down| {
            down.is_withdrawn()
                || self.is_purging(down.tenant())
                || self.is_forgotten(down.group(), down.name().hash)
        };
        let unwanted = self.downs.get(key).is_some_and(is_unwanted);
        // A block that was written to the disk is registered there: it is found, and removed then.
        if path == Path::DeviceToHost && unwanted {
            // A copy that succeeded has moved its bytes, and counts as any other.
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
                // Idleness goes on: only use in the device counts.
                let used = last_used(&group.device, down.source(), inner.now());
                let (landed, on) = (down.leaves_host(), down.group());
                let kept = landed.and_then(|block| host.register(block.block(), name, tenant, class));
                self.ended_down(inner, key, Ok(()));
                if let Some(block) = kept {
                    self.write_on(inner, on, block);
                    host.release(block, used);
                }
            }
            // Staged, and a purge has its slot: on to the disk, if there is another.
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
                    // Bytes that are not the block's were never written.
                    let written = failure.cause != Cause::Mismatch;
                    let whose = if written { tenant } else { TenantId::NONE };
                    let was = down.write_failed();
                    self.purges.note_left([whose, was], failure.cause == Cause::Lost);
                    self.slot_failed(inner, key);
                }
                if once_more && lost && self.give_slot(inner, key, tenant) {
                    // The tier has admitted it already.
                    return self.queue_down(inner, key, path);
                }
                if once_more && !lost {
                    return self.pause_down(inner, key);
                }
                // Rotten bytes go to no further tier.
                let goes_on = goes_below && !unwanted && failure.cause != Cause::Mismatch;
                if !goes_on || !self.goes_on_below(inner, key) {
                    self.down_failed(inner, key, failure);
                }
            }
        }
    }

    /// Schedules another attempt after a pause.
    fn pause_down(&mut self, inner: &Inner, key: DownId) {
        let Some(down) = self.downs.get_mut(key) else { return };
        down.pauses();
        let serial = down.serial();
        let again = inner.due_in(inner.rules.retry_after);
        self.due(again, Waits::Retry(TransferId::Down(key), serial));
    }

    /// Takes back the slot of a failed write, which its port has freed. The slot is unowned, unless
    /// another transfer has taken it already, or has written it since.
    fn slot_failed(&mut self, inner: &Inner, key: DownId) {
        let Some(down) = self.downs.get_mut(key) else { return };
        let (Some(slot), group) = (down.loses_slot(), down.group()) else { return };
        let flies = self.downs.iter().any(|(_, other)| other.group() == group && other.slot() == Some(slot));
        if let Some(lower) = inner.group(group).lower(slot.0).filter(|_| !flies)
            && lower.port.pool().registered(slot.1).is_none()
        {
            lower.owners.hand_over(slot.1, TenantId::NONE);
        }
    }

    /// Queues the write to the tier below that the transfer has a slot of.
    fn queue_below(&mut self, inner: &Inner, key: DownId) {
        let Some(number) = self.downs.get(key).map(Down::below) else { return };
        self.queue_down(inner, key, Path::ToBelow(number));
    }

    /// Ends the pause before another attempt.
    pub(crate) fn resume_down(&mut self, inner: &Inner, key: DownId, serial: u64) {
        let same = |down: &Down| down.serial() == serial && matches!(down.at(), At::Pausing);
        if self.downs.get(key).is_some_and(same) {
            self.queue_down(inner, key, Path::DeviceToHost);
        }
    }

    /// Keeps the transfer's blocks from ever being used again; the failure that lands ends the transfer.
    pub(crate) fn quarantine_down(&mut self, inner: &Inner, key: DownId) {
        if let Some(down) = self.downs.get_mut(key) {
            down.quarantine();
            inner.counts.quarantined(Path::DeviceToHost, About::of(down.group(), down.tenant()));
        }
    }

    /// Ends a transfer that has failed: a victim is dropped, any other block stays.
    pub(crate) fn down_failed(&mut self, inner: &Inner, key: DownId, failure: Failure) {
        if let Some(down) = self.downs.get(key) {
            // `Slow` counts dropped blocks. A victim that another tier below has is called off, not dropped.
            let is_kept = failure.cause == Cause::Slow && Traffic::is_below(inner, down);
            let cause = if is_kept { Cause::Cancelled } else { failure.cause };
            // Cancelled: the block is to go anyway, by a purge of its tenant or by closing, or is kept below.
            if cause != Cause::Cancelled {
                self.goes_no_further(inner, down);
            }
            // A moving transfer is counted where it lands; a late one was counted when its caller's
            // deadline passed.
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

    /// Counts a victim as lost, unless one of the tiers below has it. Any other block stays where it is.
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

    /// Ends a transfer, and gives back all that it had.
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
                        // A copy that failed for good is tried again when the block must leave, not
                        // before each iteration.
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
                    // No look-up finds it any more, whether callers hold it or only a lease does.
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

    /// Tells the callers that asked. A block that one of the tiers below has is there, whatever becomes
    /// of it further down.
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
