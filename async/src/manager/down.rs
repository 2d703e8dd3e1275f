//! Flights down: one block's bytes on their way to a lower tier, and the blocks that this frees.
//!
//! ```text
//!   device victim ─┬─ the tier below has it, or will not: free at once
//!                  └─ Waits for a host block ──► Queued(device → host) ──► Moving ──► registered there; the device block is free
//!                          ▲                                                  │ without a host tier: staged, and on
//!   host victim ───┬─ … ───┘                                                  ▼
//!                  └─ Queued(host → disk) ──► Moving ──► known there; the host block is free
//! ```
//!
//! A victim is *owned*: no pool has it registered, and it is free when the flight ends, however it ends. A copy of a block that stays is
//! *leased*. A victim that is asked for on its way is registered again, with the bytes that it still has: from then on it is held.
//!
//! Why nothing waits for ever: a flight waits for a host block only while host victims are on their way to the disk, or blocks of the
//! device on theirs to the host, each of which owns both of its ends and so ends. If there are neither, and no host victim is to be had,
//! there is no waiting: the block is dropped, as a cache may.
//!
//! Invariants
//! - I1: a hash has one flight down at most in a stack, and none if the tier below has it.
//! - I2: a flight keeps its source, owned, held or leased, and owns its target, until it ends; what is `Moving` ends with its landing only.
//! - I3: a block is registered below when its bytes have landed, and never otherwise.

use super::inner::Inner;
use super::room::Slot;
use super::stack::{Books, Stack};
use super::tenants::{Piece, TenantId};
use super::traffic::{At, Id, Traffic};
use crate::tier::Tier;
use crate::transfer::{Cause, Class, Copy, DiskWrite, Failure, HostSide, Path};
use kvstrata_core::{BlockId, BlockRef};
use kvstrata_ffi::disk::Name;
use std::sync::Arc;

/// How a flight has its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Have {
    /// A victim.
    Owned(BlockId),
    /// Registered, with a reference.
    Held(BlockRef),
    /// Registered, and kept from eviction.
    Leased(BlockRef),
}

impl Have {
    fn id(self) -> BlockId {
        match self {
            Have::Owned(block) => block,
            Have::Held(block) | Have::Leased(block) => block.id,
        }
    }

    /// It goes no further: a victim is lost, anything else stays where it is.
    pub(super) fn dropped(self, inner: &Inner, from: Tier) {
        if matches!(self, Have::Owned(_)) {
            inner.counts.dropped(from);
        }
    }
}

/// A flight down.
#[derive(Debug)]
pub(super) struct Down {
    pub(super) stack: u16,
    pub(super) name: Name,
    pub(super) from: Tier,
    pub(super) source: Have,
    /// Whose it is.
    pub(super) tenant: TenantId,
    /// A credit of the tenant's in the host tier.
    credit: bool,
    /// The slot that it is written to, which is the tenant's.
    slot: Option<BlockId>,
    /// The host block that it goes to: of the host tier, or staged where there is none.
    pub(super) host: Option<u32>,
    pub(super) disk: Option<BlockId>,
    pub(super) at: At,
    pub(super) class: Class,
    pub(super) request: u64,
    attempts: u32,
    /// A failed device keeps its blocks.
    parked: bool,
    pub(super) serial: u64,
    /// Who asked for it.
    pub(super) asked: Vec<u32>,
}

/// What became of a victim.
pub(super) enum Left {
    /// The block is free: the caller's.
    Free(BlockId),
    /// It will be, when its flight has ended.
    Soon,
}

impl Traffic {
    /// Sends a victim of the device down, if there is where to.
    pub(super) fn victim(
        &mut self,
        inner: &Inner,
        stack: u16,
        block: BlockId,
        name: Name,
        class: Class,
    ) -> Left {
        let of = inner.stack(stack);
        let tenant = of.device.owners.owner(block);
        if self.hand_to_purge(tenant, Piece::Device(stack, block)) {
            return Left::Soon;
        }
        if of.is_hot(name.hash, inner.rules.hot_from) {
            self.note_hot(inner, stack, name);
        }
        let wanted = self.wants_copy(of, stack, name) && inner.rules.keeps(of.device.ages.used_again(block));
        if !wanted || self.closed {
            return Left::Free(block);
        }
        match self.send_down(inner, stack, Have::Owned(block), name, class, 0) {
            Some(_) => {
                self.lines[stack as usize].draining += 1;
                Left::Soon
            }
            None => Left::Free(block),
        }
    }

