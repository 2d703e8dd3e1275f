//! Outcomes of a search for room.

use crate::state::HostSlot;
use kvstrata_core::BlockId;

/// What became of a victim.
pub(crate) enum Left {
    /// The block is free: the caller's.
    Free(BlockId),
    /// It will be, when its transfer has ended.
    Soon,
}

/// A host block for a transfer down.
pub(crate) enum Slot {
    Now(HostSlot),
    /// A host victim is on its way to the disk, or something that will be one on its way to the host.
    Soon,
    Never,
}
