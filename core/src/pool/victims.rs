//! A look at the next victims, to prepare for coming evictions: nothing is taken, held or recorded.

use super::BlockPool;
use crate::hash::SequenceHash;
use crate::id::{BlockId, BlockRef};
use crate::policy::{Cursor, Ordered};
use crate::slot::Priority;
use alloc::vec::Vec;

/// The position of a look at the eviction order; the default is the beginning.
#[derive(Debug, Clone, Copy, Default)]
pub struct VictimsSeen(Cursor);

impl BlockPool {
    /// Appends up to `n` blocks that eviction would take next, if nothing happened meanwhile, each with
    /// its hash, in about the policy's order. The order is exact, unless the policy spares used blocks
    /// (SIEVE, S3-FIFO), parents are requeued, or few blocks are taken at a time by `Reuse`, which uses
    /// cached heads. Nothing is taken or held: check each block with [`upgrade`](BlockPool::upgrade),
    /// [`lease`](BlockPool::lease) or [`take_out`](BlockPool::take_out).
    ///
    /// Example: [eviction](BlockPool#eviction).
    pub fn next_victims(&self, n: usize, out: &mut Vec<(BlockRef, SequenceHash)>) {
        self.victims_behind(&mut VictimsSeen::default(), n, out);
    }

    /// The same, behind the blocks that `seen` has seen, which then has seen these, too. Fewer than `n`:
    /// there are no more.
    ///
    /// Example: [eviction](BlockPool#eviction).
    pub fn victims_behind(&self, seen: &mut VictimsSeen, n: usize, out: &mut Vec<(BlockRef, SequenceHash)>) {
        self.policy.look(&self.timeline, &self.slots, &mut seen.0, n, |number, slot, word| {
            // If the block is recycled meanwhile, the hash is another's: then the generation differs, too.
            out.push((BlockRef { id: BlockId(number), generation: word.generation() }, slot.key()));
        });
    }

    /// Returns the hash of a registered block that is not held and may be evicted: true for this moment
    /// only. This is no use of the block.
    ///
    /// Example: [eviction](BlockPool#eviction).
    #[must_use]
    pub fn evictable(&self, block: BlockRef) -> Option<SequenceHash> {
        let slot = self.slots.get(block.id.index())?;
        let word = slot.word();
        let same = word.generation() == block.generation && word.inactive() && !word.withdrawn();
        // If the block is recycled meanwhile, the hash is another's: then this generation
        // gives no lease or reference.
        (same && word.priority() != Priority::Pinned).then(|| slot.key())
    }
}
