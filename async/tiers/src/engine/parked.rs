//! Blocks that are never used again: a device that has failed keeps them, and may still read or write them, or they could not be overwritten.
//!
//! | what a copy that a device keeps leaves behind | |
//! |---|---|
//! | the device's block | owned by nobody; a block that had stayed registered (`down.rs`) is held, or leased, for ever, and found, unless its name is forgotten: its bytes are there |
//! | the host's | owned by nobody; the source of a copy up is held for ever, and found |
//! | of the disk, credits, a place in the line | nothing: no device reaches them |
//!
//! I1. Nobody waits for a parked block: a purge withdraws what is registered of the tenant's, and counts it (`tenants/purge/sweep.rs`); where all
//!     of staging is parked, what needs some fails (`room.rs`, `up.rs`).

use super::down::{Down, Have};
use super::inner::Inner;
use super::tenants::{Piece, TenantId};
use super::traffic::Traffic;
use super::up::{Source, Up};
use crate::tier::Tier;
use std::collections::HashMap;

/// A block, and whose bytes are in it.
#[derive(Debug, Clone, Copy)]
struct Parked {
    tenant: TenantId,
    piece: Piece,
    /// It is registered, and nobody's reference keeps it so.
    registered: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    blocks: Vec<Parked>,
    /// By tenant: slots that a purge has found, of volumes that are out of service.
    lost: HashMap<TenantId, usize>,
}

impl Quarantine {
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Those that are not registered.
    pub(super) fn owned(&self) -> impl Iterator<Item = Piece> {
        self.blocks.iter().filter(|parked| !parked.registered).map(|parked| parked.piece)
    }

    /// Whether all of a group's staging is here: then no transfer waits for some.
    pub(super) fn has_all_staging(&self, inner: &Inner, stack: u16) -> bool {
        let of_stack = |parked: &&Parked| matches!(parked.piece, Piece::Staged(of, _) if of == stack);
        !self.is_empty() && self.blocks.iter().filter(of_stack).count() >= inner.stack(stack).staging
    }

    /// Whose bytes are here.
    pub(super) fn tenants(&self) -> impl Iterator<Item = TenantId> {
        self.blocks.iter().map(|parked| parked.tenant)
    }

    /// Blocks with bytes of a tenant's, and its slots that are lost.
    pub(super) fn of(&self, tenant: TenantId) -> usize {
        let lost = self.lost.get(&tenant).copied().unwrap_or_default();
        lost + self.tenants().filter(|of| *of == tenant).count()
    }

    /// Slots that these tenants have lost are counted no more.
    pub(super) fn forget_lost(&mut self, is_gone: impl Fn(&TenantId) -> bool) {
        self.lost.retain(|tenant, _| !is_gone(tenant));
    }
}

impl Traffic {
    /// A block is never used again.
    pub(super) fn park_piece(&mut self, tenant: TenantId, piece: Piece, registered: bool) {
        self.quarantine.blocks.push(Parked { tenant, piece, registered });
    }

    /// What a flight up has had.
    pub(super) fn park_ends_up(&mut self, inner: &Inner, up: &Up) {
        let stack = up.stack;
        if let Some(device) = up.device {
            self.park_piece(up.tenant, Piece::Device(stack, device), false);
        }
        match up.source {
            Source::Host(block) => {
                let owners = inner.stack(stack).owners(Tier::Host);
                let tenant = owners.map_or(TenantId::NOBODY, |owners| owners.owner(block.id));
                self.park_piece(tenant, Piece::Host(stack, block.id.0), true);
                // A purge need not wait for it any more.
                owners.iter().for_each(|owners| owners.stir(block.id));
            }
            Source::Disk(_, staged) => {
                self.put_down(inner, stack, up.source);
                if let Some(staged) = staged {
                    self.park_piece(up.tenant, Piece::Staged(stack, staged), false);
                }
            }
        }
    }

    /// What a flight down from the device has had.
    pub(super) fn park_ends_down(&mut self, inner: &Inner, down: &Down) {
        let (stack, tenant) = (down.stack, down.tenant);
        let registered = !matches!(down.source, Have::Owned(_));
        self.park_piece(tenant, Piece::Device(stack, down.source.id()), registered);
        if registered {
            inner.stack(stack).device.owners.stir(down.source.id());
        }
        if let Some(host) = down.host {
            let piece = match inner.stack(stack).host {
                Some(_) => Piece::Host(stack, host),
                None => Piece::Staged(stack, host),
            };
            self.park_piece(tenant, piece, false);
        }
    }

    /// Whether a registered block is one.
    pub(super) fn is_parked(&self, piece: Piece) -> bool {
        self.quarantine.blocks.iter().any(|parked| parked.registered && parked.piece == piece)
    }

    /// A slot has a tenant's block, and its volume is out of service: nobody uses either, but the next opening may find it.
    pub(super) fn note_lost(&mut self, tenant: TenantId) {
        *self.quarantine.lost.entry(tenant).or_default() += 1;
    }
}
