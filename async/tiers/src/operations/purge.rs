//! Begins and ends purges, hands blocks to them, and decides when tags are scanned. The task of a
//! purge: `calls/purge.rs`.
//!
//! Invariants
//! - I1: a block that is registered when the purge begins is in its hands, or withdrawn, before any other
//!   change under the lock. So no allocation evicts it. Only a handle that is being dropped at this
//!   moment may be dropped before.
//! - I2: tags are scanned once at the beginning, once after each note that a block of the tenant may have
//!   been registered (`look_again`), once more after a scan that found a block between two states, and
//!   once before the purge is over. They are not scanned each time that the purge is told of a change.
//! - I3: the purge ends with its task, however that ends; otherwise its tenant would get no blocks for ever.

use crate::engine::group_tiers::give_up_slot;
use crate::engine::inner::Inner;
use crate::state::{Down, DownId, Erased, GroupId, HostSlot, Piece, Traffic, Work};
use crate::transfer::{Cause, Failure};
use kvstrata_core::{BlockId, TenantId};

impl Traffic {
    /// Takes a purge's blocks back: they are free, or quarantined, or lost with their volume.
    pub(crate) fn put_back(&mut self, inner: &Inner, tenant: TenantId, erased: Erased) {
        self.purges.erased(tenant);
        for piece in erased.failed {
            if let Piece::Below(group, number, slot) = piece
                && let Some(lower) = inner.group(group).lower(number)
                && lower.port.is_lost(slot)
            {
                lower.owners.hand_over(slot, TenantId::NONE);
                self.note_lost(tenant);
                continue;
            }
            // A slot's credit is given back when the purge ends.
            self.quarantine_piece(tenant, piece, false);
        }
        for piece in erased.free {
            match piece {
                Piece::Device(group, block) => self.freed(inner, group, block),
                Piece::Host(group, block) => self.freed_host(inner, group, block),
                Piece::Staged(group, block) => self.groups[group].staging.give(block),
                Piece::Below(group, number, slot) => {
                    let of = inner.group(group);
                    give_up_slot(&mut self.effects, of, Some((number, slot)));
                }
            }
        }
    }
}

impl Traffic {
    pub(crate) fn is_purging(&self, tenant: TenantId) -> bool {
        self.purges.has(tenant)
    }

    /// Counts the blocks of a kind that purges have.
    pub(crate) fn in_purges(&self, kind: impl Fn(&Piece) -> bool) -> usize {
        self.purges.pieces().filter(|piece| kind(piece)).count()
    }

    /// Hands a tenant's former block to its purge, if there is one (I1). Otherwise returns false: free it.
    pub(crate) fn hand_to_purge(&mut self, tenant: TenantId, piece: Piece) -> bool {
        self.purges.give(tenant, piece)
    }

    /// Frees a tenant's former block of the device, unless a purge has it.
    pub(crate) fn freed_by(&mut self, inner: &Inner, group: GroupId, tenant: TenantId, block: BlockId) {
        if !self.hand_to_purge(tenant, Piece::Device(group, block)) {
            self.freed(inner, group, block);
        }
    }

    /// Frees a tenant's former block of host memory, unless a purge has it.
    pub(crate) fn freed_host_by(&mut self, inner: &Inner, group: GroupId, tenant: TenantId, block: HostSlot) {
        let piece = match inner.group(group).host {
            Some(_) => Piece::Host(group, block),
            None => Piece::Staged(group, block),
        };
        if !self.hand_to_purge(tenant, piece) {
            self.freed_host(inner, group, block);
        }
    }

    /// Begins a purge, and calls back transfers that do not move yet. Returns how many transfers the
    /// tenant had.
    pub(crate) fn begin_purge(&mut self, inner: &Inner, tenant: TenantId, zero: bool) -> usize {
        self.purges.begin(tenant, zero);
        inner.tenants.purges.enter();
        // From now on, each release notifies.
        inner.waiting.enter();
        let cancelled = Failure::of(Cause::Cancelled);
        let ups = self.ups.keys_of(|up| up.tenant() == tenant);
        let downs = self.downs.keys_of(|down| down.tenant() == tenant);
        let in_flight = ups.len() + downs.len();
        for group in self.groups.numbers() {
            self.dismiss(inner, group, tenant);
        }
        for key in ups {
            let Some(at) = self.ups.get(key).map(|up| up.at()) else { continue };
            if self.recall(at) {
                self.up_failed(inner, key, cancelled);
            }
        }
        for key in downs {
            let Some(down) = self.downs.get(key) else { continue };
            let (at, group) = (down.at(), down.group());
            self.groups[group].waiting_for_host.remove(key);
            if self.recall(at) {
                self.down_failed(inner, key, cancelled);
            }
        }
        in_flight
    }

    /// Takes slots with a block of the tenant's from others' transfers that have not written them yet.
    /// These transfers get other slots, or end.
    pub(crate) fn take_slots(&mut self, inner: &Inner, tenant: TenantId) {
        let has =
            |down: &Down| down.slot_was() == tenant && down.tenant() != tenant && down.unwritten().is_some();
        for key in self.downs.keys_of(has) {
            let Some(down) = self.downs.get_mut(key) else { continue };
            let (at, group, other) = (down.at(), down.group(), down.tenant());
            let slot = down.gives_slot_up();
            self.slot_left(inner, group, slot, tenant);
            // A transfer that is moving to staging ends there.
            if !self.give_slot(inner, key, other) && self.recall(at) {
                self.groups[group].waiting_for_host.remove(key);
                self.without_slot(inner, key);
            }
        }
    }

    /// Ends a transfer that has lost its slot to a purge, with no other slot available. Cancelling is no
    /// failure; but a victim, being another tenant's, is lost.
    pub(crate) fn without_slot(&mut self, inner: &Inner, key: DownId) {
        if let Some(down) = self.downs.get(key) {
            self.goes_no_further(inner, down);
        }
        self.down_failed(inner, key, Failure::of(Cause::Cancelled));
    }

    /// Gives up a slot that a transfer has not written, and that has a tenant's block: to the tenant's
    /// purge, if there is one, or free once the block is forgotten.
    pub(crate) fn slot_left(
        &mut self,
        inner: &Inner,
        group: GroupId,
        slot: Option<(u8, BlockId)>,
        was: TenantId,
    ) {
        let of = inner.group(group);
        match slot.filter(|_| self.is_purging(was)) {
            Some((number, slot)) => {
                of.lower(number).iter().for_each(|lower| lower.owners.hand_over(slot, TenantId::NONE));
                self.hand_to_purge(was, Piece::Below(group, number, slot));
            }
            None => give_up_slot(&mut self.effects, of, slot),
        }
    }

    pub(crate) fn end_purge(&mut self, inner: &Inner, tenant: TenantId) {
        self.purges.end(tenant);
        inner.tenants.purges.leave();
        inner.waiting.leave();
    }
}

impl Traffic {
    /// Notes that a block of a tenant may have been registered: a purge looks for it.
    pub(crate) fn look_again(&mut self, tenant: TenantId) {
        self.purges.look_again(tenant);
    }

    /// Sweeps under the lock that the purge begins with; its task gets the blocks that this finds.
    pub(crate) fn first_sweep(&mut self, inner: &Inner, work: &mut Work) {
        let (pieces, _) = self.sweep(inner, work);
        self.purges.keep(work.tenant, pieces);
    }
}
