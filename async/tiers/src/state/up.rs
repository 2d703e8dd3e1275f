//! A transfer to the device: one block on its way up, and its waiters.
//!
//! Its position and the memory that it has change together, by the methods below (`operations/up.rs` I2).

use crate::state::{
    At, BlockName, Children, ForBlock, GroupId, HostSlot, Link, Since, UpId, WaitingForParent,
};
use crate::tier::Tier;
use crate::transfer::{Cause, Class, Path, Ticket};
use kvstrata_core::{BlockId, BlockRef, TenantId};
use kvstrata_ffi::disk::Name;
use std::ops::Range;

/// Where the bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Host(BlockRef),
    /// A tier below host memory, its block, and the staging block that the bytes have been read to.
    Below(u8, BlockRef, Option<HostSlot>),
}

impl Source {
    /// Returns the path of its next transfer.
    pub(crate) fn path(self) -> Path {
        match self {
            Source::Below(number, _, None) => Path::FromBelow(number),
            _ => Path::HostToDevice,
        }
    }

    /// Returns the tier that the bytes come from.
    pub(crate) fn tier(self) -> Tier {
        match self {
            Source::Host(_) => Tier::Host,
            Source::Below(number, ..) => Tier::Below(number),
        }
    }
}

/// A transfer up.
#[derive(Debug)]
pub(crate) struct Up {
    group: GroupId,
    name: Name,
    source: Source,
    /// The tenant that has the credit for the device block.
    tenant: TenantId,
    device: Option<BlockId>,
    at: At,
    class: Class,
    request: u64,
    /// The first waiter; the others follow from there.
    first: Option<Link>,
    /// Layers that have landed.
    landed: u32,
    /// Layers a copy.
    step: u32,
    attempts: u32,
    /// A failed device keeps its blocks.
    quarantined: bool,
    /// Numbers transfers: keys are reused, and a pause outlives its transfer.
    serial: u64,
    /// A caller that goes by layers knows its device block, and may use it before it is registered.
    announced: bool,
    /// The number of the wait-queue entry that is to bring its device block.
    entry: u64,
    /// Why the last waiter that left it did so.
    left_by: Cause,
    /// Since when it waits for its turn, or when its turn came.
    since: Since,
    /// Landed transfers that wait for this one, as their blocks' parent (`operations/up.rs` I5).
    children: Children,
}

impl Up {
    pub(crate) fn new(
        (group, name): (GroupId, Name),
        source: Source,
        tenant: TenantId,
        (class, request): (Class, u64),
        step: u32,
        serial: u64,
    ) -> Up {
        Up {
            group,
            name,
            source,
            tenant,
            device: None,
            at: At::Wants,
            class,
            request,
            first: None,
            landed: 0,
            step,
            attempts: 0,
            quarantined: false,
            serial,
            announced: false,
            entry: 0,
            left_by: Cause::Cancelled,
            since: Since::default(),
            children: Children::default(),
        }
    }

    pub(crate) fn group(&self) -> GroupId {
        self.group
    }

    pub(crate) fn name(&self) -> Name {
        self.name
    }

    pub(crate) fn source(&self) -> Source {
        self.source
    }

    pub(crate) fn tenant(&self) -> TenantId {
        self.tenant
    }

