//! Blocks that are never used again: a failed device keeps them, and may still read or write them, or
//! they could not be overwritten.
//!
//! A copy that a device keeps leaves behind:
//! - the device's block: unowned. A block that had stayed registered (`down.rs`) is held, or leased, for
//!   ever, and found, unless its name is forgotten: its bytes are there.
//! - the host's block: unowned. The source of a copy up is held for ever, and found.
//! - slots of the disk, credits, a place in the wait queue: none, since no device reaches them.
//!
//! Invariants
//! - I1: no caller waits for a quarantined block. A purge withdraws the tenant's registered ones, and
//!   counts them (`sweep.rs`). Where all of staging is quarantined, a transfer that needs some fails
//!   (`room.rs`, `up.rs`).

use crate::engine::inner::Inner;
use crate::state::{Down, HostSlot, Piece, Source, Traffic, Up};
use crate::tier::Tier;
use kvstrata_core::TenantId;

impl Traffic {
    pub(crate) fn quarantine_piece(&mut self, tenant: TenantId, piece: Piece, registered: bool) {
        self.quarantine.keep(tenant, piece, registered);
    }

    /// Quarantines the blocks of a transfer up.
    pub(crate) fn quarantine_ends_of_up(&mut self, inner: &Inner, up: &Up) {
        let group = up.group();
        if let Some(device) = up.device() {
            self.quarantine_piece(up.tenant(), Piece::Device(group, device), false);
        }
        match up.source() {
            Source::Host(block) => {
                let owners = inner.group(group).owners(Tier::Host);
                let tenant = owners.map_or(TenantId::NONE, |owners| owners.owner(block.id));
                self.quarantine_piece(tenant, Piece::Host(group, HostSlot::of(block.id)), true);
                // A purge need not wait for it any more.
                owners.iter().for_each(|owners| owners.stir(block.id));
            }
            Source::Below(.., staged) => {
                self.put_down(inner, group, up.source());
                if let Some(staged) = staged {
                    self.quarantine_piece(up.tenant(), Piece::Staged(group, staged), false);
                }
            }
        }
    }

    /// Quarantines the blocks of a transfer down from the device.
    pub(crate) fn quarantine_ends_of_down(&mut self, inner: &Inner, down: &Down) {
        let (group, tenant) = (down.group(), down.tenant());
        let registered = !down.is_victim();
        self.quarantine_piece(tenant, Piece::Device(group, down.source().id()), registered);
        if registered {
            inner.group(group).device.owners().stir(down.source().id());
        }
        if let Some(host) = down.host() {
            let piece = match inner.group(group).host {
                Some(_) => Piece::Host(group, host),
                None => Piece::Staged(group, host),
            };
            self.quarantine_piece(tenant, piece, false);
        }
    }

    pub(crate) fn is_quarantined(&self, piece: Piece) -> bool {
        self.quarantine.has_registered(piece)
    }

    /// Notes that a tenant's block is in a slot of a volume that is out of service: both are unused, but
    /// the next opening may find them.
    pub(crate) fn note_lost(&mut self, tenant: TenantId) {
        self.quarantine.note_lost(tenant);
    }
}
