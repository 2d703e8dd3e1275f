//! The queue of a group for blocks of the device.
//!
//! Invariants
//! - I1: an entry gathers no more blocks than it needs, and only the first entry gathers
//!   (`operations/wait_queue.rs` I1).

use crate::state::{Came, Grant, GroupId, UpId};
use futures_channel::oneshot;
use kvstrata_core::{BlockId, TenantId};
use std::collections::VecDeque;
use std::time::Duration;

/// Requests that wait in a group, in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    entries: VecDeque<Entry>,
    /// Where the next look for a block that the policy keeps begins.
    cursor: u32,
    /// Since transfers were last [hurried](crate::state::Traffic::hurry), one has begun, or has got
    /// a block.
    changed: bool,
}

impl WaitQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Returns the number of blocks that its entries have gathered.
    pub(crate) fn gathered(&self) -> usize {
        self.entries.iter().map(|entry| entry.gathered.len()).sum()
    }

    /// Returns the place of an entry.
    pub(crate) fn position(&self, number: u64) -> Option<usize> {
        self.entries.iter().position(|entry| entry.number == number)
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.entries.push_back(entry);
    }

    pub(crate) fn first(&self) -> Option<&Entry> {
        self.entries.front()
    }

    pub(crate) fn first_mut(&mut self) -> Option<&mut Entry> {
        self.entries.front_mut()
    }

    pub(crate) fn pop_first(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut Entry> {
        self.entries.get_mut(at)
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Entry> {
        let at = self.position(number)?;
        self.entries.remove(at)
    }

    /// Takes all matching entries out.
    pub(crate) fn take_if(&mut self, which: impl Fn(&Entry) -> bool) -> VecDeque<Entry> {
        let (go, stay) = std::mem::take(&mut self.entries).into_iter().partition(|entry| which(entry));
        self.entries = stay;
        go
    }

    pub(crate) fn cursor(&self) -> u32 {
        self.cursor
    }

    /// Moves the begin of the next look behind a block.
    pub(crate) fn move_cursor_behind(&mut self, block: BlockId) {
        self.cursor = block.0 + 1;
    }

    /// Notes that a transfer of the group has begun, or has got a block.
    pub(crate) fn note_change(&mut self) {
        self.changed = true;
    }

    /// Whether that has happened since the last look.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed
    }

    /// Notes that transfers are being looked at.
    pub(crate) fn looked_at(&mut self) {
        self.changed = false;
    }
}

/// A request's place in the queue of a group.
#[derive(Debug)]
pub(crate) struct Entry {
    number: u64,
    /// The number of the request's first entry.
    request: u64,
    need: usize,
    tenant: TenantId,
    gathered: Vec<BlockId>,
    whose: Whose,
    due: Option<Duration>,
    came: Came,
}

impl Entry {
    pub(crate) fn new(want: Want, numbers: (u64, u64), due: Option<Duration>, came: Came) -> Entry {
        let Want { need, tenant, mut gathered, whose, .. } = want;
        gathered.reserve_exact(need - gathered.len());
        let (number, request) = numbers;
        Entry { number, request, need, tenant, gathered, whose, due, came }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn request(&self) -> u64 {
        self.request
    }

    pub(crate) fn need(&self) -> usize {
        self.need
    }

    pub(crate) fn tenant(&self) -> TenantId {
        self.tenant
    }

    pub(crate) fn due(&self) -> Option<Duration> {
        self.due
    }

    pub(crate) fn came(&self) -> Came {
        self.came
    }

    /// Returns the number of blocks that it lacks.
    pub(crate) fn missing(&self) -> usize {
        self.need - self.gathered.len()
    }

    /// Returns the list to which its missing blocks are added.
    pub(crate) fn gathered_mut(&mut self) -> &mut Vec<BlockId> {
        &mut self.gathered
    }

    /// Removes a transfer that needs no block any more. Returns by how many blocks the need has fallen.
    pub(crate) fn leave(&mut self, transfer: UpId) -> usize {
        let Whose::Transfers(transfers) = &mut self.whose else { return 0 };
        // Mostly the first: a run is given up from its start.
        if let Some(at) = transfers.iter().position(|key| *key == transfer) {
            transfers.remove(at);
        }
        let fewer = self.need - transfers.len();
        self.need = transfers.len();
        fewer
    }

    /// Takes out the blocks gathered beyond its need.
    pub(crate) fn take_spare(&mut self) -> Vec<BlockId> {
        let too_many = self.gathered.len().saturating_sub(self.need);
        self.gathered.drain(..too_many).collect()
    }

    /// Ends it. Returns its blocks, and their receiver.
    pub(crate) fn end(self) -> (Vec<BlockId>, Whose) {
        (self.gathered, self.whose)
    }
}

/// Blocks of one group that a request wants, for one tenant.
#[derive(Debug)]
pub(crate) struct Want {
    group: GroupId,
    need: usize,
    tenant: TenantId,
    /// Blocks that it has already.
    gathered: Vec<BlockId>,
    whose: Whose,
}

impl Want {
    /// So many blocks for a caller, which has some of them.
    pub(crate) fn of_caller(
        (group, tenant): (GroupId, TenantId),
        need: usize,
        gathered: Vec<BlockId>,
        to: oneshot::Sender<Grant>,
    ) -> Want {
        Want { group, need, tenant, gathered, whose: Whose::Caller(to) }
    }

    /// A block for a transfer; transfers may be added, up to `most` in all.
    pub(crate) fn of_transfer((group, tenant): (GroupId, TenantId), transfer: UpId, most: usize) -> Want {
        let mut transfers = VecDeque::with_capacity(most);
        transfers.push_back(transfer);
        Want { group, need: 1, tenant, gathered: Vec::new(), whose: Whose::Transfers(transfers) }
    }

    pub(crate) fn group(&self) -> GroupId {
        self.group
    }

    pub(crate) fn tenant(&self) -> TenantId {
        self.tenant
    }

    pub(crate) fn need(&self) -> usize {
        self.need
    }

    /// Adds a block for another transfer. False: it is a caller's.
    pub(crate) fn add(&mut self, transfer: UpId) -> bool {
        let Whose::Transfers(transfers) = &mut self.whose else { return false };
        transfers.push_back(transfer);
        self.need += 1;
        true
    }

    /// Returns the transfers that it is for.
    pub(crate) fn transfers(&self) -> impl Iterator<Item = UpId> {
        let transfers = if let Whose::Transfers(transfers) = &self.whose { Some(transfers) } else { None };
        transfers.into_iter().flatten().copied()
    }
}

/// The blocks that a request wants, from all queues.
#[derive(Debug, Default)]
pub(crate) struct Wants {
    pub(crate) parts: Vec<Want>,
    /// Entries that wait for credits and bring up blocks for which it waits, too.
    pub(crate) joined: Vec<u64>,
}

/// The receiver of the blocks.
#[derive(Debug)]
pub(crate) enum Whose {
    Caller(oneshot::Sender<Grant>),
    Transfers(VecDeque<UpId>),
}