    /// Whether a block of the device is to be copied down: the tier below does not have it, nor is it on its way. What is there becomes
    /// the most recent of its tier.
    pub(super) fn wants_copy(&self, of: &Stack, stack: u16, name: Name) -> bool {
        if self.down_of.contains_key(&(stack, name.hash)) {
            return false;
        }
        match (&of.host, &of.disk) {
            (Some(host), _) => host.pool.lookup(name.hash).is_none(),
            (None, Some(disk)) => disk.lookup(name.hash).is_none(),
            (None, None) => false,
        }
    }

    /// A copy of a block that stays; its lease or reference is the flight's, or the caller's still if there is none.
    pub(super) fn copy_down(
        &mut self,
        inner: &Inner,
        stack: u16,
        source: Have,
        name: Name,
        class: Class,
        request: u64,
    ) -> Option<u32> {
        let of = inner.stack(stack);
        let room = self.has_room(Path::DeviceToHost, 1);
        (room && !self.closed && self.wants_copy(of, stack, name))
            .then(|| self.send_down(inner, stack, source, name, class, request))?
    }

    /// A copy of a block that its engine has just registered, and holds.
    pub(super) fn write_through(&mut self, inner: &Inner, stack: u16, block: BlockRef) {
        let of = inner.stack(stack);
        let Some(held) = of.device.pool.upgrade(block) else { return };
        let name = of.device.name(held.id(), held.hash());
        let source = Have::Held(held.into_ref());
        if self.copy_down(inner, stack, source, name, Class::Background, 0).is_none() {
            let_go(&of.device, source, inner.now());
        }
    }

    fn send_down(
        &mut self,
        inner: &Inner,
        stack: u16,
        source: Have,
        name: Name,
        class: Class,
        request: u64,
    ) -> Option<u32> {
        let of = inner.stack(stack);
        let tenant = of.device.owners.owner(source.id());
        if self.is_purging(tenant) {
            return None;
        }
        let mut disk = None;
        if of.host.is_none() {
            disk = Some(self.disk_slot(inner, of, name, Tier::Device, source, tenant)?);
        }
        let credit = self.host_credit(inner, stack, tenant, class);
        let slot = if credit { self.host_slot(inner, stack, class) } else { Slot::Never };
        if matches!(slot, Slot::Never) {
            source.dropped(inner, Tier::Device);
            give_up_slot(of, disk);
            give_credit(of, tenant, credit);
            return None;
        }
        let from = Tier::Device;
        let down =
            Down { credit, disk, slot: disk, request, ..self.down(stack, name, from, source, class, tenant) };
        let key = self.downs.insert(down) as u32;
        self.down_of.insert((stack, name.hash), key);
        inner.entered(1);
        match slot {
            Slot::Now(host) => self.take_off(inner, key, host),
            Slot::Soon | Slot::Never => self.lines[stack as usize].grounded.push_back(key),
        }
        Some(key)
    }

    /// A flight that has nothing yet.
    fn down(
        &mut self,
        stack: u16,
        name: Name,
        from: Tier,
        source: Have,
        class: Class,
        tenant: TenantId,
    ) -> Down {
        let (at, serial, credit, parked, request, attempts) = (At::Wants, self.serial(), false, false, 0, 0);
        let (slot, host, disk, asked) = (None, None, None, Vec::new());
        Down {
            stack,
            name,
            from,
            source,
            tenant,
            credit,
            slot,
            host,
            disk,
            at,
            class,
            request,
            attempts,
            parked,
            serial,
            asked,
        }
    }

    /// Sends a block of the host to the disk, if it is worth it.
    pub(super) fn sink(
        &mut self,
        inner: &Inner,
        stack: u16,
        source: Have,
        name: Name,
        class: Class,
    ) -> Option<u32> {
        let of = inner.stack(stack);
        let there = of.disk.as_ref().is_none_or(|disk| disk.lookup(name.hash).is_some());
        let tenant = of.owners(Tier::Host).map_or(TenantId::NOBODY, |owners| owners.owner(source.id()));
        let going = self.down_of.contains_key(&(stack, name.hash));
        if there || self.closed || going || self.is_purging(tenant) {
            return None;
        }
        let slot = self.disk_slot(inner, of, name, Tier::Host, source, tenant)?;
        let (host, disk, from) = (Some(source.id().0), Some(slot), Tier::Host);
        let down = Down { host, disk, slot: disk, ..self.down(stack, name, from, source, class, tenant) };
        let key = self.downs.insert(down) as u32;
        self.down_of.insert((stack, name.hash), key);
        inner.entered(1);
        if matches!(source, Have::Owned(_)) {
            self.lines[stack as usize].sinking += 1;
        }
        self.queue_down(inner, key, Path::HostToDisk);
        Some(key)
    }

