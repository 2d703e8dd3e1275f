//! Begins and ends purges, hands blocks to them, and says when tags are looked through. The task of a purge:
//! `calls/purge.rs`.
//!
//! Invariants
//! - I1: a block that is registered when the purge begins is in its hands, or withdrawn, before anything else
//!   happens under the lock. So no allocation evicts it. A handle that is being dropped this moment may be
//!   dropped before.
//! - I2: tags are looked through once at the beginning, once after each telling that a block of the tenant
//!   may have been registered (`look_again`), once more after a look that found one between two states, and
//!   before the purge is over; not each time that it is told.
//! - I3: the purge ends with its task, however that ends; or its tenant would have nothing for ever.

use crate::engine::group_tiers::give_up_slot;
use crate::engine::inner::Inner;
use crate::state::{Down, DownId, Erased, GroupId, HostSlot, Piece, Traffic, Work};
use crate::transfer::{Cause, Failure};
use kvstrata_core::{BlockId, TenantId};

impl Traffic {
    /// They are free, or quarantined, or lost with their volume.
    pub(crate) fn put_back(&mut self, inner: &Inner, tenant: TenantId, erased: Erased) {
        self.purges.erased(tenant);
        for piece in erased.failed {
            if let Piece::Below(group, number, slot) = piece
                && let Some(lower) = inner.group(group).lower(number)
                && lower.port.is_lost(slot)
            {
                lower.owners.hand_over(slot, TenantId::NOBODY);
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
    /// Whether a tenant is being purged.
    pub(crate) fn is_purging(&self, tenant: TenantId) -> bool {
        self.purges.has(tenant)
    }

    /// Blocks of a kind that purges have.
    pub(crate) fn in_purges(&self, kind: impl Fn(&Piece) -> bool) -> usize {
        self.purges.pieces().filter(|piece| kind(piece)).count()
    }

    /// A block that was a tenant's, and is nobody's now: the purge's, if there is one (I1). False: free it.
    pub(crate) fn hand_to_purge(&mut self, tenant: TenantId, piece: Piece) -> bool {
        self.purges.give(tenant, piece)
    }

    /// A block of the device that was a tenant's is free, unless a purge has it.
    pub(crate) fn freed_by(&mut self, inner: &Inner, group: GroupId, tenant: TenantId, block: BlockId) {
        if !self.hand_to_purge(tenant, Piece::Device(group, block)) {
            self.freed(inner, group, block);
        }
    }

    /// The same of host memory.
    pub(crate) fn freed_host_by(&mut self, inner: &Inner, group: GroupId, tenant: TenantId, block: HostSlot) {
        let piece = match inner.group(group).host {
            Some(_) => Piece::Host(group, block),
            None => Piece::Staged(group, block),
        };
        if !self.hand_to_purge(tenant, piece) {
            self.freed_host(inner, group, block);
        }
    }

    /// Calls back what has not begun to move. How many transfers the tenant has.
    pub(crate) fn begin_purge(&mut self, inner: &Inner, tenant: TenantId, zero: bool) -> usize {
        self.purges.begin(tenant, zero);
        inner.tenants.purges.enter();
        // Who releases from now on tells.
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

    /// Takes the slots of others' transfers that have a block of the tenant's until they are written; the
    /// transfers get others, or end.
    pub(crate) fn take_slots(&mut self, inner: &Inner, tenant: TenantId) {
        let has =
            |down: &Down| down.slot_was() == tenant && down.tenant() != tenant && down.unwritten().is_some();
        for key in self.downs.keys_of(has) {
            let Some(down) = self.downs.get_mut(key) else { continue };
            let (at, group, other) = (down.at(), down.group(), down.tenant());
            let slot = down.gives_slot_up();
            self.slot_left(inner, group, slot, tenant);
            // One that moves to the staging ends there.
            if !self.give_slot(inner, key, other) && self.recall(at) {
                self.groups[group].waiting_for_host.remove(key);
                self.without_slot(inner, key);
            }
        }
    }

    /// A purge has taken a transfer's slot, and there is no other: called off, which is no failure; but a
    /// victim, being another's, is lost.
    pub(crate) fn without_slot(&mut self, inner: &Inner, key: DownId) {
        if let Some(down) = self.downs.get(key) {
            self.goes_no_further(inner, down);
        }
        self.down_failed(inner, key, Failure::of(Cause::Cancelled));
    }

    /// A slot that a transfer has not written, with a block that was a tenant's: the purge's, if there is
    /// one, or free when that is forgotten.
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
                of.lower(number).iter().for_each(|lower| lower.owners.hand_over(slot, TenantId::NOBODY));
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
    /// Some block of a tenant's may have been registered: a purge looks for it.
    pub(crate) fn look_again(&mut self, tenant: TenantId) {
        self.purges.look_again(tenant);
    }

    /// Under the lock that the purge begins with; what is found is for its task.
    pub(crate) fn first_sweep(&mut self, inner: &Inner, work: &mut Work) {
        let (pieces, _) = self.sweep(inner, work);
        self.purges.keep(work.tenant, pieces);
    }
}
