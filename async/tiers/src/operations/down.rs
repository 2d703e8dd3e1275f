//! Transfers down: one block's bytes on their way to a lower tier, and the blocks that this frees.
//!
//! ```text
//!   device victim ─┬─ the tier below has it, or will not take it: free at once
//!                  └─ Wants a host block ───► Queued(device → host) ──► Moving ──► registered there;
//!                          ▲                                              │        the device block is free
//!                          │                                              │ without a host tier:
//!                          │                                              ▼ staged, and on
//!   host victim ───┬─ … ───┘                                          ┌───┘
//!                  └─ Queued(host → below) ◄──────────────────────────┘
//!                         └──► Moving ──► known there ─┬─ the next tier below lacks it, and takes it: again
//!                                                      └─ the host block is free
//! ```
//!
//! A victim is *owned*: no pool has it registered, and it is free when the transfer ends, however it
//! ends. The block of a copy by choice stays: it is *held* or *leased*. A victim that a request asks for
//! on its way is registered again, with the bytes that it still has: from then on it is held.
//!
//! Why no transfer waits for ever: a transfer waits for a host block only while host victims are on their way
//! to the disk, or device blocks on theirs to the host. Each of those owns both of its ends, and so it ends.
//! A copy by choice also waits while blocks that stay in the host are on their way to the disk, or while that
//! path is full of transfers that end. If there are none, and no host victim is available, the transfer does
//! not wait: its block is dropped, as a cache may do. `waiting_for_host.rs` has the order of the waiters.
//!
//! A transfer that goes by layers (`steps.rs`) waits for the engine in between, and so for no other transfer;
//! it goes on, or ends by `deadline.offload`. No waiter depends on it meanwhile: it is none of those on their
//! way, above, and without a host tier it gives its host block up to a victim, or to an urgent read. Only its
//! device block is withheld from the wait queue, as is the block of each copy behind a closed gate. So an
//! engine that awaits blocks within its own pass, while only copies of that pass hold any, waits until
//! `deadline.offload` ends those copies, or until its own deadline. It never waits for ever.
//!
//! Invariants
//! - I1: a hash has at most one transfer down in a group, and none if the tier below has it. Exception:
//!   transfers of blocks that were withdrawn while they moved (`unwritten.rs`), which no look-up finds.
//! - I2: until it ends, a transfer keeps its source (owned, held or leased) and owns its target. A
//!   `Moving` transfer ends with its landing only.
//! - I3: a block is registered below when the bytes of all its layers have landed, and never otherwise.
//!
//! `ended.rs` has the consequences of a landing.

use crate::engine::group_tiers::{GroupTiers, give_credit, give_up_slot};
use crate::engine::inner::Inner;
use crate::engine::notices::About;
use crate::state::{Cargo, Down, DownId, GroupId, Have, HostSlot, Left, Piece, Slot, Traffic, TransferId};
use crate::tier::Tier;
use crate::transfer::{Cause, Class, Copy, Failure, HostSide, Path, TierWrite};
use kvstrata_core::{BlockId, BlockRef, Priority, SequenceHash, TenantId, VictimsSeen};
use kvstrata_ffi::disk::Name;
use std::sync::Arc;

/// Number of next victims that are examined at a time.
const PEEK: usize = 8;

impl Traffic {
    /// Sends a victim of the device down, if a tier below takes it.
    pub(crate) fn victim(
        &mut self,
        inner: &Inner,
        group: GroupId,
        block: BlockId,
        name: Name,
        class: Class,
    ) -> Left {
        let of = inner.group(group);
        let tenant = of.device.owners().owner(block);
        if self.hand_to_purge(tenant, Piece::Device(group, block)) {
            return Left::Soon;
        }
        // Without a host tier it goes below only if no tier has it there: requests wait for it.
        let wanted = self.wants_copy(of, group, name, of.device.class(block))
            && inner.rules.keeps(of.device.ages().used_again(block))
            && (of.host.is_some() || !of.any_lower_contains(name.hash));
        let sent = match wanted && !self.is_closed() {
            true if self.may_go_below(inner, group) => {
                self.send_down(inner, group, Cargo::new(Have::Owned(block), name, class))
            }
            true => {
                self.drop_slow(inner, group, Tier::Device, tenant);
                None
            }
            false => None,
        };
        if of.is_hot(name.hash, inner.rules.hot_from) {
            self.note_leaving(inner, group, name);
        }
        match sent {
            Some(_) => {
                self.groups[group].on_their_way.device_victim_sent();
                Left::Soon
            }
            None => Left::Free(block),
        }
    }

