//! Blocks that are never used again: a device that has failed keeps them, and may still read or write them,
//! or they could not be overwritten.
//!
//! | what a copy that a device keeps leaves behind | |
//! |---|---|
//! | the device's block | owned by nobody; a block that had stayed registered (`down.rs`) is held, or leased, for ever, and found, unless its name is forgotten: its bytes are there |
//! | the host's | owned by nobody; the source of a copy up is held for ever, and found |
//! | of the disk, credits, a place in the wait queue | nothing: no device reaches them |
//!
//! I1. No caller waits for a quarantined block: a purge withdraws what is registered of the tenant's, and
//! counts it (`sweep.rs`); where all
//!     of staging is quarantined, what needs some fails (`room.rs`, `up.rs`).

use crate::engine::inner::Inner;
use crate::state::{Down, HostSlot, Piece, Source, Traffic, Up};
use crate::tier::Tier;
use kvstrata_core::TenantId;

impl Traffic {
    /// A block is never used again.
    pub(crate) fn quarantine_piece(&mut self, tenant: TenantId, piece: Piece, registered: bool) {
        self.quarantine.keep(tenant, piece, registered);
    }

    /// What a transfer up has had.
    pub(crate) fn quarantine_ends_of_up(&mut self, inner: &Inner, up: &Up) {
        let group = up.group();
        if let Some(device) = up.device() {
            self.quarantine_piece(up.tenant(), Piece::Device(group, device), false);
        }
        match up.source() {
            Source::Host(block) => {
                let owners = inner.group(group).owners(Tier::Host);
                let tenant = owners.map_or(TenantId::NOBODY, |owners| owners.owner(block.id));
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

    /// What a transfer down from the device has had.
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

    /// Whether a registered block is one.
    pub(crate) fn is_quarantined(&self, piece: Piece) -> bool {
        self.quarantine.has_registered(piece)
    }

    /// A slot has a tenant's block, and its volume is out of service: nobody uses either, but the next
    /// opening may find it.
    pub(crate) fn note_lost(&mut self, tenant: TenantId) {
        self.quarantine.note_lost(tenant);
    }
}
