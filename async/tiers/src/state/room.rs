//! Outcomes of a search for room.

use crate::state::HostSlot;
use kvstrata_core::BlockId;

/// The outcome for a victim.
pub(crate) enum Left {
    /// Its block is free, and the caller's.
    Free(BlockId),
    /// Its block will be free when its transfer has ended.
    Soon,
}

/// A host block for a transfer down.
pub(crate) enum Slot {
    Now(HostSlot),
    /// A host victim is on its way to the disk, or a block that will be a victim is on its way to
    /// the host.
    Soon,
    Never,
}