    pub(crate) fn device(&self) -> Option<BlockId> {
        self.device
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

    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    pub(crate) fn landed(&self) -> u32 {
        self.landed
    }

    /// Returns the first waiter.
    pub(crate) fn first(&self) -> Option<Link> {
        self.first
    }

    pub(crate) fn entry(&self) -> u64 {
        self.entry
    }

    pub(crate) fn left_by(&self) -> Cause {
        self.left_by
    }

    pub(crate) fn is_quarantined(&self) -> bool {
        self.quarantined
    }

    /// Whether a caller may already compute with its device block.
    pub(crate) fn is_announced(&self) -> bool {
        self.announced
    }

    pub(crate) fn since_mut(&mut self) -> &mut Since {
        &mut self.since
    }

    /// Whether it has its device block, and waits beside a full queue.
    pub(crate) fn waits_for_queue(&self) -> bool {
        self.device.is_some() && matches!(self.at, At::Wants)
    }

    /// Whether it has landed, and waits for its parent's transfer.
    pub(crate) fn waits_for_parent(&self) -> bool {
        matches!(self.at, At::Behind)
    }

    /// Returns the path that it takes next.
    pub(crate) fn path(&self) -> Path {
        self.source.path()
    }

    /// Returns its lane in that path's queue.
    pub(crate) fn lane(&self) -> u16 {
        if matches!(self.path(), Path::FromBelow(_)) { self.group.lane() } else { 0 }
    }

    /// Returns its staging block.
    pub(crate) fn staged(&self) -> Option<HostSlot> {
        match self.source {
            Source::Below(.., staged) => staged,
            Source::Host(_) => None,
        }
    }

    /// Returns the layers of its next copy; the block has so many.
    pub(crate) fn layers(&self, of: u32) -> Range<u32> {
        self.landed..self.landed.saturating_add(self.step).min(of)
    }

    /// Shortens its steps for a waiter that goes by layers. Not if it already waits for a copy, whose
    /// bytes are counted.
    pub(crate) fn refine(&mut self, step: u32) {
        if matches!(self.source, Source::Below(.., None)) || matches!(self.at, At::Wants | At::Pausing) {
            self.step = self.step.min(step);
        }
    }

    /// Notes the wait-queue entry that is to bring its device block.
    pub(crate) fn waits_in(&mut self, entry: u64) {
        self.entry = entry;
    }

    /// Gives it its device block.
    pub(crate) fn has_device(&mut self, block: BlockId) {
        self.device = Some(block);
    }

    /// Puts it into a path's queue.
    pub(crate) fn is_queued(&mut self, path: Path, ticket: Ticket) {
        self.at = At::Queued(path, ticket);
    }

    /// Starts its transfer.
    pub(crate) fn starts(&mut self) {
        self.at = At::Moving;
    }

    /// Gives it the staging block that it is read to.
    pub(crate) fn stages(&mut self, staged: HostSlot) {
        if let Source::Below(.., of) = &mut self.source {
            *of = Some(staged);
        }
    }

    /// Takes its staging block.
    pub(crate) fn unstages(&mut self) -> Option<HostSlot> {
        match &mut self.source {
            Source::Below(.., staged) => staged.take(),
            Source::Host(_) => None,
        }
    }

    /// Makes it come from a lower tier, since the bytes of its source are rotten or lost.
    pub(crate) fn comes_from(&mut self, number: u8, block: BlockRef) {
        self.source = Source::Below(number, block, None);
    }

    /// Notes that its copy has landed. Returns the layers of the copy; the block has so many.
    pub(crate) fn lands(&mut self, of: u32) -> Range<u32> {
        let layers = self.layers(of);
        self.landed = layers.end;
        layers
    }

    /// Whether a failed copy may be tried again.
    pub(crate) fn may_try_again(&self, retries: u32) -> bool {
        !self.quarantined && self.attempts < retries && self.first.is_some()
    }

    /// Makes it pause before another attempt.
    pub(crate) fn pauses(&mut self) {
        self.attempts += 1;
        self.at = At::Pausing;
    }

    /// Notes that a failed device keeps its blocks.
    pub(crate) fn quarantine(&mut self) {
        self.quarantined = true;
    }

    /// Adds a waiter, perhaps by layers. Returns the former first waiter.
    pub(crate) fn joined_by(&mut self, link: Link, by_layers: bool) -> Option<Link> {
        self.announced |= by_layers;
        self.first.replace(link)
    }

    /// Removes a waiter; if it was the first, `next` becomes the first.
    pub(crate) fn left_by_waiter(&mut self, cause: Cause, was_first: bool, next: Option<Link>) {
        self.left_by = cause;
        if was_first {
            self.first = next;
        }
    }

    /// Makes it more urgent. Returns its former class; none if it is as urgent already.
    pub(crate) fn promote(&mut self, class: Class) -> Option<Class> {
        (class < self.class).then(|| std::mem::replace(&mut self.class, class))
    }

    /// Makes it wait, landed, until its parent's transfer has ended.
    pub(crate) fn waits_behind(&mut self) {
        self.at = At::Behind;
    }

    /// Makes another transfer wait for this one's block.
    pub(crate) fn has_child(&mut self, waiting: &mut WaitingForParent, key: UpId, serial: u64) {
        waiting.wait(&mut self.children, key, serial);
    }

    /// Returns the transfers that wait for this one's block.
    pub(crate) fn children(&self) -> Children {
        self.children
    }
}

impl ForBlock for Up {
    type Key = UpId;

    fn block(&self) -> BlockName {
        (self.group, self.name.hash)
    }
}
