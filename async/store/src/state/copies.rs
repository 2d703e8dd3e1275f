//! Copies to a batch's memory.

use crate::size_class::ClassId;
use crate::state::{ReadKey, Waiter};
use kvstrata_core::{BlockRef, SequenceHash};

/// Where a copy comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyFrom {
    /// A registered block of the host, held for this copy.
    Host(BlockRef),
    /// The block of host memory, or the lent memory, that a read has landed in.
    Read(ReadKey),
}

/// A copy to a batch's memory.
#[derive(Debug)]
pub(crate) struct CopyOut {
    pub(crate) class: ClassId,
    pub(crate) hash: SequenceHash,
    pub(crate) from: CopyFrom,
    pub(crate) to: Waiter,
}
