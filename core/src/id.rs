//! Names of blocks: [`BlockId`], the slot number, and [`BlockRef`], a weak reference
//! that recycling invalidates.

use core::fmt;

/// The number of a block's slot in its pool, from 0 to `capacity - 1`; also its place in the tier's memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct BlockId(pub u32);

impl BlockId {
    /// The number as an index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.0)
    }
}

/// A weak reference: eight bytes that can be stored, sent and put into an index, and upgraded later by
/// [`BlockPool::upgrade`](crate::BlockPool::upgrade), which fails once the block has been recycled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockRef {
    /// The slot.
    pub id: BlockId,
    /// The slot's generation when the reference was made; every reset bumps it.
    pub generation: u32,
}
