//! Names of transfers, and where they are.

use crate::scheduler::Key;
use crate::transfer::{Path, Ticket, Token};
use std::fmt;

/// A wanted block: of which onboarding, and which of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) onboarding: u32,
    pub(crate) index: u32,
}

/// A group of layers, by its number among the model's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupId(u16);

impl GroupId {
    /// The first one, which all models have.
    pub(crate) const FIRST: GroupId = GroupId(0);

    /// By its number, which is below the number of groups.
    pub(crate) fn new(number: usize) -> GroupId {
        GroupId(number as u16)
    }

    /// Those of so many groups.
    pub(crate) fn all(groups: usize) -> impl DoubleEndedIterator<Item = GroupId> + Clone {
        (0..groups as u16).map(GroupId)
    }

    /// Its place among the groups.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The lane of its reads in their path's queue.
    pub(crate) fn lane(self) -> u16 {
        self.0
    }

    /// The group that has a lane.
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
pub(crate) enum Id {
    Up(u32),
    Down(u32),
}

impl Id {
    pub(crate) fn token(self) -> Token {
        match self {
            Id::Up(key) => Token(u64::from(key) << 1),
            Id::Down(key) => Token(u64::from(key) << 1 | 1),
        }
    }

    pub(crate) fn of(token: Token) -> Id {
        let key = (token.0 >> 1) as u32;
        if token.0 & 1 == 0 { Id::Up(key) } else { Id::Down(key) }
    }
}

/// Where a flight is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum At {
    /// Up: for a block of the device, or with one for room in its queue. Down: for one of the host.
    Wants,
    Queued(Path, Ticket),
    /// With a mover, which will answer.
    Moving,
    /// Before another attempt.
    Pausing,
    /// Up: all of it has landed, and its block waits for its parent's.
    Behind,
    /// Down: for a layer of the engine's, with its host block, or without, if somebody needed that more. See `steps.rs`.
    Gated(Key),
}