    /// The flight has its host block.
    pub(super) fn take_off(&mut self, inner: &Inner, key: u32, host: u32) {
        if let Some(down) = self.downs.get_mut(key as usize) {
            down.host = Some(host);
            self.lines[down.stack as usize].landing += 1;
            self.queue_down(inner, key, Path::DeviceToHost);
        }
    }

    fn queue_down(&mut self, inner: &Inner, key: u32, path: Path) {
        let Some(down) = self.downs.get_mut(key as usize) else { return };
        let bytes = inner.stack(down.stack).block_bytes;
        let (class, request) = (down.class, down.request);
        let at = self.enqueue(path, class, request, bytes, Id::Down(key));
        self.downs[key as usize].at = at;
    }

    /// Its turn has come.
    pub(super) fn start_down(&mut self, inner: &Arc<Inner>, key: u32, path: Path, bytes: u64) {
        let Some(down) = self.downs.get_mut(key as usize) else { return };
        let stack = inner.stack(down.stack);
        down.at = At::Moving;
        let token = Id::Down(key).token();
        let (Some(memory), Some(host)) = (&stack.memory, down.host) else { return };
        let started = match path {
            Path::DeviceToHost => memory.write(host).ok().map(|guard| {
                let copy = Copy::new(token, down.source.id(), HostSide::Write(guard), 0..stack.layers, false);
                self.out.copy(&mut self.spare, inner, (down.stack, path), copy);
            }),
            _ => match (memory.read(host), &stack.disk, down.disk.take()) {
                (Ok(bytes), Some(disk), Some(slot)) => {
                    let write = DiskWrite { token, slot, name: down.name, bytes, landing: inner.landing() };
                    let check = inner.rules.verify_host.then(|| Arc::clone(memory));
                    self.out.write(Arc::clone(disk), write, check);
                    Some(())
                }
                (_, _, slot) => {
                    down.disk = slot;
                    None
                }
            },
        };
        if started.is_none() {
            self.queues[path as usize].ended(bytes);
            self.down_failed(inner, key, Failure::of(Cause::Busy));
        }
    }

    /// A part of it has ended.
    pub(super) fn land_down(&mut self, inner: &Inner, key: u32, path: Path, outcome: Result<(), Failure>) {
        // What has been written to the disk is known there: the purge will find it.
        let purged = path == Path::DeviceToHost
            && self.downs.get(key as usize).is_some_and(|down| self.is_purging(down.tenant));
        if purged {
            return self.down_failed(inner, key, Failure::of(Cause::Cancelled));
        }
        let Some(down) = self.downs.get_mut(key as usize) else { return };
        let stack = inner.stack(down.stack);
        match (outcome, path, &stack.host) {
            (Ok(()), Path::DeviceToHost, Some(host)) => {
                let (name, tenant) = (down.name, down.tenant);
                down.credit = false;
                let kept = down.host.take().and_then(|block| host.register(BlockId(block), name, tenant));
                if let Some(block) = kept {
                    host.release(block, inner.now());
                }
                self.ended_down(inner, key, Ok(()));
            }
            // Staged: on to the disk.
            (Ok(()), Path::DeviceToHost, None) => self.queue_down(inner, key, Path::HostToDisk),
            (Ok(()), ..) => self.ended_down(inner, key, Ok(())),
            (Err(failure), ..) => {
                inner.counts.failed(path, failure.cause);
                // The slot was the port's, and is gone.
                let again = failure.retryable && !down.parked && path == Path::DeviceToHost;
                let lost = failure.cause == Cause::Lost;
                if (again || lost) && down.attempts < inner.rules.retries && !self.closed {
                    down.attempts += 1;
                    if lost {
                        let tenant = down.tenant;
                        if let Some(lost) = down.slot.take() {
                            stack.disk_owners.hand_over(lost, TenantId::NOBODY);
                        }
                        // It has been admitted.
                        let Some(slot) = self.slot_of(stack, tenant) else {
                            return self.down_failed(inner, key, failure);
                        };
                        self.downs[key as usize].disk = Some(slot);
                        self.downs[key as usize].slot = Some(slot);
                        return self.queue_down(inner, key, path);
                    }
                    down.at = At::Pausing;
                    let serial = down.serial;
                    self.out.later(Id::Down(key), serial);
                } else {
                    self.down_failed(inner, key, failure);
                }
            }
        }
    }

    /// The pause before another attempt is over.
    pub(super) fn resume_down(&mut self, inner: &Inner, key: u32, serial: u64) {
        let same = |down: &Down| down.serial == serial && matches!(down.at, At::Pausing);
        if self.downs.get(key as usize).is_some_and(same) {
            self.queue_down(inner, key, Path::DeviceToHost);
        }
    }

