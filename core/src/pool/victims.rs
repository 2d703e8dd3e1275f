//! A look at the next victims, for whoever prepares for evictions to come: nothing is taken, held or told of.

use super::BlockPool;
use crate::hash::SequenceHash;
use crate::id::{BlockId, BlockRef};
use crate::policy::{AnyPolicy, Eviction, Outset, reuse};
use crate::slot::Priority;
use alloc::vec::Vec;

/// How far a look at the eviction order has come: none of it, to begin with.
#[derive(Debug, Clone, Copy, Default)]
pub struct VictimsSeen {
    /// What the order depended on when the look began, if it has.
    outset: Option<Outset>,
    /// Which of the policy's turns, how many it has shown, and where on the timeline it stands, if it has shown any.
    turn: usize,
    count: usize,
    place: u64,
    /// The list that a turn has left, and where: a later turn goes on there.
    left: Option<(usize, u64)>,
    /// The same for a policy that takes from many lists by turns.
    looked: reuse::Looked,
}

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
        if let AnyPolicy::Reuse(policy) = &self.policy {
            return self.victims_in_order(policy, &mut seen.looked, n, out);
        }
        let end = out.len().saturating_add(n);
        let mut outset = seen.outset.unwrap_or_else(|| self.policy.outset());
        while out.len() < end
            && let Some(turn) = self.policy.turn(seen.turn, &outset)
        {
            let before = out.len();
            let most = end.min(before.saturating_add(turn.most.saturating_sub(seen.count)));
            let from = match seen.left {
                _ if seen.count > 0 => seen.place,
                Some((list, place)) if list == turn.list => place,
                _ => 0,
            };
            let place = if most == before {
                Some(from)
            } else {
                self.timeline.peek(&self.slots, turn.list, from, |slot, number| {
                    let word = slot.word();
                    if word.inactive() && word.priority() != Priority::Pinned {
                        // Another's, if the block is recycled meanwhile: then its generation is another, too.
                        out.push((
                            BlockRef { id: BlockId(number), generation: word.generation() },
                            slot.key(),
                        ));
                    }
                    out.len() < most
                })
            };
            match place {
                Some(place) if out.len() == end => {
                    (seen.place, seen.count) = (place, seen.count + out.len() - before);
                }
                place => {
                    let left = (turn.most < usize::MAX).then(|| (turn.list, place.unwrap_or(u64::MAX)));
                    let left = left.or(seen.left);
                    if turn.of_excess {
                        outset.excess = outset.excess.saturating_sub(seen.count + out.len() - before);
                    }
                    *seen = VictimsSeen { turn: seen.turn + 1, count: 0, place: 0, left, ..*seen };
                }
            }
        }
        seen.outset = Some(outset);
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
