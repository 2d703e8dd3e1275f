//! Keys of transfers, and where a transfer is.

use crate::scheduler;
use crate::transfer::{Path, Ticket, Token};
use kvstrata_core::BlockId;
use std::fmt;

/// A wanted block: its onboarding, and its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) onboarding: OnboardingId,
    pub(crate) index: u32,
}

/// Keys of tables, each table with its own type. A key is reused once its entry has ended.
pub(crate) trait Key: Copy + Eq + fmt::Debug {
    fn new(place: usize) -> Self;
    fn index(self) -> usize;
}

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(u32);

        impl Key for $name {
            fn new(place: usize) -> $name {
                $name(place as u32)
            }

            fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

keys! {
    /// A transfer up.
    UpId
    /// A transfer down.
    DownId
    /// A request's onboarding.
    OnboardingId
    /// An offload.
    OffloadingId
}

/// A block of a group's host memory: of the host tier, or of staging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostSlot(u32);

impl HostSlot {
    pub(crate) fn new(number: u32) -> HostSlot {
        HostSlot(number)
    }

    /// Returns the slot of a block of the host tier: the tier's blocks come first.
    pub(crate) fn of(block: BlockId) -> HostSlot {
        HostSlot(block.0)
    }

    /// Returns the block of the host tier, if it is one.
    pub(crate) fn block(self) -> BlockId {
        BlockId(self.0)
    }

    /// Returns its number in host memory.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// A group of layers, by its number among the model's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupId(u16);

impl GroupId {
    /// The first group, which all models have.
    pub(crate) const FIRST: GroupId = GroupId(0);

    /// Makes the id of a number, which is below the number of groups.
    pub(crate) fn new(number: usize) -> GroupId {
        GroupId(number as u16)
    }

    /// Returns the ids of so many groups.
    pub(crate) fn all(groups: usize) -> impl DoubleEndedIterator<Item = GroupId> + Clone {
        (0..groups as u16).map(GroupId)
    }

    /// Returns its place among the groups.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the lane of its reads in their path's queue.
    pub(crate) fn lane(self) -> u16 {
        self.0
    }

    /// Returns the group that has a lane.
    pub(crate) fn of_lane(lane: u16) -> GroupId {
        GroupId(lane)
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TransferId {
    Up(UpId),
    Down(DownId),
}

impl TransferId {
    pub(crate) fn token(self) -> Token {
        match self {
            TransferId::Up(key) => Token(u64::from(key.0) << 1),
            TransferId::Down(key) => Token(u64::from(key.0) << 1 | 1),
        }
    }

    pub(crate) fn of(token: Token) -> TransferId {
        let key = (token.0 >> 1) as u32;
        if token.0 & 1 == 0 { TransferId::Up(UpId(key)) } else { TransferId::Down(DownId(key)) }
    }
}

/// Where a transfer is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum At {
    /// Up: waits for a block of the device, or has one and waits for room in its queue. Down: waits for a
    /// block of the host.
    Wants,
    Queued(Path, Ticket),
    /// With a mover, which will answer.
    Moving,
    /// Pauses before another attempt.
    Pausing,
    /// Up: all of it has landed, and its block waits for its parent.
    Behind,
    /// Down: waits for a layer of the engine, with its host block, or without if another transfer needed
    /// that more. See `steps.rs`.
    Gated(scheduler::Key),
}