    /// The flight's blocks are not given back, whatever comes; the failure that lands ends it.
    pub(super) fn park_down(&mut self, inner: &Inner, key: u32) {
        if let Some(down) = self.downs.get_mut(key as usize) {
            down.parked = true;
            inner.counts.parked();
        }
    }

    /// The block is dropped, if nobody else has it.
    pub(super) fn down_failed(&mut self, inner: &Inner, key: u32, failure: Failure) {
        if let Some(down) = self.downs.get(key as usize) {
            down.source.dropped(inner, down.from);
        }
        self.ended_down(inner, key, Err(failure.cause));
    }

    /// Gives back all that the flight had.
    fn ended_down(&mut self, inner: &Inner, key: u32, outcome: Result<(), Cause>) {
        let down = self.downs.remove(key as usize);
        self.down_of.remove(&(down.stack, down.name.hash));
        inner.left(1);
        let of = inner.stack(down.stack);
        give_credit(of, down.tenant, down.credit);
        if down.from == Tier::Device {
            self.lines[down.stack as usize].landing -= u32::from(!matches!(down.at, At::Wants));
        }
        if down.parked {
            match (down.from, down.source) {
                (Tier::Device, Have::Owned(_)) => self.lines[down.stack as usize].draining -= 1,
                (_, Have::Owned(_)) => self.lines[down.stack as usize].sinking -= 1,
                _ => {}
            }
            for asked in down.asked {
                self.offload_answered(asked, outcome);
            }
            return;
        }
        give_up_slot(of, down.disk);
        if let Some(slot) = down.slot.filter(|_| outcome.is_err() && down.disk.is_none()) {
            // The port has freed it, and another flight may have taken it already, and ended.
            let flies =
                self.downs.iter().any(|(_, other)| other.stack == down.stack && other.slot == Some(slot));
            let stored = of.disk.as_ref().is_some_and(|disk| disk.pool().registered(slot).is_some());
            if !flies && !stored {
                of.disk_owners.hand_over(slot, TenantId::NOBODY);
            }
        }
        match (down.from, down.source) {
            (Tier::Device, source) => {
                if let Some(host) = down.host {
                    self.freed_host_by(inner, down.stack, down.tenant, host);
                }
                match source {
                    Have::Owned(block) => {
                        self.lines[down.stack as usize].draining -= 1;
                        self.freed_by(inner, down.stack, down.tenant, block);
                    }
                    kept => {
                        // What has failed for good is tried again when the block must go, and not before each iteration.
                        if !matches!(outcome, Err(Cause::Cancelled | Cause::Abandoned)) {
                            of.device.ages.set_clean(kept_ref(kept));
                        }
                        let_go(&of.device, kept, inner.now());
                    }
                }
            }
            (_, Have::Owned(block)) => {
                self.lines[down.stack as usize].sinking -= 1;
                self.freed_host_by(inner, down.stack, down.tenant, block.0);
            }
            (_, kept) => {
                if let Some(host) = &of.host {
                    if !matches!(outcome, Err(Cause::Cancelled | Cause::Abandoned)) {
                        host.ages.set_clean(kept_ref(kept));
                    }
                    let_go(host, kept, inner.now());
                    if outcome == Err(Cause::Mismatch) {
                        // Who holds it finds out by itself.
                        let _ = host.pool.unregister(kept_ref(kept));
                    }
                }
            }
        }
        inner.counts.offloaded(down.from, outcome);
        for asked in down.asked {
            self.offload_answered(asked, outcome);
        }
    }
}

/// A slot that was not written is free, and nobody's.
fn give_up_slot(of: &Stack, slot: Option<BlockId>) {
    if let (Some(disk), Some(slot)) = (&of.disk, slot) {
        of.disk_owners.hand_over(slot, TenantId::NOBODY);
        disk.give_back(slot);
    }
}

/// A credit of the host tier that was not used.
fn give_credit(of: &Stack, tenant: TenantId, credit: bool) {
    if let Some(host) = of.host.as_ref().filter(|_| credit) {
        host.owners.give(tenant, 1);
    }
}

fn kept_ref(have: Have) -> BlockRef {
    match have {
        Have::Held(block) | Have::Leased(block) => block,
        Have::Owned(id) => BlockRef { id, generation: 0 },
    }
}

/// Lets go of what was held or leased.
pub(super) fn let_go(books: &Books, have: Have, now: u64) {
    match have {
        Have::Held(block) => books.release(block, now),
        Have::Leased(block) => books.pool.end_lease(block),
        Have::Owned(block) => _ = books.pool.give_back_ids([block]),
    }
}
