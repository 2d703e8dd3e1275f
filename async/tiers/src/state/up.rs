//! A transfer to the device.

use crate::state::{At, BlockName, ForBlock, Link, Since};
use crate::transfer::{Cause, Class, Path};
use kvstrata_core::{BlockId, BlockRef, TenantId};
use kvstrata_ffi::disk::Name;
use std::ops::Range;

impl Up {
    pub(crate) fn is_aside(&self) -> bool {
        self.device.is_some() && matches!(self.at, At::Wants)
    }

    /// The path that it takes next.
    pub(crate) fn path(&self) -> Path {
        self.source.path()
    }

    /// In which lane of that path's queue.
    pub(crate) fn lane(&self) -> u16 {
        if self.path() == Path::DiskToDevice { self.stack } else { 0 }
    }

    /// The block of staging that it has.
    pub(crate) fn staged(&self) -> Option<u32> {
        match self.source {
            Source::Disk(_, staged) => staged,
            Source::Host(_) => None,
        }
    }
}

/// Where the bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Host(BlockRef),
    /// And the block of host memory that they have been read to.
    Disk(BlockRef, Option<u32>),
}

/// A flight up.
#[derive(Debug)]
pub(crate) struct Up {
    pub(crate) stack: u16,
    pub(crate) name: Name,
    pub(crate) source: Source,
    /// Whose it is. With the device block there is a credit of the tenant's.
    pub(crate) tenant: TenantId,
    pub(crate) device: Option<BlockId>,
    pub(crate) at: At,
    pub(crate) class: Class,
    pub(crate) request: u64,
    /// The first who waits; the others follow from there.
    pub(crate) first: Option<Link>,
    /// Layers that have landed.
    pub(crate) landed: u32,
    /// Layers a copy.
    pub(crate) step: u32,
    pub(crate) attempts: u32,
    /// A failed device keeps its blocks.
    pub(crate) parked: bool,
    /// Flights are numbered: a key is used again, and a pause outlives what paused.
    pub(crate) serial: u64,
    /// Somebody who goes by layers knows its device block, and may compute with it before it is registered.
    pub(crate) announced: bool,
    /// The number of the line's entry that is to bring its device block.
    pub(crate) entry: u64,
    /// Why the last who has left it did.
    pub(crate) left_by: Cause,
    /// Since when it waits for its transfer, or when that has started.
    pub(crate) since: Since,
    /// The first of those that have landed, and whose parent this one's block is (I5): of `Traffic::waiting_behind`.
    pub(crate) behind: Option<u32>,
}

/// A flight that waits behind its parent's.
#[derive(Debug)]
pub(crate) struct Behind {
    pub(crate) key: u32,
    pub(crate) serial: u64,
    /// Of those of the same parent.
    pub(crate) next: Option<u32>,
}

impl Up {
    pub(crate) fn new(stack: u16, name: Name, source: Source, class: Class, request: u64, step: u32) -> Up {
        Up {
            stack,
            name,
            source,
            tenant: TenantId::NOBODY,
            device: None,
            at: At::Wants,
            class,
            request,
            first: None,
            landed: 0,
            step,
            attempts: 0,
            parked: false,
            serial: 0,
            announced: false,
            entry: 0,
            left_by: Cause::Cancelled,
            since: Since::default(),
            behind: None,
        }
    }

    /// Somebody waits for layers: it comes in steps as short, unless it waits for a copy already, whose bytes are counted.
    pub(crate) fn refine(&mut self, step: u32) {
        if matches!(self.source, Source::Disk(_, None)) || matches!(self.at, At::Wants | At::Pausing) {
            self.step = self.step.min(step);
        }
    }

    pub(crate) fn layers(&self, of: u32) -> Range<u32> {
        self.landed..self.landed.saturating_add(self.step).min(of)
    }
}

impl Source {
    /// On which its next transfer is.
    pub(crate) fn path(self) -> Path {
        match self {
            Source::Disk(_, None) => Path::DiskToDevice,
            _ => Path::HostToDevice,
        }
    }

    pub(crate) fn is_disk(self) -> bool {
        matches!(self, Source::Disk(..))
    }
}

impl ForBlock for Up {
    fn block(&self) -> BlockName {
        (self.stack, self.name.hash)
    }
}