    /// Counts the next victims that need no copy, from the first on, up to `most`. If some victims are
    /// ready, these are the next ones.
    pub(crate) fn clean_ahead(&mut self, inner: &Inner, group: GroupId, most: usize) -> usize {
        let ready = self.count_ready(inner, (group, Tier::Device), most);
        if ready > 0 {
            return ready;
        }
        let of = inner.group(group);
        let (mut seen, mut clean) = (VictimsSeen::default(), 0);
        let mut next = self.scratch.lend_next_victims();
        loop {
            next.clear();
            of.device.pool().victims_behind(&mut seen, PEEK.min(most - clean), &mut next);
            let needs_none = |(block, hash): &&(BlockRef, SequenceHash)| {
                self.downs.has((group, *hash))
                    || of.is_kept_below(Tier::Device, *hash)
                    || !inner.rules.keeps(of.device.ages().used_again(block.id))
            };
            let some = next.iter().take_while(needs_none).count();
            clean += some;
            if some < PEEK || clean == most {
                break;
            }
        }
        self.scratch.return_next_victims(next);
        clean
    }

    /// Whether a device block needs a copy down: the tier below lacks it, and no copy is on its way. A copy
    /// that is below becomes its tier's most recent block, and takes over the block's class for eviction.
    pub(crate) fn wants_copy(&self, of: &GroupTiers, group: GroupId, name: Name, class: Priority) -> bool {
        if self.downs.has((group, name.hash)) {
            return false;
        }
        match of.host {
            Some(_) => !of.in_host(name.hash, class),
            None => !of.in_lower(name.hash, class),
        }
    }

    /// Copies a block down that stays. Its lease or reference passes to the transfer; if there is none,
    /// the caller keeps it.
    pub(crate) fn copy_down(&mut self, inner: &Inner, group: GroupId, cargo: Cargo) -> Option<DownId> {
        let of = inner.group(group);
        let (room, class) =
            (self.has_room(Path::DeviceToHost, cargo.class), of.device.class(cargo.source.id()));
        (room && !self.is_closed() && self.wants_copy(of, group, cargo.name, class))
            .then(|| self.send_down(inner, group, cargo))?
    }

    pub(crate) fn send_down(&mut self, inner: &Inner, group: GroupId, cargo: Cargo) -> Option<DownId> {
        let Cargo { source, name, class, .. } = cargo;
        let of = inner.group(group);
        let tenant = of.device.owners().owner(source.id());
        if self.is_purging(tenant) {
            return None;
        }
        let below = match of.host {
            None => Some(self.slot_below(inner, of, name, (Tier::Device, source), tenant, class)?),
            Some(_) => None,
        };
        let credit = self.host_credit(inner, group, tenant, class);
        let slot = if credit { self.host_slot(inner, group, source, class) } else { Slot::Never };
        if matches!(slot, Slot::Never) {
            match credit && matches!(source, Have::Owned(_)) && !self.may_wait_below(inner, group) {
                true => self.drop_slow(inner, group, Tier::Device, tenant),
                false => self.without_room(inner, group, (Tier::Device, Tier::Host), source, tenant),
            }
            give_up_slot(&mut self.effects, of, below.map(|(slot, _)| slot));
            give_credit(of, tenant, credit);
            return None;
        }
        let mut down = self.new_down(group, Tier::Device, cargo, tenant);
        if credit {
            down.gets_credit();
        }
        if let Some(((number, slot), was)) = below {
            down.gets_slot(number, slot, was);
        }
        let key = self.downs.insert(down);
        inner.entered(1);
        match slot {
            Slot::Now(host) => self.give_host(inner, key, host),
            Slot::Soon | Slot::Never => {
                self.wanted(inner, TransferId::Down(key));
                self.wait_for_host(group, key);
            }
        }
        Some(key)
    }

    /// Creates a transfer that has no target yet.
    fn new_down(&mut self, group: GroupId, from: Tier, cargo: Cargo, tenant: TenantId) -> Down {
        self.groups[group].queue.note_change();
        Down::new(group, from, cargo, tenant, self.serial())
    }

