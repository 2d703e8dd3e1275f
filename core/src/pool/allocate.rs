//! Allocation: free blocks first, then victims; all requested blocks, or none.

use super::{BlockPool, MutableBlock};
use crate::error::OutOfBlocks;
use crate::id::BlockId;
use alloc::vec::Vec;

/// The collected items: handles, or bare numbers, for the request table and for callers that keep numbers.
pub(crate) trait Allocated<'p> {
    fn new(pool: &'p BlockPool, id: BlockId) -> Self;
    fn into_id(self) -> BlockId;
}

impl<'p> Allocated<'p> for MutableBlock<'p> {
    #[inline]
    fn new(pool: &'p BlockPool, id: BlockId) -> Self {
        MutableBlock::new(pool, id)
    }
    fn into_id(self) -> BlockId {
        MutableBlock::into_id(self)
    }
}

impl Allocated<'_> for BlockId {
    fn new(_pool: &BlockPool, id: BlockId) -> Self {
        id
    }
    fn into_id(self) -> BlockId {
        self
    }
}

impl BlockPool {
    /// Appends `n` blocks to `out`, evicting if too few are free. The content of victims is lost: to
    /// keep it, [`evict`](BlockPool::evict) first.
    ///
    /// Example: [a block's life](BlockPool#a-blocks-life).
    ///
    /// # Errors
    /// Fewer than `n` blocks are free or evictable, or other threads hold some of them at this moment.
    /// Nothing was allocated. But if others release and allocate meanwhile, or parents wait for children
    /// in use, blocks may have been evicted in vain: they are free now.
    #[inline]
    pub fn allocate<'p>(&'p self, n: usize, out: &mut Vec<MutableBlock<'p>>) -> Result<(), OutOfBlocks> {
        self.allocate_as(n, out)
    }

    /// Appends `n` free blocks to `out`, and never evicts.
    ///
    /// Example: [eviction](BlockPool#eviction).
    ///
    /// # Errors
    /// Fewer than `n` blocks are free, or two concurrent calls each want more than half of them. Nothing
    /// was allocated.
    pub fn allocate_free<'p>(&'p self, n: usize, out: &mut Vec<MutableBlock<'p>>) -> Result<(), OutOfBlocks> {
        self.allocate_free_as(n, out)
    }

    /// As [`allocate_free`](BlockPool::allocate_free), for any kind of collected item.
    #[inline]
    pub(super) fn allocate_free_as<'p, A: Allocated<'p>>(
        &'p self,
        n: usize,
        out: &mut Vec<A>,
    ) -> Result<(), OutOfBlocks> {
        if self.take_free(n, out) {
            return Ok(());
        }
        Err(OutOfBlocks { requested: n, available: self.free() })
    }

    /// As [`allocate`](BlockPool::allocate), for any kind of collected item.
    #[inline]
    pub(crate) fn allocate_as<'p, A: Allocated<'p>>(
        &'p self,
        n: usize,
        out: &mut Vec<A>,
    ) -> Result<(), OutOfBlocks> {
        if self.take_free(n, out) { Ok(()) } else { self.allocate_evicting(n, out) }
    }

    #[inline]
    fn take_free<'p, A: Allocated<'p>>(&'p self, n: usize, out: &mut Vec<A>) -> bool {
        if n == 1 {
            let slot = self.free.allocate_one(self.lane_number());
            out.extend(slot.map(|slot| A::new(self, BlockId(slot))));
            return slot.is_some();
        }
        if n > self.capacity() {
            return false;
        }
        out.reserve(n);
        self.free.allocate(self.lane_number(), n as u32, |first, length| {
            out.extend((first..first + length).map(|slot| A::new(self, BlockId(slot))));
        })
    }

    fn allocate_evicting<'p, A: Allocated<'p>>(
        &'p self,
        n: usize,
        out: &mut Vec<A>,
    ) -> Result<(), OutOfBlocks> {
        let refused = |available| Err(OutOfBlocks { requested: n, available });
        let available = self.available();
        if available < n {
            return refused(available);
        }
        let start = out.len();
        while out.len() < start + n {
            let missing = start + n - out.len();
            let free = self.free().min(missing);
            if free > 0 && self.take_free(free, out) {
                continue;
            }
            let given = out.len() - start;
            let evicted = self.evict_slots(missing, given, |slot| out.push(A::new(self, BlockId(slot))));
            if evicted == 0 && self.free() == 0 {
                // The inactive blocks have active children, or others were quicker.
                let available = out.len() - start;
                self.free.free(out.drain(start..).map(|block| block.into_id().0));
                return refused(available);
            }
        }
        Ok(())
    }
}
