//! The next victims of a policy that takes from many lists by turns, and the order of any policy's lists.
//!
//! What is seen is a hint, as with all looks at victims.

use super::BlockPool;
use crate::hash::SequenceHash;
use crate::id::{BlockId, BlockRef};
use crate::policy::Eviction;
use crate::policy::reuse::{Looked, Reuse};
use alloc::vec::Vec;

impl BlockPool {
    /// Appends up to `n` victims behind those that a look has shown.
    pub(super) fn victims_in_order(
        &self,
        policy: &Reuse,
        looked: &mut Looked,
        n: usize,
        out: &mut Vec<(BlockRef, SequenceHash)>,
    ) {
        policy.look(&self.timeline, &self.slots, looked, n, |number, slot, word| {
            // Another's, if the block is recycled meanwhile: then its generation is another, too.
            out.push((BlockRef { id: BlockId(number), generation: word.generation() }, slot.key()));
        });
    }

    /// The policy's lists, each once, those first that are evicted from first.
    pub(super) fn lists_in_order(&self) -> impl Iterator<Item = usize> + use<> {
        let (mut lists, mut count, mut added) = ([0u8; 64], 0, 0u64);
        // A list that has several turns comes with its first. No policy has more lists than bits.
        let mut add = |list: usize| {
            if added & (1 << list) == 0 {
                added |= 1 << list;
                lists[count] = list as u8;
                count += 1;
            }
        };
        let outset = self.policy.outset();
        let turns = (0..).map_while(|nth| self.policy.turn(nth, &outset));
        turns.filter(|turn| turn.most > 0).for_each(|turn| add(turn.list));
        lists.into_iter().take(count).map(usize::from)
    }
}
