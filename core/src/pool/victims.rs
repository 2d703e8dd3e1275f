//! A look at the next victims, for whoever prepares for evictions to come: nothing is taken, held or told of.

use super::BlockPool;
use crate::hash::SequenceHash;
use crate::id::{BlockId, BlockRef};
use crate::policy::{Cursor, Ordered};
use crate::slot::Priority;
use alloc::vec::Vec;

/// How far a look at the eviction order has come: none of it, to begin with.
#[derive(Debug, Clone, Copy, Default)]
pub struct VictimsSeen(Cursor);

impl BlockPool {
    /// Appends up to `n` blocks that eviction would take next, if nothing happened meanwhile, in about the policy's order: exactly,
    /// unless it spares blocks that were used (SIEVE, S3-FIFO), parents come back, or few are taken at a time by `Reuse`, which goes by heads that it looked
    /// at some victims ago; and the hash of each. Nothing is taken or held: to be checked with [`upgrade`](BlockPool::upgrade), [`lease`](BlockPool::lease) or
    /// [`take_out`](BlockPool::take_out).
    pub fn next_victims(&self, n: usize, out: &mut Vec<(BlockRef, SequenceHash)>) {
        self.victims_behind(&mut VictimsSeen::default(), n, out);
    }

    /// The same, behind those that a look has seen before, which has then seen these, too. Fewer than `n`: there are no more.
    pub fn victims_behind(&self, seen: &mut VictimsSeen, n: usize, out: &mut Vec<(BlockRef, SequenceHash)>) {
        self.policy.look(&self.timeline, &self.slots, &mut seen.0, n, |number, slot, word| {
            // Another's, if the block is recycled meanwhile: then its generation is another, too.
            out.push((BlockRef { id: BlockId(number), generation: word.generation() }, slot.key()));
        });
    }

    /// The hash of a registered block that nobody holds, and that may be evicted: true for this moment only. It is no use of it.
    #[must_use]
    pub fn evictable(&self, block: BlockRef) -> Option<SequenceHash> {
        let slot = self.slots.get(block.id.index())?;
        let word = slot.word();
        let same = word.generation() == block.generation && word.inactive() && !word.withdrawn();
        // Another's, if the block is recycled meanwhile: then no lease or reference of this generation is to be had.
        (same && word.priority() != Priority::Pinned).then(|| slot.key())
    }
}
