//! Allocation: free blocks first, then victims; all that were asked for, or none.

use super::{BlockPool, MutableBlock};
use crate::error::OutOfBlocks;
use crate::id::BlockId;
use alloc::vec::Vec;

impl BlockPool {
    /// Appends `n` blocks to `out`, evicting if there are not enough free ones. The content of victims is forgotten: to keep it,
    /// [`evict`](BlockPool::evict) first.
    ///
    /// # Errors
    /// Fewer than `n` blocks are free or evictable. Nothing was touched, but if others release and allocate at the same moment
    /// blocks may have been evicted in vain.
    #[inline]
    pub fn allocate<'p>(&'p self, n: usize, out: &mut Vec<MutableBlock<'p>>) -> Result<(), OutOfBlocks> {
        if self.take_free(n, out) { Ok(()) } else { self.allocate_evicting(n, out) }
    }

    /// Appends `n` free blocks to `out`, and never evicts.
    ///
    /// # Errors
    /// Fewer than `n` blocks are free. Nothing was touched.
    pub fn allocate_free<'p>(&'p self, n: usize, out: &mut Vec<MutableBlock<'p>>) -> Result<(), OutOfBlocks> {
        if self.take_free(n, out) {
            return Ok(());
        }
        Err(OutOfBlocks { requested: n, available: self.free() })
    }

    #[inline]
    fn take_free<'p>(&'p self, n: usize, out: &mut Vec<MutableBlock<'p>>) -> bool {
        if n > self.capacity() {
            return false;
        }
        out.reserve(n);
        self.free.allocate(self.lane_number(), n as u32, |first, length| {
            out.extend((first..first + length).map(|slot| MutableBlock::new(self, BlockId(slot))));
        })
    }

    fn allocate_evicting<'p>(&'p self, n: usize, out: &mut Vec<MutableBlock<'p>>) -> Result<(), OutOfBlocks> {
        let refused = |available| Err(OutOfBlocks { requested: n, available });
        let available = self.free() + self.inactive();
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
            let evicted = self.evict_slots(missing, |slot| out.push(MutableBlock::new(self, BlockId(slot))));
            if evicted == 0 && self.free() == 0 {
                // What is inactive has active children, or others were quicker.
                let available = out.len() - start;
                self.give_back(out.drain(start..));
                return refused(available);
            }
        }
        Ok(())
    }
}