    /// Sends a block of the host to the first tier below that lacks it and takes it.
    pub(crate) fn sink(&mut self, inner: &Inner, group: GroupId, cargo: Cargo) -> Option<DownId> {
        let Cargo { source, name, class: urgency, .. } = cargo;
        let of = inner.group(group);
        let host = of.host.as_ref();
        let class = host.map_or(Priority::Normal, |host| host.class(source.id()));
        let there = of.in_lower(name.hash, class);
        let tenant = host.map_or(TenantId::NONE, |host| host.owners().owner(source.id()));
        let going = self.downs.has((group, name.hash));
        if there || self.is_closed() || going || self.is_purging(tenant) {
            return None;
        }
        let ((number, slot), was) =
            self.slot_below(inner, of, name, (Tier::Host, source), tenant, urgency)?;
        let mut down = self.new_down(group, Tier::Host, cargo, tenant);
        down.has_host(HostSlot::of(source.id()));
        down.gets_slot(number, slot, was);
        let key = self.downs.insert(down);
        inner.entered(1);
        self.groups[group].on_their_way.host_block_sent(source, number > 0);
        self.queue_down(inner, key, Path::ToBelow(number));
        Some(key)
    }

    pub(crate) fn give_host(&mut self, inner: &Inner, key: DownId, host: HostSlot) {
        if let Some(down) = self.downs.get_mut(key) {
            down.has_host(host);
            let group = down.group();
            self.groups[group].on_their_way.landing_begun();
            self.groups[group].queue.note_change();
            self.note_staged(inner, group, host, TransferId::Down(key));
            self.queue_down(inner, key, Path::DeviceToHost);
        }
    }

    pub(crate) fn queue_down(&mut self, inner: &Inner, key: DownId, path: Path) {
        if path == Path::DeviceToHost {
            return self.queue_layers(inner, key);
        }
        let Some(down) = self.downs.get_mut(key) else { return };
        let bytes = inner.group(down.group()).block_bytes;
        let (class, request) = (down.class(), down.request());
        self.enqueue(inner, (path, 0), class, request, bytes, TransferId::Down(key));
    }

    /// Starts the transfer: its turn has come.
    pub(crate) fn start_down(&mut self, inner: &Arc<Inner>, key: DownId, path: Path, bytes: u64) {
        if matches!(path, Path::ToBelow(_)) {
            self.started_below(inner, key, path);
        }
        let Some(down) = self.downs.get_mut(key) else { return };
        let group = inner.group(down.group());
        down.starts();
        let token = TransferId::Down(key).token();
        let (Some(memory), Some(host)) = (&group.memory, down.host()) else { return };
        let started = match path {
            Path::DeviceToHost => memory.write(host.number()).ok().map(|guard| {
                let copy = Copy::new(
                    token,
                    down.source().id(),
                    HostSide::Write(guard),
                    down.layers().clone(),
                    false,
                );
                self.effects.copy(
                    || self.scratch.copies(),
                    group.mover.blocks_at_once(),
                    (down.group(), path),
                    copy,
                );
            }),
            _ => match (memory.read(host.number()), group.lower(down.below()), down.starts_write()) {
                (Ok(bytes), Some(lower), Some(slot)) => {
                    let name = Name { owner: inner.tenants.names.id(down.tenant()), ..down.name() };
                    let landing = inner.landing().of_write(token);
                    let write = TierWrite { token, slot, name, bytes, sum: None, landing };
                    let check = inner.rules.verify_host.then(|| Arc::clone(memory));
                    self.effects.write(Arc::clone(&lower.port), write, check, down.request());
                    Some(())
                }
                (_, _, slot) => {
                    down.keeps_slot(slot);
                    None
                }
            },
        };
        if started.is_none() {
            let (of, tenant) = (down.group(), down.tenant());
            let staged = if group.host.is_none() { down.leaves_host() } else { None };
            self.transfer_busy(inner, TransferId::Down(key), path, bytes, About::of(of, tenant));
            self.down_failed(inner, key, Failure::of(Cause::Busy));
            // A device that was given up still uses it: this staging block is tried again last, as for reads.
            let staged = staged.filter(|staged| !self.hand_to_purge(tenant, Piece::Staged(of, *staged)));
            staged.into_iter().for_each(|staged| self.groups[of].staging.give_to_end(staged));
        }
    }
}
