//! A transfer to a lower tier.

use crate::state::{At, BlockName, ForBlock, Since, Steps};
use crate::tier::Tier;
use crate::transfer::{Class, Path};
use kvstrata_core::{BlockId, BlockRef, TenantId};
use kvstrata_ffi::disk::Name;
use std::ops::Range;

/// How a flight has its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Have {
    /// A victim.
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

/// What is to go down: which bytes, how they are had, and who goes first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cargo {
    pub(crate) source: Have,
    pub(crate) name: Name,
    pub(crate) class: Class,
    pub(crate) request: u64,
    /// By layers, as the engine is done with them; none: whole.
    pub(crate) steps: Option<Steps>,
}

impl Cargo {
    /// Nobody's request.
    pub(crate) fn new(source: Have, name: Name, class: Class) -> Cargo {
        Cargo { source, name, class, request: 0, steps: None }
    }
}

/// A flight down.
#[derive(Debug)]
pub(crate) struct Down {
    pub(crate) stack: u16,
    pub(crate) name: Name,
    pub(crate) from: Tier,
    pub(crate) source: Have,
    /// Whose it is.
    pub(crate) tenant: TenantId,
    /// A credit of the tenant's in the host tier.
    pub(crate) credit: bool,
    /// The slot that it is written to, which is the tenant's.
    pub(crate) slot: Option<BlockId>,
    /// Whose block is in the slot, until it is written.
    pub(crate) was: TenantId,
    /// The host block that it goes to: of the host tier, or staged where there is none.
    pub(crate) host: Option<u32>,
    pub(crate) disk: Option<BlockId>,
    pub(crate) at: At,
    pub(crate) class: Class,
    pub(crate) request: u64,
    pub(crate) steps: Option<Steps>,
    /// Of its copy to the host, or of its next one: those before have landed.
    pub(crate) layers: Range<u32>,
    pub(crate) attempts: u32,
    /// A failed device keeps its blocks.
    pub(crate) parked: bool,
    /// Its block will not be written: when it lands it ends, and nothing is registered.
    pub(crate) withdrawn: bool,
    /// It was used often: when it is down it may come up again.
    pub(crate) hot: bool,
    pub(crate) serial: u64,
    /// Who asked for it.
    pub(crate) asked: Vec<u32>,
    /// Since when it waits for its transfer, or when that has started.
    pub(crate) since: Since,
}

impl Down {
    /// The path that it is on, or takes next.
    pub(crate) fn path(&self) -> Path {
        match self.at {
            At::Queued(path, _) => path,
            // Its slot has gone with the write.
            At::Moving if self.from == Tier::Host || self.slot.is_some() && self.disk.is_none() => {
                Path::HostToDisk
            }
            At::Wants | At::Moving | At::Pausing | At::Behind | At::Gated(_) => Path::DeviceToHost,
        }
    }
}

impl ForBlock for Down {
    fn block(&self) -> BlockName {
        (self.stack, self.name.hash)
    }
}
