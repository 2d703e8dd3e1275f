//! A transfer to a lower tier.
//!
//! Its position and the blocks that it has change together, by the methods below
//! (`operations/down.rs` I2).

use crate::scheduler::Key;
use crate::state::{At, BlockName, DownId, ForBlock, GroupId, HostSlot, OffloadingId, Since, Steps};
use crate::tier::Tier;
use crate::transfer::{Class, Path, Ticket};
use kvstrata_core::{BlockId, BlockRef, TenantId};
use kvstrata_ffi::disk::Name;
use std::ops::Range;

/// How a transfer has its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Have {
    /// Owned: a victim.
    Owned(BlockId),
    /// Registered, with a reference.
    Held(BlockRef),
    /// Registered, and kept from eviction.
    Leased(BlockRef),
}

impl Have {
    pub(crate) fn id(self) -> BlockId {
        match self {
            Have::Owned(block) => block,
            Have::Held(block) | Have::Leased(block) => block.id,
        }
    }
}

/// A source that is to go down, and the order in which it goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cargo {
    pub(crate) source: Have,
    pub(crate) name: Name,
    pub(crate) class: Class,
    pub(crate) request: u64,
    /// Layers by which it goes, as the engine is done with them; none: whole.
    pub(crate) steps: Option<Steps>,
}

impl Cargo {
    /// Makes a copy without a request.
    pub(crate) fn new(source: Have, name: Name, class: Class) -> Cargo {
        Cargo { source, name, class, request: 0, steps: None }
    }
}

/// A transfer down.
#[derive(Debug)]
pub(crate) struct Down {
    group: GroupId,
    name: Name,
    from: Tier,
    source: Have,
    tenant: TenantId,
    /// A credit of the tenant's in the host tier.
    credit: bool,
    /// The tier below host memory that it is written to.
    below: u8,
    /// The tenant's slot there, which it is written to.
    slot: Option<BlockId>,
    /// The owner of the block in the slot, until the slot is written.
    slot_was: TenantId,
    /// The same slot, until the write starts.
    unwritten: Option<BlockId>,
    /// It has been written to a lower tier, and may go on to the next one.
    written: bool,
    /// The host block that it is copied to: of the host tier, or of staging if there is none.
    host: Option<HostSlot>,
    at: At,
    class: Class,
    request: u64,
    steps: Option<Steps>,
    /// The layers of its next copy to the host, or of the current one; earlier layers have landed.
    layers: Range<u32>,
    attempts: u32,
    /// A failed device keeps its blocks.
    quarantined: bool,
    /// Its block will not be written: when it lands it ends, and nothing is registered.
    withdrawn: bool,
    /// Its block was used often, and may come up again once it is down.
    hot: bool,
    serial: u64,
    /// Offloads that wait for it.
    asked: Vec<OffloadingId>,
    /// Since when it waits for its turn, or when its turn came.
    since: Since,
}

impl Down {
    /// Makes a transfer that has nothing but its source yet.
    pub(crate) fn new(group: GroupId, from: Tier, cargo: Cargo, tenant: TenantId, serial: u64) -> Down {
        let Cargo { source, name, class, request, steps } = cargo;
        Down {
            group,
            name,
            from,
            source,
            tenant,
            credit: false,
            below: 0,
            slot: None,
            slot_was: TenantId::NONE,
            unwritten: None,
            written: false,
            host: None,
            at: At::Wants,
            class,
            request,
            steps,
            layers: 0..0,
            attempts: 0,
            quarantined: false,
            withdrawn: false,
            hot: false,
            serial,
            asked: Vec::new(),
            since: Since::default(),
        }
    }

    pub(crate) fn group(&self) -> GroupId {
        self.group
    }

    pub(crate) fn name(&self) -> Name {
        self.name
    }

    pub(crate) fn from(&self) -> Tier {
        self.from
    }

    pub(crate) fn source(&self) -> Have {
        self.source
    }

    pub(crate) fn tenant(&self) -> TenantId {
        self.tenant
    }

    pub(crate) fn has_credit(&self) -> bool {
        self.credit
    }

    pub(crate) fn below(&self) -> u8 {
        self.below
    }

    /// Returns the slot that it is written to, with its tier below host memory.
    pub(crate) fn slot(&self) -> Option<(u8, BlockId)> {
        Some((self.below, self.slot?))
    }

    /// Returns the owner of the block in the slot, until the slot is written.
    pub(crate) fn slot_was(&self) -> TenantId {
        self.slot_was
    }

    /// Returns the slot that it is written to, if the write has not started.
    pub(crate) fn unwritten(&self) -> Option<(u8, BlockId)> {
        Some((self.below, self.unwritten?))
    }

    /// Returns the host block that it is copied to.
    pub(crate) fn host(&self) -> Option<HostSlot> {
        self.host
    }

