//! The queue of a group for blocks of the device.

use crate::state::{Came, Grant, Grounded, Id, OwnLooks, Spells};
use crate::tier::Tier;
use crate::transfer::Patience;
use futures_channel::oneshot;
use kvstrata_core::{BlockId, TenantId};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Who waits in a stack, and for what.
#[derive(Debug, Default)]
pub(crate) struct Line {
    pub(crate) entries: VecDeque<Entry>,
    /// Victims of the device on their way down: blocks that will be free.
    pub(crate) draining: u32,
    /// Victims of the host on their way to the disk.
    pub(crate) sinking: u32,
    /// Blocks of the host that stay there, and are on their way to the disk: who takes them then loses nothing.
    pub(crate) written: u32,
    /// When no block of the host was to be had for a copy by choice: how many seemed available all the same; or how few since.
    pub(crate) full: Option<usize>,
    /// Flights from the device that have their host block, which will be the host tier's, and wait for no layer of the engine's.
    pub(crate) landing: u32,
    /// Flights down that wait for a host block.
    pub(crate) grounded: Grounded,
    /// Blocks of host memory for staging that are free.
    pub(crate) staging: Vec<u32>,
    /// Where the next look for a block that the policy keeps begins.
    pub(crate) hand: u32,
    /// A flight has begun since flights were [hurried](Traffic::hurry), or has a block that it had not.
    pub(crate) news: bool,
    /// By place: such a block, and the last flight that had it.
    pub(crate) staged: Vec<Option<(u32, Id)>>,
    /// By tier and tenant: looks for the tenant's victims.
    pub(crate) own_looks: HashMap<(Tier, TenantId), OwnLooks>,
    /// How long its requests may wait for writes to the tier below, and have.
    pub(crate) patience: Patience,
    pub(crate) below: Spells,
    /// Somebody will look at how long they have.
    pub(crate) alarm: bool,
    /// Requests that were served without the line, when it was last asked.
    pub(crate) at_once: u64,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    /// The number of the request's first entry.
    pub(crate) request: u64,
    pub(crate) need: usize,
    pub(crate) tenant: TenantId,
    pub(crate) got: Vec<BlockId>,
    pub(crate) whose: Whose,
    pub(crate) due: Option<Duration>,
    pub(crate) came: Came,
}

/// Blocks of one group that a request wants, for one tenant.
#[derive(Debug)]
pub(crate) struct Want {
    pub(crate) stack: u16,
    pub(crate) need: usize,
    pub(crate) tenant: TenantId,
    /// Those that it has.
    pub(crate) got: Vec<BlockId>,
    pub(crate) whose: Whose,
}

/// All that a request wants of lines.
#[derive(Debug, Default)]
pub(crate) struct Wants {
    pub(crate) parts: Vec<Want>,
    /// Entries that bring up blocks that it has joined, and that wait for credits.
    pub(crate) joined: Vec<u64>,
}

/// Who gets the blocks.
#[derive(Debug)]
pub(crate) enum Whose {
    Caller(oneshot::Sender<Grant>),
    Flights(VecDeque<u32>),
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether something passes through the host tier: its blocks will be had again.
    pub(crate) fn passes(&self) -> bool {
        self.landing + self.sinking > 0
    }

    /// Whether no block of the host is to be had for a copy by choice still: no more are available than when there was none.
    pub(crate) fn is_full(&mut self, available: impl Fn() -> usize) -> bool {
        self.full = self.full.and_then(|before| Some(available()).filter(|now| *now <= before));
        self.full.is_some()
    }

    /// Blocks that the line has gathered.
    pub(crate) fn gathered(&self) -> usize {
        self.entries.iter().map(|entry| entry.got.len()).sum()
    }

    /// Where an entry is in it.
    pub(crate) fn position(&self, number: u64) -> Option<usize> {
        self.entries.iter().position(|entry| entry.number == number)
    }
}