    pub(crate) fn at(&self) -> At {
        self.at
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    pub(crate) fn request(&self) -> u64 {
        self.request
    }

    pub(crate) fn steps(&self) -> Option<Steps> {
        self.steps
    }

    /// Returns the layers of its next copy to the host, or of the current one.
    pub(crate) fn layers(&self) -> Range<u32> {
        self.layers.clone()
    }

    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    pub(crate) fn asked(&self) -> &[OffloadingId] {
        &self.asked
    }

    pub(crate) fn is_quarantined(&self) -> bool {
        self.quarantined
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        self.withdrawn
    }

    pub(crate) fn is_hot(&self) -> bool {
        self.hot
    }

    /// Whether it owns its source: a victim, which is free when the transfer ends.
    pub(crate) fn is_victim(&self) -> bool {
        matches!(self.source, Have::Owned(_))
    }

    /// Whether it waits for the model.
    pub(crate) fn is_gated(&self) -> bool {
        matches!(self.at, At::Gated(_))
    }

    pub(crate) fn since_mut(&mut self) -> &mut Since {
        &mut self.since
    }

    /// Returns the path that it is on, or takes next.
    pub(crate) fn path(&self) -> Path {
        match self.at {
            At::Queued(path, _) => path,
            // The write has taken its slot.
            At::Moving if self.from == Tier::Host || self.slot.is_some() && self.unwritten.is_none() => {
                Path::ToBelow(self.below)
            }
            At::Wants | At::Moving | At::Pausing | At::Behind | At::Gated(_) => Path::DeviceToHost,
        }
    }

    /// Gives it a credit of the tenant's in the host tier.
    pub(crate) fn gets_credit(&mut self) {
        self.credit = true;
    }

    /// Takes its credit, which the registered block in the host tier keeps.
    pub(crate) fn spends_credit(&mut self) {
        self.credit = false;
    }

    /// Gives it a slot of a lower tier, which still has a block of tenant `was`.
    pub(crate) fn gets_slot(&mut self, below: u8, slot: BlockId, was: TenantId) {
        (self.below, self.unwritten, self.slot, self.slot_was) = (below, Some(slot), Some(slot), was);
    }

    /// Whether a write to a lower tier has succeeded.
    pub(crate) fn is_written(&self) -> bool {
        self.written
    }

    /// Notes that a write to a lower tier has succeeded.
    pub(crate) fn note_written(&mut self) {
        self.written = true;
    }

    /// Takes the slot after a failed write: the slot is the port's. Returns the slot.
    pub(crate) fn loses_slot(&mut self) -> Option<(u8, BlockId)> {
        Some((self.below, self.slot.take()?))
    }

    /// Takes its slot for a purge. Returns the slot if the write has not started.
    pub(crate) fn gives_slot_up(&mut self) -> Option<(u8, BlockId)> {
        (self.slot, self.slot_was) = (None, TenantId::NONE);
        Some((self.below, self.unwritten.take()?))
    }

    /// Forgets the owner of the block in the slot, after a failed write: the slot is the port's. Returns
    /// the owner.
    pub(crate) fn write_failed(&mut self) -> TenantId {
        std::mem::take(&mut self.slot_was)
    }

    /// Gives it its host block.
    pub(crate) fn has_host(&mut self, block: HostSlot) {
        self.host = Some(block);
    }

    /// Takes its host block.
    pub(crate) fn leaves_host(&mut self) -> Option<HostSlot> {
        self.host.take()
    }

    /// Makes it wait for host memory, again or still.
    pub(crate) fn wants_host(&mut self) {
        self.at = At::Wants;
    }

    /// Puts it into a path's queue.
    pub(crate) fn is_queued(&mut self, path: Path, ticket: Ticket) {
        self.at = At::Queued(path, ticket);
    }

    /// Starts its transfer.
    pub(crate) fn starts(&mut self) {
        self.at = At::Moving;
    }

    /// Starts its write, which takes the slot.
    pub(crate) fn starts_write(&mut self) -> Option<BlockId> {
        self.unwritten.take()
    }

    /// Gives the slot back: the write has not started after all.
    pub(crate) fn keeps_slot(&mut self, slot: Option<BlockId>) {
        self.unwritten = slot;
    }

    /// Whether a failed transfer may be tried again.
    pub(crate) fn may_try_again(&self, retries: u32) -> bool {
        self.attempts < retries
    }

    /// Counts another attempt.
    pub(crate) fn tries_again(&mut self) {
        self.attempts += 1;
    }

    /// Makes it pause before another attempt.
    pub(crate) fn pauses(&mut self) {
        self.at = At::Pausing;
    }

    /// Makes it wait for the model, which does not count as a wait for its turn.
    pub(crate) fn is_held_by_gate(&mut self, key: Key) {
        self.since = Since::default();
        self.at = At::Gated(key);
    }

    /// Sets the end of the layers of its next copy.
    pub(crate) fn copies_to(&mut self, end: u32) {
        self.layers.end = end;
    }

    /// Notes that its copy has landed.
    pub(crate) fn copied(&mut self) {
        self.layers.start = self.layers.end;
    }

    /// Makes it go whole, with all layers once more, and without staging. Returns its staging and
    /// its steps.
    pub(crate) fn starts_over(&mut self) -> (Option<HostSlot>, Option<Steps>) {
        self.layers = 0..0;
        (self.host.take(), self.steps.take())
    }

    /// Turns a victim back: its block is registered again, and held from now on.
    pub(crate) fn is_turned_back(&mut self, held: BlockRef) {
        self.source = Have::Held(held);
    }

    /// Makes it urgent: it waits for no iteration's budget.
    pub(crate) fn hurries(&mut self) {
        self.class = Class::Urgent;
    }

    /// Notes that a failed device keeps its blocks.
    pub(crate) fn quarantine(&mut self) {
        self.quarantined = true;
    }

    /// Notes that its block will not be written.
    pub(crate) fn withdraw(&mut self) {
        self.withdrawn = true;
    }

    /// Notes that its block was used often.
    pub(crate) fn note_hot(&mut self) {
        self.hot = true;
    }

    /// Adds an offload that waits for it.
    pub(crate) fn asked_by(&mut self, offload: OffloadingId) {
        self.asked.push(offload);
    }
}

impl ForBlock for Down {
    type Key = DownId;

    fn block(&self) -> BlockName {
        (self.group, self.name.hash)
    }
}
